"""Compacted logs: appended to by keys, cleaned at once, and read as a consumer would from the start."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kafkatool.broker.storage.compaction.log_cleaner import LogCleaner
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.protocol.records.batches import Record, decode_records, encode_batch, iter_batches
from tests.broker.storage.logs import Later, broker_config, content, make_log

COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "segment_bytes": "600",
    "index_interval_bytes": "100",
}


class Kept(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def compacted_log(directory: Path, later: Later | None = None, **options: Any) -> Log:
    """Open a log as after a crash, with everything replicated."""
    log = make_log(directory, later, **{**COMPACTED, **options})
    log.high_watermark = log.log_end_offset
    return log


def append(log: Log, pairs: Sequence[tuple[str, str | None]], *, codec: int = 0, timestamp: int = 1000) -> None:
    """Append one batch of (key, value) with everything replicated; None is a tombstone."""
    records = [
        Record(i, timestamp + i, k.encode(), None if v is None else v.encode(), (("h", b"x"),))
        for i, (k, v) in enumerate(pairs)
    ]
    log.append_as_leader(encode_batch(records, codec=codec), 0)
    log.high_watermark = log.log_end_offset


def roll(log: Log) -> None:
    """Close the active segment, if anything is in it."""
    with log.state.lock:
        if log.segments.active.size_bytes:
            log.roll(log.log_end_offset)


def cleaner_of(log: Log, **properties: str) -> LogCleaner:
    """Make a cleaner of this one log, without its thread."""
    return LogCleaner(broker_config(**properties), lambda: [log])


def clean(log: Log, **properties: str) -> int:
    """Do rounds until nothing is dirty; return how many."""
    cleaner = cleaner_of(log, **properties)
    rounds = 0
    while cleaner.clean_dirtiest():
        rounds += 1
    return rounds


def consumed(log: Log) -> list[Kept]:
    """Return all records, fetched piece by piece from the log start."""
    found: list[Kept] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = content(log.read(offset, 300, log.log_end_offset, min_one_batch=True))
        if not data:
            break
        for position, header in iter_batches(data):
            batch = data[position : position + header.size_bytes]
            found += [Kept(r.offset, r.timestamp, r.key, r.value) for r in decode_records(batch) if r.offset >= offset]
            offset = header.next_offset
    return found


def latest(records: Sequence[Kept]) -> dict[bytes | None, bytes]:
    """Return the last value of each key that was not deleted."""
    values = {r.key: r.value for r in records}
    return {key: value for key, value in values.items() if value is not None}
