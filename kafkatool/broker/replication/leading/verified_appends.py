"""Appends of transactional batches: the first of a transaction waits for a word of its coordinator (TXN-72 to 80).

So a batch that was held up on its way, and comes when its transaction is over, cannot open one that nobody ends. The
question goes through ``ask``, which the room of transactions gives; a log that knows the transaction as open needs none.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.appends import Appends, WritableBuffer
from kafkatool.broker.replication.leading.delayed_produce import AppendResult, AppendResults
from kafkatool.broker.replication.leading.refused_batches import RefusedBatches
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.storage.producers.producer_state import NOT_ADDED, UNVERIFIED, Verification
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode, error_name
from kafkatool.core.protocol.records.batches import BatchHeader


class Question(NamedTuple):
    """Are these partitions part of the transaction that this producer has under way?"""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    group: str | None = None
    """The group whose offsets are committed; then the one partition is that of ``__consumer_offsets``."""


Answer = Mapping[TopicPartition, int]
"""An error code for each partition of the question; NONE: it is."""

Ask = Callable[[Question, float, Callable[[Answer], None]], None]
"""Given a question and how many ms there are for it; the answer comes once, on any thread."""

_NO_TOPIC = AppendResult(ErrorCode.INVALID_TXN_STATE, message=f"transactions are not served: no {TRANSACTION_TOPIC}")
_PASSED_ON: Mapping[int, AppendResult] = {
    ErrorCode.INVALID_TXN_STATE: AppendResult(ErrorCode.INVALID_TXN_STATE, message=NOT_ADDED),
    ErrorCode.TRANSACTION_ABORTABLE: AppendResult(ErrorCode.INVALID_TXN_STATE, message=NOT_ADDED),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: AppendResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ErrorCode.PRODUCER_FENCED: AppendResult(ErrorCode.INVALID_PRODUCER_EPOCH),
    ErrorCode.INVALID_PRODUCER_EPOCH: AppendResult(ErrorCode.INVALID_PRODUCER_EPOCH),
}

_SENT_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Refusals after which a client sends the batch once more, here or elsewhere."""


def refusal(code: int) -> AppendResult:
    """Return what is answered when the coordinator says that; what may pass is 19, which all clients repeat (TXN-74)."""
    known = _PASSED_ON.get(code)
    if known is not None:
        return known
    why = f"Unable to verify the partition has been added to the transaction. Underlying error: {error_name(code)}"
    return AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, message=why)


class VerifiedAppends:
    """The way of transactional batches into the partitions led here. Any thread; no thread waits for the coordinator."""

    def __init__(self, partitions: LocalPartitions, appends: Appends, metadata_cache: MetadataCache) -> None:
        self._partitions = partitions
        self._appends = appends
        self._metadata_cache = metadata_cache
        self._refused = RefusedBatches()
        self._ask: Ask | None = None
        self.enabled = True
        """transaction.partition.verification.enable (TXN-80)."""

    def ask_by(self, ask: Ask) -> None:
        """Have the coordinators asked in this way."""
        self._ask = ask

    def append(
        self,
        entries: Mapping[TopicPartition, WritableBuffer],
        headers: Mapping[TopicPartition, BatchHeader],
        transactional_id: str,
        *,
        acks: int,
        timeout_ms: float,
        allow_internal_topics: bool = False,
        group: str | None = None,
        on_done: Callable[[AppendResults], None],
    ) -> None:
        """Append as ``Appends.append``; ``headers`` are those of the transactional ones among them, all of one producer.

        They are appended together, when the coordinator has answered. Offsets of a ``group`` come from this broker's own
        coordinator, and are not checked like a client's batches. For them the transaction's is asked each time:
        they have no sequences, so late ones would count until the marker is there, though the end is decided.
        """

        def append(refused: Mapping[TopicPartition, AppendResult]) -> None:
            refused = {**left_behind, **refused}

            def tell(results: AppendResults) -> None:
                results = {**results, **refused} if refused else results
                if group is None:  # its offsets have no order among them
                    self._note(headers, results)
                on_done(results)

            self._appends.append(
                {tp: records for tp, records in entries.items() if tp not in refused} if refused else entries,
                acks=acks,
                timeout_ms=timeout_ms,
                internal=group is not None,
                allow_internal_topics=allow_internal_topics,
                verifications=leave,
                on_done=tell,
            )

        leave: dict[TopicPartition, Verification] = {}
        left_behind: dict[TopicPartition, AppendResult] = {}
        if not self._metadata_cache.snapshot.partitions.get(TRANSACTION_TOPIC) or self._ask is None:
            append(dict.fromkeys(headers, _NO_TOPIC))
            return
        if not self.enabled:
            leave = dict.fromkeys(headers, UNVERIFIED)
            append({})
            return
        asked: list[TopicPartition] = []
        for tp, header in headers.items():
            partition = self._partitions.get(tp)
            log = partition.leader_log if partition is not None else None
            if log is None:
                continue
            first = self._refused.lowest(tp, header)
            if header.base_sequence > first and not log.knows_producer(header.producer_id):
                why = f"the batch with sequence {first} was refused, and is to come first"
                left_behind[tp] = AppendResult(ErrorCode.NOT_ENOUGH_REPLICAS, message=why)
                continue
            if (verification := log.begin_verification(header)) is not None:
                leave[tp] = verification
            if verification is not None or (group is not None and log.has_open_transaction(header)):
                asked.append(tp)
        if not asked:
            append({})
            return
        header = next(iter(headers.values()))
        question = Question(transactional_id, header.producer_id, header.producer_epoch, tuple(asked), group)
        self._ask(
            question,
            timeout_ms,
            lambda answer: append({tp: refusal(code) for tp, code in answer.items() if code != ErrorCode.NONE}),
        )

    def _note(self, headers: Mapping[TopicPartition, BatchHeader], results: AppendResults) -> None:
        for tp, header in headers.items():
            if header.base_sequence < 0:
                continue  # without a sequence it has no place in an order
            if results[tp].error is ErrorCode.NONE:
                self._refused.forget(tp, header.producer_id)
            elif results[tp].error in _SENT_AGAIN:
                self._refused.note(tp, header)
