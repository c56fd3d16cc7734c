"""An offset and its place in the log's files."""

from typing import NamedTuple


class LogOffset(NamedTuple):
    """An offset and where it lies; without segment and position when only the offset is known (BRK-37)."""

    offset: int
    segment_base: int | None = None
    position: int | None = None
