"""Kafka's wire format: frames, messages in all their versions, record batches (wire.md; BRK-151 to 162).

Doors: ``frames`` encodes and decodes what goes over a socket, ``messages`` has a file for each API, ``records`` the
batches. No socket is opened here, and nothing is decided about a request.
"""

__all__ = ["codec", "frames", "messages", "records"]
