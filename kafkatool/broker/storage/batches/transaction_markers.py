"""Transaction markers: control batches with one record, which end a transaction (BRK-153)."""

from struct import Struct
from typing import NamedTuple

from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    decode_records,
    encode_batch,
    iter_records,
)

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1
_DELETE_HORIZON = 0x40
"""Of a batch's attributes: its base timestamp tells from when on compaction may drop it (KIP-534)."""


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


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """Return from when on the control batch may be dropped; None: nobody has found it to be alone yet (TXN-68)."""
    return header.base_timestamp if header.attributes & _DELETE_HORIZON else None


def with_delete_horizon(batch: memoryview, header: BatchHeader, horizon_ms: int) -> Buffer:
    """Return the control batch with the time from which on it may be dropped; what it says, and when, stays."""
    return encode_batch(
        decode_records(batch),
        codec=header.codec,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes | _DELETE_HORIZON,
        base_timestamp=horizon_ms,
        max_timestamp=header.max_timestamp,
    )
