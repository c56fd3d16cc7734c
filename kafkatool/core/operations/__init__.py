"""The work of the admin commands: check, plan, write, watch. A room for each command.

Operations return values, print nothing and know no click; they report progress to a function they are given.
"""

__all__ = [
    "acls",
    "brokers",
    "config_writes",
    "drain",
    "election",
    "health",
    "migration",
    "reassignment",
    "requests",
    "topics",
    "users",
    "verification",
    "znode_acls",
]
