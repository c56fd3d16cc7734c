"""All logs of a broker, and the log dirs they lie in (BRK-33, 41, 137 to 150, 159).

A log dir whose disk fails is taken offline: its logs are let go, their partitions are told to the broker, the other
dirs go on. Source: Kafka 1.1.1 log/LogManager.scala.
"""

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from kafkatool.broker.runtime.gc_pause import gc_paused, pause_gc, resume_gc
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.settings.config import NO_LIMIT, BrokerConfig
from kafkatool.broker.storage.checkpoint import CheckpointDamagedError, is_passing
from kafkatool.broker.storage.compaction.log_cleaner import LogCleaner
from kafkatool.broker.storage.directories.directory_removal import DirectoryRemoval
from kafkatool.broker.storage.directories.found_logs import FoundLogs
from kafkatool.broker.storage.directories.log_dir import DELETED, MAX_NAME_BYTES, STRAY, LogDir, future_name
from kafkatool.broker.storage.directories.taking_over import prepare, take_over
from kafkatool.broker.storage.directories.topic_identity import (
    Judgement,
    TopicIdentity,
    read_identity,
    write_identity,
)
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.log.log_state import LogServices
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import OutOfResourcesError, StorageError
from kafkatool.core.model.topic_names import InvalidTopicError, check_name
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

_FIRST_RUN_MS = 30_000  # background work waits until the start is over
_RELEASE_PERIOD_MS = 60_000
_GATHER_MS = 1000
_STRAYS_KEPT_MS = 86_400_000  # counted from the start that finds them, not by a clock that may be set
_MANY = 100  # logs made in that time are worth taking from the cycle collector

DirFailure = Callable[[Path, Sequence[TopicPartition]], None]
"""A function called once for each log dir that fails, on a scheduler thread: its path, and the partitions that lay there."""


def _no_strays(_: object) -> Judgement:
    """Judge logs where no cluster is asked."""
    return Judgement(set(), {})


class LogManager:
    """Owner of every Log. Any thread may call."""

    def __init__(
        self,
        config: BrokerConfig,
        overrides_of: Callable[[str], Mapping[str, str]],
        scheduler: Scheduler,
        cluster_id: str | None = None,
        *,
        find_strays: Callable[[Mapping[TopicPartition, TopicIdentity | None]], Judgement] = _no_strays,
        identities_of: Callable[[Collection[str]], Mapping[str, TopicIdentity]] = lambda _: {},
        go_on: Callable[[], object] = lambda: None,
    ) -> None:
        """Take ``overrides_of(topic)``, which gives the topic's own configs.

        ``find_strays`` judges the logs found on disk, with the identity noted of each; ``identities_of`` tells which
        topics these names are now. ``go_on()`` is called before each log is opened, and raises to end the start.
        """
        self._config = config
        self._overrides_of = overrides_of
        self._scheduler = scheduler
        self.cluster_id = cluster_id
        self._find_strays = find_strays
        self._identities_of = identities_of
        self._go_on = go_on
        self._expected: Mapping[str, TopicIdentity] = {}  # by topic; replaced as a whole
        self._on_dir_failure: DirFailure = lambda _path, _lost: None
        self._lock = threading.RLock()
        self._dirs: list[LogDir] = []
        self._offline: dict[Path, Exception] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._copies: dict[TopicPartition, Log] = {}  # on their way to another log dir (ADM-69)
        self._wanted_dirs: dict[TopicPartition, Path] = {}  # of logs to be made
        self._just_deleted: set[TopicPartition] = set()  # still in the checkpoints
        self._made = 0  # logs, since the collector was told to rest
        self._config_changes = 0
        self._cleaner = LogCleaner(config, self._cleanable)
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
                _check_resources(path, e)
                self.take_offline(path, e)
        found = FoundLogs(
            lambda work: self._for_each_dir(work, needed=True),
            self._find_strays,
            self._erase_later,
        )
        found.find(some_offline=lambda: bool(self._offline))
        self._just_deleted |= found.gone
        self._for_each_dir(
            lambda directory: self._open(directory, found.logs[directory.path], found.copies[directory.path]),
            needed=True,
        )
        self._forget_deleted()
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

    def _open(
        self, directory: LogDir, found: Mapping[TopicPartition, Path], copies: Mapping[TopicPartition, Path]
    ) -> None:
        configs = {topic: self._log_config(topic) for topic in {partition.topic for partition in (*found, *copies)}}
        threads = self._config.num_recovery_threads_per_data_dir
        directory.open_logs({**found, **copies}, configs, self._services(directory), threads, self._go_on)
        for one in directory.logs:
            if one.partition in copies:
                one.state.cleaned_to = None  # the checkpoint may be of the log, which was cleaned since this was copied
                self._copies[one.partition] = one
            else:
                self._logs[one.partition] = one

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
        """Return all of them; not those on their way to another log dir."""
        with self._lock:
            return list(self._logs.values())

    def copies(self) -> list[Log]:
        """Return those on their way to another log dir."""
        with self._lock:
            return list(self._copies.values())

    def copy_of(self, partition: TopicPartition) -> Log | None:
        """Return its log on its way to another log dir."""
        return self._copies.get(partition)

    def _cleanable(self) -> list[Log]:
        """Return the logs that stay where they are: one that is cleaned is not what is being copied (ADM-69)."""
        with self._lock:
            return [one for partition, one in self._logs.items() if partition not in self._copies]

    def find_strays(self) -> set[TopicPartition]:
        """Return the partitions whose open logs are not this cluster's by now; nothing is done about them here."""
        noted: dict[TopicPartition, TopicIdentity | None] = {}

        def read(directory: LogDir) -> None:
            own = (one for one in directory.logs if self._logs.get(one.partition) is one)
            noted.update((one.partition, read_identity(one.directory)) for one in own)

        self._for_each_dir(read, needed=True)
        return self._find_strays(noted).strays

    def expect(self, topics: Collection[str]) -> None:
        """Ask which topics these are: it is noted beside the logs made for them from now on."""
        self._expected = self._identities_of(topics) if topics else {}

    def get_or_create(self, partition: TopicPartition, is_new: bool = False) -> Log:
        """Return the log; a new one goes to the dir asked for (ADM-68), else to that with the fewest partitions (BRK-41).

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
                if changes != self._config_changes:  # what was read may be outdated
                    continue
                created, path = self._create(partition, config, is_new)
            topic, number = partition
            log.info(
                "Created log for partition [%s,%d] in %s with properties {%s}.", topic, number, path, _text(config)
            )
            return created

    def _create(self, partition: TopicPartition, config: LogConfig, is_new: bool) -> tuple[Log, Path]:
        """Make the log; under the lock. Return it, and the log dir it is in."""
        if self._offline and not is_new:
            raise StorageError(f"{partition} may lie in a log dir that is offline: {list(map(str, self._offline))}")
        if not self._dirs or self._closed:
            raise StorageError(f"{partition}: no log dir is usable")
        if partition in self._just_deleted:
            self._forget_deleted()  # else a crash now would apply the old log's offsets to the new one
        asked_for = self._wanted_dirs.pop(partition, None)
        fewest = min(self._dirs, key=lambda one: one.log_count)
        directory = next((one for one in self._dirs if one.path == asked_for), fewest)
        path = directory.partition_path(partition)
        try:
            path.mkdir(exist_ok=True)  # from a try that lacked descriptors; no log is opened in it
            created = open_log(path, partition, config, self._services(directory), clean=True)
            self._note(path, partition.topic)
        except OSError as e:
            _check_resources(path, e)
            self.take_offline(directory.path, e)
            raise StorageError(f"{partition} cannot be created in {directory.path}: {e}") from e
        self._logs[partition] = created
        directory.add(created)
        self._made += 1
        if self._made == 1 and pause_gc():
            self._scheduler.schedule("log-settle", self._settle, delay_ms=_GATHER_MS)
        return created, directory.path

    def _note(self, path: Path, topic: str) -> None:
        """Note which topic the log in it is made for. Raises OSError for what is a failure of the disk."""
        if (identity := self._expected.get(topic)) is None:
            return
        try:
            write_identity(path, identity)
        except OSError as e:
            if not is_passing(e):
                raise
            log.warning("%s: which topic it is of is noted at the next start: %s", path, e)

    def _settle(self) -> None:
        """Let the collector go on: the logs of a moment are made, and what their partitions need beside them."""
        with self._lock:
            made, self._made = self._made, 0
        resume_gc(keep=made >= _MANY)

    def delete(self, partition: TopicPartition) -> None:
        """Drop the log: renamed now, erased after ``file.delete.delay.ms`` (BRK-150). Nothing when there is none.

        Raises StorageError.
        """
        if (doomed := self._take_away(partition, DELETED)) is not None:
            self._erase_soon(doomed)

    def set_aside(self, partition: TopicPartition) -> None:
        """Drop a log that belongs to no partition of this broker; its files are kept for a day. Raises StorageError."""
        if (stray := self._take_away(partition, STRAY)) is not None:
            log.warning("%s: the log here is not its own; set aside as %s, erased in 24 h", partition, stray.directory)
            self._erase_later(stray.directory)

    def _erase_later(self, stray: Path) -> None:
        self._scheduler.schedule("stray-erasing", lambda: self._removal.erase(stray), delay_ms=_STRAYS_KEPT_MS)

    def _take_away(self, partition: TopicPartition, kind: str) -> Log | None:
        """Let go of the log and rename its directory; None when there is none. Raises StorageError."""
        self.drop_copy(partition)
        with self._lock:
            self._wanted_dirs.pop(partition, None)
            gone = self._logs.pop(partition, None)
        if gone is not None:
            self._let_go(gone, kind)
        return gone

    def _let_go(self, gone: Log, kind: str) -> None:
        with self._lock:
            directory = next((one for one in self._dirs if one.remove(gone)), None)
            self._just_deleted.add(gone.partition)
        gone.abandon()  # first: retention or compaction, finding no files, would take the disk for broken
        if directory is None:
            return  # its dir went offline a moment ago
        try:
            renamed = directory.rename_away(gone.partition, gone.directory, kind)
        except OSError as e:
            self.take_offline(directory.path, e)
            raise StorageError(f"{gone.partition}: {e}") from e
        gone.abandon(renamed)
        self._scheduler.schedule("log-checkpoint", self._forget_deleted, delay_ms=_GATHER_MS)

    # --- logs that move to another dir (ADM-69) ------------------------------------------------------------------

    @staticmethod
    def can_move(partition: TopicPartition) -> bool:
        """Tell whether the file system takes the name of a copy: it has 40 characters more than the partition's own."""
        return len(future_name(partition)) <= MAX_NAME_BYTES

    def want_in(self, partition: TopicPartition, path: Path) -> None:
        """Have the log of the partition made in that dir, once it is made."""
        with self._lock:
            self._wanted_dirs[partition] = path

    def create_copy(self, partition: TopicPartition, path: Path) -> Log:
        """Make an empty log in another log dir, for the partition's to be copied to. Raises StorageError."""
        config = self._log_config(partition.topic)
        with self._lock:
            if self._offline or self._closed:
                raise StorageError(
                    f"{partition} cannot move while a log dir is offline: {list(map(str, self._offline))}"
                )
            moving = self._logs.get(partition)
            directory = next((one for one in self._dirs if one.path == path), None)
            if moving is None or directory is None or partition in self._copies:
                raise StorageError(f"{partition} cannot move to {path}")
            if partition in self._just_deleted:
                self._forget_deleted()  # else a crash now would apply an earlier copy's offsets to this one
            there = directory.future_path(partition)
            try:
                there.mkdir()
                created = open_log(there, partition, config, self._services(directory), clean=True)
                if (identity := read_identity(moving.directory)) is not None:
                    write_identity(there, identity)
            except OSError as e:
                if is_passing(e):
                    shutil.rmtree(there, ignore_errors=True)
                _check_resources(there, e)
                self.take_offline(directory.path, e)
                raise StorageError(f"{partition} cannot be copied to {path}: {e}") from e
            created.state.cleaned_to = (
                moving.state.cleaned_to
            )  # what a round under way cleans may be copied before that
            self._copies[partition] = created
            directory.add(created)
            self._wanted_dirs.pop(partition, None)
        log.info("%s moves from %s to %s", partition, moving.directory.parent, path)
        return created

    def drop_copy(self, partition: TopicPartition) -> None:
        """Give up the move of a log; the copy is erased later. Nothing when there is none. Raises StorageError."""
        with self._lock:
            copy = self._copies.pop(partition, None)
        if copy is not None:
            log.info("%s moves to %s no more", partition, copy.directory.parent)
            self._let_go(copy, DELETED)
            self._erase_soon(copy)

    def replace_with_copy(self, partition: TopicPartition) -> Log:
        """Have the copy take the place of the log, which has the same records; return it. The former one is erased later.

        Nobody appends to either meanwhile. Raises StorageError; if ``get`` gives the former log then, it goes on with it.
        """
        with self._lock:
            former, copy = self._logs.get(partition), self._copies.get(partition)
        if former is None or copy is None:
            raise StorageError(f"{partition} does not move")
        prepare(former, copy)
        with former.state.lock, copy.state.lock, self._lock:
            source, target = (
                next((one for one in self._dirs if one.path == each.directory.parent), None) for each in (former, copy)
            )
            if source is None or target is None:
                raise StorageError(f"{partition} does not move any more: its log dir is offline")
            copy.advance_log_start(former.log_start_offset)
            self._guarded(target, LogDir.write_log_starts, needed=True)
            if self._copies.get(partition) is not copy:
                raise StorageError(f"{partition} does not move any more")
            take_over(former, copy, target.partition_path(partition))
            self._logs[partition] = self._copies.pop(partition)
            source.remove(former)
            self._just_deleted.add(partition)
            former.state.closed = True
        log.info("%s has moved from %s to %s", partition, source.path, target.path)
        try:
            former.rename(source.path_away(partition, DELETED))  # reads under way go on
        except OSError as e:
            self.take_offline(source.path, e)
        self._scheduler.schedule("log-checkpoint", self._forget_deleted, delay_ms=_GATHER_MS)
        self._erase_soon(former)
        return copy

    def _erase_soon(self, gone: Log) -> None:
        directory, delay_ms = gone.directory, gone.config.file_delete_delay_ms
        self._scheduler.schedule("log-delete", lambda: self._removal.erase(directory), delay_ms=delay_ms)

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
        for one in (*self.logs(), *self.copies()):
            if one.partition.topic == topic:
                one.update_config(config)

    def update_defaults(self, config: BrokerConfig) -> None:
        """Go by this broker's changed defaults for topics, and its settings for compaction (KIP-226)."""
        self._cleaner.reconfigure(config)
        with self._lock:
            self._config = config
            self._config_changes += 1
        logs = [*self.logs(), *self.copies()]
        configs = {topic: self._log_config(topic) for topic in {one.partition.topic for one in logs}}
        for one in logs:
            one.update_config(configs[one.partition.topic])

    def _log_config(self, topic: str) -> LogConfig:
        return LogConfig.from_broker(self._config, self._overrides_of(topic))

    def _services(self, directory: LogDir) -> LogServices:
        return LogServices(
            defer=lambda fn, delay_ms: self._scheduler.schedule("log-job", fn, delay_ms=delay_ms),
            on_io_error=lambda error: self.take_offline(directory.path, error),
            on_recovery_point_lowered=lambda: self._guarded(directory, LogDir.write_recovery_points),
            on_start_lowered=lambda: self._guarded(directory, LogDir.write_log_starts),
            on_cleaned_to_changed=lambda: self._guarded(directory, LogDir.write_cleaned_offsets),
        )

    # --- background work -----------------------------------------------------------------------------------------

    def apply_retention(self) -> None:
        """Remove what no log has to keep, and idle producers."""
        idle_since = time.time() * 1000 - self._config.producer_id_expiration_ms
        for one in (*self.logs(), *self.copies()):
            with contextlib.suppress(StorageError):  # its dir was taken offline; go on with the others
                one.expire_producers(int(idle_since))
                one.apply_retention()

    def flush_due(self) -> None:
        """Flush the logs whose ``flush.ms`` has passed."""
        now_ms = time.time() * 1000
        for one in (*self.logs(), *self.copies()):
            if now_ms - one.state.last_flush_ms >= one.config.flush_ms:
                with contextlib.suppress(StorageError):  # as above
                    one.flush()

    def _release_idle(self) -> None:
        for one in (*self.logs(), *self.copies()):
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

        def read(directory: LogDir) -> None:
            here = directory.read_high_watermarks()
            moved = {one.partition for one in directory.logs if self._logs.get(one.partition) is not one}
            elsewhere = {p for p, one in self._logs.items() if one.directory.parent != directory.path}
            found.update({p: offset for p, offset in here.items() if p not in moved | elsewhere})

        self._for_each_dir(read, needed=True)
        return found

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Checkpoint those of partitions with a log here, each in its log's dir (BRK-80)."""

        def write(directory: LogDir) -> None:
            copies = [one for one in self.copies() if one.directory.parent == directory.path]
            reached = {one.partition: min(offsets.get(one.partition, 0), one.log_end_offset) for one in copies}
            try:
                directory.write_high_watermarks({**offsets, **reached} if reached else offsets)
            except OSError as e:
                if not is_passing(e):
                    log.critical("Error writing to highwatermark file: ", exc_info=e)
                raise

        self._for_each_dir(write)

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

    def _for_each_dir(self, work: Callable[[LogDir], object], *, needed: bool = False) -> None:
        for directory in list(self._dirs):
            self._guarded(directory, work, needed=needed)

    def _guarded(self, directory: LogDir, work: Callable[[LogDir], object], *, needed: bool = False) -> None:
        """Do the work on the dir; one whose disk fails, or whose checkpoints are damaged, goes offline.

        Where descriptors or memory are lacking it is left to the next time. Work that is ``needed`` raises
        OutOfResourcesError then.
        """
        try:
            work(directory)
        except (OSError, CheckpointDamagedError) as e:
            if needed:
                _check_resources(directory.path, e)
            if is_passing(e):
                log.warning("%s: a checkpoint is left to the next time: %s", directory.path, e)
            else:
                self.take_offline(directory.path, e)

    def take_offline(self, path: Path, error: Exception) -> None:
        """Read nothing from the dir and write nothing to it from now on (BRK-146)."""
        with self._lock:
            if path in self._offline or self._closed:
                return
            self._offline[path] = error
            failed = [directory for directory in self._dirs if directory.path == path]
            closing = [one for directory in failed for one in directory.logs]
            lost = [
                one for one in closing if self._logs.get(one.partition) is one
            ]  # at the start they may not be known yet
            for one in lost:
                del self._logs[one.partition]
            for one in closing:
                if self._copies.get(one.partition) is one:
                    del self._copies[one.partition]
            self._dirs = [directory for directory in self._dirs if directory.path != path]
        log.error("log dir %s is offline with %d partitions: %s", path, len(lost), error)
        for one in closing:
            one.state.closed = True
        for directory in failed:
            directory.close()
        # not here: the caller may hold a log's lock
        tell, partitions = self._on_dir_failure, [one.partition for one in lost]
        self._scheduler.submit(lambda: tell(path, partitions), "log-dir-failure")


@lru_cache(maxsize=1)
def _text(config: LogConfig) -> str:
    """Format a config: a topic's partitions, made one after the other, have the same."""
    return str(config)


def _check_resources(path: Path, error: Exception) -> None:
    """Raise OutOfResourcesError for what is no failure of the disk."""
    if is_passing(error):
        raise OutOfResourcesError(f"{path}: {error}") from error


def _check_name(partition: TopicPartition) -> None:
    """Refuse a name that is neither a fault of the disk nor a way out of the log dir. Raises StorageError."""
    try:
        check_name(partition.topic)
    except InvalidTopicError as e:
        raise StorageError(f"there can be no partition {partition}: {e}") from e
    if partition.partition < 0:
        raise StorageError(f"there can be no partition {partition}")
