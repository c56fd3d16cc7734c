"""``N.snapshot``: the producers of a log up to offset N (BRK-139).

Of each producer only the last batch is written. Source: Kafka 1.1.1 log/ProducerStateManager.scala.
"""

import os
from pathlib import Path
from struct import Struct, error

import crc32c

from kafkatool.broker.storage.producers.producer_state import ProducedBatch, ProducerEntry, ProducerState

SUFFIX = ".snapshot"
_HEADER = Struct(">hIi")  # version 1, CRC-32C of what follows it, number of producers
_CRC_FROM = 6
_PRODUCER = Struct(">qhiqiqiq")  # id, epoch, last sequence, last offset, delta, timestamp, coordinator epoch, txn start
_VERSION = 1


def write_snapshot(directory: Path, state: ProducerState) -> None:
    """Write the file of ``state.end_offset``, whole or not at all. Raises OSError."""
    body = bytearray(_HEADER.pack(_VERSION, 0, len(state.entries)))
    for producer_id, entry in state.entries.items():
        last = (entry.batches[-1] if entry.batches else ProducedBatch(-1, -1, 0, -1))._replace(timestamp=entry.last_ms)
        start = -1 if entry.transaction_start is None else entry.transaction_start
        body += _PRODUCER.pack(producer_id, entry.epoch, *last, entry.coordinator_epoch, start)
    _HEADER.pack_into(body, 0, _VERSION, crc32c.crc32c(memoryview(body)[_CRC_FROM:]), len(state.entries))
    path = directory / f"{state.end_offset:020d}{SUFFIX}"
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(body)
        file.flush()
        if state.entries:  # an empty one lost in a power cut costs nothing
            os.fsync(file.fileno())
    beside.rename(path)


def read_snapshot(path: Path) -> ProducerState | None:
    """Read the producers; None when the file is damaged. Raises OSError."""
    data = path.read_bytes()
    try:
        version, crc, count = _HEADER.unpack_from(data)
        if version != _VERSION or crc != crc32c.crc32c(memoryview(data)[_CRC_FROM:]):
            return None
        state = ProducerState()
        for i in range(count):
            producer_id, epoch, *last, coordinator_epoch, start = _PRODUCER.unpack_from(
                data, _HEADER.size + i * _PRODUCER.size
            )
            entry = ProducerEntry(
                epoch, coordinator_epoch=coordinator_epoch, transaction_start=None if start < 0 else start
            )
            if last[0] >= 0:
                entry.batches.append(ProducedBatch(*last))
            else:
                entry.marker_ms = last[-1]
            state.restore(producer_id, entry)
    except error:
        return None
    state.end_offset = offset_of(path)
    return state


def offset_of(path: Path) -> int:
    """Return N of ``N.snapshot``."""
    return int(path.stem)


def snapshots(directory: Path) -> list[Path]:
    """Return the partition's snapshot files, oldest first."""
    with os.scandir(directory) as entries:  # at every flush: no glob
        names = [entry.name for entry in entries if entry.name.endswith(SUFFIX)]
    return sorted((path for name in names if (path := directory / name).stem.isdecimal()), key=offset_of)


def delete_snapshots(directory: Path, *, below: int = 0, above: int = 2**63 - 1) -> None:
    """Remove those of offsets below ``below`` and of offsets above ``above``."""
    for path in snapshots(directory):
        if offset_of(path) < below or offset_of(path) > above:
            path.unlink(missing_ok=True)
