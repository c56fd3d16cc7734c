"""The parts of a term, one file per kind of event: brokers, topics, deletions, reassignments, elections, shutdowns.

`Term` makes and connects them, and no other room imports them. No part knows the term, and none writes to ZooKeeper but
through ``writing``; moves and elections are asked of ``deciding``.
"""

__all__ = [
    "broker_changes",
    "controlled_shutdown",
    "dropped_replicas",
    "notifications",
    "preferred_election",
    "reassignment",
    "rebalance",
    "requested_election",
    "requested_moves",
    "topic_changes",
    "topic_deletion",
]
