"""Request handlers, one file per API, which says all about how that API is served: see ``served.Served``.

Doors: ``served`` has the table of all APIs, ``dispatch`` takes a frame to its handler, ``call`` is the request under way
and the parts of the broker a handler may use. A handler knows nothing of sockets and threads, and decodes nothing.
"""

__all__ = ["call", "dispatch", "served"]
