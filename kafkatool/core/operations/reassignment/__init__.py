"""Reassignment of partitions: a plan proposed, checked, submitted, followed, verified, and undone.

Doors: `proposal` makes a plan; `submission` checks and submits one; `run` carries one out over its whole life and yields
`events`; `status` tells how far one is; `hindrances` what is in the way of one; `cancelling` has
the controller end moves. Nothing here prints, or knows
click."""

__all__ = [
    "cancelling",
    "copy_progress",
    "events",
    "following",
    "following_by_request",
    "hindrances",
    "proposal",
    "replica_sizes",
    "run",
    "run_lock",
    "saved_run",
    "status",
    "submission",
    "throttles",
]
