"""Connections to brokers, as their clients and as other brokers make them.

Doors: `connection`, one request, one answer, the version being the caller's; `cluster`, a client of a whole cluster,
which agrees on versions with each broker and knows where a request goes and when it is sent again; `controllers`, the
same of the controllers of a cluster without ZooKeeper; `connections`, one to each broker, which those who ask brokers
each by itself share, and `access`, how brokers are reached; `addresses` and `settings`, what such a client is told, of which
`java_keys` knows the words; `rights`, what a refusal for want of a right says, and `unseen`, what answers leave out for
want of one. Else what an answer means is the caller's.
"""

__all__ = [
    "access",
    "addresses",
    "cluster",
    "connection",
    "connections",
    "controllers",
    "java_keys",
    "rights",
    "settings",
    "unseen",
]
