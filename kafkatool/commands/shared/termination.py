"""SIGTERM and Ctrl-C, for a command that has something to undo and for a server that runs until it is told to stop."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def interruptions_kept() -> Iterator[None]:
    """Let what a signal raises end the block as what it is, wherever it comes. An ``except`` for it goes around this.

    Between the steps by which a `threading.Condition` gives up its lock and begins to wait, it makes the ``with`` around
    that fail: the lock is not held. The RuntimeError about it takes the signal's place, which is then only its context.
    """
    try:
        yield
    except RuntimeError as e:
        if isinstance(e.__context__, KeyboardInterrupt | SystemExit):
            raise e.__context__ from None
        raise


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
        with interruptions_kept():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StopSignals:
    """SIGTERM and SIGINT of a server in the foreground, from here on to the end of the process; each is told, in order.

    None of them raises anything: an exception that came between any two steps of the main thread would leave threads
    that nobody has noted, and locks that nobody holds. Who is told ends what the main thread does, from another thread.
    """

    def __init__(self) -> None:
        """Take over both signals. Only the main thread may call this."""
        self._told, tell = os.pipe()
        # The system may hand a signal to any thread, or to this one just before it begins to wait. Python's handlers run
        # when the main thread goes on, which could be never; the byte is written at once, whoever waits for it.
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def listen(
        self, *reactions: Callable[[signal.Signals], object], on_hangup: Callable[[], object] | None = None
    ) -> None:
        """Call, on a thread of its own, the first reaction with the first signal, the second with the second.

        ``on_hangup`` is called with each SIGHUP instead, as long as a reaction is left; None: that one ends the process.
        """
        if on_hangup is not None:
            signal.signal(signal.SIGHUP, lambda *_: None)

        def react() -> None:
            for reaction in reactions:
                while (told := self.wait()) is signal.SIGHUP and on_hangup is not None:
                    on_hangup()
                reaction(told)

        threading.Thread(target=react, name="signals", daemon=True).start()

    def wait(self) -> signal.Signals:
        """Block until the next signal and return it; any thread may wait."""
        return signal.Signals(os.read(self._told, 1)[0])

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with each signal; it is open until the process ends."""
        return self._told
