"""Accounts for lines by their shape instead of one by one: a slice counts keys in C and looks at each shape once."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kafkatool.core.statelog.selection import Counts
from kafkatool.core.statelog.shapes import MOST_SHAPES, Shape, Shapes

MOST_BYTES = 16 * 1024 * 1024
"""Keys held, in bytes and in number (MOST_SHAPES), before the tally is settled and starts anew."""

Verdict = Callable[[bytes, Shape], str | None]
"""What a filter says of all lines of a shape: the count they are dropped under, None (kept), or ASK."""

ASK = "ask"
"""The verdict on a shape whose lines must be looked at one by one."""


@dataclass(slots=True)
class Tally:
    """Lines by shape. ``shape_of`` and ``verdict_of`` know every key counted since the last ``settle``.

    ``only_plain`` says that each of these is a record beginning with ``[``; ``plain`` are the keys that are.
    ``only_records`` says that no line but records was ever met.
    """

    shapes: Shapes
    verdict: Verdict | None
    counts: Counts
    lines: Counter[bytes] = field(default_factory=Counter)
    shape_of: dict[bytes, Shape] = field(default_factory=dict)
    verdict_of: dict[bytes, str | None] = field(default_factory=dict)
    plain: set[bytes] = field(default_factory=set)
    only_plain: bool = True
    only_records: bool = True
    held_bytes: int = 0

    def meet(self, keys: Sequence[bytes], *, count: bool) -> None:
        """Learns the shapes of some lines, and counts the lines if this slice is to account for them."""
        if len(self.shape_of) > MOST_SHAPES or self.held_bytes > MOST_BYTES:
            self.settle()
        if not count:
            self._learn(set(keys).difference(self.shape_of))
            return
        known = len(self.lines)
        self.lines.update(keys)
        self._learn(islice(reversed(self.lines), len(self.lines) - known))

    def settle(self) -> None:
        """Turns what was counted into counts of classes, and forgets all shapes."""
        counts = self.counts
        for key, number in self.lines.items():
            shape = self.shape_of[key]
            counts.unknown_form += 0 if shape.known else number
            if shape.time_at is None:
                counts.continuation_lines += number  # the orphans among them are taken out where they are met
                continue
            counts.records += number
            counts.without_partition += 0 if shape.spans else number
            reason = self.verdict_of[key]
            if reason and reason != ASK:
                counts.drop(reason, number)
        for held in (self.lines, self.shape_of, self.verdict_of, self.plain):
            held.clear()
        self.only_plain, self.held_bytes = True, 0

    def _learn(self, keys: "islice[bytes] | set[bytes]") -> None:
        for key in keys:
            if key in self.shape_of:
                continue
            shape = self.shape_of[key] = self.shapes.known.get(key) or self.shapes.learn(key)
            self.verdict_of[key] = self.verdict(key, shape) if self.verdict else None
            self.held_bytes += len(key)
            if shape.time_at == 1:
                self.plain.add(key)
            else:
                self.only_plain = False
                self.only_records &= shape.time_at is not None
