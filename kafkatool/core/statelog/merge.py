"""The merge from end to end: plan the slices, let Spark merge them, put the parts together (SCL-1, SCL-8).

Only counts and offsets come back to the driver, never lines: its memory does not grow with the input (SCL-22X). The
parts lie in a directory that driver and workers share; with a master on other machines it must be on a shared disk.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.statelog.kernel import Kernel, SliceResult, descents_between
from kafkatool.core.statelog.selection import Counts, Selection
from kafkatool.core.statelog.slices import Plan, plan_slices
from kafkatool.core.statelog.sources import Source

SLICE_BYTES = 32 * 1024 * 1024
"""Input of one slice: a worker holds it as lines, three times that much memory."""

SMALL_BYTES = 4 * 1024 * 1024
"""Input not worth more than one slice."""

COPY_BYTES = 1 << 20

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mapper(Protocol):
    """Where slices are merged: Spark, or in a test the process itself."""

    @property
    def parallelism(self) -> int:
        """Items worked on at the same time."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``function`` of each item, in the items' order."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result: parts which, one after the other, are the merged log; and the account of every line."""

    parts: tuple[Path, ...]
    counts: Counts

    def write_to(self, output: BinaryIO) -> None:
        """Copies the parts to ``output``."""
        for path in self.parts:
            with path.open("rb") as part:
                shutil.copyfileobj(part, output, COPY_BYTES)


def merge(
    sources: Sequence[Source], selection: Selection, mapper: Mapper, directory: Path, *, show_source: bool = False
) -> Merged:
    """Merges the sources into parts in ``directory``. SourceChangedError, SparkError, OSError."""
    plan = plan_slices(sources, _slices(sum(source.size for source in sources), mapper))
    return merge_slices(plan, selection, mapper, directory, show_source=show_source)


def merge_slices(
    plan: Plan, selection: Selection, mapper: Mapper, directory: Path, *, show_source: bool = False
) -> Merged:
    """Merges by a given plan; any plan for the same sources gives the same bytes. SourceChangedError, SparkError."""
    results = _run(plan, selection, mapper, directory, show_source, range(plan.slices))
    strays = [stray for result in results for stray in result.strays]
    if strays:  # lines far out of order: the slices they belong to are merged again, with them
        again = sorted({stray.home for stray in strays})
        for result in _run(plan.with_strays(strays), selection, mapper, directory, show_source, again):
            results[result.index] = result
    counts = Counts(out_of_order=descents_between(results))
    for result in results:
        counts.add(result.counts)
    return Merged(tuple(result.part for result in results), counts)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes ``path`` at once when the block ends well; otherwise nothing changes (SCL-22X)."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as e:
        raise KafkatoolError(f"cannot write in {path.parent}: {e.strerror}") from e
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as output:
            yield output
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _run(
    plan: Plan, selection: Selection, mapper: Mapper, directory: Path, show_source: bool, slices: Sequence[int]
) -> list[SliceResult]:
    return mapper.map(Kernel(plan, selection, directory, show_source).merge, slices)


def _slices(total_bytes: int, mapper: Mapper) -> int:
    if total_bytes <= SMALL_BYTES:
        return 1
    cores = mapper.parallelism
    rounds = -(-total_bytes // (SLICE_BYTES * cores))
    return rounds * cores


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
