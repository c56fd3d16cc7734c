"""``kt zk-acl``: whose a cluster's znodes are, as zookeeper-security-migration sets it.

Door: `command`, over ``core/operations/znode_acls``.
"""
