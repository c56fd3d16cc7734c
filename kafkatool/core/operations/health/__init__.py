"""Whether the cluster is well: for ``kt health``.

Doors: `reading` takes a look at the cluster by znodes, `by_request` one by what brokers tell; `memory` is what looks
leave, which `memory_file` keeps for the next run; `checks` judges the newest look with it, `forgotten` takes throttles
off. Nothing but `forgotten` writes to the cluster.
"""

__all__ = ["by_request", "checks", "forgotten", "memory", "memory_file", "reading"]
