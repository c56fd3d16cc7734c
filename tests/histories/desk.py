"""Where a run's keys and its history are asked for by workers in other processes: one question after the other.

Every operation asks a few times, so that the way is short: a message there and one back, and one thread that answers.
"""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import orjson

from tests.histories.history import Process
from tests.histories.workload import Keys
from tests.histories.writer import HistoryWriter

_LARGEST_BYTES: Final = 1 << 20  # of a message; each end has room for one, as to make it anew costs more than the rest


class Desk:
    """Answers at ``seats`` of these numbers, until all of them are empty: each is the far end, for one thread somewhere.

    A message comes whole or not at all, so nobody waits for one that stands still amid it.
    """

    def __init__(self, keys: Keys, writer: HistoryWriter, seats: Sequence[int]) -> None:
        self._asked: dict[str, Callable[..., Any]] = {
            "draw": keys.draw,
            "values": keys.values,
            "active": keys.active,
            "write": writer.write,
        }
        self._room = bytearray(_LARGEST_BYTES)
        self._waiting = selectors.DefaultSelector()
        self.seats: dict[int, socket.socket] = {}
        self._asked_at = dict.fromkeys(seats, time.monotonic())
        for number in seats:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._waiting.register(ours, selectors.EVENT_READ, number)
            self.seats[number] = theirs
        threading.Thread(target=self._serve, daemon=True, name="desk").start()

    def asked_at(self, seat: int) -> float | None:
        """Return when somebody there asked last, by the monotonic clock; None: it is empty."""
        return self._asked_at.get(seat)

    def _serve(self) -> None:
        try:
            while self._waiting.get_map():
                for known, _ in self._waiting.select():
                    self._serve_one(cast("socket.socket", known.fileobj), known.data)
        finally:
            for known in list(self._waiting.get_map().values()):  # who asks is not left waiting
                self._leave(cast("socket.socket", known.fileobj), known.data)
            self._waiting.close()

    def _serve_one(self, seat: socket.socket, number: int) -> None:
        try:
            if size := seat.recv_into(self._room):
                self._asked_at[number] = time.monotonic()
                seat.send(self._answer(memoryview(self._room)[:size]))
                return
        except OSError:  # its process was ended
            pass
        self._leave(seat, number)

    def _leave(self, seat: socket.socket, number: int) -> None:
        self._waiting.unregister(seat)
        seat.close()
        del self._asked_at[number]

    def _answer(self, asked: memoryview) -> bytes:
        what, arguments, more = orjson.loads(asked)
        return orjson.dumps(self._asked[what](*arguments, **more))


class Seat:
    """The keys and the history of a run, for one thread of another process."""

    def __init__(self, seat: socket.socket) -> None:
        self._seat = seat
        self._room = bytearray(_LARGEST_BYTES)

    def _ask(self, what: str, *arguments: Any, **more: Any) -> Any:
        self._seat.send(orjson.dumps([what, arguments, more], option=orjson.OPT_NON_STR_KEYS))
        size = self._seat.recv_into(self._room)
        if not size:
            raise EOFError("the run is over")
        return orjson.loads(memoryview(self._room)[:size])

    def draw(self, *places: int) -> list[tuple[int, int]]:
        return [(key, value) for key, value in self._ask("draw", *places)]

    def values(self, count: int) -> list[int]:
        return list(self._ask("values", count))

    def active(self) -> list[int]:
        return list(self._ask("active"))

    def write(self, process: Process, kind: str, f: str, value: Any = None, **more: Any) -> int:
        """Append a line to the history and return its number; returns when it is in the file."""
        return int(self._ask("write", process, kind, f, value, **more))

    def now(self) -> int:
        """Return the time, which all processes of a machine have in common."""
        return time.monotonic_ns()
