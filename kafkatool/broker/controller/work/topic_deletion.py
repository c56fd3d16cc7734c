"""Deletion of topics: queued, carried out when nothing stands in the way, finished when all replicas are gone.

CTL-76 to CTL-86. With ``delete.topic.enable=false`` nothing is watched and an entry has no effect (CTL-80).
Source: Kafka 0.10.2.1 controller/TopicDeletionManager.scala.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.core.errors import NoNodeError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, TopicZnode

if TYPE_CHECKING:
    from kafkatool.broker.controller.term import Term

log = logging.getLogger(__name__)


class TopicDeletion:
    """Owns the context's ``deleting`` and ``ineligible``."""

    def __init__(self, term: "Term") -> None:
        self._term = term
        self._enabled = term.surroundings.config.delete_topic_enable
        self._outstanding: dict[str, int] = {}  # topic -> replicas whose deletion was not answered yet

    def watch(self) -> list[str]:
        """Set the watch on ``/admin/delete_topics``, if deletion is enabled; the topics marked."""
        if not self._enabled:
            return []
        watch = self._term.watch("topic deletion", lambda _: self._on_marked())
        return self._term.raw_zookeeper.children(DeleteTopicsZnode.PATH, watch) or []

    def queue_at_failover(self, topics: Iterable[str]) -> None:
        """Topics found marked. One without topic node was deleted halfway by an earlier controller (CTL-86)."""
        self._term.context.deleting.update(dict.fromkeys(sorted(topics)))

    def _on_marked(self) -> None:
        term, context = self._term, self._term.context
        marked = self.watch()
        if any(t not in context.assignments for t in marked):
            term.topic_changes.refresh(watched=True)  # it may have been created a moment ago
        unknown = [t for t in marked if t not in context.assignments]
        if unknown:
            log.warning("marked for deletion, but there is no such topic: %s", ", ".join(sorted(unknown)))
            term.zookeeper.delete(DeleteTopicsZnode.topic_path(t) for t in unknown)
        new = [t for t in sorted(marked) if t in context.assignments and t not in context.deleting]
        if new:
            log.info("topics queued for deletion: %s", ", ".join(new))
            context.deleting.update(dict.fromkeys(new))
            self.resume(new)

    # --- carrying out -------------------------------------------------------------------------------------------

    def resume_after_change(self, topics: Iterable[str]) -> None:
        """A broker with replicas of these topics is back, or they have other replicas: they may be deleted again.

        CTL-34, CTL-84, CTL-97.
        """
        again = [t for t in topics if t in self._term.context.deleting]
        self._term.context.ineligible.difference_update(again)
        self.resume(again)

    def resume(self, topics: Iterable[str] | None = None) -> None:
        """Carry out what is queued, eligible and not under way; finish what is done."""
        context = self._term.context
        starting = []
        for topic in sorted(context.deleting if topics is None else topics):
            if topic not in context.deleting or self._outstanding.get(topic):
                continue
            partitions = context.partitions_of(topic)
            if all(
                context.replica_status_of(p, b) is ReplicaStatus.DELETION_SUCCESSFUL
                for p in partitions
                for b in context.replicas(p)
            ):
                self._complete(topic, partitions)
            elif self._is_eligible(topic, partitions):
                starting.append(topic)
        if starting:
            self._start(starting)

    def _is_eligible(self, topic: str, partitions: Collection[TopicPartition]) -> bool:
        """Nothing of CTL-78 in the way; a replica that cannot be reached waits for its broker."""
        context = self._term.context
        if topic in context.ineligible:
            return False
        self._term.reassignment.give_up(topic)
        if any(p in context.reassigning or p in context.electing for p in partitions):
            return False
        unreachable = {p: gone for p in partitions if (gone := self._unreachable(p))}
        if unreachable:
            log.info("deletion of topic %s waits for brokers %s", topic,
                     sorted({b for gone in unreachable.values() for b in gone}))  # fmt: skip
            self.fail(unreachable)
        return not unreachable

    def _unreachable(self, partition: TopicPartition) -> list[int]:
        """Brokers that have yet to delete their replica, and cannot be told now."""
        context = self._term.context
        live = context.live_for(partition)
        return [
            b
            for b in context.replicas(partition)
            if b not in live and context.replica_status_of(partition, b) is not ReplicaStatus.DELETION_SUCCESSFUL
        ]

    def _start(self, topics: Collection[str]) -> None:
        term, context = self._term, self._term.context
        log.info("deleting topics %s", ", ".join(topics))
        with term.batch.filling():  # CTL-81 (a): no client is sent there any more
            term.batch.add_metadata(p for t in topics for p in context.partitions_of(t))
        replicas = {
            p: [
                b
                for b in context.replicas(p)
                if context.replica_status_of(p, b) is not ReplicaStatus.DELETION_SUCCESSFUL
            ]
            for t in topics
            for p in context.partitions_of(t)
        }
        with term.batch.filling():
            stopped = term.replicas.move(replicas, ReplicaStatus.OFFLINE)
            deleting = term.replicas.move(stopped, ReplicaStatus.DELETION_STARTED)
            for partition, brokers in deleting.items():
                self._outstanding[partition.topic] = self._outstanding.get(partition.topic, 0) + len(brokers)
        incomplete = {p.topic for p, brokers in replicas.items() if len(deleting.get(p, ())) < len(brokers)}
        context.ineligible |= incomplete  # a state could not be written: once a broker returns it is tried again

    def fail(self, replicas: Mapping[TopicPartition, Iterable[int]]) -> None:
        """Replicas that cannot be deleted now; their topics wait for a broker to return (CTL-81 b, 83, 84)."""
        if not replicas:
            return
        context = self._term.context
        context.ineligible.update(p.topic for p in replicas)
        failed: dict[TopicPartition, list[int]] = {}
        for partition, brokers in replicas.items():
            for broker in brokers:
                status = context.replica_status_of(partition, broker)
                if status is ReplicaStatus.DELETION_STARTED:
                    self._outstanding[partition.topic] -= 1
                if status in (ReplicaStatus.DELETION_STARTED, ReplicaStatus.OFFLINE):
                    failed.setdefault(partition, []).append(broker)
        self._term.replicas.move(failed, ReplicaStatus.DELETION_INELIGIBLE)

    def on_answer(self, broker: int, request: StopReplicaRequest, answer: StopReplicaResponse) -> None:
        """A broker has deleted replicas, or has not (CTL-83)."""
        context = self._term.context
        codes = {TopicPartition(p.topic, p.partition): p.error_code for p in answer.partitions}
        asked = [
            p
            for p in request.partitions
            if context.is_deleting(p) and context.replica_status_of(p, broker) is ReplicaStatus.DELETION_STARTED
        ]
        failed = [p for p in asked if answer.error_code or codes.get(p, 0)]
        for partition in failed:
            log.warning("broker %d could not delete its replica of partition %s: error %d", broker, partition,
                        answer.error_code or codes[partition])  # fmt: skip
        self.fail({p: [broker] for p in failed})
        deleted = [p for p in asked if p not in failed]
        for partition in deleted:
            self._outstanding[partition.topic] -= 1
        self._term.replicas.move({p: [broker] for p in deleted}, ReplicaStatus.DELETION_SUCCESSFUL)
        self.resume({p.topic for p in asked if not self._outstanding.get(p.topic)})

    def _complete(self, topic: str, partitions: Collection[TopicPartition]) -> None:
        term, context = self._term, self._term.context
        replicas = {p: context.replicas(p) for p in partitions}
        term.replicas.move(replicas, ReplicaStatus.NON_EXISTENT)
        term.partitions.move(partitions, PartitionStatus.OFFLINE)
        term.partitions.move(partitions, PartitionStatus.NON_EXISTENT)
        try:
            term.zookeeper.delete_tree(TopicZnode.path(topic))
        except NoNodeError:
            pass  # an earlier controller came that far (CTL-86)
        term.zookeeper.delete([ConfigZnode.path("topics", topic)])
        term.zookeeper.delete([DeleteTopicsZnode.topic_path(topic)])
        context.forget_topic(topic)
        self._outstanding.pop(topic, None)
        log.info("topic %s is deleted", topic)
