"""Notifications that brokers leave in ZooKeeper: changed ISRs and failed log directories (CTL-110, CTL-122)."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from kafkatool.broker.controller.states import ReplicaStatus
from kafkatool.broker.controller.work.part import Part
from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.zookeeper.znodes import IsrChangeZnode, LogDirEventZnode

log = logging.getLogger(__name__)

_Content = TypeVar("_Content")


@dataclass(eq=False)
class Notifications(Part):
    """Two directories of sequential nodes, read and emptied at each change."""

    _strange: set[str] = field(default_factory=set, init=False)  # foreign nodes, told of once

    def watch_isr_changes(self) -> list[str]:
        """Set the watch and return the paths of the nodes there."""
        return self._watch(IsrChangeZnode.PATH, IsrChangeZnode.PREFIX, "ISR change", self._on_isr_changes)

    def watch_log_dir_events(self) -> list[str]:
        """Set the watch and return the paths of the nodes there. A missing parent is no error (Z-47)."""
        return self._watch(
            LogDirEventZnode.PATH, LogDirEventZnode.PREFIX, "log directory event", self._on_log_dir_events
        )

    def _watch(self, parent: str, prefix: str, name: str, run: Callable[[], None]) -> list[str]:
        names = sorted(self.session.children(parent, self.watch_on(name, lambda _: run())) or ())
        paths = [f"{parent}/{n}" for n in names]
        strange = {path for path in paths if not path.removeprefix(prefix).isdecimal()}
        if new := sorted(strange - self._strange):
            log.warning("no %s, skipped: %s", name, ", ".join(new))
            self._strange.update(new)
        return [path for path in paths if path not in strange]

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
            if known := dict.fromkeys(p for p in named if self.context.knows(p)):
                states = self.zookeeper.read_states(known).found
                self.context.leadership.update(states)
                with self.batch.filling():
                    self.batch.add_metadata(states)
        finally:
            self.zookeeper.delete(paths)

    def _on_log_dir_events(self) -> None:
        """Ask the brokers named for the state of all their replicas, by LeaderAndIsr."""
        paths = self.watch_log_dir_events()
        try:
            brokers = sorted(self.context.brokers.keys() & set(self._read(paths, LogDirEventZnode.decode)))
        finally:
            self.zookeeper.delete(paths)
        with self.batch.filling():
            self.replicas.move(self.context.replicas_on(brokers, ReplicaStatus.ONLINE), ReplicaStatus.ONLINE)
