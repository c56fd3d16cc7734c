"""``N.txnindex`` of logs that were replicated or taken over from a broker which serves transactions.

An abort is noted in the segment's index, so that read_committed consumers can be told what to skip (BRK-103).
Source: Kafka 1.1.1 log/TransactionIndex.scala.
"""

import errno
import os
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_ENTRY = Struct(">hqqqq")  # version 0, producer id, first offset, last offset, last stable offset


class AbortedTransaction(NamedTuple):
    """Records of ``producer_id`` from ``first_offset`` to the marker at ``last_offset`` were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class OpenTransactionIndex:
    """A segment's index, open before it is known whether there is an entry to add: then no descriptor can be missing."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it. Raises OSError."""
        self._path = path
        self._file = path.open("a+b", buffering=0)
        self._entries: list[AbortedTransaction] = []

    def load(self) -> None:
        """Read what is there, as ``truncate`` needs it. Raises OSError."""
        self._entries = list(_entries(os.pread(self._file.fileno(), self._file.tell(), 0)))

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry, whole or not at all: behind a part none would be where it is looked for. Raises OSError."""
        written = self._file.write(_ENTRY.pack(0, *aborted))
        if written < _ENTRY.size:
            os.ftruncate(self._file.fileno(), self._file.tell() - written)
            raise OSError(errno.ENOSPC, f"only {written} of {_ENTRY.size} bytes could be written")

    def truncate(self, end_offset: int) -> None:
        """Drop the entries of markers at ``end_offset`` or after: those lie at the end. Raises OSError."""
        kept = sum(one.last_offset < end_offset for one in self._entries)
        os.ftruncate(self._file.fileno(), kept * _ENTRY.size)

    def close(self) -> None:
        """Let go of the file; one without entries is no more. Raises OSError."""
        with self._file:
            if not os.fstat(self._file.fileno()).st_size:
                self._path.unlink(missing_ok=True)


def sync_aborted(path: Path) -> bool:
    """Bring all entries to the disk; return whether there are any. Raises OSError.

    No start finds those again whose markers lie below the recovery point.
    """
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    return True


def read_aborted(path: Path, start: int = 0) -> Iterator[AbortedTransaction]:
    """Yield the entries of markers at ``start`` or after it; none without the file. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    yield from _entries(data, start)


def _entries(data: bytes, start: int = 0) -> Iterator[AbortedTransaction]:
    """Yield what is whole, from ``start`` on: markers lie in the order of their offsets."""

    def last_offset(number: int) -> int:
        return AbortedTransaction(*_ENTRY.unpack_from(data, number * _ENTRY.size)[1:]).last_offset

    count = len(data) // _ENTRY.size
    first = bisect_left(range(count), start, key=last_offset) if start else 0
    for _, *fields in _ENTRY.iter_unpack(memoryview(data)[first * _ENTRY.size : count * _ENTRY.size]):
        yield AbortedTransaction(*fields)
