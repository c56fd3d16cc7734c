"""The lock that a kt holds on a plan while it carries it out, so that others on this machine see that (RSN-22X).

It is on the plan's own file, which also has it under other names, and on a file of its own beside it, since a plan that
is saved by an editor is another file: that one goes with the lock. The system lets go of both when their holder dies,
however that happens; a file that is left then is taken again.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from kafkatool.core.errors import RefusedError

_PATIENCE_S: Final = 2.0  # whoever looks holds it for a moment
_PAUSE_S: Final = 0.02


class HeldError(RefusedError):
    """The lock is held by another kt."""


@contextmanager
def held(path: Path, beside: Path | None = None) -> Iterator[None]:
    """Hold the lock on ``path``, and ``beside`` if given, while the block runs, none where there are no locks.

    Raises HeldError, RefusedError.
    """
    with ExitStack() as taken:
        if (descriptor := _opened(path)) is not None:
            taken.callback(os.close, descriptor)
            _take(descriptor)
        if beside is not None and (descriptor := _made(beside)) is not None:
            taken.callback(os.close, descriptor)
            taken.callback(_unlink, beside)  # before it is let go of: who waits for it sees that it has gone
        yield


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


def any_held() -> bool:
    """Tell whether a kt on this machine, whoever's, carries out a plan: between two batches nothing else tells of it."""
    try:
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    holders = {words[4] for line in locks if (words := line.split())[1:4:2] == ["FLOCK", "WRITE"]}
    return any(_carries_out(pid) for pid in holders)


def _carries_out(pid: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False
    return b"drain" in words or {b"reassign", b"--execute"} <= set(words)


def _made(path: Path) -> int | None:
    """Make the file, or open it, and take it; again while whoever had it has removed it. None: it cannot be made.

    Raises HeldError, RefusedError of a link: somebody else may have put it there (SEC-45).
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as e:
            if e.errno == errno.ELOOP:
                raise RefusedError(f"{path} is a symbolic link, where kt makes the lock of the plan: remove it") from e
            return None
        try:
            _take(descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(descriptor)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


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
