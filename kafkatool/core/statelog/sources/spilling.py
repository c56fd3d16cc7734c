"""Lists that may be larger than memory: from some length on they lie in a file, in order if an order is asked for.

One partition may have ten million facts, and all of them are needed more than once: to be put in order, and to be
counted. What is short stays a list. The file has no name, so nothing is left of it however the process ends; in a task
of Spark it lies where Spark's own do.
"""

import heapq
import os
import pickle
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import IO, Any, Final, Generic, Protocol, TypeVar

MOST_HELD: Final = 200_000
"""Items that one list holds in memory, some 800 bytes each; what is in several lists at a time is there once. A task of a
cluster has 384 MB beside its JVM, unless told otherwise."""

LIMIT_EACH_BYTES: Final = 6000
"""Of the address space of a process that has a limit, as by ``spark.executor.pyspark.memory``, for each item held: a task
has several lists, copies of them while they are written, and itself."""

BATCH: Final = 200
"""Items written, and later read, at a time: a thousand runs are merged with as many batches in memory."""

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Many(Protocol[Item_co]):
    """Items that can be gone through more than once."""

    def __iter__(self) -> Iterator[Item_co]: ...
    def __len__(self) -> int: ...


class Pile(Generic[Item]):
    """Items that are added one by one, and then read in order of ``key``, if there is one, or as they came.

    Equal ones keep the order in which they came. Items are pickled, so what is read need not be what was added.
    """

    def __init__(self, key: Callable[[Item], Any] | None = None, *, ordered: bool = True) -> None:
        """Begin with nothing. Without ``key`` the items themselves are compared, unless they are not to be ordered."""
        self._key, self._ordered, self._most = key, ordered, most_held()
        self._held: list[Item] = []
        self._file: IO[bytes] | None = None
        self._runs: list[list[tuple[int, int]]] = []
        self._end = self._written = 0

    def add(self, item: Item) -> None:
        """Add an item. OSError."""
        self._held.append(item)
        if len(self._held) >= self._most:
            self._spill()

    def extend(self, items: Iterable[Item]) -> "Pile[Item]":
        """Add items, and return the pile. OSError."""
        rest = iter(items)
        while True:
            self._held.extend(islice(rest, self._most - len(self._held)))
            if len(self._held) < self._most:
                return self
            self._spill()

    def finished(self) -> Many[Item]:
        """Return all items, when no more are added. OSError."""
        if self._file is None:
            if self._ordered:
                self._held.sort(key=self._key)
            return self._held
        if self._held:
            self._spill()
        return self

    def __len__(self) -> int:
        return self._written + len(self._held)

    def __iter__(self) -> Iterator[Item]:
        runs = [self._read(run) for run in self._runs]
        return iter(heapq.merge(*runs, key=self._key)) if self._ordered else chain.from_iterable(runs)  # type: ignore[arg-type]

    def _spill(self) -> None:
        if self._ordered:
            self._held.sort(key=self._key)
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_directory())  # noqa: SIM115 -- closed when nobody has it any more
        run = []
        for start in range(0, len(self._held), BATCH):
            batch = pickle.dumps(self._held[start : start + BATCH], pickle.HIGHEST_PROTOCOL)
            self._file.write(batch)
            run.append((self._end, len(batch)))
            self._end += len(batch)
        self._file.flush()
        self._runs.append(run)
        self._written += len(self._held)
        self._held = []

    def _read(self, run: list[tuple[int, int]]) -> Iterator[Item]:
        assert self._file is not None
        for at, size in run:
            yield from pickle.loads(os.pread(self._file.fileno(), size, at))


def most_held() -> int:
    """Return how many items a list holds in this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return MOST_HELD if limit == resource.RLIM_INFINITY else max(min(MOST_HELD, limit // LIMIT_EACH_BYTES), 1)


def in_order(items: Iterable[Item], key: Callable[[Item], Any] | None = None) -> Many[Item]:
    """Return the items in order of ``key``, or of themselves. OSError."""
    return Pile(key).extend(items).finished()


def kept(items: Iterable[Item]) -> Many[Item]:
    """Return the items as they come. OSError."""
    pile: Pile[Item] = Pile(ordered=False)
    return pile.extend(items).finished()


def _directory() -> str | None:
    """Return where Spark has its workers write, of several disks the one with most room; None: TMPDIR."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return max(filter(os.path.isdir, named), key=_free_bytes, default=None)


def _free_bytes(directory: str) -> int:
    return shutil.disk_usage(directory).free
