"""The lock that a kt holds on a plan while it carries it out, so that others on this machine see that (RSN-22X).

The lock is on the plan's own file: nothing has to be cleaned up, and the system lets go of it when its holder dies,
however that happens.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kafkatool.core.errors import RefusedError

_PATIENCE_S: Final = 2.0  # whoever looks holds it for a moment
_PAUSE_S: Final = 0.02


class HeldError(RefusedError):
    """The lock is held by another kt."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock while the block runs, none where there are no locks. Raises HeldError."""
    descriptor = _opened(path)
    try:
        if descriptor is not None:
            _take(descriptor)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_held(path: Path) -> bool:
    """Tell whether somebody holds it, as far as can be seen from here."""
    descriptor = _opened(path)
    if descriptor is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _opened(path: Path) -> int | None:
    """Open the file, never waiting, also when it is a pipe. None: it cannot be opened."""
    for mode in (os.O_RDWR, os.O_RDONLY):  # on NFS a lock of one's own needs a file that may be written
        with suppress(OSError):
            return os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)
    return None


def _take(descriptor: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            if time.monotonic() >= deadline:
                raise HeldError("another kt is carrying out this plan") from e
            time.sleep(_PAUSE_S)
        except OSError:  # a file system without locks
            return
        else:
            return
