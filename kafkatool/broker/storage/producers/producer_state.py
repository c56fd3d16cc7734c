"""The idempotent producers of a log, known so well as to tell a repeat and a gap from the next batch (BRK-91).

A transaction is opened here only by a batch for which the coordinator was asked (TXN-72): see ``Verification``.
Called under the log's lock. Source: Kafka 1.1.1 log/ProducerStateManager.scala, KIP-98.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.transaction_markers import OpenTransaction
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, BatchHeader

BATCHES_KEPT = 5
NOT_ADDED: Final = "Partition was not added to the transaction"
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
    marker_ms: int = -1
    """The time of its last marker. What is known by markers alone counts as long: they keep former epochs out."""

    @property
    def last_ms(self) -> int:
        """Return the time in ms of its last batch or marker; -1: not known."""
        return max(self.marker_ms, self.batches[-1].timestamp if self.batches else -1)

    def duplicate_of(self, header: BatchHeader) -> ProducedBatch | None:
        """Return the kept batch of which this one is an exact repeat."""
        if header.producer_epoch == self.epoch:
            last = (header.base_sequence + header.last_offset_delta) % _SEQUENCES
            for batch in self.batches:
                if batch.last_sequence == last and batch.offset_delta == header.last_offset_delta:
                    return batch
        return None


@dataclass(slots=True, eq=False)
class Verification:
    """The leave of a producer to open a transaction, from the question to the coordinator to the append (TXN-75, 76).

    It is void once it is no longer the one that is kept of its producer: a marker, a truncation or a new role of the
    partition came between. ``lowest_sequence``: of the batches that asked; what follows must not overtake that one, while
    nothing else tells which is the next.
    """

    epoch: int
    lowest_sequence: int
    is_old: bool = False
    """Nothing was asked since the last look at what has expired."""


UNVERIFIED: Final = Verification(-1, _SEQUENCES)
"""Leave to open a transaction where verification is switched off (TXN-80)."""


class ActiveProducer(NamedTuple):
    """One producer as administrators see it; -1 is what is not known, or no open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class ProducerState:
    """All producers of one log up to ``end_offset``."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self._open: set[int] = set()  # first offsets of transactions without a marker
        self._verifications: dict[int, Verification] = {}
        self._ended: dict[int, int] = {}  # first offset -> marker, until the high watermark has passed that

    def restore(self, producer_id: int, entry: ProducerEntry) -> None:
        """Take over a producer from a snapshot."""
        self.entries[producer_id] = entry
        if entry.transaction_start is not None:
            self._open.add(entry.transaction_start)

    def begin_verification(self, header: BatchHeader) -> Verification | None:
        """Return what the batch needs to be appended, once the coordinator has answered for it; None: nothing (TXN-72)."""
        entry = self.entries.get(header.producer_id)
        if entry is not None and entry.epoch > header.producer_epoch:
            return None  # it is refused whatever the coordinator says
        if self.has_open_transaction(header):
            return None
        kept = self._verifications.get(header.producer_id)
        if kept is None or kept.epoch < header.producer_epoch:
            kept = Verification(header.producer_epoch, header.base_sequence)
            self._verifications[header.producer_id] = kept
        elif kept.epoch == header.producer_epoch:
            kept.lowest_sequence = min(kept.lowest_sequence, header.base_sequence)
            kept.is_old = False
        return kept

    def knows(self, producer_id: int) -> bool:
        """Tell whether anything is known of the producer that tells its next batch: batches, a marker, what has asked."""
        return producer_id in self.entries or producer_id in self._verifications

    def has_open_transaction(self, header: BatchHeader) -> bool:
        """Tell whether the producer, of that epoch, has a transaction open."""
        entry = self.entries.get(header.producer_id)
        return entry is not None and entry.epoch == header.producer_epoch and entry.transaction_start is not None

    def void_verifications(self) -> None:
        """Let none of the producers that have asked open a transaction on the strength of that."""
        self._verifications.clear()

    def check_leave(self, header: BatchHeader, verification: Verification | None) -> None:
        """Check that the transactional batch belongs to a transaction that its coordinator knows. Raises AppendError."""
        entry = self.entries.get(header.producer_id)
        if entry is not None:
            if header.producer_epoch < entry.epoch:
                raise _refusal(ErrorCode.INVALID_PRODUCER_EPOCH, header, f"its epoch is {entry.epoch} now")
            if header.producer_epoch == entry.epoch and entry.transaction_start is not None:
                return
        if verification is UNVERIFIED:
            return
        if verification is None or self._verifications.get(header.producer_id) is not verification:
            raise _refusal(ErrorCode.INVALID_TXN_STATE, header, NOT_ADDED)
        if entry is not None and entry.epoch == header.producer_epoch and entry.batches:
            return  # which one is next is known; a late batch that asked has one that is past
        if header.base_sequence > verification.lowest_sequence:
            why = f"the one with sequence {verification.lowest_sequence} is to come first"
            raise _refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, why)

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Check that a marker is not of an earlier life of producer or coordinator (TXN-59). Raises AppendError."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise _refusal(ErrorCode.INVALID_PRODUCER_EPOCH, header, f"its epoch is {entry.epoch} now")
        if coordinator_epoch < entry.coordinator_epoch:
            why = f"a coordinator of epoch {coordinator_epoch} comes after one of epoch {entry.coordinator_epoch}"
            raise _refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED, header, why)

    def check(self, header: BatchHeader, verification: Verification | None = None) -> ProducedBatch | None:
        """Check a client's batch: None for the next one, the earlier batch for a repeat. Raises AppendError."""
        entry = self.entries.get(header.producer_id)
        sequence = header.base_sequence
        if header.attributes & TRANSACTIONAL:
            self.check_leave(header, verification)
        if entry is None:
            if sequence != 0 and not header.attributes & TRANSACTIONAL:  # of a transaction that begins, any (TXN-81)
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
        if entry.transaction_start is not None and not header.attributes & TRANSACTIONAL:
            # Readers would take the record for a part of the transaction, and drop it with that (TXN-71).
            raise _refusal(ErrorCode.INVALID_TXN_STATE, header, "it has a transaction open")
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
            self._verifications.pop(header.producer_id, None)

    def end_transaction(self, header: BatchHeader, base_offset: int, coordinator_epoch: int) -> int | None:
        """Record a marker; return where the transaction began, None if the producer had none open."""
        entry = self.entries.setdefault(header.producer_id, ProducerEntry(header.producer_epoch))
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = coordinator_epoch
        entry.marker_ms = header.max_timestamp
        self._verifications.pop(header.producer_id, None)
        start, entry.transaction_start = entry.transaction_start, None
        if start is not None:
            self._ended[start] = base_offset
            self._open.discard(start)  # last: who reads meanwhile finds it in one of the two
        return start

    def describe(self, producer_ids: Iterable[int]) -> list[ActiveProducer]:
        """Describe those of them that are known still."""
        found = ((producer_id, entry) for producer_id in producer_ids if (entry := self.entries.get(producer_id)))
        return [
            ActiveProducer(
                producer_id,
                entry.epoch,
                entry.batches[-1].last_sequence if entry.batches else -1,
                entry.last_ms,
                entry.coordinator_epoch,
                -1 if entry.transaction_start is None else entry.transaction_start,
            )
            for producer_id, entry in found
        ]

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

    def oldest_open(self) -> tuple[OpenTransaction, int] | None:
        """Return the open transaction that began first, and the time in ms of its producer's last batch."""
        start = min(self._open, default=None)
        for producer_id, entry in self.entries.items() if start is not None else ():
            if entry.transaction_start == start is not None:
                found = OpenTransaction(producer_id, entry.epoch, entry.coordinator_epoch, start)
                return found, entry.last_ms
        return None

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction has ended, and its end is replicated.

        Readers ask without the log's lock, while others ask too, or append: so both are copied, first what is open.
        """
        if not self._open and not self._ended:
            return high_watermark
        opened, ended = list(self._open), list(self._ended.items())
        for start, marker in ended:
            if marker < high_watermark:
                self._ended.pop(start, None)
        return min((high_watermark, *opened, *(start for start, marker in ended if marker >= high_watermark)))

    def expire(self, before_ms: int) -> None:
        """Forget producers of which nothing was written since, no marker either; but none with an open transaction.

        So what was asked for a producer that is not known is kept from one call to the next, and no longer.
        """
        idle = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_start is None and entry.last_ms < before_ms
        ]
        for producer_id in idle:
            del self.entries[producer_id]
            self._verifications.pop(producer_id, None)
        for producer_id in [p for p, asked in self._verifications.items() if asked.is_old and p not in self.entries]:
            del self._verifications[producer_id]
        for asked in self._verifications.values():
            asked.is_old = True


def _refusal(code: ErrorCode, header: BatchHeader, why: str) -> AppendError:
    return AppendError(
        code, f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}: {why}"
    )
