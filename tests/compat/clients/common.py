"""What the Python client programs share: their lines, their records, the end of stdin. See README.md here."""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

PAUSE_S: Final = 0.05
"""Between two records of ``load``."""


def emit(**line: object) -> None:
    """Print one JSON line on stdout, at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def value(prefix: str, number: int) -> bytes:
    """Return the value of record ``number``."""
    return b"%s-%d-%s" % (prefix.encode(), number, b"x" * 100)


def emit_record(topic: str, partition: int, offset: int, key: bytes, content: bytes) -> None:
    emit(record=[topic, partition, offset, key.decode(), content.decode()])


def stdin_ended() -> threading.Event:
    """Return an event that is set when stdin ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def paced(ended: threading.Event) -> Iterator[int]:
    """Record numbers, one every ``PAUSE_S``, until the event is set."""
    number = 0
    while not ended.wait(PAUSE_S):
        yield number
        number += 1


class Assignment:
    """Tells a member's partitions whenever they have changed."""

    def __init__(self) -> None:
        self._partitions: list[int] = []

    def note(self, partitions: Iterable[int]) -> None:
        now = sorted(partitions)
        if now != self._partitions:
            self._partitions = now
            emit(assigned=now)


def run(commands: dict[str, Callable[..., Any]]) -> None:
    """Call the command that the command line names; COUNT becomes a number."""
    name, *arguments = sys.argv[1:]
    commands[name](*[int(a) if a.isdigit() else a for a in arguments])
