"""The replacement of segments by the cleaned one made from them, so that a crash at any step loses nothing (BRK-136).

It is written with the suffix ``.cleaned``: found at a start, it is thrown away. Renamed to ``.swap`` it is whole and
on the disk: from then on a start finishes the replacement. Only then the old files become ``.deleted``, and at last
the suffix goes. The first of the old log files is not renamed but replaced in one step, so that its name is never
missing: Kafka 1.x, starting on such a directory, would take the segment before it for the replaced one and delete it.
Source: Kafka 2.3.1 and 1.1.1 log/Log.scala (replaceSegments, completeSwapOperations).
"""

import os
from collections.abc import Sequence
from pathlib import Path

from kafkatool.broker.storage.checkpoint import opened_directory
from kafkatool.broker.storage.segment.segment import Segment

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def swap_in(directory: Path, cleaned: Segment, old: Sequence[Segment]) -> None:
    """Rename the files of all of them; under the log's lock. ``cleaned`` is flushed. Raises OSError."""
    for segment in old:
        _ = segment.file  # kept open: who reads it now must not meet the next generation under its name
    with opened_directory(directory) as names:
        cleaned.rename(SWAP_SUFFIX)
        os.fsync(names)  # else a power cut could take this name and spare the ones below
    first, *others = old
    for segment in others:
        segment.mark_deleted()
    first.mark_deleted(replaced=True)
    cleaned.rename("")
