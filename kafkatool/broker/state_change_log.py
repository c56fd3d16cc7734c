"""``state-change.log``: one line for every transition and every control request, in Kafka's layout (CTL-23, CTL-117).

``[2016-01-01 10:00:00,123] TRACE <message> (state.change.logger)``, local time, rolled by the hour: at the first line
of a new hour the file gets the hour of its content as suffix. Source: Kafka 1.1.1 config/log4j.properties,
log4j DailyRollingFileAppender with pattern ``'.'yyyy-MM-dd-HH``.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger(__name__)

_HOUR_SUFFIX = ".%Y-%m-%d-%H"


class StateChangeLog:
    """The writer of one such file; thread-safe. With ``path`` None it discards everything.

    All lines of one ``write`` carry one time stamp and go out in one system call, so a batch of thousands is cheap.
    A line that cannot be written is reported once in the server log and lost: the broker's work goes before its diary.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._suffix = ""
        self._next_hour = 0.0
        self._failing = False

    @property
    def directory(self) -> Path | None:
        """Return the directory of the file; None: there is no file."""
        return None if self._path is None else self._path.parent

    def write(self, level: str, messages: Iterable[str]) -> None:
        """Append one line per message. ``level`` is TRACE, INFO, WARN or ERROR."""
        if self._path is None:
            return
        now = self._clock()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        start = f"[{stamp},{int(now * 1000) % 1000:03d}] {level} "
        end = " (state.change.logger)\n"
        text = (end + start).join(messages)
        if not text:
            return
        data = f"{start}{text}{end}".encode()
        with self._lock:
            try:
                if now >= self._next_hour or self._fd is None:
                    self._roll(self._path, now)
                assert self._fd is not None
                _write_all(self._fd, data)
                self._failing = False
            except OSError as e:
                if not self._failing:
                    log.error("cannot write %s: %s; its lines are lost until it can be written again", self._path, e)
                self._failing = True

    def close(self) -> None:
        """Close the file. A later ``write`` opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _roll(self, path: Path, now: float) -> None:
        if self._fd is None and path.exists():
            # left by an earlier run: its last change tells the hour it belongs to
            self._suffix = time.strftime(_HOUR_SUFFIX, time.localtime(path.stat().st_mtime))
        suffix = time.strftime(_HOUR_SUFFIX, time.localtime(now))
        if self._suffix not in ("", suffix) and path.exists():
            self._close()
            path.replace(path.with_name(path.name + self._suffix))
        if self._fd is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._suffix = suffix
        local = time.localtime(now)
        self._next_hour = now - now % 1 + 3600 - (local.tm_min * 60 + local.tm_sec)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
