"""One log dir: its lock, its checkpoint files, the partition directories and logs in it (BRK-137, 145 to 150)."""

import contextlib
import logging
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafkatool.broker.storage.checkpoint import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    CheckpointDamagedError,
    is_passing,
    read_offsets,
    sync_directory,
    write_offsets,
)
from kafkatool.broker.storage.directories import boot_note
from kafkatool.broker.storage.directories.dir_lock import DirLock
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.log.log_state import LogServices
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

CLEAN_MARKER = ".kafka_cleanshutdown"
_PARTITION = re.compile(r"(.+)-(\d+)")  # a topic's name may hold "-": the last one counts
DELETED, STRAY, FUTURE = "delete", "stray", "future"
_DELETED = re.compile(rf".+-\d+\.[0-9a-f]{{32}}-{DELETED}")
_STRAY = re.compile(rf".+-\d+\.[0-9a-f]{{32}}-{STRAY}")
_FUTURE = re.compile(rf"(.+)-(\d+)\.[0-9a-f]{{32}}-{FUTURE}")
MAX_NAME_BYTES = 255  # of a file; a topic's name may take 249 of them
_CLOSING_THREADS = 4  # fsyncs of several files at a time share the disk's journal writes


def future_name(partition: TopicPartition) -> str:
    """Return a name as Kafka gives to the directory of a log on its way to another log dir."""
    return f"{partition.topic}-{partition.partition}.{uuid.uuid4().hex}-{FUTURE}"


class LogDir:
    """A directory of ``log.dirs``. Locked from construction until ``close``."""

    def __init__(self, path: Path) -> None:
        """Make it if need be and lock it. Raises StorageError when it is in use, OSError when it cannot be used."""
        self.path = path
        self._logs: dict[TopicPartition, Log] = {}
        self._logs_lock = threading.Lock()
        path.mkdir(parents=True, exist_ok=True)
        self._lock = DirLock(path)
        self._writing = threading.Lock()  # two threads must not write one checkpoint at a time
        self._was_clean = (path / CLEAN_MARKER).exists()
        self._is_boot_noted = False
        self._written_log_starts: dict[TopicPartition, int] | None = None

    def partitions(self) -> Iterator[tuple[TopicPartition, Path]]:
        """Yield the partition directories. Raises StorageError for one that is none of ours (BRK-145)."""
        for path in sorted(self.path.iterdir()):
            if not path.is_dir() or any(kind.fullmatch(path.name) for kind in (_DELETED, _STRAY, _FUTURE)):
                continue
            match = _PARTITION.fullmatch(path.name)
            if match is None:
                raise StorageError(f"{path} is not a partition directory (topic-partition): move it out of log.dirs")
            yield TopicPartition(match[1], int(match[2])), path

    def futures(self) -> Iterator[tuple[TopicPartition, Path]]:
        """Yield the directories of logs on their way to this dir (ADM-69). Raises OSError."""
        for path in sorted(self.path.iterdir()):
            if path.is_dir() and (match := _FUTURE.fullmatch(path.name)) is not None:
                yield TopicPartition(match[1], int(match[2])), path

    def erase_deleted(self) -> None:
        """Remove the directories that a deletion left behind (BRK-150). Raises OSError."""
        for path in list(self.path.iterdir()):
            if _DELETED.fullmatch(path.name):
                shutil.rmtree(path)

    def strays(self) -> list[Path]:
        """Return the directories that were set aside. Raises OSError."""
        return [path for path in self.path.iterdir() if _STRAY.fullmatch(path.name)]

    def partition_path(self, partition: TopicPartition) -> Path:
        """Return the directory in which its log lies or would lie."""
        return self.path / f"{partition.topic}-{partition.partition}"

    def future_path(self, partition: TopicPartition) -> Path:
        """Return a directory for a log on its way here, under a name that no other has."""
        return self.path / future_name(partition)

    def path_away(self, partition: TopicPartition, kind: str) -> Path:
        """Return a name that no log has, for DELETED or STRAY."""
        rest = f"-{partition.partition}.{uuid.uuid4().hex}-{kind}"
        return self.path / (partition.topic[: MAX_NAME_BYTES - len(rest)] + rest)  # names of topics are ASCII

    def rename_away(self, partition: TopicPartition, path: Path, kind: str) -> Path:
        """Give a partition directory such a name. Raises OSError.

        That of a stray is brought to the disk: the old name, back after a power cut, would be in the new log's place. Of a
        deletion's thousands none is: what comes back of them is a stray by then.
        """
        renamed = self.path_away(partition, kind)
        path.rename(renamed)
        if kind == STRAY:
            try:
                sync_directory(self.path)
            except OSError as e:
                if not is_passing(e):
                    raise
                log.warning("%s: its name may be lost with the power: %s", renamed, e)
        return renamed

    # --- open logs -----------------------------------------------------------------------------------------------

    @property
    def logs(self) -> list[Log]:
        """Return the open logs in it."""
        with self._logs_lock:
            return list(self._logs.values())

    @property
    def log_count(self) -> int:
        """Return how many there are."""
        return len(self._logs)

    def add(self, log: Log) -> None:
        """Take in a log that was made in it."""
        with self._logs_lock:
            self._logs[log.partition] = log

    def remove(self, one: Log) -> bool:
        """Take out the log; False when it is not in this dir."""
        with self._logs_lock:
            return self._logs.get(one.partition) is one and self._logs.pop(one.partition) is one

    def open_logs(
        self,
        partitions: Mapping[TopicPartition, Path],
        configs: Mapping[str, LogConfig],
        services: LogServices,
        threads: int,
        go_on: Callable[[], object],
    ) -> None:
        """Open the log of each partition directory; ``configs`` are by topic. Raises OSError, CheckpointDamagedError.

        ``go_on()`` is called before each; what it raises ends the opening.
        """
        started = time.monotonic()
        recovery_points = self._read_recovery_points()
        log_starts = read_offsets(self.path / LOG_START_OFFSETS)
        cleaned = read_offsets(self.path / CLEANER_OFFSETS)
        may_lack_data = boot_note.may_lack_data(self.path)

        def open_one(partition: TopicPartition) -> Log:
            go_on()
            opened = open_log(
                partitions[partition],
                partition,
                configs[partition.topic],
                services,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                clean=self._was_clean,
                # a copy may have lain in another dir's shadow while this one noted that nothing lacks
                may_lack_data=may_lack_data or _FUTURE.fullmatch(partitions[partition].name) is not None,
            )
            if cleaned.get(partition, 0) <= opened.log_end_offset:  # else it was cut, or another log lay here
                opened.state.cleaned_to = cleaned.get(partition)
            return opened

        with ThreadPoolExecutor(threads, "log-recovery") if threads > 1 else contextlib.nullcontext() as pool:
            self._logs = dict(zip(partitions, (pool.map if pool else map)(open_one, partitions), strict=True))
        if any(partition in cleaned and one.state.cleaned_to is None for partition, one in self._logs.items()):
            self.write_cleaned_offsets()  # before a log grows beyond it again: what it gets then is not clean
        if self._was_clean:  # from now on a crash must be noticed, a power cut, too
            (self.path / CLEAN_MARKER).unlink()
            sync_directory(self.path)
        self._note_boot()
        self.erase_deleted()
        took = time.monotonic() - started
        how = "after a clean stop" if self._was_clean else "after an unclean stop"
        log.info("%s: opened %d logs %s in %.2f s", self.path, len(partitions), how, took)

    def close_logs(self) -> None:
        """Flush and close the logs, write the checkpoints and the mark of a clean stop. Raises OSError, StorageError."""
        with ThreadPoolExecutor(_CLOSING_THREADS, "log-close") as pool:
            list(pool.map(_flush_and_close, self.logs))
        self.write_recovery_points()
        self.write_log_starts()
        (self.path / CLEAN_MARKER).touch()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def _read_recovery_points(self) -> dict[TopicPartition, int]:
        """Read the recovery points; a damaged file counts as all 0 (BRK-138). Raises OSError."""
        try:
            return read_offsets(self.path / RECOVERY_POINTS)
        except CheckpointDamagedError as e:
            log.warning("%s; every log of this dir is scanned from its start", e)
            return {}

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Read the checkpointed ones. Raises CheckpointDamagedError, OSError."""
        return read_offsets(self.path / REPLICATION_OFFSETS)

    def write_cleaned_offsets(self) -> None:
        """Checkpoint where compaction goes on (BRK-167). Raises OSError."""

        def ends() -> dict[TopicPartition, int]:
            found = ((one.partition, one.state.cleaned_to) for one in self.logs)
            return {partition: end for partition, end in found if end is not None}

        self._write(CLEANER_OFFSETS, ends)

    def write_recovery_points(self) -> None:
        """Checkpoint how far each log is on the disk for sure. Raises OSError."""
        self._write(RECOVERY_POINTS, lambda: {one.partition: one.state.recovery_point for one in self.logs})
        self._note_boot()

    def _note_boot(self) -> None:
        """Note this start of the system, as soon as no log has a gap that an earlier one may have left."""
        with self._writing:
            if self._is_boot_noted or any(one.gap_at is not None for one in self.logs):
                return
            try:
                boot_note.note(self.path)
                self._is_boot_noted = True
            except OSError as e:  # without it a later start looks once too often
                log.warning("%s: not noted that nothing lacks in it: %s", self.path, e)

    def write_log_starts(self) -> None:
        """Checkpoint the log starts that the segments do not show, if others than the last time (BRK-141). Raises OSError.

        Followers ask for it whenever a leader's log begins later: where retention took whole segments nothing is to be done.
        """
        with self._writing:
            starts = ((one, one.log_start_offset) for one in self.logs)
            raised = {one.partition: start for one, start in starts if start > one.segments.first.base_offset}
            if raised != self._written_log_starts:
                self._written_log_starts = None  # a write that fails leaves who knows what
                write_offsets(self.path / LOG_START_OFFSETS, raised)
                self._written_log_starts = raised

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Checkpoint those of the partitions with a log here (BRK-80). Raises OSError."""
        self._write(
            REPLICATION_OFFSETS,
            lambda: {one.partition: offsets[one.partition] for one in self.logs if one.partition in offsets},
        )

    def forget_high_watermarks(self, partitions: Collection[TopicPartition]) -> None:
        """Take out those of logs that are gone from this dir. Raises CheckpointDamagedError, OSError."""
        with self._writing:
            offsets = self.read_high_watermarks()
            gone = set(partitions).difference(self._logs)  # one that has left another dir may have come here
            left = {partition: offset for partition, offset in offsets.items() if partition not in gone}
            if len(left) < len(offsets):
                write_offsets(self.path / REPLICATION_OFFSETS, left)

    def _write(self, name: str, collect: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Write what is so now: collected before its turn, it could take the place of what was written since."""
        with self._writing:
            write_offsets(self.path / name, collect())

    def close(self) -> None:
        """Give up the lock."""
        self._lock.release()


def _flush_and_close(one: Log) -> None:
    one.flush()
    one.close()
