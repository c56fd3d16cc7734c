"""Who a connection is, how that is proved, and what he may do (SEC-46 to 87).

Doors: ``principal``, the identity that a connection has; ``authorizer`` decides what he may do, by the ACLs of a table
(``acl_table``, pure) that ``acl_following`` keeps as ZooKeeper has it.
"""

__all__ = ["acl_following", "authorizer", "listeners", "login", "mechanisms", "principal"]
