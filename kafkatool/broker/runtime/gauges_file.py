"""A JSON file with gauges, beside the logs, for those who cannot ask the process.

It is written when something has changed, at most every two seconds, so that a process with nothing to do costs nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from kafkatool.broker.runtime.timer import Timer

log = logging.getLogger(__name__)

_PERIOD_S = 2.0


class GaugesFile:
    """The file with the gauges. ``path`` None: there is none.

    A thread of its own for each time writes it: a disk that hangs must not hold up what else the timer has to start.
    """

    def __init__(self, path: Path | None, timer: Timer, read: Callable[[], Mapping[str, float]]) -> None:
        self._path = path
        self._timer = timer
        self._read = read
        self._due = False  # set by who changes something, taken back by who writes before it reads
        self._failing = False
        self._writing = threading.Lock()  # who changes things writes it too, at the end

    def changed(self) -> None:
        """Have the file written soon, since something was handled."""
        if self._path is not None and not self._due:
            self._due = True
            self._timer.add(_PERIOD_S * 1000, self._write_due)

    def _write_due(self) -> None:
        # at most one writes and one waits for it: the next is due when the waiting one has its turn
        assert self._path is not None
        threading.Thread(target=self.write, name=self._path.stem, daemon=True).start()

    def write(self) -> None:
        """Write the file now; never raises."""
        if self._path is None:
            return
        with self._writing:
            self._due = False
            self._replace(self._path)

    def _replace(self, path: Path) -> None:
        values = {name: round(value, 3) for name, value in self._read().items()}
        written = path.with_suffix(".tmp")
        try:
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(orjson.dumps({"timestamp_ms": int(time.time() * 1000), **values}))
            written.replace(path)
            self._failing = False
        except OSError as e:
            if not self._failing:
                log.warning("cannot write %s: %s", path, e)
            self._failing = True
