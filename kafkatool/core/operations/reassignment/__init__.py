"""Reassignment of partitions: a plan proposed, checked, submitted, followed, verified, and undone.

Doors: `proposal` makes a plan; `submission` checks and submits one; `runs` carries one out over its whole
life, or calls it off, and yields `events`; `status` tells how far one is; `hindrances` what is in the way of one;
`ending_moves` has the controller end moves. Nothing here prints, or knows click.
"""

__all__ = [
    "copy_progress",
    "ending_moves",
    "events",
    "following",
    "following_by_request",
    "hindrances",
    "proposal",
    "replica_sizes",
    "runs",
    "status",
    "submission",
    "throttles",
]
