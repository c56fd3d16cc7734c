"""Whether the cluster is well: for ``kt health``.

Doors: `reading` takes a look at the cluster by znodes, `by_request` one by what brokers tell; `memory` is what looks leave,
`checks` judges the newest with it, `forgotten` takes throttles off. Nothing but `forgotten` writes to the cluster.
"""

__all__ = ["by_request", "checks", "forgotten", "memory", "reading"]
