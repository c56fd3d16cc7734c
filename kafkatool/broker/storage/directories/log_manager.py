"""All logs of a broker, and the log dirs they lie in (BRK-33, 41, 137 to 150, 159).

A log dir whose disk fails is taken offline: its logs are let go, their partitions are told to the broker, the other
dirs go on. Source: Kafka 1.1.1 log/LogManager.scala.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafkatool.broker.runtime import gc_pause as long_lived
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.broker.storage.checkpoint import CheckpointDamagedError
from kafkatool.broker.storage.compaction.log_cleaner import LogCleaner
from kafkatool.broker.storage.directories.directory_removal import DirectoryRemoval
from kafkatool.broker.storage.directories.log_dir import LogDir
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.log.log_values import LogServices
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import StorageError
from kafkatool.core.model.topic_names import InvalidTopicError, check_name
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

_FIRST_RUN_MS = 30_000  # background work waits until the start is over
_RELEASE_PERIOD_MS = 60_000
_GATHER_MS = 1000
_MANY = 100  # logs made in that time are worth taking from the cycle collector
_CLOSING_THREADS = 4  # fsyncs of several files at a time share the disk's journal writes

DirFailure = Callable[[Path, Sequence[TopicPartition]], None]
"""Told once for each log dir that fails, on a scheduler thread: which, and the partitions that had their log there."""


class LogManager:
    """Owner of every Log. Any thread may call."""

    def __init__(
        self,
        config: BrokerConfig,
        overrides_of: Callable[[str], Mapping[str, str]],
        scheduler: Scheduler,
        cluster_id: str | None = None,
    ) -> None:
        """``overrides_of(topic)`` gives the topic's own configs."""
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
            with long_lived.long_lived_objects():
                self._load()
        except BaseException:  # an interrupt, too, must not leave the dirs locked for the rest of the process
            self._let_go()
            raise

    def _load(self) -> None:
        for path in self._config.log_dirs:
            try:
                self._dirs.append(LogDir(path))
            except OSError as e:
                self._take_offline(path, e)
        for directory in list(self._dirs):
            try:
                self._load_dir(directory)
            except (OSError, CheckpointDamagedError) as e:
                self._take_offline(directory.path, e)
        if not self._dirs:
            reasons = "; ".join(f"{path}: {error}" for path, error in self._offline.items())
            raise StorageError(f"no log dir can be used: {reasons}")

    def _let_go(self) -> None:
        with self._lock:
            self._closed = True
        for one in self.logs():
            one.abandon()
        for directory in self._dirs:
            directory.close()

    def _load_dir(self, directory: LogDir) -> None:
        started = time.monotonic()
        recovery_points = directory.read_recovery_points()
        log_starts = directory.read_log_starts()
        cleaned = directory.read_cleaned_offsets()
        found = list(directory.partitions())
        for partition, path in found:
            if partition in self._logs:
                raise StorageError(f"{partition} lies in two log dirs: {path} and {self._logs[partition].directory}")
        configs = {topic: self._log_config(topic) for topic in {partition.topic for partition, _ in found}}

        def open_one(partition: TopicPartition, path: Path) -> Log:
            opened = open_log(
                path,
                partition,
                configs[partition.topic],
                self._services(directory),
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=log_starts.get(partition, 0),
                clean=directory.was_clean,
            )
            opened.cleaned_to = cleaned.get(partition)
            return opened

        threads = self._config.num_recovery_threads_per_data_dir
        with ThreadPoolExecutor(threads, "log-recovery") if threads > 1 else contextlib.nullcontext() as pool:
            opened = (
                [open_one(*item) for item in found]
                if pool is None
                else list(pool.map(lambda item: open_one(*item), found))
            )
        directory.logs = {one.partition: one for one in opened}
        self._logs |= directory.logs
        directory.remove_clean_marker()
        directory.erase_deleted()
        took = time.monotonic() - started
        how = "after a clean stop" if directory.was_clean else "after an unclean stop"
        log.info("%s: opened %d logs %s in %.2f s", directory.path, len(opened), how, took)

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
                with ThreadPoolExecutor(_CLOSING_THREADS, "log-close") as pool:
                    list(pool.map(_flush_and_close, directory.logs.values()))
                directory.write_recovery_points({p: one.recovery_point for p, one in directory.logs.items()})
                directory.write_log_starts(_raised_starts(directory.logs.values()))
                directory.write_clean_marker()
            except (OSError, StorageError):
                log.exception("%s could not be closed cleanly; its logs are scanned at the next start", directory.path)
            directory.close()

    # --- logs ----------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The log, if this broker has it in a dir that works."""
        return self._logs.get(partition)

    def logs(self) -> list[Log]:
        """All of them."""
        with self._lock:
            return list(self._logs.values())

    def get_or_create(self, partition: TopicPartition, is_new: bool = False) -> Log:
        """The log; a new one goes to the dir with the fewest partitions (BRK-41).

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
        """Under the lock."""
        if self._offline and not is_new:
            raise StorageError(f"{partition} may lie in a log dir that is offline: {list(map(str, self._offline))}")
        if not self._dirs or self._closed:
            raise StorageError(f"{partition}: no log dir is usable")
        if partition in self._just_deleted:
            self._forget_deleted()  # else a crash now would apply the old log's offsets to the new one
        directory = self._emptiest_dir()
        path = directory.partition_path(partition)
        try:
            path.mkdir()
            created = open_log(path, partition, config, self._services(directory), clean=True)
        except OSError as e:
            self._take_offline(directory.path, e)
            raise StorageError(f"{partition} cannot be created in {directory.path}: {e}") from e
        self._logs[partition] = directory.logs[partition] = created
        self._made += 1
        if self._made == 1 and long_lived.hold():
            self._scheduler.schedule("log-settle", self._settle, delay_ms=_GATHER_MS)
        return created

    def _settle(self) -> None:
        """The logs of a moment are made, and what their partitions need beside them."""
        with self._lock:
            made, self._made = self._made, 0
        long_lived.release(keep=made >= _MANY)

    def _emptiest_dir(self) -> LogDir:
        return min(self._dirs, key=lambda directory: len(directory.logs))

    def delete(self, partition: TopicPartition) -> None:
        """Drop the log: renamed now, erased after ``file.delete.delay.ms`` (BRK-150). Nothing when there is none.

        Raises StorageError.
        """
        with self._lock:
            doomed = self._logs.pop(partition, None)
            if doomed is None:
                return
            directory = next(d for d in self._dirs if d.logs.pop(partition, None) is not None)
            self._just_deleted.add(partition)
        doomed.abandon()  # first: retention or compaction, finding no files, would take the disk for broken
        try:
            renamed = directory.rename_deleted(doomed.directory)
        except OSError as e:
            self._take_offline(directory.path, e)
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
        for directory in list(self._dirs):
            self._write_cleaned_offsets(directory)
        for directory in list(self._dirs):
            try:
                directory.forget_high_watermarks(pending)
            except (OSError, CheckpointDamagedError) as e:
                self._take_offline(directory.path, e)

    def update_topic_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's configs changed: its logs go by them at once."""
        config = LogConfig.from_broker(self._config, overrides)
        with self._lock:
            self._config_changes += 1
        for one in self.logs():
            if one.partition.topic == topic:
                one.update_config(config)

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_broker(self._config, self._overrides_of(topic))

    def _logs_in(self, directory: LogDir) -> list[Log]:
        with self._lock:
            return list(directory.logs.values())

    def _services(self, directory: LogDir) -> LogServices:
        return LogServices(
            defer=lambda fn, delay_ms: self._scheduler.schedule("log-job", fn, delay_ms=delay_ms),
            on_io_error=lambda error: self._take_offline(directory.path, error),
            on_recovery_point_lowered=lambda: self._write_recovery_points(directory),
            on_cleaned_to_changed=lambda: self._write_cleaned_offsets(directory),
        )

    # --- background work -----------------------------------------------------------------------------------------

    def apply_retention(self) -> int:
        """Remove what no log has to keep, and idle producers; how many segments went."""
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
            if now_ms - one.last_flush_ms >= one.config.flush_ms:
                with contextlib.suppress(StorageError):  # as above
                    one.flush()

    def _release_idle(self) -> None:
        for one in self.logs():
            one.release_idle()

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def write_recovery_points(self) -> None:
        """Checkpoint how far each log is on the disk for sure."""
        for directory in list(self._dirs):
            self._write_recovery_points(directory)

    def _write_recovery_points(self, directory: LogDir) -> None:
        points = {one.partition: one.recovery_point for one in self._logs_in(directory)}
        self._checkpoint(directory, directory.write_recovery_points, points)

    def write_log_starts(self) -> None:
        """Checkpoint the log starts that the segments do not show (BRK-141)."""
        for directory in list(self._dirs):
            self._checkpoint(directory, directory.write_log_starts, _raised_starts(self._logs_in(directory)))

    def _write_cleaned_offsets(self, directory: LogDir) -> None:
        cleaned = {one.partition: one.cleaned_to for one in self._logs_in(directory) if one.cleaned_to is not None}
        self._checkpoint(directory, directory.write_cleaned_offsets, cleaned)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The checkpointed ones of all live dirs; a dir whose file is damaged goes offline."""
        found: dict[TopicPartition, int] = {}
        for directory in list(self._dirs):
            try:
                found |= directory.read_high_watermarks()
            except (OSError, CheckpointDamagedError) as e:
                self._take_offline(directory.path, e)
        return found

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Checkpoint those of partitions with a log here, each in its log's dir (BRK-80)."""
        for directory in list(self._dirs):
            here = {o.partition: offsets[o.partition] for o in self._logs_in(directory) if o.partition in offsets}
            self._checkpoint(directory, directory.write_high_watermarks, here)

    def _checkpoint(
        self,
        directory: LogDir,
        write: Callable[[Mapping[TopicPartition, int]], None],
        offsets: Mapping[TopicPartition, int],
    ) -> None:
        try:
            write(offsets)
        except OSError as e:
            self._take_offline(directory.path, e)

    # --- dirs ----------------------------------------------------------------------------------------------------

    @property
    def live_dirs(self) -> list[Path]:
        """Those that work."""
        return [directory.path for directory in list(self._dirs)]

    @property
    def offline_dirs(self) -> list[Path]:
        """Those that failed, at the start or since."""
        return list(self._offline)

    def on_dir_failure(self, listener: DirFailure) -> None:
        """Have ``listener`` told of each log dir that fails from now on."""
        self._on_dir_failure = listener

    def _take_offline(self, path: Path, error: Exception) -> None:
        """From now on nothing is read from or written to the dir (BRK-146)."""
        with self._lock:
            if path in self._offline or self._closed:
                return
            self._offline[path] = error
            failed = [directory for directory in self._dirs if directory.path == path]
            lost = [one for directory in failed for one in directory.logs.values()]
            for one in lost:
                del self._logs[one.partition]
            self._dirs = [directory for directory in self._dirs if directory.path != path]
        log.error("log dir %s is offline with %d partitions: %s", path, len(lost), error)
        for one in lost:
            one.closed = True
        for directory in failed:
            directory.close()
        # not here: the caller may hold a log's lock
        tell, partitions = self._on_dir_failure, [one.partition for one in lost]
        self._scheduler.submit(lambda: tell(path, partitions), "log-dir-failure")


def _flush_and_close(one: Log) -> None:
    one.flush()
    one.close()


def _raised_starts(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    return {
        one.partition: one.log_start_offset for one in logs if one.log_start_offset > one.segments.first.base_offset
    }


def _check_name(partition: TopicPartition) -> None:
    """Such a name is neither a fault of the disk nor a way out of the log dir. Raises StorageError."""
    try:
        check_name(partition.topic)
    except InvalidTopicError as e:
        raise StorageError(f"there can be no partition {partition}: {e}") from e
    if partition.partition < 0:
        raise StorageError(f"there can be no partition {partition}")
