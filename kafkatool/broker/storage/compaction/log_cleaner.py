"""The thread that compacts logs, the dirtiest first (BRK-167). Source: Kafka 2.3.1 log/LogCleaner.scala."""

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary, WeakSet

from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.checkpoint import is_passing
from kafkatool.broker.storage.compaction.compaction_plan import CleanPlan, plan_cleaning
from kafkatool.broker.storage.compaction.compaction_round import CleaningStoppedError, CompactionRound
from kafkatool.broker.storage.compaction.log_snapshot import LogSnapshot
from kafkatool.broker.storage.compaction.offset_map import OffsetMap
from kafkatool.broker.storage.compaction.throttle import CleanerThrottle
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.segment.retention import newest_ms
from kafkatool.core.errors import CorruptRecordsError, StorageError

log = logging.getLogger(__name__)

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ENOENT)  # no room, or retention was faster: no broken disk either


class LogCleaner:
    """The thread and its choice of logs, started and stopped once. Tests call ``clean_dirtiest`` without the thread."""

    def __init__(self, config: BrokerConfig, logs: Callable[[], Iterable[Log]]) -> None:
        """Take ``logs``, which gives all logs of the broker; those without ``compact`` are passed over."""
        self._config = config
        self._logs = logs
        self._stopping = threading.Event()
        self._offsets = OffsetMap(config.log_cleaner_dedupe_buffer_size)
        self._uncleanable: WeakSet[Log] = WeakSet()  # until the next start: what is wrong does not pass by itself
        self._waiting: WeakKeyDictionary[Log, float] = WeakKeyDictionary()  # not again before this time
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look for dirty logs every ``log.cleaner.backoff.ms``."""
        self._thread = threading.Thread(target=self._run, name="log-cleaner", daemon=True)
        self._thread.start()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go by changed settings from the next round or pause on (KIP-226)."""
        if config.log_cleaner_dedupe_buffer_size != self._config.log_cleaner_dedupe_buffer_size:
            self._offsets = OffsetMap(config.log_cleaner_dedupe_buffer_size)  # a round under way keeps its own
        self._config = config

    def stop(self) -> None:
        """Give up a round under way; what it has put in place already is whole."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                found = self.clean_dirtiest()
            except Exception:  # a thread's top: other logs must still be cleaned
                log.exception("compaction failed; trying again")
                found = False
            if not found:
                self._stopping.wait(max(self._config.log_cleaner_backoff_ms, 1) / 1000)

    def clean_dirtiest(self) -> bool:
        """Do one round on the log with the largest dirty part; False when no log is dirty enough."""
        best: tuple[LogSnapshot, CleanPlan] | None = None
        for one in self._logs():
            if not self._is_candidate(one):
                continue
            snapshot = LogSnapshot(one)
            try:
                plan = self._plan(snapshot)
            except OSError as e:
                self._on_io_error(snapshot, e)
                continue
            except Exception as e:  # noqa: BLE001 - told, and the other logs must still be cleaned
                self._on_unforeseen(snapshot, e)
                continue
            if plan is not None and (best is None or plan.ratio > best[1].ratio):
                best = (snapshot, plan)
        if best is None or self._stopping.is_set():
            return False
        self._clean(*best)
        return True

    def _is_candidate(self, one: Log) -> bool:
        if not one.config.compacted or one.state.closed or one in self._uncleanable:
            return False
        if one.gap_at is not None:  # in one segment with what is behind it, it would not be found again
            return False
        return len(one.segments) > 1 and self._waiting.get(one, 0) <= time.monotonic()

    def _plan(self, snapshot: LogSnapshot) -> CleanPlan | None:
        state = snapshot.log.state
        return plan_cleaning(
            snapshot.segments,
            state.config,
            cleaned_to=state.cleaned_to,
            log_start=state.log_start_offset,
            stable_offset=snapshot.stable_offset,
            log_end=state.end.offset,
            now_ms=time.time() * 1000,
            newest_ms=newest_ms,
        )

    def _clean(self, snapshot: LogSnapshot, plan: CleanPlan) -> None:
        one, started = snapshot.log, time.monotonic()
        offsets = self._offsets
        throttle = CleanerThrottle(self._config.log_cleaner_io_max_bytes_per_second, self._stopping)
        try:
            saved = CompactionRound(snapshot, plan, offsets, throttle).run()
        except CleaningStoppedError as e:
            log.info("compaction of %s was given up: %s", one.partition, e)
        except CorruptRecordsError as e:
            if snapshot.is_current():  # else it was cut where it was being read
                self._uncleanable.add(one)
                log.error("%s cannot be compacted and is left as it is until the next start: %s", one.partition, e)
        except StorageError as e:
            self._waiting[one] = time.monotonic() + self._config.log_cleaner_backoff_ms / 1000
            log.warning("compaction of %s: %s", one.partition, e)  # its dir is offline, or descriptors are lacking
        except OSError as e:
            self._on_io_error(snapshot, e)
        except Exception as e:  # noqa: BLE001 - likewise
            self._on_unforeseen(snapshot, e)
        else:
            took_s = time.monotonic() - started
            size_bytes = plan.clean_bytes + plan.dirty_bytes
            log.info("%s: compacted %d bytes to %d in %.1f s", one.partition, size_bytes, size_bytes - saved, took_s)
        finally:
            offsets.clear()

    def _on_unforeseen(self, snapshot: LogSnapshot, error: Exception) -> None:
        """Leave the log as it is: chosen again and again as the dirtiest, it would keep all others from being cleaned."""
        if not snapshot.is_current():
            return  # it was cut where it was being read
        if isinstance(error, MemoryError):
            self._wait_with(snapshot.log, error)
            return
        self._uncleanable.add(snapshot.log)
        log.error(
            "%s cannot be compacted, by an error in this program: please report it. Nothing is lost, but the log grows; "
            "after the next start compaction tries again",
            snapshot.log.directory,
            exc_info=error,
        )

    def _on_io_error(self, snapshot: LogSnapshot, error: OSError) -> None:
        """Leave the log as it is; an error that does not pass by itself takes the dir offline."""
        if not snapshot.is_current():
            return  # its files went while they were read
        one = snapshot.log
        if error.errno in _PASSING or is_passing(error):
            self._wait_with(one, error)
        else:
            one.state.disk_failed(error)

    def _wait_with(self, one: Log, error: Exception) -> None:
        self._waiting[one] = time.monotonic() + self._config.log_cleaner_backoff_ms / 1000
        log.warning("%s cannot be compacted now, trying again later: %s", one.partition, error or type(error).__name__)
