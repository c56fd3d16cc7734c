"""The temporary files that a crash left in a partition directory: finished or removed before it is opened (BRK-136).

Source: Kafka 2.3.1 log/Log.scala (removeTempFilesAndCollectSwapFiles, completeSwapOperations).
"""

import threading
from pathlib import Path

from kafkatool.broker.storage.producers.producer_reload import replay_batch
from kafkatool.broker.storage.producers.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.storage.segment.segment import (
    DELETED_SUFFIX,
    FRESH_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    Segment,
    file_name,
)
from kafkatool.broker.storage.segment.segment_swap import CLEANED_SUFFIX, SWAP_SUFFIX

_TEMPORARY = (DELETED_SUFFIX, FRESH_SUFFIX, CLEANED_SUFFIX, SNAPSHOT_SUFFIX + ".tmp")
_UNFINISHED = (*_TEMPORARY, SWAP_SUFFIX)


def resolve_temporary_files(directory: Path, sizes: dict[str, int]) -> None:
    """Finish or remove the temporary files; ``sizes``, name and size of all files, follows. Raises OSError."""
    unfinished = [name for name in sizes if name.endswith(_UNFINISHED) and _base(name) >= 0]
    if not unfinished:
        return
    # Kafka splits a segment by writing several .cleaned files and renaming them from the last to the first: while a
    # .cleaned one is left, a .swap at or above it is part of an unfinished split (KAFKA-6264).
    first_cleaned = min((_base(name) for name in unfinished if name.endswith(CLEANED_SUFFIX)), default=2**63)
    swaps: list[str] = []
    for name in unfinished:
        if name.endswith(_TEMPORARY):
            _remove(directory, name, sizes)
        elif name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and _base(name) < first_cleaned:
            swaps.append(name)
    for name in [name for name in unfinished if name in sizes and name not in swaps]:
        in_place = name.removesuffix(SWAP_SUFFIX)
        whose = file_name(_base(name), LOG_SUFFIX)
        if in_place.endswith(".txnindex") and whose in sizes and whose + SWAP_SUFFIX not in sizes:
            # the log file has its name already; the other indexes are made anew from it, this one cannot be
            (directory / name).rename(directory / in_place)
            sizes[in_place] = sizes.pop(name)
        else:
            _remove(directory, name, sizes)
    for name in swaps:
        _complete_swap(directory, name, sizes)


def _complete_swap(directory: Path, name: str, sizes: dict[str, int]) -> None:
    """Put a compacted file in the place of the segments whose offsets it covers."""
    base = _base(name)
    size = sizes.pop(name)
    swap = Segment(directory, base, threading.RLock(), size_bytes=size, suffix=SWAP_SUFFIX)
    end = max((header.next_offset for _, header in swap.headers()), default=base)
    for other in sorted(n for n in sizes if n.endswith(LOG_SUFFIX)):
        if base < _base(other) < end:
            for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
                _remove(directory, file_name(_base(other), suffix), sizes)
    for suffix in INDEX_SUFFIXES:  # the log file goes when it is renamed over
        _remove(directory, file_name(base, suffix), sizes)
    (directory / name).rename(directory / name.removesuffix(SWAP_SUFFIX))
    sizes[name.removesuffix(SWAP_SUFFIX)] = size
    _note_aborted(Segment(directory, base, threading.RLock(), size_bytes=size))


def _note_aborted(segment: Segment) -> None:
    """Make the lost index of aborted transactions anew, from the markers whose transactions it holds itself."""
    state = ProducerState()
    for position, header in segment.headers():
        if aborted := replay_batch(state, segment, position, header):
            segment.note_aborted(aborted)


def _remove(directory: Path, name: str, sizes: dict[str, int]) -> None:
    (directory / name).unlink(missing_ok=True)
    sizes.pop(name, None)


def _base(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdecimal() else -1
