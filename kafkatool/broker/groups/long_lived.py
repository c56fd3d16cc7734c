"""A million commits in memory, and no pause: the cycle collector would walk through them all at once (GRP-17).

It holds the interpreter while it does, some 0.5 s for a million commits, again and again while they come in. Commits
are in no cycle and go when nothing refers to them any more, so the collector need not look at them, ever.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_loading = 0
_was_enabled = False


@contextmanager
def long_lived_objects() -> Iterator[None]:
    """What is made inside is not looked at by the cycle collector; several threads may be inside at a time.

    Nor is what others make meanwhile: it is freed as usual unless it is in a cycle, which this broker's objects are
    not as long as they work.
    """
    global _loading, _was_enabled
    with _lock:
        if _loading == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _loading += 1
    try:
        yield
    finally:
        with _lock:
            _loading -= 1
            if _loading == 0:
                gc.freeze()
                if _was_enabled:
                    gc.enable()
