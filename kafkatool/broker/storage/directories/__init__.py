"""The log dirs of a broker: locked, loaded, checkpointed, given up when a disk fails.

Doors: ``log_manager``, ``meta_properties``, ``topic_identity``. Never here: the contents of a log.
"""

__all__ = ["log_manager", "meta_properties", "topic_identity"]
