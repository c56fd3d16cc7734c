"""Replicas that a replaced or cancelled move was adding, and that nothing wants any more: stopped, deleted, forgotten.

They are no part of AR. The topic's node names them until their brokers have answered, so that the next controller goes
on whenever this one dies (ADM-73). Source: own decision; Kafka <= 3.9 forgets those it could not tell.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.core.errors import NoPermissionError, ZnodeFormatError, ZnodeTooLargeError
from kafkatool.core.model.moves import Replicas, minus
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.znodes import PartitionStateZnode, TopicZnode

log = logging.getLogger(__name__)


@dataclass(eq=False)
class DroppedReplicas(Part):
    """Owns the context's ``dropped``."""

    def note(self, partition: TopicPartition, dropped: Replicas) -> None:
        """Take down what the topic's node tells of a partition."""
        if dropped:
            self.context.dropped[partition] = dropped
        else:
            self.context.dropped.pop(partition, None)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the brokers that are there delete them, where a replica that stays leads or can be elected.

        Where none can, those that stay have to catch up first: the state is watched. An election, also that of the same
        leader again, tells the others that AR is smaller.
        """
        context = self.context
        partitions = [p for p in partitions if p in context.dropped and not context.is_deleting(p)]
        if not partitions:
            return
        electing = [p for p in partitions if context.leader(p) not in context.live_for(p)]
        with self.batch.filling():
            led = self.partitions.move(electing, PartitionStatus.ONLINE, Strategy.REASSIGN)
            led |= self.partitions.raise_epochs(
                {p: context.replicas(p) for p in partitions if p not in electing}
            ).keys()
        dropped = {p: context.dropped[p] for p in partitions if p in led}
        for partition, brokers in dropped.items():
            for broker in brokers:  # a new controller knows nothing of those outside of AR
                context.set_replica_status(partition, broker, ReplicaStatus.ONLINE)
        with self.batch.filling():
            for partition, stopped in self.replicas.move(dropped, ReplicaStatus.OFFLINE).items():
                for broker in stopped:
                    context.set_replica_status(partition, broker, ReplicaStatus.NON_EXISTENT)
                    if broker in context.brokers:
                        self.batch.add_stop_replica(broker, partition, delete=True)
        for partition in partitions:
            if partition not in led:
                log.warning("replicas %s of partition %s wait to be deleted: none of those that stay is in sync",
                            list(context.dropped[partition]), partition)  # fmt: skip
                again = self.watch_on("ISR of a partition with replicas to drop", lambda _, p=partition: self.drop([p]))  # type: ignore[misc]
                self.session.get(PartitionStateZnode.path(partition), again)

    def on_brokers_started(self, brokers: Collection[int]) -> None:
        """Tell those that were away."""
        self.drop([p for p, dropped in self.context.dropped.items() if not set(brokers).isdisjoint(dropped)])

    def on_answers(self, answers: Iterable[tuple[int, StopReplicaRequest, StopReplicaResponse]]) -> None:
        """Forget what is deleted. What could not be deleted stays noted: its broker is told again when it has started."""
        gone: dict[TopicPartition, list[int]] = {}
        for broker, request, answer in answers if self.context.dropped else ():
            failed = {(p.topic, p.partition) for p in answer.partitions if p.error_code}
            for partition in request.partitions if not answer.error_code else ():
                if partition not in failed and broker in self.context.dropped.get(partition, ()):
                    gone.setdefault(partition, []).append(broker)
        by_topic: dict[str, dict[int, list[int]]] = {}
        for (topic, number), brokers in gone.items():
            by_topic.setdefault(topic, {})[number] = brokers
        for topic, deleted in by_topic.items():
            self._forget(topic, deleted)

    def _forget(self, topic: str, deleted: Mapping[int, Collection[int]]) -> None:
        def without(data: bytes) -> bytes:
            node = TopicZnode.decode(topic, data)
            found = {n: node.move_of(n) for n in deleted if n in node.assignment}
            left = {n: move._replace(dropped=minus(move.dropped, deleted[n])) for n, move in found.items()}
            return data if left == found else node.with_moves(left).encode()

        try:
            self.zookeeper.change(TopicZnode.path(topic), without)
        except (ZnodeFormatError, NoPermissionError, ZnodeTooLargeError) as e:
            log.error("%s; it goes on naming replicas that are deleted", e)
        for number, brokers in deleted.items():
            partition = TopicPartition(topic, number)
            self.note(partition, minus(self.context.dropped[partition], brokers))
