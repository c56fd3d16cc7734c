"""The transactions of a log in compaction: records of aborted ones go, and in the end their markers (BRK-167).

A marker stays while any batch of its transaction was still there when the log was read: without it the transaction
would look open. Then it stays for ``delete.retention.ms``, as a replica may have that batch and not the marker yet. Source:
Kafka 2.3.1 log/LogCleaner.scala (its header); KIP-534.
"""

from bisect import bisect_right
from collections.abc import Iterable

from kafkatool.broker.storage.segment.transaction_index import AbortedTransaction
from kafkatool.core.protocol.records.batches import BatchHeader


class CleanedTransactions:
    """The transactions met in one pass over a log, batch by batch from its start."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Take all aborted transactions of the log's indexes."""
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for one in sorted(set(aborted), key=lambda a: a.first_offset):
            self._aborted.setdefault(one.producer_id, []).append(one)
        self._with_batches: set[int] = set()  # producers of which data was seen since their last marker

    def is_aborted(self, header: BatchHeader) -> bool:
        """Tell whether the data batch belongs to an aborted transaction; note that it is there."""
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return self._around(header) is not None

    def end(self, marker: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        """Tell at a marker whether any batch of its transaction is left, and the aborted one to note with it if so.

        A control batch that Kafka's cleaner has emptied ends nothing.
        """
        if marker.producer_id not in self._with_batches or not marker.record_count:
            return False, None
        self._with_batches.discard(marker.producer_id)
        ended = self._around(marker)
        return True, ended if ended is not None and ended.last_offset == marker.base_offset else None

    def _around(self, header: BatchHeader) -> AbortedTransaction | None:
        aborted = self._aborted.get(header.producer_id)
        if not aborted:
            return None
        at = bisect_right(aborted, header.base_offset, key=lambda a: a.first_offset) - 1
        return aborted[at] if at >= 0 and header.base_offset <= aborted[at].last_offset else None
