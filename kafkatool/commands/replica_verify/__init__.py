"""``kt replica-verify``: the data of all replicas compared, without end or once.

Door: `command`. The work is `core/operations/verification`; nothing here talks to a broker.
"""
