"""Config overrides by topic, as this broker last read them.

A topic's config node is written before the topic itself, without a notification, so it is read when the first log of
the topic is opened; later changes are announced (BRK-125). All are read in one pass before the logs are loaded.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from kafkatool.broker.settings.dynamic import read_overrides
from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode

log = logging.getLogger(__name__)


def topics_in(log_dirs: Iterable[Path]) -> set[str]:
    """List the topics that have a partition's directory ``topic-N`` there."""
    names = (entry.name for directory in log_dirs if directory.is_dir() for entry in directory.iterdir())
    return {topic for topic, dash, number in (n.rpartition("-") for n in names) if dash and number.isdecimal()}


class TopicOverrides:
    """The overrides of all topics. Thread-safe: entries are replaced as a whole."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._known: dict[str, Mapping[str, str]] = {}

    def preload(self, topics: Iterable[str]) -> None:
        """Read many at once. Raises ZooKeeperError."""
        names = sorted(set(topics))
        paths = [ConfigZnode.path("topics", name) for name in names]
        for name, path, node in zip(names, paths, self._zookeeper.get_many(paths), strict=True):
            try:
                self._known[name] = ConfigZnode.decode(path, node.data) if node else {}
            except ZnodeFormatError as e:
                log.warning("%s; it counts as having no overrides", e)
                self._known[name] = {}

    def of(self, topic: str) -> Mapping[str, str]:
        """Return the topic's overrides. Raises ZooKeeperError when they have to be read and cannot be."""
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = read_overrides(self._zookeeper, "topics", topic)
        return known

    def put(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Take over changed overrides."""
        self._known[topic] = overrides

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget their topics, which are being deleted; others of the same name may come."""
        for partition in partitions:
            self._known.pop(partition.topic, None)
