"""ZooKeeper: the session, every znode's path and content, and snapshots of a cluster read through them.

Doors: ``session`` is the connection, ``znodes`` the one home of each node (``acl_znodes`` of those of an
authorizer), ``cluster_view`` reads the snapshot that every tool works on, ``view`` is its type; ``watched_node``,
``connect_string`` and ``unreachable`` help tools to wait, to check and to explain. kazoo is known to ``kazoo_link``
alone. There is no unconditional write of a shared node, and nothing is decided here.
"""

__all__ = [
    "acl_znodes",
    "acls",
    "cluster_view",
    "connect_string",
    "session",
    "unreachable",
    "view",
    "watched_node",
    "znodes",
]
