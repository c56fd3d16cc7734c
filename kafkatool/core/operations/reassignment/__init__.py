"""Reassignment of partitions: a plan proposed, checked, submitted, followed, verified, and undone.

Doors: `proposal` makes a plan; `submission` checks and submits one; `running` carries one out over its whole
life, or calls it off, and yields `events`; `status` tells how far one is; `hindrances` what is in the way of one;
`ending_by_request` has the controller end moves. Nothing here prints, or knows click.
"""

__all__ = [
    "copy_progress",
    "ending_by_request",
    "events",
    "following",
    "following_by_request",
    "hindrances",
    "proposal",
    "replica_sizes",
    "running",
    "status",
    "submission",
    "throttles",
]
