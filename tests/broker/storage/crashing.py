"""Stopping a process at any one of its changes to the disk, as kill -9 does."""

import os
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

_CHANGES = ("rename", "replace", "unlink", "fsync", "ftruncate", "pwrite", "utime")


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
