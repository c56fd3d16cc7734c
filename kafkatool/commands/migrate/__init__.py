"""``kt migrate check``: is a cluster with ZooKeeper ready for KRaft, and how far is a migration?

Door: `group`. The evidence and the judgement are `core/operations/migration`.
"""
