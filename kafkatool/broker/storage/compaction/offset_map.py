"""The newest offset of each key in the section of a log that compaction looks at (BRK-167).

Memory is bounded: when the map is full, the rest of the section waits for the next round. Long keys are kept as a
digest, so that an entry's cost does not depend on what producers use as keys.
Source of the idea: Kafka 2.3.1 log/OffsetMap.scala, which keeps an MD5 digest of every key.
"""

import hashlib

ENTRY_BYTES = 256
"""The most one key costs: its bytes, its offset and their place in the table, measured on CPython 3.11."""

_LONGEST_KEY_BYTES = 32
_DIGEST_BYTES = 33  # never as long as a key that is kept as it is, so that one cannot be taken for the other


class OffsetMap:
    """A map of keys to the offset of their newest record. Not for use by several threads."""

    def __init__(self, memory_bytes: int) -> None:
        """Make room for at least one key."""
        self.capacity = max(1, memory_bytes // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Tell whether the section should end here."""
        return len(self._offsets) >= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """Note ``offset`` as the newest so far of this key."""
        self._offsets[_short(key)] = offset

    def newest(self, key: bytes) -> int:
        """Return the offset of the key's newest record in the section; -1 when it has none there."""
        return self._offsets.get(_short(key), -1)

    def clear(self) -> None:
        """Start anew."""
        self._offsets.clear()


def _short(key: bytes) -> bytes:
    return key if len(key) <= _LONGEST_KEY_BYTES else hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
