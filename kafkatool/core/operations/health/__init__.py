"""Whether the cluster is well: for ``kt health``.

Doors: `reading` takes a look at the cluster by znodes, `by_request` one by what brokers tell; `checks` judges it and what
former looks have left in mind, `forgotten` takes throttles off. Nothing but `forgotten` writes.
"""

__all__ = ["by_request", "checks", "forgotten", "reading"]
