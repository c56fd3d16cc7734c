"""Whether the cluster is well: for ``kt health``.

Doors: `reading` takes a look at the cluster, `checks` judges it and what former looks have left in mind, `forgotten` takes
throttles off. Nothing but `forgotten` writes.
"""

__all__ = ["checks", "forgotten", "reading"]
