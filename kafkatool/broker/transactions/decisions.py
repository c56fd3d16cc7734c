"""What becomes of a request to the coordinator: functions of what is known, without clock, lock or log (TXN-24 to 48).

``busy``: a record of the transactional id is on its way to the log. Source: Kafka 2.8.0
coordinator/transaction/TransactionCoordinator.scala, KIP-360.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from kafkatool.broker.transactions.states import IDLE, OPEN, PREPARED, TransactionState
from kafkatool.broker.transactions.transaction import Identity, Transaction
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

LAST_EPOCH = 32_766
"""The highest that a producer gets; the one above it only fences (TXN-28)."""
_S = TransactionState


@dataclass(frozen=True, slots=True)
class Say:
    """Answer now. ``of`` has the identity that the answer tells, if it does."""

    code: ErrorCode
    of: Transaction | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Store ``to``, and answer ``code`` when it is replicated. ``at_once`` holds from now on, whatever comes of that."""

    to: Transaction
    code: ErrorCode = ErrorCode.NONE
    at_once: Transaction | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Something else is on its way: decide anew when that is over, or answer 51 (TXN-22)."""


@dataclass(frozen=True, slots=True)
class WantId:
    """Decide anew with a fresh producer id."""


Outcome = Say | Move | Wait | WantId
_FENCED = Say(ErrorCode.PRODUCER_FENCED)
_UNKNOWN = Say(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_ILLEGAL = Say(ErrorCode.INVALID_TXN_STATE)
_DONE = Say(ErrorCode.NONE)


def give_identity(
    known: Transaction | None,
    busy: bool,
    now_ms: int,
    *,
    timeout_ms: int,
    expected: Identity | None,
    fresh_id: int | None,
) -> Outcome:
    """Decide an InitProducerId; ``expected`` is the identity that the producer has, if it told one (TXN-24, 25)."""
    if known is None:
        if fresh_id is None:
            return WantId()
        return Move(Transaction(producer_id=fresh_id, epoch=0, timeout_ms=timeout_ms, update_ms=now_ms))
    if busy or known.state in PREPARED:
        return Wait()
    is_last = False
    if expected is not None:
        is_last = expected.epoch == known.last_epoch != -1 and (
            expected.producer_id == known.producer_id
            or (expected.producer_id == known.last_producer_id and expected.epoch >= LAST_EPOCH)
        )
        if not is_last and expected != known.identity:
            return _FENCED
    if known.state in OPEN:
        # A late repeat: the owner works with the answer to it already.
        return _FENCED if is_last else fence(known, now_ms)
    if is_last:
        return Say(ErrorCode.NONE, known)
    last_epoch = -1 if expected is None else known.epoch
    begun = {"timeout_ms": timeout_ms, "update_ms": now_ms, "start_ms": -1, "partitions": frozenset()}
    if known.epoch < LAST_EPOCH:
        return Move(known.moved(_S.EMPTY, epoch=known.epoch + 1, last_epoch=last_epoch, last_producer_id=-1, **begun))
    if fresh_id is None:
        return WantId()
    renamed = {"producer_id": fresh_id, "epoch": 0, "last_producer_id": known.producer_id, "last_epoch": last_epoch}
    return Move(known.moved(_S.EMPTY, **renamed, **begun))


def fence(known: Transaction, now_ms: int) -> Move:
    """Abort what is open under an epoch that no producer has (TXN-27). A second attempt does not raise it again."""
    raised = known
    if known.state is not _S.PREPARE_EPOCH_FENCE:
        raised = known.moved(_S.PREPARE_EPOCH_FENCE, epoch=known.epoch + 1, last_epoch=-1)
    return Move(raised.moved(_S.PREPARE_ABORT, update_ms=now_ms), ErrorCode.CONCURRENT_TRANSACTIONS, at_once=raised)


def _stranger(known: Transaction | None, identity: Identity) -> Say | None:
    if known is None or known.producer_id != identity.producer_id:
        return _UNKNOWN
    return None if known.epoch == identity.epoch else _FENCED


def add(
    known: Transaction | None, busy: bool, now_ms: int, *, identity: Identity, partitions: Set[TopicPartition]
) -> Outcome:
    """Decide an AddPartitionsToTxn or AddOffsetsToTxn (TXN-31, 32)."""
    if refused := _stranger(known, identity):
        return refused
    assert known is not None
    if busy or known.state not in IDLE | {_S.ONGOING}:
        return Wait()
    if known.state is not _S.ONGOING:
        return Move(known.moved(_S.ONGOING, partitions=frozenset(partitions), start_ms=now_ms, update_ms=now_ms))
    if partitions <= known.partitions:
        return _DONE
    return Move(known.moved(_S.ONGOING, partitions=known.partitions | partitions, update_ms=now_ms))


def verify(
    known: Transaction | None, ending: bool, *, identity: Identity, partitions: Set[TopicPartition]
) -> Mapping[TopicPartition, ErrorCode]:
    """Tell which partitions are in the transaction under way (TXN-34). ``ending``: its end is on its way to the log."""
    refused = _stranger(known, identity)
    if refused is not None:
        return dict.fromkeys(partitions, refused.code)
    assert known is not None
    if ending or known.state in PREPARED:
        return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    held = known.partitions if known.state is _S.ONGOING else frozenset[TopicPartition]()
    return {p: ErrorCode.NONE if p in held else ErrorCode.INVALID_TXN_STATE for p in partitions}


def end(known: Transaction | None, busy: bool, now_ms: int, *, identity: Identity, committed: bool) -> Outcome:
    """Decide an EndTxn (TXN-39)."""
    if refused := _stranger(known, identity):
        return refused
    assert known is not None
    if busy or known.state in PREPARED or known.state is _S.PREPARE_EPOCH_FENCE:
        return Wait()
    if known.state is _S.ONGOING:
        return Move(known.moved(_S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT, update_ms=now_ms))
    reached = _S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT
    return _DONE if known.state is reached else _ILLEGAL


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Return what is stored when all markers are written (TXN-43)."""
    done = _S.COMPLETE_COMMIT if known.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT
    return known.moved(done, partitions=frozenset(), update_ms=now_ms)


def time_out(known: Transaction | None, busy: bool, now_ms: int) -> Move | None:
    """Return the abort of a transaction that takes too long (TXN-44)."""
    if known is None or busy or known.state not in OPEN or known.start_ms + known.timeout_ms >= now_ms:
        return None
    return fence(known, now_ms)


def has_expired(known: Transaction | None, busy: bool, before_ms: float) -> bool:
    """Tell whether nobody used the transactional id since then (TXN-47)."""
    return known is not None and not busy and known.state in IDLE and known.update_ms <= before_ms


def loaded(stored: Transaction, now_ms: int) -> Transaction:
    """Return what a loaded record says here: no transaction began in the future (TXN-45)."""
    return replace(stored, start_ms=now_ms) if stored.start_ms > now_ms else stored
