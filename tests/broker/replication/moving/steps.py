"""A log that moves between two log dirs, step by step and without the thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkatool.broker.replication.moving.copying import Move
from kafkatool.broker.replication.moving.decisions import shared_end
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.replica_copy import ReplicaCopy
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.world import Clock, ManualScheduler
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import broker_config

A = TopicPartition("a", 0)
CHUNK = 200
BATCHES = 14


@contextmanager
def managed(directory: Path, **options: Any) -> Iterator[LogManager]:
    """Give a manager of the log dirs ``1`` and ``2``, which goes down without a word."""
    dirs = [directory / name for name in "12"]
    config = broker_config(log_dirs=",".join(map(str, dirs)), log_segment_bytes="300")
    manager = LogManager(config, lambda topic: {}, ManualScheduler(), **options)
    try:
        manager.load()
        yield manager
    finally:
        manager.abandon()


def written(manager: LogManager) -> Log:
    """Write a log of several segments, epochs and a producer in the dir ``1``."""
    manager.want_in(A, manager.live_dirs[0])
    log = manager.get_or_create(A, is_new=True)
    for number in range(BATCHES):
        log.append_as_leader(batch(2, producer=(7, 0, 2 * number)), number // 5)
    assert len(log.segments) > 3
    log.flush()
    return log


def moving(manager: LogManager, path: Path) -> Move:
    """Begin to move the log there, or go on with that."""
    log = manager.get(A)
    assert log is not None
    copied = manager.copy_of(A)
    cut = None
    if copied is None:
        copied = manager.create_copy(A, path)
    else:
        cut = shared_end(
            log.leader_epochs.entries, log.log_end_offset, copied.leader_epochs.entries, copied.log_end_offset
        )
    partition = Partition(A, 1, log, lag_time_max_ms=1, clock_ms=Clock(), high_watermark=log.log_end_offset)
    copy = ReplicaCopy(copied, cut)
    partition.take_copy(copy)
    return Move(partition, copy)


def go_on(move: Move, manager: LogManager) -> None:
    while not move.is_over:
        move.advance(manager, CHUNK)


def plain_dirs(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.glob("*/a-0"))
