"""Transaction markers: control batches with one record, which end a transaction (BRK-153)."""

from struct import Struct
from typing import NamedTuple

from kafkatool.core.protocol.records.batches import CONTROL, TRANSACTIONAL, Record, encode_batch, iter_records

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The end of a transaction."""

    committed: bool
    coordinator_epoch: int


class OpenTransaction(NamedTuple):
    """A transaction without a marker, and the coordinator epoch of its producer's last marker, -1 if there was none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


def read_marker(batch: bytes | memoryview) -> Marker | None:
    """Decode the control batch; None for an empty one or a type this broker does not know."""
    for record in iter_records(batch):
        if record.key is not None and record.value is not None and len(record.key) >= 4 and len(record.value) >= 6:
            _, kind = _KEY.unpack_from(record.key)
            _, coordinator_epoch = _VALUE.unpack_from(record.value)
            if kind in (_ABORT, _COMMIT):
                return Marker(kind == _COMMIT, coordinator_epoch)
    return None


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, now_ms: int) -> bytearray:
    """Make the control batch that ends the producer's transaction (TXN-60)."""
    key = _KEY.pack(0, _COMMIT if marker.committed else _ABORT)
    record = Record(0, now_ms, key, _VALUE.pack(0, marker.coordinator_epoch))
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, attributes=TRANSACTIONAL | CONTROL
    )


def abort_marker(transaction: OpenTransaction, now_ms: int) -> bytearray:
    """Make the control batch that aborts the transaction.

    An epoch of -1 is no coordinator's; 0 is at most that of any there may be one day, as kafka-transactions does.
    """
    marker = Marker(committed=False, coordinator_epoch=max(transaction.coordinator_epoch, 0))
    return encode_marker(transaction.producer_id, transaction.producer_epoch, marker, now_ms)
