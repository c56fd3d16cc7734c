"""The places of the newest batches of a segment, so that reads near the end need neither index nor disk."""

from array import array
from bisect import bisect_left

_MOST = 512
_KEPT = 256


class RecentBatches:
    """The last offset and end position of each batch from ``start`` to the end of the file.

    One thread adds under the log's lock, any thread may look: arrays only grow, a full one is replaced by a new object.
    """

    __slots__ = ("_ends", "_last_offsets", "floor", "start")

    def __init__(self, floor: int, start: int) -> None:
        """Begin empty; ``floor`` is the offset after the last batch before position ``start``."""
        self.floor = floor
        self.start = start
        self._ends = array("q")
        self._last_offsets = array("q")

    def add(self, last_offset: int, end: int) -> "RecentBatches":
        """Record the next batch; return the object to use from now on."""
        self._ends.append(end)  # before the offset: whoever finds the offset finds its end
        self._last_offsets.append(last_offset)
        if len(self._last_offsets) < _MOST:
            return self
        newer = RecentBatches(self._last_offsets[-_KEPT - 1] + 1, self._ends[-_KEPT - 1])
        newer._ends.extend(self._ends[-_KEPT:])
        newer._last_offsets.extend(self._last_offsets[-_KEPT:])
        return newer

    def find(self, offset: int) -> tuple[int, int] | None:
        """Return (position, end) of the first batch whose last offset is ``offset`` or more; ``offset`` >= floor."""
        last_offsets = self._last_offsets
        found = bisect_left(last_offsets, offset)
        if found == len(last_offsets):
            return None
        return (self._ends[found - 1] if found else self.start), self._ends[found]
