"""The documents' reactor: acceptor -> processors -> bounded request channel -> handler pool -> back (BRK-5 to 21).

Doors: ``socket_server``, the whole of it; ``connection`` and ``request_channel``, by which a request comes and is
answered; ``client_quotas``. No frame is decoded here and no API is known, but for the keys of those said to be quick.
"""

__all__ = ["client_quotas", "connection", "request_channel", "socket_server"]
