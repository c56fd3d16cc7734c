"""The workers of a run, some in each of a few processes.

A client that has locked itself up may keep its process's interpreter (docs/known-faults.md). Then a few workers stand still
and what they had begun is never answered, but the run goes on.
"""

import multiprocessing
import os
import socket
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.histories.clients import facts
from tests.histories.clients.client import Cell
from tests.histories.clients.warnings import warnings_in
from tests.histories.desk import Desk, Seat
from tests.histories.workload import Keys, Worker
from tests.histories.writer import HistoryWriter

PROCESSES: Final = 4
LEAVING_S: Final = 150
"""As long may workers take for what they have begun, until they are not waited for any more."""

_STUCK: Final = 3  # how a process ends of which a worker has not left by then
_ANSWER_S: Final = 10
_LOOKS_S: Final = 0.1
_SPAWN: Final = multiprocessing.get_context("spawn")  # not forked: this process has threads of clients


class Task(NamedTuple):
    """What the workers of a run are told. ``warned`` is the file of what their consumers warn of.

    ``present``: who of them is there; what each draws goes by its own number alone.
    """

    workers: int
    seed: int
    bootstrap: str
    cell: Cell
    warned: Path
    leaving_s: float
    present: Sequence[int]


class Crew:
    """Workers at work. A context manager: at its end all processes are gone."""

    def __init__(self, task: Task, keys: Keys, writer: HistoryWriter) -> None:
        self._leaving_s = task.leaving_s
        self._desk = Desk(keys, writer, task.present)
        self._members: list[_Member] = []
        for place in range(PROCESSES):
            if not (
                seated := {number: seat for number, seat in self._desk.seats.items() if number % PROCESSES == place}
            ):
                continue
            theirs, ours = _SPAWN.Pipe(duplex=False)
            process = _SPAWN.Process(target=_work, args=(task, seated, theirs), daemon=True)
            process.start()
            theirs.close()
            for seat in seated.values():
                seat.close()
            self._members.append(_Member(process, ours, tuple(seated)))

    @property
    def failed(self) -> bool:
        """Tell if a process ended by an error of ours; what it was stands in its output."""
        return any(member.process.exitcode not in (None, 0, _STUCK) for member in self._members)

    def dismiss(self) -> int:
        """Have all end what they do. Return in how many processes some did not, and were left.

        Who has not said a word for so long that it should have been done by now, is not waited for: it may have stood
        still for most of the run. RuntimeError if a worker failed.
        """
        for member in self._members:
            member.ours.close()
        for member in self._members:
            left_at = time.monotonic()
            while member.process.exitcode is None:
                asked = [at for number in member.workers if (at := self._desk.asked_at(number)) is not None]
                left_at = time.monotonic() if asked else left_at
                if time.monotonic() > awaited_until(asked, left_at, self._leaving_s):
                    break
                member.process.join(_LOOKS_S)
        if self.failed:
            raise RuntimeError("a worker failed")
        return sum(member.process.exitcode != 0 for member in self._members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for member in self._members:
            member.process.kill()
            member.process.join()


def awaited_until(asked: Sequence[float], left_at: float, leaving_s: float) -> float:
    """Return how long a process is waited for: as its workers that are there asked last, or the last of them left."""
    return (max(asked) + leaving_s if asked else left_at) + _ANSWER_S


class _Member(NamedTuple):
    """One process, the end of a pipe that keeps it at work, and the numbers of its workers."""

    process: SpawnProcess
    ours: Connection
    workers: Sequence[int]


def _work(task: Task, seated: Mapping[int, socket.socket], until_closed: Connection) -> None:
    """Let the workers of these numbers work until the run closes its end, or is gone; ends this process."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def ask(what: str, keys: Sequence[int]) -> dict[int, Any]:
        if what == "ends":
            return dict(facts.ask_ends(task.bootstrap, keys))
        return dict(facts.ask_committed(task.bootstrap, what, keys))

    def run(number: int) -> None:
        desk = Seat(seated[number])
        try:
            Worker(number, task.workers, task.seed, task.bootstrap, task.cell, desk, desk, ask).run(stop)
        except BaseException as e:  # noqa: BLE001  # a worker's end is the run's
            traceback.print_exc()
            errors.append(e)
            stop.set()
        finally:
            seated[number].close()

    with warnings_in(task.warned):
        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in seated]
        for thread in threads:
            thread.start()
        with suppress(EOFError, OSError):
            while not until_closed.poll(0.1) and not stop.is_set():
                pass
        stop.set()
        over = time.monotonic() + task.leaving_s
        for thread in threads:
            thread.join(max(over - time.monotonic(), 0.0))
    # Not as Python ends: a thread of a client that hangs would keep it.
    os._exit(1 if errors else _STUCK if any(thread.is_alive() for thread in threads) else 0)
