"""How a value of a history travels: as text with a checksum, on a partition that its key names."""

from collections.abc import Iterable
from typing import Final, Protocol

import crc32c

from tests.histories.history import RECORD_KEYS

PARTITIONS: Final = 2  # of a topic that hold a key each: who subscribes to a key gets a stranger, too
TEXT: Final = "value"  # the header of a tombstone that has what else is the record's value


def topic_of(key: int) -> str:
    return f"history-{key // PARTITIONS}"


def partition_of(key: int) -> int:
    return key % PARTITIONS


def key_of(topic: str, partition: int) -> int:
    return int(topic.rpartition("-")[2]) * PARTITIONS + partition


class Partition(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


def keys_of(partitions: Iterable[Partition]) -> list[int]:
    """Return the keys of these partitions. One that was added to a topic since it was made holds none."""
    return [key_of(p.topic, p.partition) for p in partitions if p.partition < PARTITIONS]


def encode(value: int, key: int, process: int, index: int | None = None) -> bytes:
    """Return the text of a value that was asked for in the line ``index``, so that it can be found in the history.

    The simulation says no line: its logs are as long as they were when its seeds were found.
    """
    text = b"%d %d %d" % (value, key, process)
    if index is not None:
        text += b" %d" % index
    return b"%s %d" % (text, crc32c.crc32c(text))


def decode(data: bytes | None) -> int | None:
    """Return the value, None if no process of a run can have sent this."""
    text, _, checksum = (data or b"").rpartition(b" ")
    if not text or not checksum.isdigit() or int(checksum) != crc32c.crc32c(text):
        return None
    return int(text.split(b" ")[0])


def record_key(value: int) -> bytes:
    """Return the record key that a value has where its topic is compacted."""
    return b"%d" % (abs(value) % RECORD_KEYS)


class Record(Protocol):
    """What a consumer is given of one record."""

    def value(self) -> bytes | None: ...
    def headers(self) -> Iterable[tuple[str, bytes | None]] | None: ...


def decode_record(record: Record) -> int | None:
    """Return the value of a record, or of a tombstone; None as ``decode``."""
    return decode_parts(record.value(), record.headers())


def decode_parts(text: bytes | None, headers: Iterable[tuple[str, bytes | None]] | None) -> int | None:
    """Return the same of a record's value and headers."""
    return decode(dict(headers or ()).get(TEXT) if text is None else text)
