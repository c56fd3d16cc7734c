"""Runs a module as it is, its changes below one directory noted, its wall clock and its disk as the harness wants them.

python -m tests.histories.power.wrapper JOURNAL CONTROL ROOT MODULE [ARGUMENT ...]
"""

import datetime
import errno
import os
import runpy
import shutil  # before its calls are noted: it looks at what they are
import sys
import time
from pathlib import Path
from typing import Final, Self

from tests.histories.power.control import Reader
from tests.histories.power.journal import begin
from tests.histories.power.noting import Noting

_NS: Final = 1_000_000_000
_REAL: Final = datetime.datetime


class _Machine:
    """The troubles of the process."""

    def __init__(self, control: Path) -> None:
        self._control = Reader(control)
        self._time, self._time_ns, self._sleep = time.time, time.time_ns, time.sleep
        self._failing, self._left = (0, ""), 0

    def time(self) -> float:
        return self._time() + self._control.read().ahead_s

    def time_ns(self) -> int:
        return self._time_ns() + int(self._control.read().ahead_s * _NS)

    def before_write(self, fd: int) -> None:
        """Fail from the write on whose turn it is. One at a time."""
        troubles = self._control.read()
        failing = troubles.failing_write, troubles.failing_in
        if failing != self._failing:
            self._failing, self._left = failing, troubles.failing_write
        if not troubles.failing_write or (troubles.failing_in and troubles.failing_in != _directory_of(fd)):
            return
        self._left -= 1
        if self._left <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def before_sync(self) -> None:
        if seconds := self._control.read().sync_s:
            self._sleep(seconds)


def _directory_of(fd: int) -> str:
    return Path(f"/proc/self/fd/{fd}").readlink().parent.name


class _Whatever(type):
    """What is a time for others is one for this process."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL)


class _Datetime(datetime.datetime, metaclass=_Whatever):
    """Tells the time by the clock that the process is given: C's would be the real one."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)

    today = now

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now(datetime.UTC).replace(tzinfo=None)


def main() -> None:
    assert shutil
    journal, control, root, module, *arguments = sys.argv[1:]
    machine = _Machine(Path(control))
    time.time, time.time_ns = machine.time, machine.time_ns
    datetime.datetime = _Datetime  # type: ignore[misc]
    sys.argv = [module, *arguments]
    note = begin(Path(journal), Path(root)).note
    with Noting(Path(root), note, before_write=machine.before_write, before_sync=machine.before_sync):
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
