"""Request handlers, one file per API, which says all about how that API is served: see ``call.Served``.

Doors: ``dispatch`` takes a frame to its handler, ``call`` has the table of all APIs, the request under way and the
parts of the broker a handler may use, ``error_reply`` makes the answer to a request that failed, ``api_versions`` answers
before a login, too. A handler knows nothing of sockets and threads, and decodes nothing.
"""

__all__ = ["api_versions", "call", "dispatch", "error_reply"]
