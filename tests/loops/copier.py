"""One process after the other that does the same copying, and what can be done to it."""

import signal
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import Program

_BETWEEN_STARTS_S: Final = 2.0  # one that ends at once does not take all of the processor


class Copier:
    """A client that gives up is started anew, as by its operator; ``started`` counts how often.

    ``name`` is its client id. Threads: whoever looks and whoever does harm may be two.
    """

    def __init__(self, name: str, program: Program, arguments: Sequence[str], directory: Path) -> None:
        self.name = name
        self.started = 0
        self._program, self._arguments, self._directory = program, tuple(arguments), directory
        self._processes = ExitStack()
        self._lock = threading.Lock()
        self._latest: ClientProcess | None = None
        self._zombies: list[ClientProcess] = []
        self._since = 0.0
        self._stopped = False

    def start(self) -> None:
        """Start a process in place of the latest, whatever became of that."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        log = self._directory / f"{self.name}-{self.started}.log"
        self.started += 1
        self._since = time.monotonic()
        self._latest = self._processes.enter_context(ClientProcess(self._program, log, *self._arguments))

    def look(self) -> None:
        """Have a process in place of one that has ended."""
        with self._lock:
            assert self._latest is not None
            if not self._stopped and time.monotonic() >= self._since + _BETWEEN_STARTS_S:
                self._revive()

    def _revive(self) -> ClientProcess:
        assert self._latest is not None
        try:
            self._latest.check_alive()
        except AssertionError as e:
            print(f"{self.name}: {e}", flush=True)
            self._start()
        return self._latest

    def kill(self) -> None:
        """kill -9, most likely in the middle of a transaction."""
        with self._lock:
            assert self._latest is not None
            self._latest.kill()

    def ask(self) -> None:
        """Have it write into its log where it stands; some clients end by that."""
        with self._lock:
            assert self._latest is not None
            self._latest.send(signal.SIGQUIT)

    def stop(self) -> None:
        """Have it stand still."""
        with self._lock:
            assert self._latest is not None
            self._stopped = self._latest.send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let what stands still go on."""
        with self._lock:
            assert self._latest is not None
            if self._stopped:
                self._latest.send(signal.SIGCONT)
                self._stopped = False

    def replace(self) -> None:
        """Start another one beside it, as if it were dead; it stands still until ``rise``."""
        with self._lock:
            assert self._latest is not None
            if self._latest.send(signal.SIGSTOP):
                self._zombies.append(self._latest)
            self._start()

    def rise(self) -> None:
        """Let those go on that were replaced."""
        with self._lock:
            for zombie in self._zombies:
                zombie.send(signal.SIGCONT)

    def bury(self) -> None:
        """End those that were replaced, if they have not done so."""
        with self._lock:
            while self._zombies:
                self._zombies.pop().kill()

    def end(self) -> None:
        """End it as its stdin does; where it has ended by itself meanwhile, a new one."""
        self.bury()
        with self._lock:
            self._revive().end()

    def close(self) -> None:
        """End everything, whatever state it is in."""
        self._processes.close()
