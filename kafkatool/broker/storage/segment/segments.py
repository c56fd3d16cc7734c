"""The segments of a log, ordered by base offset."""

from bisect import bisect_right
from collections.abc import Iterator

from kafkatool.broker.storage.segment.segment import Segment


class Segments:
    """The list, changed under the log's lock by replacing both lists at once, so that readers need no lock."""

    __slots__ = ("_chain",)

    def __init__(self, segments: list[Segment]) -> None:
        """Take them in order; the last is the active one."""
        self._chain = ([s.base_offset for s in segments], segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._chain[1])

    def __len__(self) -> int:
        return len(self._chain[1])

    @property
    def generation(self) -> object:
        """Return an object that is another one whenever the list has changed."""
        return self._chain

    @property
    def first(self) -> Segment:
        """Return the oldest."""
        return self._chain[1][0]

    @property
    def active(self) -> Segment:
        """Return the one that is appended to."""
        return self._chain[1][-1]

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment in whose range ``offset`` lies, and all after it; all when it lies before the first."""
        bases, segments = self._chain
        return segments[max(0, bisect_right(bases, offset) - 1) :]

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self.replace([*self._chain[1], segment])

    def replace(self, segments: list[Segment]) -> None:
        """Make these the segments."""
        self._chain = ([s.base_offset for s in segments], segments)
