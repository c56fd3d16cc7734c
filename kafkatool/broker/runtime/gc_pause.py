"""Pauses of the cycle collector while many long-lived objects are made: partitions, commits, logs.

The collector would walk through all of them and hold the interpreter meanwhile, some 0.5 s for a million commits and
0.2 s for 3,000 partitions, again and again while they come in, and nothing would be served (GRP-17). Such objects are
in no cycle and go when nothing refers to them any more, so the collector need not look at them, ever.

What else is in the process at that moment is taken from the collector with them. So this is done only in a process
that runs nothing but a broker or a controller; within another program, the pauses are that program's to weigh
(``gc.freeze``).
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_ours = False
_holders = 0
_keep = False
_was_enabled = False


def allow_gc_pauses() -> None:
    """Allow the pauses: this process runs nothing but a broker, or a controller."""
    global _ours
    _ours = True


def pause_gc() -> bool:
    """Stop the collector until as many have called ``resume_gc``; False: that is not allowed here."""
    global _holders, _was_enabled
    if not _ours:
        return False
    with _lock:
        if _holders == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders += 1
    return True


def resume_gc(*, keep: bool) -> None:
    """End a ``pause_gc``. ``keep``: what was made meanwhile is to stay, and is never looked at.

    Nor is what others have made meanwhile: it is freed as usual unless it is in a cycle, which this broker's objects are
    not as long as they work.
    """
    global _holders, _keep
    if not _ours:
        return
    with _lock:
        _holders -= 1
        _keep = _keep or keep
        if _holders == 0:
            if _keep:
                gc.freeze()
            _keep = False
            if _was_enabled:
                gc.enable()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Stop the collector within; what is made there stays, unless an error ends it. Any number of threads at a time."""
    pause_gc()
    done = False
    try:
        yield
        done = True
    finally:
        resume_gc(keep=done)
