"""The time of timers held for a moment: what a test does meanwhile comes in time, however slow the machine is."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest


@contextmanager
def standing_still() -> Iterator[None]:
    """Within the block nothing comes due for any timer of this process, however long the block takes."""
    now = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkatool.broker.runtime.timer.time", SimpleNamespace(monotonic=lambda: now))
        yield
