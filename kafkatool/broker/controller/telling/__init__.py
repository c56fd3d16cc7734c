"""The requests to brokers: gathered per broker, sent by a channel for each, logged in ``state-change.log``.

Doors: ``request_batch``, ``channels``. Nothing here decides, and nothing here touches ZooKeeper.
"""

__all__ = ["channels", "request_batch", "transition_lines"]
