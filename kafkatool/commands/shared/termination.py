"""SIGTERM and Ctrl-C, for a command that has something to undo and for a server that runs until it is told to stop."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def terminated_like_interrupted(error: type[BaseException] | BaseException = KeyboardInterrupt) -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, or ``error``, while the block runs; change nothing in another thread."""

    def end(*_: object) -> NoReturn:
        raise error

    if threading.current_thread() is not threading.main_thread():
        yield  # no handler can be set; whoever runs the command in a thread handles signals
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StopSignals:
    """SIGTERM and SIGINT of a server in the foreground, from here on to the end of the process.

    Each is told by ``wait``, in order. The first one interrupts the start as well, whatever that waits for.
    """

    def __init__(self) -> None:
        """Take over both signals. Only the main thread may call this."""
        self._told, tell = os.pipe()
        self._interrupts = self._was_told = False
        # The system may hand a signal to any thread, or to this one just before it begins to wait. Python's handlers run
        # when the main thread goes on, which could be never; the byte is written at once, whoever waits for it.
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Nothing here may take a lock: this runs between any two steps of the main thread, a second signal even
        # between two steps of this function.
        self._was_told = True
        if self._interrupts:
            self._interrupts = False  # so that a second signal leaves the undoing of the start alone
            raise KeyboardInterrupt

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let the first signal raise KeyboardInterrupt while the block runs, so that it undoes what it has begun.

        One that came before raises it at once.
        """
        self._interrupts = True
        try:
            if self._was_told:
                raise KeyboardInterrupt
            yield
        finally:
            self._interrupts = False

    def wait(self) -> signal.Signals:
        """Block until the next signal and return it; any thread may wait."""
        return signal.Signals(os.read(self._told, 1)[0])

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with each signal; it is open until the process ends."""
        return self._told
