"""Connections to brokers, as their clients and as other brokers make them.

Doors: `connection`, one request, one answer, the version being the caller's; `cluster`, a client of a whole cluster,
which agrees on versions with each broker and knows where a request goes and when it is sent again; `addresses` and
`settings`, what such a client is told, of which `java_keys` knows the words. What an answer means is the caller's.
"""

__all__ = ["access", "addresses", "cluster", "connection", "java_keys", "settings"]
