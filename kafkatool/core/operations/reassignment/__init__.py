"""Reassignment of partitions: a plan proposed, checked, submitted, followed, verified, and undone.

Doors: `proposal` makes a plan; `submission` checks and submits one; `run` carries one out over its whole life and yields
`events`; `status` tells how far one is. Nothing here prints, knows click, or asks a broker for more than replica sizes."""

__all__ = [
    "copy_progress",
    "events",
    "following",
    "proposal",
    "replica_sizes",
    "run",
    "run_lock",
    "saved_run",
    "status",
    "submission",
    "throttles",
]
