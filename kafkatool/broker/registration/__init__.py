"""A broker's place in the cluster: its ids, its registration in ZooKeeper, its orderly leaving, what is assigned to it.

Doors: all its modules, for the composition root. Of topics only `strays` knows, and none of the logs of replicas.
"""

__all__ = ["controlled_stop", "identity", "registration", "strays"]
