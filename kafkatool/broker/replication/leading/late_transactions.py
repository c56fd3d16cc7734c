"""Partitions led here whose oldest transaction is open for longer than any may be: told of, not ended (TXN-70).

Every producer's timeout is at most ``transaction.max.timeout.ms``; what is open for longer has no coordinator that ends
it. An administrator does, by ``kt transactions find-hanging`` and ``abort``. Source: KIP-664.
"""

import logging
import time
from collections.abc import Callable, Sequence

from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

PERIOD_MS = 60_000
_GRACE_MS = 300_000  # beyond the longest timeout: for the coordinator's scan, and its markers
_TOLD_AGAIN_MS = 3_600_000


class LateTransactions:
    """The rounds through the partitions led here. ``partitions``: those that were late in the last one (a gauge)."""

    def __init__(
        self,
        partitions: LocalPartitions,
        longest_timeout_ms: float,
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        """Take the wall's clock: it is compared with the times of batches."""
        self.partitions: Sequence[TopicPartition] = ()
        self._local = partitions
        self._late_ms = longest_timeout_ms + _GRACE_MS
        self._clock_ms = clock_ms
        self._told_ms: dict[TopicPartition, float] = {}

    def run(self) -> None:
        """Find the late ones; tell of each once an hour."""
        now_ms = self._clock_ms()
        told_ms: dict[TopicPartition, float] = {}
        for partition in self._local.all():
            leader_log = partition.leader_log
            oldest = leader_log.oldest_open_transaction() if leader_log is not None else None
            if oldest is None or now_ms - oldest[1] <= self._late_ms:
                continue
            transaction, last_ms = oldest
            before_ms = self._told_ms.get(partition.tp)
            if before_ms is not None and now_ms - before_ms < _TOLD_AGAIN_MS:
                told_ms[partition.tp] = before_ms
                continue
            told_ms[partition.tp] = now_ms
            log.warning(
                "%s: the transaction of producer %d epoch %d from offset %d on was last written to %d min ago and is open "
                "still: nothing behind it is read by read_committed (kt transactions find-hanging)",
                partition.tp,
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.first_offset,
                (now_ms - last_ms) // 60_000,
            )
        self._told_ms = told_ms
        self.partitions = tuple(told_ms)
