"""The end of a worker of pytest-xdist whose pytest was killed.

execnet, by which it was started, lets its tests go on for five seconds, then interrupts them. Its clusters would live as
long; so it is interrupted as soon as its parent is gone, and what cannot be interrupted, such as a call into C, keeps no
cluster.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

_LOOK_AGAIN_S: Final = 0.1
_TIME_TO_END_S: Final = 1.0


def watch_parent(let_go: Callable[[], None]) -> None:
    """Interrupt this process when its parent has ended, and call ``let_go`` a second later; by a thread."""
    threading.Thread(target=_watch, args=(os.getppid(), let_go), name="kafka-orphan", daemon=True).start()


def _watch(parent: int, let_go: Callable[[], None]) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_AGAIN_S)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_TIME_TO_END_S)
    let_go()
