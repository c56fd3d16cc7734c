"""``kt acls``: who may do what, in the words of kafka-acls.

`flags` reads what is meant, `actions` lists, adds and removes through ``core/operations/acls``.
"""
