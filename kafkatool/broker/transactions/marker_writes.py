"""The ends of transactions in the partitions led here, whoever coordinates them (TXN-59 to 62, 86)."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafkatool.broker.replication.leading.appends import WritableBuffer
from kafkatool.broker.replication.leading.delayed_produce import AppendResults
from kafkatool.broker.replication.partition.partition import ALL_IN_SYNC
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.broker.transactions.late_markers import LateMarkers, Sender
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

Codes = Mapping[TopicPartition, int]
"""The outcome in each partition, an error code."""


class MarkerWrite(NamedTuple):
    """A marker, and the partitions that are to get it."""

    identity: Identity
    marker: Marker
    partitions: Sequence[TopicPartition]


class OffsetsEnd(NamedTuple):
    """A marker in a partition of ``__consumer_offsets``, for the group coordinator."""

    partition: int
    producer_id: int
    committed: bool
    log_offset: int


class MarkerWrites:
    """The writer of markers. Thread-safe; no thread waits for replicas."""

    def __init__(
        self, config: BrokerConfig, replica_manager: ReplicaManager, end_offsets: Callable[[OffsetsEnd], None]
    ) -> None:
        """Take what puts offsets in force, or drops them, once their marker is replicated and before that is answered."""
        self._timeout_ms = config.request_timeout_ms
        self._replica_manager = replica_manager
        self._end_offsets = end_offsets
        self._late = LateMarkers(replica_manager.partitions)

    def write(
        self, writes: Sequence[MarkerWrite], done: Callable[[Sequence[Codes]], None], sender: Sender | None = None
    ) -> bool:
        """Append all of them; ``done`` gets their outcomes, in the same order, once all are replicated or refused.

        False, and nothing is done: they come too late. ``sender``: who sent them; None: this broker itself.
        """
        still: Callable[[], bool] | None = None
        if sender is not None:
            if self._late.are_late(sender, (tp for one in writes for tp in one.partitions)):
                return False
            self._late.note(sender)
            still = lambda: not self._late.is_superseded(sender)  # noqa: E731  # by one that came since, and was faster
        if not writes:
            done(())
            return True
        now_ms = int(time.time() * 1000)
        outcomes: list[Codes] = [{} for _ in writes]
        lock, left = threading.Lock(), len(writes)

        def appended(index: int, results: AppendResults) -> None:
            nonlocal left
            outcomes[index] = {tp: result.error for tp, result in results.items()}
            self._note_offsets(writes[index], results)
            with lock:
                left -= 1
                is_last = left == 0
            if is_last:
                done(outcomes)

        for index, (identity, marker, partitions) in enumerate(writes):
            batches: dict[TopicPartition, WritableBuffer] = {
                tp: encode_marker(*identity, marker, now_ms) for tp in partitions
            }
            self._replica_manager.appends.append(
                batches,
                acks=ALL_IN_SYNC,
                timeout_ms=self._timeout_ms,
                internal=True,
                still=still,
                on_done=partial(appended, index),
            )
        return True

    def _note_offsets(self, write: MarkerWrite, results: AppendResults) -> None:
        for tp, result in results.items():
            if tp.topic == OFFSETS_TOPIC and result.error is ErrorCode.NONE:
                self._end_offsets(
                    OffsetsEnd(tp.partition, write.identity.producer_id, write.marker.committed, result.base_offset)
                )
