"""Deletion of topics: queued, carried out when nothing stands in the way, finished when all replicas are gone.

CTL-76 to CTL-86. With ``delete.topic.enable=false`` nothing is watched and an entry has no effect (CTL-80).
Source: Kafka 0.10.2.1 controller/TopicDeletionManager.scala.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.broker.controller.work.reassignment import Reassignment
from kafkatool.broker.controller.work.topic_changes import TopicChanges
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.zookeeper.session import Node
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, TopicsZnode, TopicZnode

log = logging.getLogger(__name__)


@dataclass(eq=False)
class TopicDeletion(Part):
    """Carries out deletions. Owns the context's ``deleting`` and ``ineligible``."""

    topic_changes: TopicChanges
    reassignment: Reassignment
    enabled: bool
    _outstanding: dict[str, int] = field(default_factory=dict, init=False)  # topic -> replicas to be answered for yet

    def watch(self) -> list[str]:
        """Set the watch on ``/admin/delete_topics``, if deletion is enabled, and return the topics marked."""
        if not self.enabled:
            return []
        watch = self.watch_on("topic deletion", lambda _: self._on_marked())
        return self.session.children(DeleteTopicsZnode.PATH, watch) or []

    def queue_at_failover(self, topics: Iterable[str]) -> None:
        """Queue topics found marked. One without node was deleted halfway by an earlier controller (CTL-86)."""
        known = self.context.assignments
        topics = set(topics)
        without_node = self._without_node([t for t in topics if t not in known])
        self.context.deleting.update(dict.fromkeys(sorted((topics & known.keys()) | without_node)))

    def _on_marked(self) -> None:
        context = self.context
        marked = self.watch()
        # read before the topics are: a mark made later may be of a topic made later
        marks = self._read([DeleteTopicsZnode.topic_path(t) for t in marked])
        if any(t not in context.assignments for t in marked):
            self.topic_changes.refresh(watched=True)  # it may have been created a moment ago
        unknown = self._without_node([t for t in marked if t not in context.assignments])
        if unknown:
            log.warning("marked for deletion, but there is no such topic: %s", ", ".join(sorted(unknown)))
            self.zookeeper.delete_as_read({path: marks[path] for path in map(DeleteTopicsZnode.topic_path, unknown)})
        new = [t for t in sorted(marked) if t in context.assignments and t not in context.deleting]
        if new:
            log.info("topics queued for deletion: %s", ", ".join(new))
            context.deleting.update(dict.fromkeys(new))
            self.resume(new)

    def _without_node(self, unknown: Collection[str]) -> set[str]:
        """Return those of the topics that are not there. The others' nodes cannot be read, so who has replicas is unknown.

        They and their marks stay (Z-35): without their nodes nobody would ever tell the brokers to delete them.
        """
        if not unknown:
            return set()
        nodes = self._read([TopicZnode.path(topic) for topic in unknown])
        unreadable = {topic for topic in unknown if nodes[TopicZnode.path(topic)] is not None}
        if unreadable:
            log.error("marked for deletion, but not deleted, as their nodes in %s cannot be read: %s; mend them, and the "
                      "next mark or the next controller has them deleted", TopicsZnode.PATH,
                      ", ".join(sorted(unreadable)))  # fmt: skip
        return set(unknown) - unreadable

    def _read(self, paths: list[str]) -> dict[str, Node | None]:
        return dict(zip(paths, self.session.get_many(paths), strict=True))

    # --- carrying out -------------------------------------------------------------------------------------------

    def resume_after_change(self, topics: Iterable[str]) -> None:
        """Try again the topics that a broker is back for, or that have other replicas now (CTL-34, CTL-84, CTL-97)."""
        again = [t for t in topics if t in self.context.deleting]
        self.context.ineligible.difference_update(again)
        self.resume(again)

    def resume(self, topics: Iterable[str] | None = None) -> None:
        """Carry out what is queued, eligible and not under way; finish what is done."""
        context = self.context
        starting = []
        for topic in sorted(context.deleting if topics is None else topics):
            if topic not in context.deleting or self._outstanding.get(topic):
                continue
            partitions = context.partitions_of(topic)
            if not any(self._undeleted(p) for p in partitions):
                self._complete(topic, partitions)
            elif self._is_eligible(topic, partitions):
                starting.append(topic)
        if starting:
            self._start(starting)

    def _is_eligible(self, topic: str, partitions: Collection[TopicPartition]) -> bool:
        """Tell whether nothing of CTL-78 is in the way; a replica that cannot be reached waits for its broker."""
        context = self.context
        if topic in context.ineligible:
            return False
        self.reassignment.give_up(topic)
        if any(p in context.reassigning or p in context.electing for p in partitions):
            return False
        unreachable = {p: gone for p in partitions if (gone := self._unreachable(p))}
        if unreachable:
            log.info("deletion of topic %s waits for brokers %s", topic,
                     sorted({b for gone in unreachable.values() for b in gone}))  # fmt: skip
            self.fail(unreachable)
        return not unreachable

    def _undeleted(self, partition: TopicPartition) -> list[int]:
        """Return the brokers that have yet to delete their replica."""
        status_of, done = self.context.replica_status_of, ReplicaStatus.DELETION_SUCCESSFUL
        return [b for b in self.context.replicas(partition) if status_of(partition, b) is not done]

    def _unreachable(self, partition: TopicPartition) -> list[int]:
        """Return those of them that cannot be told now."""
        live = self.context.live_for(partition)
        return [b for b in self._undeleted(partition) if b not in live]

    def _start(self, topics: Collection[str]) -> None:
        context = self.context
        log.info("deleting topics %s", ", ".join(topics))
        with self.batch.filling():  # CTL-81 (a): no client is sent there any more
            self.batch.add_metadata(p for t in topics for p in context.partitions_of(t))
        replicas = {p: self._undeleted(p) for t in topics for p in context.partitions_of(t)}
        with self.batch.filling():
            stopped = self.replicas.move(replicas, ReplicaStatus.OFFLINE)
            deleting = self.replicas.move(stopped, ReplicaStatus.DELETION_STARTED)
            for partition, brokers in deleting.items():
                self._outstanding[partition.topic] = self._outstanding.get(partition.topic, 0) + len(brokers)
        incomplete = {p.topic for p, brokers in replicas.items() if len(deleting.get(p, ())) < len(brokers)}
        context.ineligible |= incomplete  # a state could not be written: once a broker returns it is tried again

    def fail(self, replicas: Mapping[TopicPartition, Iterable[int]]) -> None:
        """Mark replicas that cannot be deleted now; their topics wait for a broker to return (CTL-81 b, 83, 84)."""
        if not replicas:
            return
        context = self.context
        context.ineligible.update(p.topic for p in replicas)
        failed: dict[TopicPartition, list[int]] = {}
        for partition, brokers in replicas.items():
            for broker in brokers:
                status = context.replica_status_of(partition, broker)
                if status is ReplicaStatus.DELETION_STARTED:
                    self._outstanding[partition.topic] -= 1
                if status in (ReplicaStatus.DELETION_STARTED, ReplicaStatus.OFFLINE):
                    failed.setdefault(partition, []).append(broker)
        self.replicas.move(failed, ReplicaStatus.DELETION_INELIGIBLE)

    def on_answer(self, broker: int, request: StopReplicaRequest, answer: StopReplicaResponse) -> None:
        """Handle a broker's answer: it has deleted its replicas, or could not (CTL-83)."""
        context = self.context
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
        self.replicas.move({p: [broker] for p in deleted}, ReplicaStatus.DELETION_SUCCESSFUL)
        self.resume({p.topic for p in asked if not self._outstanding.get(p.topic)})

    def _complete(self, topic: str, partitions: Collection[TopicPartition]) -> None:
        context = self.context
        replicas = {p: context.replicas(p) for p in partitions}
        self.replicas.move(replicas, ReplicaStatus.NON_EXISTENT)
        self.partitions.move(partitions, PartitionStatus.OFFLINE)
        self.partitions.move(partitions, PartitionStatus.NON_EXISTENT)
        config, mark = ConfigZnode.path("topics", topic), DeleteTopicsZnode.topic_path(topic)
        read = self._read([config, mark])  # before its node goes: what is made later is of the next of that name
        self.zookeeper.delete_tree(TopicZnode.path(topic))
        self.zookeeper.delete_as_read({config: read[config]})
        self.zookeeper.delete_as_read({mark: read[mark]})
        context.forget_topic(topic)
        self._outstanding.pop(topic, None)
        log.info("topic %s is deleted", topic)
