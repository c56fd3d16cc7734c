"""How a value of a history travels: as text with a checksum, on a partition that its key names."""

from typing import Final

import crc32c

PARTITIONS: Final = 2  # of a topic: who subscribes to a key gets a stranger, too


def topic_of(key: int) -> str:
    return f"history-{key // PARTITIONS}"


def partition_of(key: int) -> int:
    return key % PARTITIONS


def key_of(topic: str, partition: int) -> int:
    return int(topic.rpartition("-")[2]) * PARTITIONS + partition


def encode(value: int, key: int, process: int) -> bytes:
    text = b"%d %d %d" % (value, key, process)
    return b"%s %d" % (text, crc32c.crc32c(text))


def decode(data: bytes | None) -> int | None:
    """Return the value, None if no process of a run can have sent this."""
    text, _, checksum = (data or b"").rpartition(b" ")
    if not text or not checksum.isdigit() or int(checksum) != crc32c.crc32c(text):
        return None
    return int(text.split(b" ")[0])
