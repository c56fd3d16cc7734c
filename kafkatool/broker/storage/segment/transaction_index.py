"""Transaction markers and ``N.txnindex``, of logs replicated or taken over from a broker that serves transactions.

A marker is a control batch with one record (BRK-153). An abort is noted in the segment's index, so that read_committed
consumers can be told what to skip (BRK-103). Source: Kafka 1.1.1 log/TransactionIndex.scala.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from kafkatool.core.protocol.records.batches import CONTROL, TRANSACTIONAL, Record, decode_records, encode_batch

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_ENTRY = Struct(">hqqqq")  # version 0, producer id, first offset, last offset, last stable offset
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The end of a transaction."""

    committed: bool
    coordinator_epoch: int


class AbortedTransaction(NamedTuple):
    """Records of ``producer_id`` from ``first_offset`` to the marker at ``last_offset`` were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_marker(batch: bytes | memoryview) -> Marker | None:
    """Decode the control batch; None for an empty one or a type this broker does not know."""
    for record in decode_records(batch):
        if record.key is not None and record.value is not None and len(record.key) >= 4 and len(record.value) >= 6:
            _, kind = _KEY.unpack_from(record.key)
            _, coordinator_epoch = _VALUE.unpack_from(record.value)
            if kind in (_ABORT, _COMMIT):
                return Marker(kind == _COMMIT, coordinator_epoch)
    return None


def abort_marker(producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int) -> bytearray:
    """Make the control batch that aborts the producer's open transaction."""
    record = Record(0, now_ms, _KEY.pack(0, _ABORT), _VALUE.pack(0, coordinator_epoch))
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, attributes=TRANSACTIONAL | CONTROL
    )


def append_aborted(path: Path, aborted: AbortedTransaction) -> None:
    """Add an entry; the file is made with the first. Raises OSError."""
    with path.open("ab") as file:
        file.write(_ENTRY.pack(0, *aborted))


def read_aborted(path: Path) -> Iterator[AbortedTransaction]:
    """Yield all entries; none without the file. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for _, *fields in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
        yield AbortedTransaction(*fields)


def truncate_aborted(path: Path, end_offset: int) -> None:
    """Drop the entries of markers at ``end_offset`` or after. Raises OSError."""
    if path.exists():
        kept = [a for a in read_aborted(path) if a.last_offset < end_offset]
        path.write_bytes(b"".join(_ENTRY.pack(0, *a) for a in kept))
