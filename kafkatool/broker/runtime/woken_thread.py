"""A thread that does one piece of work whenever it is woken, and tries again when that fails."""

import threading
from collections.abc import Callable
from typing import Final

_RETRY_S: Final = 1.0


class WokenThread:
    """Calls ``work()`` after each ``wake``; wakes that come meanwhile are one.

    Where ``work`` raises an ``expected`` error, ``on_error`` gets it, and the work is tried again a second later.
    """

    def __init__(
        self,
        work: Callable[[], object],
        *,
        name: str,
        expected: type[Exception],
        on_error: Callable[[Exception], object],
    ) -> None:
        self._work = work
        self._expected = expected
        self._on_error = on_error
        self._rung = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to wait for being woken, or work at once if that came before."""
        self._thread.start()

    def wake(self) -> None:
        """Have the work done, again if it is being done; from any thread, never waiting."""
        self._rung.set()

    def stop(self) -> None:
        """Do no more; return when what is under way has ended. Safe where it never started."""
        self._stopping.set()
        self._rung.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._rung.wait()
            self._rung.clear()
            if self._stopping.is_set():
                return
            try:
                self._work()
            except self._expected as e:
                self._on_error(e)
                self._stopping.wait(_RETRY_S)
                self._rung.set()
