"""Topics that appear, grow or vanish (CTL-69 to CTL-75)."""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kafkatool.broker.controller.states import PartitionStatus, ReplicaStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import Assignment, TopicPartition
from kafkatool.core.zookeeper.session import Watch, WatchEvent
from kafkatool.core.zookeeper.znodes import TopicsZnode, TopicZnode

log = logging.getLogger(__name__)


@dataclass(eq=False)
class TopicChanges(Part):
    """Keeps the context's topics like ``/brokers/topics``."""

    def watch(self) -> list[str]:
        """Set the watch on ``/brokers/topics`` and return the topics' names."""
        watch = self.watch_on("topic change", lambda _: self.refresh(watched=False))
        return self.session.children(TopicsZnode.PATH, watch) or []

    def read(self, topics: Collection[str]) -> dict[str, TopicZnode]:
        """Return their nodes; the data of each topic is watched by the same read (CTL-24 step 8a, Z-43)."""
        return self._read(topics, self.watch_on("partition change", self._on_data))

    def _read(self, topics: Collection[str], watch: Watch | None = None) -> dict[str, TopicZnode]:
        nodes = self.session.get_many([TopicZnode.path(t) for t in topics], watch)
        found = {}
        for topic, node in zip(topics, nodes, strict=True):
            try:
                if node is not None:
                    found[topic] = TopicZnode.decode(topic, node.data)
            except ZnodeFormatError as e:
                log.error("%s; the topic is skipped", e)
        return found

    def catch_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Take up those of them that exist, though the event that tells of them has not come to its turn."""
        context = self.context
        topics = sorted({p.topic for p in partitions if not context.knows(p)})
        if any(t not in context.assignments for t in topics):
            self.refresh(watched=True)
        for topic, node in self._read([t for t in topics if t in context.assignments]).items():
            self._grow(topic, node.assignment)

    def refresh(self, *, watched: bool) -> None:
        """Take up new topics, forget those that are gone (CTL-69). ``watched``: the last watch has not fired."""
        context = self.context
        names = (self.session.children(TopicsZnode.PATH) or []) if watched else self.watch()
        for topic in sorted(context.assignments.keys() - set(names)):
            log.info("topic %s is gone", topic)
            context.forget_topic(topic)
        new = self.read(sorted(set(names) - context.assignments.keys()))
        if new:
            log.info("new topics: %s", ", ".join(new))
            self._create({topic: node.assignment for topic, node in new.items()})

    def _on_data(self, event: WatchEvent) -> None:
        """Take up new partitions of a known topic; a changed AR of known ones is not ours to follow (CTL-75)."""
        context = self.context
        topic = event.path[len(TopicsZnode.PATH) + 1 :]
        if topic not in context.assignments:
            return  # deleted, or not taken up yet: then it is read with the topics
        if (node := self.read([topic]).get(topic)) is not None:
            self._grow(topic, node.assignment)

    def _grow(self, topic: str, assignment: Assignment) -> None:
        context = self.context
        added = {n: r for n, r in assignment.items() if n not in context.assignments[topic]}
        if not added:
            return
        if topic in context.deleting:
            log.error("topic %s is being deleted: its new partitions %s are skipped", topic, sorted(added))
            return
        log.info("new partitions of topic %s: %s", topic, sorted(added))
        self._create({topic: added})

    def _create(self, assignments: Mapping[str, Assignment]) -> None:
        for topic, assignment in assignments.items():
            self.context.assign(topic, assignment)
        replicas = {TopicPartition(t, n): r for t, assignment in assignments.items() for n, r in assignment.items()}
        created = list(replicas)
        with self.batch.filling():
            self.partitions.move(created, PartitionStatus.NEW)
            self.replicas.move(replicas, ReplicaStatus.NEW)
            self.partitions.move(created, PartitionStatus.ONLINE)
            self.replicas.move(replicas, ReplicaStatus.ONLINE)
