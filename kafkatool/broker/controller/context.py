"""The controller's in-memory copy of the cluster: brokers, assignments, leaders, pending work.

One writer: the controller's event thread. It is made anew at each failover and dropped at resigning.
Collections are dicts rather than sets where they are walked, so that the order of work never depends on hashing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafkatool.broker.controller.states import REPLICA_MOVES, PartitionStatus, ReplicaStatus
from kafkatool.core.model.moves import StoredMove
from kafkatool.core.model.values import Assignment, BrokerInfo, PartitionState, TopicPartition


@dataclass(slots=True)
class ControllerContext:
    """The cluster as the controller of ``epoch`` knows it."""

    broker_id: int
    epoch: int
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)  # registered, as last read
    shutting_down: set[int] = field(default_factory=set)  # registered, but to lead nothing more (CTL-113)
    failed_replicas: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Brokers whose log directory of it has failed: they answered 56 (CTL-122). Written by `BrokerChanges` alone."""
    bounced_replicas: Mapping[TopicPartition, Collection[int]] = field(default_factory=dict)
    """Brokers that bounced unseen, which do not serve their replica until step 8c. Written by the failover alone."""
    assignments: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    leadership: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    unreadable: set[TopicPartition] = field(default_factory=set)  # state nodes that hold no state (Z-35)
    partition_status: dict[TopicPartition, PartitionStatus] = field(default_factory=dict)
    replica_status: dict[TopicPartition, dict[int, ReplicaStatus]] = field(default_factory=dict)
    reassigning: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)  # -> RAR
    moves: dict[TopicPartition, StoredMove] = field(default_factory=dict)
    """Of those, the ones that their topics' nodes tell of; the others are entries of the request."""
    origins: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Of the others, their replicas before, where this term knows them."""
    dropped: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Replicas outside of AR that are yet to be deleted; see `StoredMove`. Written by `DroppedReplicas` alone."""
    electing: dict[TopicPartition, None] = field(default_factory=dict)  # preferred elections under way
    deleting: dict[str, None] = field(default_factory=dict)  # topics queued for deletion
    ineligible: set[str] = field(default_factory=set)  # of those: must wait for a broker (CTL-78)
    _on_broker: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)

    # --- brokers ------------------------------------------------------------------------------------------------

    @property
    def live_brokers(self) -> set[int]:
        """Return the registered brokers that are not shutting down."""
        return self.brokers.keys() - self.shutting_down

    def live_for(self, partition: TopicPartition, *, even_shutting_down: bool = False) -> set[int]:
        """Return the brokers of its AR that can serve it: live, and not unfit for it."""
        unfit = self.unfit_for(partition)
        return {
            b
            for b in self.replicas(partition)
            if b in self.brokers and (even_shutting_down or b not in self.shutting_down) and b not in unfit
        }

    def unfit_for(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that cannot serve it though they may be registered: their replica has failed, or bounced."""
        if not self.failed_replicas and not self.bounced_replicas:
            return ()  # nearly always, and a failover asks for each of thousands of partitions
        return (*self.failed_replicas.get(partition, ()), *self.bounced_replicas.get(partition, ()))

    # --- topics -------------------------------------------------------------------------------------------------

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return AR in order; empty for an unknown partition."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, ())

    def assign(self, topic: str, assignment: Assignment) -> None:
        """Set AR of the topic's partitions in memory."""
        self.assignments.setdefault(topic, {})
        for number, replicas in assignment.items():
            self.set_replicas(TopicPartition(topic, number), replicas)

    def set_replicas(self, partition: TopicPartition, replicas: Iterable[int]) -> None:
        """Set AR in memory."""
        for broker in self.replicas(partition):
            self._on_broker[broker].pop(partition, None)
        replicas = tuple(replicas)
        self.assignments.setdefault(partition.topic, {})[partition.partition] = replicas
        for broker in replicas:
            self._on_broker.setdefault(broker, {})[partition] = None

    def knows(self, partition: TopicPartition) -> bool:
        """Tell whether the partition is assigned."""
        return partition.partition in self.assignments.get(partition.topic, ())

    def partitions(self) -> Iterator[TopicPartition]:
        """Return every assigned partition."""
        return (TopicPartition(t, p) for t, partitions in self.assignments.items() for p in partitions)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the topic's partitions."""
        return [TopicPartition(topic, p) for p in self.assignments.get(topic, ())]

    def partitions_on(self, broker: int) -> list[TopicPartition]:
        """Return the partitions with a replica on that broker."""
        return list(self._on_broker.get(broker, ()))

    def is_deleting(self, partition: TopicPartition) -> bool:
        """Tell whether its topic is queued for deletion."""
        return partition.topic in self.deleting

    def leader(self, partition: TopicPartition) -> int | None:
        """Return its leader as last written or read; None: none, or never had one."""
        state = self.leadership.get(partition)
        return state.leader_and_isr.leader if state else None

    def forget_topic(self, topic: str) -> None:
        """Drop everything about a topic."""
        for partition in self.partitions_of(topic):
            for broker in self.replicas(partition):
                self._on_broker[broker].pop(partition, None)
            self.leadership.pop(partition, None)
            self.partition_status.pop(partition, None)
            self.replica_status.pop(partition, None)
            self.reassigning.pop(partition, None)
            self.moves.pop(partition, None)
            self.origins.pop(partition, None)
            self.dropped.pop(partition, None)
            self.unreadable.discard(partition)
            self.failed_replicas.pop(partition, None)
        self.assignments.pop(topic, None)
        self.deleting.pop(topic, None)
        self.ineligible.discard(topic)

    def forget_all(self) -> None:
        """Drop everything, as the term is over. Counts taken meanwhile by another thread find nothing."""
        self.assignments, self.leadership, self.unreadable = {}, {}, set()
        self.partition_status, self.replica_status, self._on_broker = {}, {}, {}

    # --- states of the two machines -----------------------------------------------------------------------------

    def status_of(self, partition: TopicPartition) -> PartitionStatus:
        """Return the partition's status."""
        return self.partition_status.get(partition, PartitionStatus.NON_EXISTENT)

    def replica_status_of(self, partition: TopicPartition, broker: int) -> ReplicaStatus:
        """Return the status of one replica."""
        return self.replica_status.get(partition, {}).get(broker, ReplicaStatus.NON_EXISTENT)

    def may_become(self, partition: TopicPartition, broker: int, status: ReplicaStatus) -> bool:
        """Tell whether the replica may be moved to that status (CTL-67)."""
        return self.replica_status_of(partition, broker) in REPLICA_MOVES[status]

    def replicas_on(self, brokers: Iterable[int], target: ReplicaStatus) -> dict[TopicPartition, list[int]]:
        """Return the replicas on those brokers that may be moved to that status, partition by partition."""
        found: dict[TopicPartition, list[int]] = {}
        for broker in brokers:
            for partition in self.partitions_on(broker):
                if self.may_become(partition, broker, target):
                    found.setdefault(partition, []).append(broker)
        return found

    def set_replica_status(self, partition: TopicPartition, broker: int, status: ReplicaStatus) -> None:
        """Set the status of one replica."""
        statuses = self.replica_status.setdefault(partition, {})
        if status is ReplicaStatus.NON_EXISTENT:
            statuses.pop(broker, None)
        else:
            statuses[broker] = status

    # --- gauges (CTL-29) ----------------------------------------------------------------------------------------

    def offline_partition_count(self) -> int:
        """Count the partitions, not being deleted, whose leader is not a registered broker. From any thread."""
        return sum(self.leader(p) not in self.brokers for p in self._counted())

    def imbalance_count(self) -> int:
        """Count the partitions, not being deleted, that are not led by AR[0]. From any thread."""
        return sum(self.leader(p) != next(iter(self.replicas(p)), None) for p in self._counted())

    def _counted(self) -> list[TopicPartition]:
        # lists are made in one step, so the event thread may go on changing the dicts
        topics = [(t, list(partitions)) for t, partitions in list(self.assignments.items())]
        return [TopicPartition(t, p) for t, partitions in topics if t not in self.deleting for p in partitions]
