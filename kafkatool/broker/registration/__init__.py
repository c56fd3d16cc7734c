"""A broker's place in the cluster: its ids, its registration in ZooKeeper, its orderly leaving.

Doors: all three modules, for the composition root. Nothing here knows of topics or replicas.
"""

__all__ = ["controlled_stop", "identity", "registration"]
