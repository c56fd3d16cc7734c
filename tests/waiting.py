"""Wait for something to come true: polled, with a deadline, never a fixed sleep."""

import time
from collections.abc import Callable


def eventually(what: Callable[[], bool], title: str, seconds: float = 30) -> None:
    """Fail with ``title`` unless ``what`` comes true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {title}"
        time.sleep(0.02)
