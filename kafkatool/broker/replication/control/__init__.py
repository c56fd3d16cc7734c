"""The controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata, and the lines logged for them.

The door is ``commands``. The one place where a partition gets or loses a role; no data passes through here.
"""

__all__ = ["commands"]
