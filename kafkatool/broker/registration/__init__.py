"""A broker's place in the cluster: its ids, its registration in ZooKeeper, its orderly leaving, what is assigned to it.

Doors: all its modules, for the composition root. Of topics only `strays` knows, and of logs
which topic they were made for.
"""

__all__ = ["controlled_stop", "identity", "registration", "strays", "zookeeper_login"]
