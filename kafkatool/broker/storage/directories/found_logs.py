"""The partition directories that a start finds: which are opened as logs, which as copies of logs, which are renamed away.

The passes go over all log dirs one after the other; a dir that fails in one has no part in the next (BRK-145, ADM-69).
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from kafkatool.broker.storage.directories.log_dir import DELETED, STRAY, LogDir
from kafkatool.broker.storage.directories.taking_over import outdated, read_moves
from kafkatool.broker.storage.directories.topic_identity import (
    Judgement,
    TopicIdentity,
    read_identity,
    write_identity,
)
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

ForEachDir = Callable[[Callable[[LogDir], object]], None]
"""A function that does the given work on each dir that works, and takes offline the one whose disk fails in it."""
Judge = Callable[[Mapping[TopicPartition, TopicIdentity | None]], Judgement]


class FoundLogs:
    """The directories by log dir and partition, and the partitions of those renamed away."""

    def __init__(self, for_each_dir: ForEachDir, judge: Judge, erase_later: Callable[[Path], None]) -> None:
        self._for_each_dir = for_each_dir
        self._judge = judge
        self._erase_later = erase_later
        self._numbers: dict[TopicPartition, dict[Path, int]] = {}
        self.logs: dict[Path, dict[TopicPartition, Path]] = {}
        self.copies: dict[Path, dict[TopicPartition, Path]] = {}
        self.gone: set[TopicPartition] = set()

    def find(self, *, some_offline: Callable[[], bool]) -> None:
        """Look through all dirs. Raises StorageError for what is foreign, and where it is not known what to open."""
        self._for_each_dir(self._look)
        self._for_each_dir(self._count_moves)
        self._for_each_dir(self._drop_outdated)
        self._for_each_dir(self._set_aside_strays)
        self._for_each_dir(lambda directory: self._find_copies(directory, some_offline=some_offline()))

    def _look(self, directory: LogDir) -> None:
        for stray in directory.strays():
            self._erase_later(stray)
        self.logs[directory.path] = dict(directory.partitions())
        self.copies[directory.path] = {}

    def _count_moves(self, directory: LogDir) -> None:
        counts = Counter(partition for found in self.logs.values() for partition in found)
        for partition, path in self.logs[directory.path].items():
            if counts[partition] > 1:
                self._numbers.setdefault(partition, {})[path] = read_moves(path)

    def _drop_outdated(self, directory: LogDir) -> None:
        """Leave one directory of each partition: the broker, or a log dir, went down in the last step of a move."""
        found = self.logs[directory.path]
        for partition, path in [(p, found[p]) for p in self._numbers if p in found]:
            if path in outdated(self._numbers[partition]):
                log.warning("%s is not the log of %s any more, which has moved to another log dir", path, partition)
                self._rename(directory, partition, found.pop(partition), DELETED)

    def _set_aside_strays(self, directory: LogDir) -> None:
        """Set aside strays among logs not yet open; note of the others which topics they are of. Raises OSError.

        Those not noted were made by Kafka or an earlier version, or while ZooKeeper could not be asked; and if it is
        another ZooKeeper by now, all are noted anew.
        """
        found = self.logs[directory.path]
        noted = {partition: read_identity(path) for partition, path in found.items()}
        strays, identities = self._judge(noted)
        for partition, before in noted.items():
            now = identities.get(partition.topic)
            if partition in strays:
                stray = self._rename(directory, partition, found.pop(partition), STRAY)
                log.warning(
                    "%s is not assigned to this broker, or its log is of an earlier topic of that name: set aside as "
                    "%s, erased in 24 h",
                    partition,
                    stray,
                )
            elif now is not None and now != before:
                write_identity(found[partition], now)

    def _find_copies(self, directory: LogDir, *, some_offline: bool) -> None:
        """Find the logs on their way here; what is a copy of no log that is here is set aside. Raises OSError."""
        for partition, path in directory.futures():
            original = next((found[partition] for found in self.logs.values() if partition in found), None)
            if original is None and some_offline:
                log.warning("%s is left alone: what it is a copy of may lie in a log dir that is offline", path)
            elif original is not None and self._is_copy(path, partition, original):
                self.copies[directory.path][partition] = path
            else:
                stray = self._rename(directory, partition, path, STRAY)
                log.warning("%s is no copy of a log that is here: set aside as %s, erased in 24 h", path, stray)

    def _is_copy(self, path: Path, partition: TopicPartition, original: Path) -> bool:
        if original.parent == path.parent or any(partition in copies for copies in self.copies.values()):
            return False
        made_for, topic = read_identity(path), read_identity(original)
        if made_for is None and topic is not None:
            write_identity(path, topic)  # it is Kafka's, or was made when the log's was not known
        return made_for is None or topic is None or made_for == topic

    def _rename(self, directory: LogDir, partition: TopicPartition, path: Path, kind: str) -> Path:
        renamed = directory.rename_away(partition, path, kind)
        self.gone.add(partition)
        if kind == STRAY:
            self._erase_later(renamed)
        return renamed
