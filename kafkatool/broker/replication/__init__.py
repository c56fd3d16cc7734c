"""Replication on this broker: partitions that lead or follow, and the controller's requests for them (BRK-35 to 106).

The door is ``replica_manager``, which puts the rooms together; beside it others use the values of ``partition`` and
``leading`` that its parts take and give. Nothing here knows a connection, a handler or a group.
"""

__all__ = ["leading", "partition", "replica_manager"]
