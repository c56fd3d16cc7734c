"""One log dir: its lock, its checkpoint files, and the partition directories in it (BRK-137, 145 to 150)."""

import logging
import re
import shutil
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from kafkatool.broker.storage.checkpoint import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    CheckpointDamagedError,
    read_offsets,
    write_offsets,
)
from kafkatool.broker.storage.directories.dir_lock import DirLock
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

CLEAN_MARKER = ".kafka_cleanshutdown"
_PARTITION = re.compile(r"(.+)-(\d+)")  # a topic's name may hold "-": the last one counts
_DELETED = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")
_MAX_NAME_BYTES = 255  # of a file; a topic's name may take 249 of them
_FUTURE = re.compile(r".+-\d+\.[0-9a-f]{32}-future")


class LogDir:
    """A directory of ``log.dirs``. Locked from construction until ``close``."""

    def __init__(self, path: Path) -> None:
        """Make it if need be and lock it. Raises StorageError when it is in use, OSError when it cannot be used."""
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        """The open logs in it; kept by the log manager, under its lock."""
        path.mkdir(parents=True, exist_ok=True)
        self._lock = DirLock(path)
        self._writing = threading.Lock()  # two threads must not write one checkpoint at a time
        self.was_clean = (path / CLEAN_MARKER).exists()

    def partitions(self) -> Iterator[tuple[TopicPartition, Path]]:
        """The partition directories. Raises StorageError for one that is none of ours (BRK-145)."""
        for path in sorted(self.path.iterdir()):
            if not path.is_dir() or _DELETED.fullmatch(path.name):
                continue
            if _FUTURE.fullmatch(path.name):
                log.warning("%s: replicas being moved between log dirs are left alone", path)
                continue
            match = _PARTITION.fullmatch(path.name)
            if match is None:
                raise StorageError(f"{path} is not a partition directory (topic-partition): move it out of log.dirs")
            yield TopicPartition(match[1], int(match[2])), path

    def erase_deleted(self) -> None:
        """Remove the directories that a deletion left behind (BRK-150). Raises OSError."""
        for path in list(self.path.iterdir()):
            if _DELETED.fullmatch(path.name):
                shutil.rmtree(path)

    def partition_path(self, partition: TopicPartition) -> Path:
        """Where its log lies or would lie."""
        return self.path / f"{partition.topic}-{partition.partition}"

    def rename_deleted(self, path: Path) -> Path:
        """Give a partition directory the name of one that waits for removal. Raises OSError."""
        topic, _, number = path.name.rpartition("-")
        rest = f"-{number}.{uuid.uuid4().hex}-delete"
        renamed = path.with_name(topic[: _MAX_NAME_BYTES - len(rest)] + rest)  # names of topics are ASCII
        path.rename(renamed)
        return renamed

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def read_recovery_points(self) -> dict[TopicPartition, int]:
        """A damaged file counts as all 0 (BRK-138). Raises OSError."""
        try:
            return read_offsets(self.path / RECOVERY_POINTS)
        except CheckpointDamagedError as e:
            log.warning("%s; every log of this dir is scanned from its start", e)
            return {}

    def read_log_starts(self) -> dict[TopicPartition, int]:
        """Raises CheckpointDamagedError, OSError."""
        return read_offsets(self.path / LOG_START_OFFSETS)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Raises CheckpointDamagedError, OSError."""
        return read_offsets(self.path / REPLICATION_OFFSETS)

    def read_cleaned_offsets(self) -> dict[TopicPartition, int]:
        """Where compaction goes on (BRK-167). Raises CheckpointDamagedError, OSError."""
        return read_offsets(self.path / CLEANER_OFFSETS)

    def write_cleaned_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises OSError."""
        self._write(CLEANER_OFFSETS, offsets)

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises OSError."""
        self._write(RECOVERY_POINTS, offsets)

    def write_log_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises OSError."""
        self._write(LOG_START_OFFSETS, offsets)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Raises OSError."""
        self._write(REPLICATION_OFFSETS, offsets)

    def forget_high_watermarks(self, partitions: Collection[TopicPartition]) -> None:
        """Their logs were deleted. Raises CheckpointDamagedError, OSError."""
        with self._writing:
            offsets = self.read_high_watermarks()
            left = {partition: offset for partition, offset in offsets.items() if partition not in partitions}
            if len(left) < len(offsets):
                write_offsets(self.path / REPLICATION_OFFSETS, left)

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._writing:
            write_offsets(self.path / name, offsets)

    def remove_clean_marker(self) -> None:
        """The dir is in use: from now on a crash must be noticed. Raises OSError."""
        (self.path / CLEAN_MARKER).unlink(missing_ok=True)

    def write_clean_marker(self) -> None:
        """Everything is flushed and closed. Raises OSError."""
        (self.path / CLEAN_MARKER).touch()

    def close(self) -> None:
        """Give up the lock."""
        self._lock.release()
