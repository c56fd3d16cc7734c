"""The merge as text: plan the slices, have each merged by a task, put the parts together (SCL-1, SCL-8).

Only counts and offsets come back to the driver, never lines: its memory does not grow with the input (SCL-22X). The
parts lie in a directory, or have their places in the output file, which driver and workers share; with a master on
other machines both must be on a shared disk.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.statelog.jobs.here import PartFiles
from kafkatool.core.statelog.jobs.tasks import Mapper
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.merging.merge_slice import SliceMerger, descents_between
from kafkatool.core.statelog.merging.parts import Slots, put_right
from kafkatool.core.statelog.sources.slices import Plan, plan_slices
from kafkatool.core.statelog.sources.source import Source

SLICE_BYTES = 64 * 1024 * 1024
"""Input of one slice. Only a slice of a log that is far out of order is held as a whole, in three times that memory."""

SMALL_BYTES = 4 * 1024 * 1024
"""Input not worth more than one slice."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge: parts which, one after the other, are the merged log; and the account of every line.

    There are no parts if the result stands already in the output that ``merge`` was given.
    """

    parts: PartFiles
    counts: Counts

    def write_to(self, output: BinaryIO) -> None:
        """Copy the parts to ``output``, the one that ``merge`` was given if it was given one."""
        self.parts.write_to(output)


def plan_merge(sources: Sequence[Source], mapper: Mapper) -> Plan:
    """Plan slices of at most SLICE_BYTES, as many as keep all processors at work. OSError, SourceChangedError."""
    total_bytes = sum(source.size for source in sources)
    if total_bytes <= SMALL_BYTES:
        return plan_slices(sources, 1)
    cores = mapper.parallelism
    return plan_slices(sources, -(-total_bytes // (SLICE_BYTES * cores)) * cores)


def merge(
    plan: Plan,
    selection: Selection,
    mapper: Mapper,
    directory: Path,
    *,
    show_source: bool = False,
    output: BinaryIO | None = None,
) -> Merged:
    """Merge a plan's sources into parts in ``directory``; any plan for them gives the same bytes.

    ``output`` may be the stream that the result will be written to: if it is that of ``replacing``, and nothing is
    filtered, the workers write into it directly. SourceChangedError, SparkError, OSError.
    """
    slots = _slots(plan, output) if not show_source and selection == Selection() else None
    merger = SliceMerger(plan, selection, directory, show_source, slots)
    results = mapper.map(merger.merge, range(plan.slices))
    strays = [stray for result in results for stray in result.strays]
    if strays:  # lines far out of order: the slices they belong to are merged again, with them
        again = sorted({stray.home for stray in strays})
        merger = replace(merger, plan=plan.with_strays(strays))
        for result in mapper.map(merger.merge, again):
            results[result.index] = result
    counts = Counts(out_of_order=descents_between(results))
    for result in results:
        counts.add(result.counts)
    parts = [result.part for result in results]
    if slots is None:
        return Merged(PartFiles(part.path for part in parts), counts)
    if not all(slots.fits(index, part) for index, part in enumerate(parts)):
        put_right(slots.path, parts)
    return Merged(PartFiles(), counts)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a stream whose content becomes ``path`` at once when the block ends well; else nothing changes (SCL-22X).

    What is no file, as /dev/null or a pipe, is written into; of a link it is the file behind it that is replaced.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as output:
            yield output
        return
    path = path.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as e:
        raise KafkatoolError(f"cannot write in {path.parent}: {e.strerror}") from e
    temporary = Path(name)
    os.close(handle)
    try:
        with temporary.open("wb") as output:  # its name is known: workers may write into it
            yield output
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _slots(plan: Plan, output: BinaryIO | None) -> Slots | None:
    """Return each slice's place in an output that is a file by name, still empty; None: it is no such file."""
    name = getattr(output, "name", None)  # a number or "<stdout>" for streams that were handed to us
    if not isinstance(name, str) or not Path(name).is_file():
        return None
    sizes = [0] * plan.slices
    for source, bounds in zip(plan.sources, plan.bounds, strict=True):
        first, _ = source.next_record(0)  # lines before it are not written
        reached = [max(bound, first) for bound in bounds]
        for index, (start, end) in enumerate(pairwise(reached)):
            sizes[index] += end - start
        if first < source.size and source.read(source.size - 1, source.size) != b"\n":
            sizes[max(index for index, bound in enumerate(reached[:-1]) if bound < source.size)] += 1
    return Slots(Path(name), tuple(accumulate(sizes, initial=0)))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
