"""Checkpoint files: small text files of a log dir or a partition (BRK-147).

Lines: ``0`` (version), the number of entries, one entry a line with blanks between its words. Replaced as a whole:
written beside, fsynced, renamed, the name fsynced. Source: Kafka 1.1.1 server/checkpoints/CheckpointFile.scala.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition

REPLICATION_OFFSETS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

_VERSION = "0"


class CheckpointDamagedError(StorageError):
    """A checkpoint file whose version, count or a line is wrong. What that means depends on the file (BRK-147)."""


def is_passing(error: Exception) -> bool:
    """Tell whether the system lacked something for a while; the disk did not fail."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """Give the descriptor, to sync names with: opened before a change, it is not missing in the midst of it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Bring the names in it to the disk as they are now. Raises OSError."""
    with opened_directory(path) as fd:
        os.fsync(fd)


def read_entries(path: Path, words: int) -> list[list[str]]:
    """Read entries of ``words`` words each; a missing or empty file has none. Raises CheckpointDamagedError, OSError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as e:
        raise CheckpointDamagedError(f"{path}: not UTF-8 text: {e}") from e
    if not lines:
        return []
    if lines[0].strip() != _VERSION:
        raise CheckpointDamagedError(f"{path}: version {lines[0]!r}, expected {_VERSION}")
    entries = [line.split() for line in lines[2:]]
    count = lines[1].strip() if len(lines) > 1 else ""
    if not count.isdecimal() or int(count) != len(entries):
        raise CheckpointDamagedError(f"{path}: says {count!r} entries, holds {len(entries)}")
    for number, entry in enumerate(entries, 3):
        if len(entry) != words:
            raise CheckpointDamagedError(f"{path} line {number}: expected {words} words, found {len(entry)}")
    return entries


def write_entries(path: Path, entries: Iterable[str]) -> None:
    """Replace the file by these lines, durably: after a power cut it is this one or the one before. Raises OSError."""
    lines = list(entries)
    beside = path.with_name(path.name + ".tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write("\n".join((_VERSION, str(len(lines)), *lines)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_directory(path.parent)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Read a log dir's file of ``topic partition offset`` lines. Raises CheckpointDamagedError, OSError."""
    try:
        return {TopicPartition(t, int(p)): int(offset) for t, p, offset in read_entries(path, 3)}
    except ValueError as e:
        raise CheckpointDamagedError(f"{path}: {e}") from e


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write what ``read_offsets`` reads, durably. Raises OSError."""
    write_entries(path, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()))
