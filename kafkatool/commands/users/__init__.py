"""``kt users``: who logs in with SCRAM, in the words of kafka-configs.

`actions` lists, describes and alters through ``core/operations/users``; `passwords` reads the secret.
"""
