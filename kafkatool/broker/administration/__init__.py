"""The work of the admin APIs behind their handlers: topics, configs, deleted
records, producer ids, ACLs, users and quotas.

Doors: all modules, for the handlers. What they do is written to ZooKeeper or done on the leader; nothing is sent to
other brokers, and no response is built.
"""

__all__ = ["acls", "configs", "producer_ids", "quotas", "record_deletion", "topics", "users", "waiting_topics"]
