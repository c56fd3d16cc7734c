"""All logs of a broker, and the log dirs they lie in (BRK-33, 41, 137 to 150, 159).

A log dir whose disk fails is taken offline: its logs are let go, their partitions are told to the broker, the other
dirs go on. Source: Kafka 1.1.1 log/LogManager.scala.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kafkatool.broker.runtime.gc_pause import gc_paused, pause_gc, resume_gc
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.broker.storage.checkpoint import CheckpointDamagedError
from kafkatool.broker.storage.compaction.log_cleaner import LogCleaner
from kafkatool.broker.storage.directories.directory_removal import DirectoryRemoval
from kafkatool.broker.storage.directories.log_dir import LogDir
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.log.log_state import LogServices
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import StorageError
from kafkatool.core.model.topic_names import InvalidTopicError, check_name
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

_FIRST_RUN_MS = 30_000  # background work waits until the start is over
_RELEASE_PERIOD_MS = 60_000
_GATHER_MS = 1000
_MANY = 100  # logs made in that time are worth taking from the cycle collector

DirFailure = Callable[[Path, Sequence[TopicPartition]], None]
"""A function called once for each log dir that fails, on a scheduler thread: its path, and the partitions that lay there."""


class LogManager:
    """Owner of every Log. Any thread may call."""

    def __init__(
        self,
        config: BrokerConfig,
        overrides_of: Callable[[str], Mapping[str, str]],
        scheduler: Scheduler,
        cluster_id: str | None = None,
    ) -> None:
        """Take ``overrides_of(topic)``, which gives the topic's own configs."""
        self._config = config
        self._overrides_of = overrides_of
        self._scheduler = scheduler
        self.cluster_id = cluster_id
        self._on_dir_failure: DirFailure = lambda _path, _lost: None
        self._lock = threading.RLock()
        self._dirs: list[LogDir] = []
        self._offline: dict[Path, Exception] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._just_deleted: set[TopicPartition] = set()  # still in the checkpoints
        self._made = 0  # logs, since the collector was told to rest
        self._config_changes = 0
        self._cleaner = LogCleaner(config, self.logs)
        self._removal = DirectoryRemoval()
        self._closed = False

    # --- start and stop ------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Lock the log dirs and open every log in them.

        Raises StorageError when a dir is in use or holds something foreign, or when none can be used. Whatever stops it,
        the locks are given back, and nothing says that the dirs were closed cleanly.
        """
        try:
            with gc_paused():
                self._load()
        except BaseException:  # an interrupt, too, must not leave the dirs locked for the rest of the process
            self.abandon()
            raise

    def _load(self) -> None:
        for path in self._config.log_dirs:
            try:
                self._dirs.append(LogDir(path))
            except OSError as e:
                self.take_offline(path, e)
        self._for_each_dir(self._load_dir)
        if not self._dirs:
            reasons = "; ".join(f"{path}: {error}" for path, error in self._offline.items())
            raise StorageError(f"no log dir can be used: {reasons}")

    def abandon(self) -> None:
        """Let go of the logs and the dirs without writing, as a crash does."""
        with self._lock:
            self._closed = True
        for directory in self._dirs:
            for one in directory.logs:
                one.abandon()
            directory.close()

    def _load_dir(self, directory: LogDir) -> None:
        found = dict(directory.partitions())
        for partition, path in found.items():
            if partition in self._logs:
                raise StorageError(f"{partition} lies in two log dirs: {path} and {self._logs[partition].directory}")
        configs = {topic: self._log_config(topic) for topic in {partition.topic for partition in found}}
        threads = self._config.num_recovery_threads_per_data_dir
        directory.open_logs(found, configs, self._services(directory), threads)
        self._logs |= {one.partition: one for one in directory.logs}

    def start_tasks(self, scheduler: Scheduler) -> None:
        """Begin retention, flush by time, the checkpoints and compaction."""
        config = self._config
        tasks: list[tuple[str, Callable[[], object], int]] = [
            ("log-retention", self.apply_retention, config.log_retention_check_interval_ms),
            ("log-recovery-points", self.write_recovery_points, config.log_flush_offset_checkpoint_interval_ms),
            ("log-start-offsets", self.write_log_starts, config.log_flush_start_offset_checkpoint_interval_ms),
            ("log-release", self._release_idle, _RELEASE_PERIOD_MS),
        ]
        if config.log_flush_scheduler_interval_ms != NO_LIMIT:
            tasks.append(("log-flush", self.flush_due, config.log_flush_scheduler_interval_ms))
        for name, task, period_ms in tasks:
            scheduler.schedule(name, task, delay_ms=min(_FIRST_RUN_MS, period_ms), period_ms=period_ms)
        if config.log_cleaner_enable:
            self._cleaner.start()

    def stop_erasing(self) -> None:
        """Begin to erase no further deleted partition: those are left to the next start (BRK-150)."""
        self._removal.stop()

    def shutdown(self) -> None:
        """Flush and close every log, write checkpoints and the mark of a clean stop, unlock (BRK-127)."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._cleaner.stop()
        self.stop_erasing()
        for directory in list(self._dirs):
            try:
                directory.close_logs()
            except (OSError, StorageError):
                log.exception("%s could not be closed cleanly; its logs are scanned at the next start", directory.path)
            directory.close()

    # --- logs ----------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log, if this broker has it in a dir that works."""
        return self._logs.get(partition)

    def logs(self) -> list[Log]:
        """Return all of them."""
        with self._lock:
            return list(self._logs.values())

    def get_or_create(self, partition: TopicPartition, is_new: bool = False) -> Log:
        """Return the log; a new one goes to the dir with the fewest partitions (BRK-41).

        While a dir is offline a log that is not new may lie there: it is not made anew (BRK-159). Raises StorageError, and
        what ``overrides_of`` raises.
        """
        if (found := self._logs.get(partition)) is not None:
            return found
        _check_name(partition)
        while True:
            changes = self._config_changes
            config = self._log_config(partition.topic)  # asks ZooKeeper: not under the lock
            with self._lock:
                if (found := self._logs.get(partition)) is not None:
                    return found
                if changes == self._config_changes:  # else what was read may be outdated
                    return self._create(partition, config, is_new)

    def _create(self, partition: TopicPartition, config: LogConfig, is_new: bool) -> Log:
        """Make the log; under the lock."""
        if self._offline and not is_new:
            raise StorageError(f"{partition} may lie in a log dir that is offline: {list(map(str, self._offline))}")
        if not self._dirs or self._closed:
            raise StorageError(f"{partition}: no log dir is usable")
        if partition in self._just_deleted:
            self._forget_deleted()  # else a crash now would apply the old log's offsets to the new one
        directory = min(self._dirs, key=lambda one: one.log_count)
        path = directory.partition_path(partition)
        try:
            path.mkdir()
            created = open_log(path, partition, config, self._services(directory), clean=True)
        except OSError as e:
            self.take_offline(directory.path, e)
            raise StorageError(f"{partition} cannot be created in {directory.path}: {e}") from e
        self._logs[partition] = created
        directory.add(created)
        self._made += 1
        if self._made == 1 and pause_gc():
            self._scheduler.schedule("log-settle", self._settle, delay_ms=_GATHER_MS)
        return created

    def _settle(self) -> None:
        """Let the collector go on: the logs of a moment are made, and what their partitions need beside them."""
        with self._lock:
            made, self._made = self._made, 0
        resume_gc(keep=made >= _MANY)

    def delete(self, partition: TopicPartition) -> None:
        """Drop the log: renamed now, erased after ``file.delete.delay.ms`` (BRK-150). Nothing when there is none.

        Raises StorageError.
        """
        with self._lock:
            doomed = self._logs.pop(partition, None)
            if doomed is None:
                return
            directory = next(one for one in self._dirs if one.remove(partition))
            self._just_deleted.add(partition)
        doomed.abandon()  # first: retention or compaction, finding no files, would take the disk for broken
        try:
            renamed = directory.rename_deleted(doomed.directory)
        except OSError as e:
            self.take_offline(directory.path, e)
            raise StorageError(f"{partition}: {e}") from e
        doomed.abandon(renamed)
        delay_ms = doomed.config.file_delete_delay_ms
        self._scheduler.schedule("log-delete", lambda: self._removal.erase(renamed), delay_ms=delay_ms)
        self._scheduler.schedule("log-checkpoint", self._forget_deleted, delay_ms=_GATHER_MS)

    def _forget_deleted(self) -> None:
        """Take deleted logs out of the checkpoints; one writing serves all deletions of a moment."""
        with self._lock:
            pending, self._just_deleted = self._just_deleted, set()
        if not pending:
            return
        self.write_recovery_points()
        self.write_log_starts()
        self._for_each_dir(LogDir.write_cleaned_offsets)
        self._for_each_dir(lambda directory: directory.forget_high_watermarks(pending))

    def update_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply the topic's changed configs to its logs at once."""
        config = LogConfig.from_broker(self._config, overrides)
        with self._lock:
            self._config_changes += 1
        for one in self.logs():
            if one.partition.topic == topic:
                one.update_config(config)

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_broker(self._config, self._overrides_of(topic))

    def _services(self, directory: LogDir) -> LogServices:
        return LogServices(
            defer=lambda fn, delay_ms: self._scheduler.schedule("log-job", fn, delay_ms=delay_ms),
            on_io_error=lambda error: self.take_offline(directory.path, error),
            on_recovery_point_lowered=lambda: self._guarded(directory, LogDir.write_recovery_points),
            on_cleaned_to_changed=lambda: self._guarded(directory, LogDir.write_cleaned_offsets),
        )

    # --- background work -----------------------------------------------------------------------------------------

    def apply_retention(self) -> int:
        """Remove what no log has to keep, and idle producers; return how many segments went."""
        idle_since = time.time() * 1000 - self._config.transactional_id_expiration_ms
        removed = 0
        for one in self.logs():
            with contextlib.suppress(StorageError):  # its dir was taken offline; go on with the others
                one.expire_producers(int(idle_since))
                removed += one.apply_retention()
        return removed

    def flush_due(self) -> None:
        """Flush the logs whose ``flush.ms`` has passed."""
        now_ms = time.time() * 1000
        for one in self.logs():
            if now_ms - one.state.last_flush_ms >= one.config.flush_ms:
                with contextlib.suppress(StorageError):  # as above
                    one.flush()

    def _release_idle(self) -> None:
        for one in self.logs():
            one.release_idle()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def write_recovery_points(self) -> None:
        """Checkpoint how far each log is on the disk for sure."""
        self._for_each_dir(LogDir.write_recovery_points)

    def write_log_starts(self) -> None:
        """Checkpoint the log starts that the segments do not show (BRK-141)."""
        self._for_each_dir(LogDir.write_log_starts)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the checkpointed ones of all live dirs; a dir whose file is damaged goes offline."""
        found: dict[TopicPartition, int] = {}
        self._for_each_dir(lambda directory: found.update(directory.read_high_watermarks()))
        return found

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Checkpoint those of partitions with a log here, each in its log's dir (BRK-80)."""
        self._for_each_dir(lambda directory: directory.write_high_watermarks(offsets))

    # --- dirs ----------------------------------------------------------------------------------------------------

    @property
    def live_dirs(self) -> list[Path]:
        """Return those that work."""
        return [directory.path for directory in list(self._dirs)]

    @property
    def offline_dirs(self) -> list[Path]:
        """Return those that failed, at the start or since."""
        return list(self._offline)

    def on_dir_failure(self, listener: DirFailure) -> None:
        """Have ``listener`` told of each log dir that fails from now on."""
        self._on_dir_failure = listener

    def _for_each_dir(self, work: Callable[[LogDir], object]) -> None:
        for directory in list(self._dirs):
            self._guarded(directory, work)

    def _guarded(self, directory: LogDir, work: Callable[[LogDir], object]) -> None:
        """Do the work on the dir; one whose disk fails, or whose checkpoints are damaged, goes offline."""
        try:
            work(directory)
        except (OSError, CheckpointDamagedError) as e:
            self.take_offline(directory.path, e)

    def take_offline(self, path: Path, error: Exception) -> None:
        """Read nothing from the dir and write nothing to it from now on (BRK-146)."""
        with self._lock:
            if path in self._offline or self._closed:
                return
            self._offline[path] = error
            failed = [directory for directory in self._dirs if directory.path == path]
            lost = [one for directory in failed for one in directory.logs]
            for one in lost:
                self._logs.pop(one.partition, None)  # at the start they may not be known yet
            self._dirs = [directory for directory in self._dirs if directory.path != path]
        log.error("log dir %s is offline with %d partitions: %s", path, len(lost), error)
        for one in lost:
            one.state.closed = True
        for directory in failed:
            directory.close()
        # not here: the caller may hold a log's lock
        tell, partitions = self._on_dir_failure, [one.partition for one in lost]
        self._scheduler.submit(lambda: tell(path, partitions), "log-dir-failure")


def _check_name(partition: TopicPartition) -> None:
    """Refuse a name that is neither a fault of the disk nor a way out of the log dir. Raises StorageError."""
    try:
        check_name(partition.topic)
    except InvalidTopicError as e:
        raise StorageError(f"there can be no partition {partition}: {e}") from e
    if partition.partition < 0:
        raise StorageError(f"there can be no partition {partition}")
