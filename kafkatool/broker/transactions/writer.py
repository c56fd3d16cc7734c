"""The writer of ``__transaction_state``, which turns the outcome of an append into codes clients know (TXN-19, 20)."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafkatool.broker.coordination import tombstones
from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.replication.partition.partition import ALL_IN_SYNC
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch

log = logging.getLogger(__name__)

_CODES: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def answer_for(error: ErrorCode) -> ErrorCode:
    """Return what a client is told of an append that ended so."""
    return _CODES.get(error, error)


class TransactionsWriter:
    """The writer. It raises nothing: what cannot be written is told to ``done`` like any other failure."""

    def __init__(self, config: BrokerConfig, replica_manager: ReplicaManager) -> None:
        self._timeout_ms = config.request_timeout_ms
        self._replica_manager = replica_manager

    def append(
        self,
        number: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        still: Callable[[], bool],
        done: Callable[[AppendResult], None],
    ) -> None:
        """Append one batch; ``still``: whether the partition is owned as it was when that was decided."""
        partition = TopicPartition(TRANSACTION_TOPIC, number)
        now_ms = int(time.time() * 1000)
        batch = encode_batch([Record(i, now_ms, key, value) for i, (key, value) in enumerate(records)])
        self._replica_manager.appends.append(
            {partition: batch},
            acks=ALL_IN_SYNC,
            timeout_ms=self._timeout_ms,
            internal=True,
            still=still,
            on_done=lambda results: done(results[partition]),
        )

    def largest_batch(self, number: int) -> int:
        """Return how many bytes a batch of tombstones may have in that partition."""
        return tombstones.largest_batch(self._replica_manager, TopicPartition(TRANSACTION_TOPIC, number))

    def await_replicated(self, number: int, next_offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call ``done`` when the record before that offset is replicated, or after a while, or when it is led no more."""
        partition = TopicPartition(TRANSACTION_TOPIC, number)
        self._replica_manager.appends.await_replicated(partition, next_offset, self._timeout_ms, done)
