"""The decisions on leaders and in-sync replicas: pure selection, and the two state machines.

Doors: ``partition_machine``, ``replica_machine``. Nothing here watches ZooKeeper or knows why a move is asked for.
"""

__all__ = ["partition_machine", "replica_machine"]
