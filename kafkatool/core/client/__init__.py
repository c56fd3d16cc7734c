"""Connections to a broker, as its clients and as other brokers make them.

``connection`` is the door. Which request is sent, and what an answer means, is the caller's: no retry, no metadata and no
version is chosen here.
"""

__all__ = ["connection"]
