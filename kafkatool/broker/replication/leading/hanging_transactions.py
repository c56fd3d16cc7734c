"""The end of transactions that nobody can end: aborted by the leader where the cluster has no coordinator for them.

Batches with the transactional bit are refused (TXN-73), but a log may have some from an earlier version of this broker,
or from another cluster. Its last stable offset stands still by them: read_committed consumers and compaction stop there.
"""

import logging
import time

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.appends import Appends
from kafkatool.broker.replication.leading.delayed_produce import AppendResults
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.storage.batches.transaction_markers import OpenTransaction, abort_marker
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

PERIOD_MS = 600_000


class HangingTransactions:
    """The rounds through the partitions led here. Without ``__transaction_state`` no coordinator exists.

    Where there is one, real brokers serve transactions, and only their coordinator knows how one ends. A transaction is
    aborted by the second round that finds it: in the first the metadata may be the one of a cluster that comes up.
    """

    def __init__(self, partitions: LocalPartitions, metadata_cache: MetadataCache, appends: Appends) -> None:
        self._partitions = partitions
        self._metadata_cache = metadata_cache
        self._appends = appends
        self._seen: set[tuple[TopicPartition, OpenTransaction]] = set()

    def run(self) -> None:
        """Abort those that the round before has found too."""
        found: set[tuple[TopicPartition, OpenTransaction]] = set()
        topics = self._metadata_cache.snapshot.partitions
        for partition in self._partitions.all():
            leader_log = partition.leader_log
            if leader_log is not None and partition.tp.topic in topics and TRANSACTION_TOPIC not in topics:
                found.update((partition.tp, transaction) for transaction in leader_log.open_transactions())
        for topic_partition, transaction in sorted(found & self._seen):
            self._abort(topic_partition, transaction)
        self._seen = found

    def _abort(self, topic_partition: TopicPartition, transaction: OpenTransaction) -> None:

        def told(results: AppendResults) -> None:
            error = results[topic_partition].error
            outcome = "is aborted" if error is ErrorCode.NONE else f"could not be aborted: {error.name}"
            log.warning(
                "%s: the transaction of producer %d from offset %d on, which no coordinator can end, %s",
                topic_partition,
                transaction.producer_id,
                transaction.first_offset,
                outcome,
            )

        marker = abort_marker(transaction, int(time.time() * 1000))
        self._appends.append({topic_partition: marker}, acks=1, timeout_ms=0, internal=True, on_done=told)
