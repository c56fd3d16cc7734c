"""Whose turn it is on clusters that several test processes share: a test that breaks them has them alone.

Two files are locked. Who uses the clusters shares ``use``; who breaks them has it alone. ``gate`` is passed by whoever
comes, and shut by who waits to break: new tests would keep it waiting for ever. The locks are gone with their holder, also
by SIGKILL. Both are for all clusters that the processes share: with locks of their own two tests that use two clusters could
wait for each other.
"""

import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from kafkatool.core.errors import RefusedError

_PATIENCE_S: Final = 600.0
_ASK_AGAIN_S: Final = 0.02


class Turns:
    """This process's part, by two files in ``directory``, which all of them know."""

    def __init__(self, directory: Path) -> None:
        self._gate: IO[bytes] = (directory / "kafka-gate").open("ab")
        self._use: IO[bytes] = (directory / "kafka-use").open("ab")
        self._uses = self._alone = False
        self._lock = threading.Lock()

    @property
    def uses(self) -> bool:
        """Tell whether a test of this process uses the clusters now, alone or beside others."""
        return self._uses

    def begin(self) -> None:
        """Use the clusters, once no other process's test breaks them. Raises RefusedError when that takes ten minutes."""
        with self._lock:
            if self._uses:
                return
            with _locked(self._gate, fcntl.LOCK_SH):
                _take(self._use, fcntl.LOCK_SH)
            self._uses = True

    def have_alone(self) -> None:
        """Have the clusters alone from now to the end of this test, once the tests that use them have ended.

        While it waits, other tests may break them, and mend them. Raises RefusedError when that takes ten minutes.
        """
        with self._lock:
            if self._alone:
                return
            self._let_go()
            _take(self._gate, fcntl.LOCK_EX)
            try:
                _take(self._use, fcntl.LOCK_EX)
            except BaseException:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
                raise
            self._uses = self._alone = True

    def end(self) -> None:
        """Use them no more, or break them no more; once is enough."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._uses:
            fcntl.flock(self._use, fcntl.LOCK_UN)  # not by closing: a child that was forked has the descriptors still
        if self._alone:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._uses = self._alone = False


@contextlib.contextmanager
def _locked(file: IO[bytes], how: int) -> Iterator[None]:
    _take(file, how)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _take(file: IO[bytes], how: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RefusedError(
                    f"waited {_PATIENCE_S:g} s in vain for other workers' tests on the cluster that they share: "
                    "let tests that break it take kafka_cluster_factory"
                ) from None
            time.sleep(_ASK_AGAIN_S)
        else:
            return
