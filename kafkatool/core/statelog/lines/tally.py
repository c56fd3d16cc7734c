"""The count of lines by their shape instead of one by one: a slice counts keys in C and looks at each shape once."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from kafkatool.core.statelog.lines.selection import Counts
from kafkatool.core.statelog.lines.shapes import MOST_SHAPES, Shape, Shapes

MOST_BYTES = 16 * 1024 * 1024
"""Keys held, in bytes and in number (MOST_SHAPES), before the tally is settled and starts anew."""

Verdict = Callable[[bytes, Shape], str | None]
"""A filter of shapes: gives the count their lines are dropped under, None (kept), or ASK."""

ASK = "ask"
"""The verdict on a shape whose lines must be looked at one by one."""


@dataclass(slots=True)
class Tally:
    """Lines by shape. ``shape_of`` and ``verdict_of`` know every key counted since the last ``settle``.

    ``others`` are those of them that are no record beginning with ``[``. ``only_records`` says that no line but records
    was ever met.
    """

    shapes: Shapes
    verdict: Verdict | None
    counts: Counts
    lines: Counter[bytes] = field(default_factory=Counter)
    shape_of: dict[bytes, Shape] = field(default_factory=dict)
    verdict_of: dict[bytes, str | None] = field(default_factory=dict)
    others: set[bytes] = field(default_factory=set)
    only_records: bool = True
    held_bytes: int = 0

    def add(self, keys: Iterable[bytes], *, count: bool) -> bool:
        """Learn the shapes of some lines, and count the lines if this slice is to account for them.

        Return if each of them is a record that begins with ``[``.
        """
        if len(self.shape_of) > MOST_SHAPES or self.held_bytes > MOST_BYTES:
            self.settle()
        if not count:
            met = set(keys)
            self._learn(met.difference(self.shape_of))
            return self.others.isdisjoint(met)
        known, before = len(self.lines), self._lines_of_others()
        self.lines.update(keys)
        self._learn(islice(reversed(self.lines), len(self.lines) - known))
        return self._lines_of_others() == before

    def settle(self) -> None:
        """Turn what was counted into counts of classes, and forget all shapes."""
        counts = self.counts
        for key, number in self.lines.items():
            shape = self.shape_of[key]
            if not shape.known:
                counts.drop("other_loggers" if shape.foreign else "unknown_form", number)
            if shape.time_at is None:
                counts.continuation_lines += number  # the orphans among them are taken out where they are met
                continue
            counts.records += number
            counts.without_partition += 0 if shape.spans else number
            reason = self.verdict_of[key]
            if reason and reason != ASK:
                counts.drop(reason, number)
        for held in (self.lines, self.shape_of, self.verdict_of, self.others):
            held.clear()
        self.held_bytes = 0

    def _lines_of_others(self) -> int:
        return sum(map(self.lines.__getitem__, self.others))

    def _learn(self, keys: "islice[bytes] | set[bytes]") -> None:
        for key in keys:
            if key in self.shape_of:
                continue
            shape = self.shape_of[key] = self.shapes.known.get(key) or self.shapes.learn(key)
            self.verdict_of[key] = self.verdict(key, shape) if self.verdict else None
            self.held_bytes += len(key)
            if shape.time_at != 1:
                self.others.add(key)
                self.only_records &= shape.time_at is not None
