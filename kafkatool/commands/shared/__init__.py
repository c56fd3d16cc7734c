"""The parts of a command that several commands need; no command of its own.

Doors: `options` (flags, the command class, the ZooKeeper session), `output` (both streams, exit codes), `printable` (text
from elsewhere made harmless), `settings`,
`credentials` (logins to ZooKeeper and brokers), `local_cluster` (the default of --zookeeper), `ways` (by ZooKeeper or
by brokers), `progress_line`, `byte_sizes`, `termination` (signals), `server_log`, `table`, and of plans `plan_table`
and `run_progress`. Nothing here knows any one command.
"""

__all__ = [
    "bootstrap",
    "byte_sizes",
    "credentials",
    "local_cluster",
    "options",
    "output",
    "plan_table",
    "printable",
    "progress_line",
    "run_progress",
    "server_log",
    "settings",
    "table",
    "termination",
    "ways",
]
