"""The merge of one time slice: its parts of all logs are streamed, in order of time, into one part of the result.

The order is total: time, then the log's place in the list, then the place in the log (SCL-10X). The logs are read block
by block. What is earlier than anything that a block still to be read may hold is sorted and written, so memory does not
depend on the size of a slice. A log further out of order than a block (a clock set back) is noticed, and its slice done
again as one block.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.lines.shapes import Shape, Shapes
from kafkatool.core.statelog.lines.tally import ASK, Tally, Verdict
from kafkatool.core.statelog.merging.parts import Part, PartWriter, Slots, SlotTooSmallError
from kafkatool.core.statelog.sources.blocks import BLOCK_BYTES
from kafkatool.core.statelog.sources.slices import Plan, Stray
from kafkatool.core.statelog.sources.streams import OutOfOrderError, Stream

_shapes: dict[bool, Shapes] = {}
"""Shapes learned in this process, by whether they are classified like Kafka does: slices of one job share them."""


@dataclass(slots=True)
class SliceResult:
    """The outcome of one slice. ``edges``: by source, the times of the first and last record of the slice's own part."""

    index: int
    part: Part
    counts: Counts = field(default_factory=Counts)
    strays: list[Stray] = field(default_factory=list)
    edges: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceMerger:
    """Merges any slice of a plan; small, so that it can be sent to where the work is done."""

    plan: Plan
    selection: Selection
    directory: Path
    show_source: bool = False
    slots: Slots | None = None
    block_bytes: int = BLOCK_BYTES

    def merge(self, index: int) -> SliceResult:
        """Merge slice ``index`` into its slot, or into a file of its own in ``directory``.

        OSError, SourceChangedError.
        """
        return self._merge(index, self.slots, in_blocks=True)

    def _merge(self, index: int, slots: Slots | None, *, in_blocks: bool) -> SliceResult:
        try:
            with PartWriter(self.directory / f"part-{index:06d}", slots, index) as writer:
                return self._stream(index, writer, in_blocks=in_blocks)
        except SlotTooSmallError:
            return self._merge(index, None, in_blocks=in_blocks)
        except OutOfOrderError:
            return self._merge(index, slots, in_blocks=False)

    def _stream(self, index: int, writer: PartWriter, *, in_blocks: bool) -> SliceResult:
        result = SliceResult(index, writer.part)
        counts = result.counts
        tally = Tally(self._known_shapes(), self._verdict(), counts)
        streams = [
            Stream(self.plan, index, number, self.selection, tally, self.block_bytes)
            for number in range(len(self.plan.sources))
        ]
        labels = [os.fsencode(f"{source.label}\t") if self.show_source else b"" for source in self.plan.sources]
        if not in_blocks:
            for stream in streams:
                stream.fill_all()
        while True:
            frontiers = [stream.frontier for stream in streams if stream.frontier is not None]
            before = min(frontiers, default=None)
            if records := _in_order(streams, labels, before):
                counts.written += len(records)
                records.append(b"")  # so that the last one gets its line end, and the text is made but once
                text = b"\n".join(records)
                counts.lines_written += len(records) - 1 if tally.only_records else text.count(b"\n")
                writer.write(text)
            if before is None:
                break
            for stream in streams:
                if stream.frontier == before:
                    stream.fill(before)
        tally.settle()
        for stream in streams:
            counts.out_of_order += stream.descents
            counts.continuation_lines -= stream.orphans
            counts.orphan_lines += stream.orphans
            result.strays.extend(stream.strays)
            if stream.edge:
                result.edges[stream.number] = stream.edge
        result.part = writer.part
        return result

    def _known_shapes(self) -> Shapes:
        return _shapes.setdefault(self.selection.kafka_compatible, self.selection.shapes())

    def _verdict(self) -> Verdict | None:
        """Return the selection's verdict on whole shapes, times left out; None where it keeps all."""
        if not self.selection.by_shape:
            return None
        by_shape = self.selection.verdict()
        names_topic = self.selection.topic_by_shape()

        def verdict(key: bytes, shape: Shape) -> str | None:
            if (reason := by_shape(shape)) or not names_topic or not shape.spans:
                return reason
            return ASK if names_topic(key, shape) else "filtered_by_topic"

        return verdict


def _in_order(streams: Sequence[Stream], labels: Sequence[bytes], before: bytes | None) -> list[bytes]:
    """Return the records of all streams that are earlier than ``before`` (None: all there are), in total order."""
    records: list[bytes] = []
    times: list[bytes] = []
    sorted_already = True
    for stream, label in zip(streams, labels, strict=True):
        taken, their_times = stream.take(before)
        if taken:
            sorted_already = not records
            records += [label + record for record in taken] if label else taken
            times += their_times
    if sorted_already:
        return records
    return list(map(records.__getitem__, sorted(range(len(times)), key=times.__getitem__)))


def descents_between(results: Iterable[SliceResult]) -> int:
    """Count the records earlier than the one before them where that one stands in an earlier slice's part (SCL-10X)."""
    edges: dict[int, list[tuple[bytes, bytes]]] = {}
    for result in sorted(results, key=lambda r: r.index):
        for source, edge in result.edges.items():
            edges.setdefault(source, []).append(edge)
    return sum(left[1] > right[0] for parts in edges.values() for left, right in pairwise(parts))
