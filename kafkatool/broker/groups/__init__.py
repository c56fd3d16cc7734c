"""The group coordinator: membership, committed offsets, and their log ``__consumer_offsets`` (GRP-1 to GRP-63).

Doors: ``coordinator`` for the handlers and the server; ``member``, ``records`` and ``description`` hold the values it
takes and gives; ``zookeeper_offsets`` serves version 0 of commits.
Never here: a request's decoding or encoding; a lock held over an append, an answer, or another group's lock.
"""

__all__ = ["coordinator", "member", "records", "writer", "zookeeper_offsets"]
