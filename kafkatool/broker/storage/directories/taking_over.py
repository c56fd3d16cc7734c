"""A log's copy in another log dir takes its place (KIP-113, ADM-69), by changes to the disk of which a crash may end any.

For a moment there are two directories of the partition. Which one is the log then tells a file in them, with the number of
moves the replica has made: it is that of the higher number. Kafka, which leaves the file alone, would not start on two.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from kafkatool.broker.storage.checkpoint import (
    CheckpointDamagedError,
    is_passing,
    opened_directory,
    read_entries,
    write_entries,
)
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.producers.producer_snapshot import write_snapshot
from kafkatool.core.errors import StorageError

_MOVES = "kafkatool-moves"


def read_moves(directory: Path) -> int:
    """Return how often the replica has moved, as noted with this log. Raises OSError, CheckpointDamagedError."""
    path = directory / _MOVES
    entries = read_entries(path, 1)
    try:
        return int(entries[0][0]) if entries else 0
    except ValueError as e:
        raise CheckpointDamagedError(f"{path}: {e}") from e


def outdated(copies: Mapping[Path, int]) -> list[Path]:
    """Return of several directories of one partition, given with their numbers, those that are not its log any more.

    Raises StorageError when the numbers do not tell, as of what Kafka left.
    """
    newest = max(copies.values())
    logs = [path for path, moves in copies.items() if moves == newest]
    if len(logs) > 1:
        where = " and ".join(map(str, logs))
        raise StorageError(
            f"{logs[0].name} lies in two log dirs: {where}. Remove the one in the log dir that has failed of late"
        )
    return [path for path in copies if path not in logs]


def prepare(log: Log, copy: Log) -> None:
    """Bring to the disk what the copy needs to be the log. Raises StorageError; the log is as it was then.

    Both have the same records, and nobody changes either, from before this until after ``take_over``.
    """
    old, new = log.state, copy.state
    with old.lock, new.lock:
        old.check_open()
        new.check_open()
        new.leader_epochs.adopt(old.leader_epochs)
        new.high_watermark = old.high_watermark
        copy.flush()
        if new.recovery_point < new.end.offset:
            raise StorageError(f"{new.partition}: {new.directory} could not be flushed")
        try:
            new.leader_epochs.sync()
            write_snapshot(new.directory, old.producers)
            write_entries(new.directory / _MOVES, [str(read_moves(old.directory) + 1)])
        except OSError as e:
            raise new.disk_failed(e) from e
        except CheckpointDamagedError as e:
            raise StorageError(str(e)) from e


def take_over(log: Log, copy: Log, path: Path) -> None:
    """Rename the copy's directory to ``path``, the partition's own name: from then on it is the log.

    Raises StorageError: the log is the one that was. Unless it is OutOfResourcesError the copy's log dir has failed.
    """
    old, new = log.state, copy.state
    try:
        with opened_directory(path.parent) as names:
            copy.rename(path)
            os.fsync(names)
    except OSError as e:
        if is_passing(e) and new.directory != path:
            raise new.disk_failed(e) from e
        try:  # the new name may be on the disk all the same
            write_entries(old.directory / _MOVES, [str(read_moves(old.directory) + 2)])
        except (OSError, CheckpointDamagedError) as unsafe:
            old.disk_failed(OSError(str(unsafe)), midway=True)
        raise new.disk_failed(e, midway=True) from e
    new.producers = old.producers  # also what no record tells any more, and who has asked to be verified
