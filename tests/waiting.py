"""Wait for something to come true: polled, with a deadline, never a fixed sleep."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

LEAST_S: Final = 120.0  # what comes true costs no more than it takes; what does not is rare
T = TypeVar("T")


def eventually(what: Callable[[], bool], title: str, seconds: float = LEAST_S) -> None:
    """Fail with ``title`` unless ``what`` comes true within ``seconds``, which are no fewer than ``LEAST_S``.

    The last look begins when the time is over: one that this process slept through was none.
    """
    seconds = max(seconds, LEAST_S)
    deadline = time.monotonic() + seconds
    while True:
        over = time.monotonic() >= deadline
        if what():
            return
        assert not over, f"waited {seconds:g} s in vain for {title}"
        time.sleep(0.02)


def awaited(what: Callable[[], T | None], title: str, seconds: float = LEAST_S) -> T:
    """Return what ``what`` finds, once it is not None; fails as ``eventually`` does."""
    latest: T | None = None

    def is_there() -> bool:
        nonlocal latest
        latest = what()
        return latest is not None

    eventually(is_there, title, seconds)
    assert latest is not None
    return latest
