"""Partitions led here with fewer replicas in sync than they are to have: a gauge of the broker (ADM-75).

What a move adds does not count before it is in sync. The controller's requests, as far as brokers of Kafka 2.3 know them,
do not say what that is, so the nodes are read; where all replicas are in sync nothing is. Source: KIP-352.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.core.errors import ZnodeFormatError, ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode

GAUGE: Final = "UnderReplicatedPartitions"
PERIOD_MS: Final = 10_000


class UnderReplicated:
    """The rounds through the partitions led here. ``count``: those that the last one found."""

    def __init__(self, partitions: LocalPartitions, zookeeper: ZooKeeper) -> None:
        self.count = 0
        self.on_change: Callable[[], object] = lambda: None
        self._local = partitions
        self._zookeeper = zookeeper

    def run(self) -> None:
        """Count anew; while ZooKeeper does not answer, which would tell of moves, the count stays."""
        behind: dict[TopicPartition, tuple[int, tuple[int, ...]]] = {}
        for partition in yielding_gil(self._local.all()):
            with partition.lock:  # assigned and in sync by the same decision
                led, assigned, isr = partition.is_leader, partition.assigned, partition.isr
            if led and len(isr) < len(assigned):
                behind[partition.tp] = len(assigned), isr
        try:
            added = self._added({tp: isr for tp, (_, isr) in behind.items()}) if behind else {}
        except ZooKeeperError:
            return
        count = sum(len(isr) < wanted - added[tp] for tp, (wanted, isr) in behind.items())
        if count != self.count:
            self.count = count
            self.on_change()

    def _added(self, in_sync: Mapping[TopicPartition, Collection[int]]) -> dict[TopicPartition, int]:
        """Return how many replicas of each partition a move adds; of one by znode those wanted that are not in sync."""
        topics = sorted({tp.topic for tp in in_sync})
        moves, *nodes = self._zookeeper.get_many([ReassignmentZnode.PATH, *map(TopicZnode.path, topics)])
        targets: dict[TopicPartition, tuple[int, ...]] = {}
        found: dict[str, TopicZnode] = {}
        try:
            targets = ReassignmentZnode.decode(moves.data) if moves is not None else {}
            found = {t: TopicZnode.decode(t, n.data) for t, n in zip(topics, nodes, strict=True) if n is not None}
        except ZnodeFormatError:
            pass  # the controller complains of it
        unknown = TopicZnode({})
        return {
            tp: len(found.get(tp.topic, unknown).added(tp.partition, set(targets.get(tp, ())).difference(isr)))
            for tp, isr in in_sync.items()
        }
