"""Notifications that brokers leave in ZooKeeper: changed ISRs and failed log directories (CTL-110, CTL-122)."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from kafkatool.broker.controller.states import ReplicaStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.znodes import IsrChangeZnode, LogDirEventZnode

log = logging.getLogger(__name__)

_Content = TypeVar("_Content")


@dataclass(eq=False)
class Notifications(Part):
    """Two directories of sequential nodes, read and emptied at each change."""

    def watch_isr_changes(self) -> list[str]:
        """Set the watch and return the paths of the nodes there."""
        return self._watch(IsrChangeZnode.PATH, "ISR change", self._on_isr_changes)

    def watch_log_dir_events(self) -> list[str]:
        """Set the watch and return the paths of the nodes there. A missing parent is no error (Z-47)."""
        return self._watch(LogDirEventZnode.PATH, "log directory event", self._on_log_dir_events)

    def _watch(self, parent: str, name: str, run: Callable[[], None]) -> list[str]:
        names = self.session.children(parent, self.watch_on(name, lambda _: run()))
        return [f"{parent}/{n}" for n in sorted(names or ())]

    def _read(self, paths: Collection[str], decode: Callable[[bytes], _Content]) -> list[_Content]:
        found = []
        for path, node in zip(paths, self.session.get_many(list(paths)), strict=True):
            try:
                if node is not None:
                    found.append(decode(node.data))
            except ZnodeFormatError as e:
                log.error("%s: %s; it is deleted", path, e)
        return found

    def _on_isr_changes(self) -> None:
        paths = self.watch_isr_changes()
        try:
            named = [p for partitions in self._read(paths, IsrChangeZnode.decode) for p in partitions]
            self._refresh(dict.fromkeys(p for p in named if self.context.knows(p)))
        finally:
            self.zookeeper.delete(paths)

    def _refresh(self, partitions: Collection[TopicPartition]) -> None:
        context = self.context
        if not partitions:
            return
        states = self.zookeeper.read_states(partitions).found
        context.leadership.update(states)
        with self.batch.filling():
            self.batch.add_metadata(states)

    def _on_log_dir_events(self) -> None:
        """Ask the brokers named for the state of all their replicas, by LeaderAndIsr."""
        paths = self.watch_log_dir_events()
        try:
            brokers = sorted(set(self._read(paths, LogDirEventZnode.decode)) & self.context.brokers.keys())
        finally:
            self.zookeeper.delete(paths)
        with self.batch.filling():
            self.replicas.move(self.context.replicas_on(brokers, ReplicaStatus.ONLINE), ReplicaStatus.ONLINE)
