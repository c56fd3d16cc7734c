"""The notes of one disk, in files that outlive the processes which write them: one for each life, the settled state first.

A note is in its file before the call that it is of comes back, so after a kill -9 at most the last change is not noted, or
its note is torn, and nobody relied on that. What goes on in that directory does: the next life begins with what it finds.
"""

import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.histories.power.disk import Disk
from tests.histories.power.noting import Change, present


class Writer:
    """Writes the notes of a new life."""

    def __init__(self, journal: Path) -> None:
        self._write = os.write  # the real one
        journal.mkdir(parents=True, exist_ok=True)
        file = journal / f"{len(list(journal.iterdir())):06}"
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def note(self, change: Change) -> None:
        """Write it down; it is the system's when this returns."""
        left = memoryview(pickle.dumps(change))
        while left:
            left = left[self._write(self._fd, left) :]

    def close(self) -> None:
        os.close(self._fd)


def begin(journal: Path, root: Path) -> Writer:
    """Begin a life on what those before have left there; none of them is at work any more."""
    unnoted = disk_of(journal, root).find_unnoted(Random(0))
    writer = Writer(journal)
    for change in unnoted:
        writer.note(change)
    return writer


def settle(journal: Path, root: Path) -> None:
    """Begin anew: what is below the directory now is durable."""
    shutil.rmtree(journal, ignore_errors=True)
    writer = Writer(journal)
    for change in present(root):
        writer.note(change)
    writer.close()


def disk_of(journal: Path, root: Path) -> Disk:
    """Return the disk as the lives so far have left it; none of them is at work any more."""
    disk = Disk(root)
    for life in sorted(journal.iterdir()):
        for change in _read(life):
            disk.take(change)
    return disk


def _read(life: Path) -> Iterator[Change]:
    with life.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return
