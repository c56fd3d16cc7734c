"""The shapes of lines, a line with every digit made ``0``: they classify a hundred times faster than the grammar alone.

The grammar treats all digits alike and its templates hold none, so lines of one shape are of one form and name their
partitions at the same positions; only a new shape is parsed. A real log has a few thousand shapes in millions of lines.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kafkatool.core.statelog.lines.grammar import TIME, Span, parse_head, partition_spans, record_time

Value = TypeVar("Value")

ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")
"""For ``bytes.translate``: from lines to shapes."""

MOST_SHAPES = 20_000
"""Shapes remembered, some 10 MB; then it starts anew."""

LONGEST_SHAPE = 2048
"""Characters of the longest line remembered. Longer ones (responses about hundreds of partitions) seldom repeat."""

_DATED = re.compile(r"\[?\d{4}-\d\d-\d\d", re.ASCII)
_TIME_ANYWHERE = re.compile(TIME, re.ASCII)
_BRACKETED_ANYWHERE = re.compile(r"\[([a-zA-Z0-9._-]+), *([0-9]+)\]", re.ASCII)


class Shape(NamedTuple):
    """The class of all lines of one shape.

    ``time_at`` is where the time stands in a record's first line, None in any other line. ``known`` is False for a
    dated line of no known form, ``foreign`` for those of them that another logger wrote; ``mode`` is the form's. Lines
    that are no record have ``contains_time`` where a time stands anywhere in them.
    """

    time_at: int | None
    known: bool
    level: str | None = None
    event: str | None = None
    spans: tuple[Span, ...] = ()
    contains_time: bool = False
    mode: str | None = None
    foreign: bool = False


def classify(text: str) -> Shape:
    """Classify a line by the grammar (SCL-4, SCL-5). A date without a time in log4j's form makes no record."""
    if record_time(text) is None:
        return Shape(None, known=not _DATED.match(text), contains_time=bool(_TIME_ANYWHERE.search(text)))
    time_at = int(text.startswith("["))
    head = parse_head(text)
    if head is None:
        return Shape(time_at, known=False, spans=partition_spans(text))
    form = head.form
    spans = tuple(Span(*(at + head.body_start for at in span)) for span in partition_spans(head.body))
    if form is None:
        return Shape(time_at, known=False, level=head.level, spans=spans, foreign=head.is_foreign)
    return Shape(time_at, known=True, level=head.level, event=form.event, spans=spans, mode=form.mode)


def classify_like_kafka(text: str) -> Shape:
    """Classify a line as Kafka's merger: a time anywhere makes a record, the first ``[x,1]`` is its partition (SCL-13X).

    False matches are wanted: an ISR of two, ``[1, 2]``, is topic 1, partition 2. Source: Kafka 2.3.1
    StateChangeLogMerger.scala (unchanged from 0.8.2 to 2.8.0).
    """
    time = _TIME_ANYWHERE.search(text)
    if time is None:
        return Shape(None, known=True)
    named = _BRACKETED_ANYWHERE.search(text)
    spans = (Span(*named.span(1), *named.span(2)),) if named else ()
    return classify(text)._replace(time_at=time.start(), spans=spans, contains_time=False)


@dataclass(slots=True)
class ByShape(Generic[Value]):
    """A value for each shape met so far. ``known`` may be read directly (a dict lookup a line); ``learn`` adds a new one."""

    find: Callable[[str], Value]
    known: dict[bytes, Value] = field(default_factory=dict)

    def of(self, line: bytes) -> Value:
        """Return the value for any line."""
        key = line.translate(ONE_DIGIT)
        return self.known.get(key) or self.learn(key)

    def learn(self, key: bytes) -> Value:
        """Find the value for a shape not met before. A carriage return at the end is not part of the line (CRLF)."""
        found = self.find(key.removesuffix(b"\r").decode("latin-1"))
        if len(key) <= LONGEST_SHAPE:
            if len(self.known) >= MOST_SHAPES:
                self.known.clear()
            self.known[key] = found
        return found


Shapes = ByShape[Shape]
