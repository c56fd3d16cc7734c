"""``N.txnindex`` of logs that were replicated or taken over from a broker which serves transactions.

An abort is noted in the segment's index, so that read_committed consumers can be told what to skip (BRK-103).
Source: Kafka 1.1.1 log/TransactionIndex.scala.
"""

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


def append_aborted(path: Path, aborted: AbortedTransaction) -> None:
    """Add an entry; the file is made with the first. Raises OSError."""
    with path.open("ab") as file:
        file.write(_ENTRY.pack(0, *aborted))


def read_aborted(path: Path) -> Iterator[AbortedTransaction]:
    """Yield all entries; none without the file. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for _, *fields in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
        yield AbortedTransaction(*fields)


def truncate_aborted(path: Path, end_offset: int) -> None:
    """Drop the entries of markers at ``end_offset`` or after. Raises OSError."""
    if path.exists():
        kept = [a for a in read_aborted(path) if a.last_offset < end_offset]
        path.write_bytes(b"".join(_ENTRY.pack(0, *a) for a in kept))
