"""Stopping a process at any one of its changes to the disk, as kill -9 does."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

_CHANGES = ("rename", "replace", "unlink", "fsync", "ftruncate", "truncate", "pwrite", "utime")


class Killed(BaseException):
    """Nothing may catch it, and nothing gets to the disk after it."""


class Steps:
    """Counts the changes to the disk, and stops at a given one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        self.last: int | None = None
        """At the step after it the process is killed."""
        monkeypatch.setattr(os, "fsync", lambda fd: None)  # what was written outlives the process; it takes its time
        for name in _CHANGES:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if self.last is not None and self.taken >= self.last:
                return self._kill()
            self.taken += 1
            return change(*arguments, **options)

        return step

    def _kill(self) -> NoReturn:
        raise Killed


_LOOP = """
import sys
from pathlib import Path
from tests.broker.storage.compaction.compacting import append, clean, compacted_log
log = compacted_log(Path(sys.argv[1]), segment_bytes="1000")
number = log.log_end_offset
while True:
    append(log, [(f"k{number % 11}", str(number))])
    number += 1
    if number % 20 == 0:
        log.flush()
        clean(log)
        print(number, flush=True)
"""


def kill_while_compacting(directory: Path, rounds: int = 3) -> int:
    """Run a process that appends to the log and compacts it, kill it; return the log end it spoke of last.

    The record at offset N has the key ``kM``, M being N modulo 11, and the value N.
    """
    process = subprocess.Popen([sys.executable, "-c", _LOOP, str(directory)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = 0
    try:
        for _, line in zip(range(rounds), process.stdout, strict=False):
            seen = int(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return seen
