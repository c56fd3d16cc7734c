"""The file of a history, written line by line as things happen (HIS-5, HIS-6)."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, NotRequired, Self, TypedDict

import orjson

from tests.histories.history import VERSION, Process

DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default, which no run changes."""


class Options(TypedDict):
    """What clients, topics and brokers of a run were told: what is allowed follows from it (HIS-40)."""

    acks: str
    idempotent: bool
    in_flight: int
    transactional: bool
    isolation: str
    via: str
    reset: str
    min_isr: int
    unclean: bool
    cleanup: str
    delete_retention_ms: int
    client: str
    faults: bool
    flushed: NotRequired[bool]
    late_end_txn: NotRequired[bool]


class Header(TypedDict):
    """The first line. ``source``: ours, kafka or simulation."""

    seed: int
    source: str
    version: str
    brokers: int
    client: str
    options: Options


class HistoryWriter:
    """Appends lines for all of a run's clients, from any thread. Each is in the file at once: a run may be killed."""

    def __init__(self, path: Path, header: Header, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._file: BinaryIO = path.open("wb")
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._file.write(orjson.dumps({"history": VERSION, **header}) + b"\n")
        self._file.flush()

    def write(self, process: Process, kind: str, f: str, value: Any = None, **more: Any) -> int:
        """Append a line and return its number; order in the file is order in time."""
        with self._lock:
            if self._file.closed:
                return self._count  # a worker that was given up speaks after the end
            entry = {
                "index": self._count,
                "time": self._clock(),
                "process": process,
                "type": kind,
                "f": f,
                "value": value,
                **more,
            }
            self._file.write(orjson.dumps(entry, option=orjson.OPT_NON_STR_KEYS) + b"\n")
            self._file.flush()
            self._count += 1
            return self._count - 1

    @property
    def count(self) -> int:
        return self._count

    def now(self) -> int:
        return self._clock()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
