"""The parts of a command that several commands need; no command of its own.

Doors: `options` (flags, the command class, the ZooKeeper session), `output` (both streams, exit codes), `settings`,
`progress_line`, `byte_sizes`, `termination` (signals), `server_log`. Nothing here knows any one command.
"""

__all__ = ["byte_sizes", "options", "output", "progress_line", "server_log", "settings", "termination"]
