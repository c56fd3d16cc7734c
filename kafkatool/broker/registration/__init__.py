"""A broker's place in the cluster: its ids, its registration in ZooKeeper, its orderly leaving, what is assigned to it.

Doors: all modules, for the composition root. Nothing here leads, follows or opens a log.
"""

__all__ = ["controlled_stop", "identity", "registration", "strays"]
