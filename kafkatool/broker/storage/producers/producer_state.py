"""The idempotent producers of a log, known so well as to tell a repeat and a gap from the next batch (BRK-91).

Called under the log's lock. Source: Kafka 1.1.1 log/ProducerStateManager.scala, KIP-98.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.transaction_markers import OpenTransaction
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, BatchHeader

BATCHES_KEPT = 5
_SEQUENCES = 2**31  # after 2**31 - 1 comes 0


class ProducedBatch(NamedTuple):
    """A batch as its producer may send it again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


@dataclass(slots=True, eq=False)
class ProducerEntry:
    """One producer: its epoch, its last batches, and its open transaction if it has one."""

    epoch: int
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    coordinator_epoch: int = -1
    transaction_start: int | None = None

    def duplicate_of(self, header: BatchHeader) -> ProducedBatch | None:
        """Return the kept batch of which this one is an exact repeat."""
        if header.producer_epoch == self.epoch:
            last = (header.base_sequence + header.last_offset_delta) % _SEQUENCES
            for batch in self.batches:
                if batch.last_sequence == last and batch.offset_delta == header.last_offset_delta:
                    return batch
        return None


class ProducerState:
    """All producers of one log up to ``end_offset``."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self._open: set[int] = set()  # first offsets of transactions without a marker
        self._ended: dict[int, int] = {}  # first offset -> marker, until the high watermark has passed that

    def restore(self, producer_id: int, entry: ProducerEntry) -> None:
        """Take over a producer from a snapshot."""
        self.entries[producer_id] = entry
        if entry.transaction_start is not None:
            self._open.add(entry.transaction_start)

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Check a client's batch: None for the next one, the earlier batch for a repeat. Raises AppendError."""
        entry = self.entries.get(header.producer_id)
        sequence = header.base_sequence
        if entry is None:
            if sequence != 0:
                raise _refusal(ErrorCode.UNKNOWN_PRODUCER_ID, header, "nothing of this producer is known")
            return None
        if header.producer_epoch < entry.epoch:
            raise _refusal(ErrorCode.INVALID_PRODUCER_EPOCH, header, f"its epoch is {entry.epoch} now")
        if duplicate := entry.duplicate_of(header):
            return duplicate
        if header.producer_epoch > entry.epoch:
            if sequence != 0:
                raise _refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, "a new epoch begins with sequence 0")
        elif not entry.batches:
            if sequence != 0:  # only a transaction marker is left of it
                raise _refusal(ErrorCode.UNKNOWN_PRODUCER_ID, header, "its last sequence is not known")
        elif sequence != (entry.batches[-1].last_sequence + 1) % _SEQUENCES:
            raise _refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, f"the last one was {entry.batches[-1].last_sequence}"
            )
        return None

    def record(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Record a data batch that was appended at ``base_offset``; not checked, as on followers."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        delta = header.last_offset_delta
        last_sequence = (header.base_sequence + delta) % _SEQUENCES
        entry.batches.append(ProducedBatch(last_sequence, base_offset + delta, delta, timestamp))
        if header.attributes & TRANSACTIONAL and entry.transaction_start is None:
            entry.transaction_start = base_offset
            self._open.add(base_offset)

    def end_transaction(self, header: BatchHeader, base_offset: int, coordinator_epoch: int) -> int | None:
        """Record a marker; return where the transaction began, None if the producer had none open."""
        entry = self.entries.setdefault(header.producer_id, ProducerEntry(header.producer_epoch))
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = coordinator_epoch
        start, entry.transaction_start = entry.transaction_start, None
        if start is not None:
            self._open.discard(start)
            self._ended[start] = base_offset
        return start

    def first_open(self, otherwise: int) -> int:
        """Return the offset at which the oldest open transaction began."""
        return min(self._open, default=otherwise)

    def open_transactions(self) -> list[OpenTransaction]:
        """Return them all."""
        if not self._open:
            return []
        return [
            OpenTransaction(producer_id, entry.epoch, entry.coordinator_epoch, entry.transaction_start)
            for producer_id, entry in self.entries.items()
            if entry.transaction_start is not None
        ]

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction has ended, and its end is replicated."""
        if not self._open and not self._ended:
            return high_watermark
        for start in [start for start, marker in self._ended.items() if marker < high_watermark]:
            del self._ended[start]
        return min((high_watermark, *self._open, *self._ended))

    def expire(self, before_ms: int) -> None:
        """Forget producers that wrote nothing since, but none with an open transaction."""
        idle = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_start is None and (not entry.batches or entry.batches[-1].timestamp < before_ms)
        ]
        for producer_id in idle:
            del self.entries[producer_id]


def _refusal(code: ErrorCode, header: BatchHeader, why: str) -> AppendError:
    return AppendError(
        code, f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}: {why}"
    )
