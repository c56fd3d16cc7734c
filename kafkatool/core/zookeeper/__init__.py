"""The ZooKeeper session, every znode's path and JSON, and snapshots of a cluster read through them.

``session`` is the connection, ``znodes`` the one home of each node, ``cluster_view`` the snapshot every tool works on.
kazoo is imported here and nowhere else. There is no unconditional write of a shared node.
"""
