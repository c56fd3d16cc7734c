"""The kinds of lines, one for each shape: where in a line stands who wrote it, and what it says of which partition."""

import re
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from kafkatool.core.statelog.history.observations import statement_of
from kafkatool.core.statelog.lines.details import find_details

Wrote = tuple[bytes, bytes, bytes]
"""Who wrote a line, the controller whose request it is about, and its epoch."""

Words = bytes | tuple[bytes, ...]
"""Pieces of a line."""

_NOWHERE = slice(0, 0)
_DIGIT = re.compile(r"\d")


class LineKind:
    """All lines of one shape. Found once for a shape, and kept by whoever keeps shapes.

    ``who_of`` and ``words_of`` take from a line the pieces in which all of ``wrote_of``, and of what it says, stands. Who
    wrote a line is part of what it says, so its words alone tell that, too. ``met`` is for whoever counts lines: what was
    met of this kind so far.
    """

    __slots__ = ("met", "name_at", "shape", "statement", "tells_isr", "who_of", "words_of", "wrote_of")

    def __init__(self, text: str) -> None:
        """Take one of the lines, or their shape."""
        details = find_details(text)
        self.met: Any = None
        self.shape = details.shape
        self.wrote_of: Callable[[bytes], Wrote] | None = None  # nobody says that he wrote it
        self.who_of: Callable[[bytes], Words] | None = None
        by_itself = details.actor == "controller" or details.sender is None
        sender = details.actor_id if by_itself else details.sender
        if details.actor_id is not None and sender is not None:
            who = [details.actor_id, sender] + ([details.epoch] if details.epoch is not None else [])
            self.wrote_of = itemgetter(details.actor_id, sender, details.epoch or _NOWHERE)
            self.who_of = itemgetter(*_joined(who, text))
        self.statement = statement_of(details)
        self.tells_isr = self.statement is not None and self.statement.tells_isr
        if self.statement is not None:
            self.words_of: Callable[[bytes], Words] = itemgetter(*_joined(self.statement.places, text))
            span, *others = details.shape.spans
            # Of lines with many partitions hardly any two name the same.
            self.name_at = None if others else slice(span.topic_start, span.partition_end)


def _joined(places: Iterable[slice], text: str) -> list[slice]:
    """Return fewer slices with the same in them: where no digit is between two, all lines of a shape are the same there."""
    joined: list[slice] = []
    for place in sorted(places, key=lambda at: (at.start, at.stop)):
        last = joined[-1] if joined else _NOWHERE
        if joined and not _DIGIT.search(text, last.stop, place.start):
            joined[-1] = slice(last.start, max(last.stop, place.stop))
        else:
            joined.append(place)
    return joined
