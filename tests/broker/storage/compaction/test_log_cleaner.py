"""The cleaner within the log manager: its thread, its checkpoint file, its place among truncation, deletion and failure."""

import logging
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.storage.compaction import log_cleaner
from kafkatool.broker.storage.compaction.log_cleaner import LogCleaner
from kafkatool.broker.storage.compaction.log_snapshot import LogSnapshot
from kafkatool.broker.storage.directories.log_dir import LogDir
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.segment_swap import SegmentCopy
from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.compaction.compacting import (
    COMPACTED,
    append,
    cleaner_of,
    compacted_log,
    consumed,
    latest,
    roll,
)
from tests.broker.storage.logs import broker_config
from tests.waiting import eventually

_A, _B = TopicPartition("a", 0), TopicPartition("b", 0)
_CHECKPOINT = "cleaner-offset-checkpoint"
Start = Callable[..., LogManager]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Make managers of compacted logs on ``tmp_path``, with the cleaner running."""
    scheduler = Scheduler(2)
    managers: list[LogManager] = []

    def make(**properties: str) -> LogManager:
        config = broker_config(log_dirs=str(tmp_path), log_cleaner_backoff_ms="20", **properties)
        overrides = {name.replace("_", "."): text for name, text in COMPACTED.items()}
        managers.append(LogManager(config, lambda topic: overrides, scheduler))
        managers[-1].load()
        managers[-1].start_tasks(scheduler)
        return managers[-1]

    yield make
    for manager in managers:
        manager.shutdown()
    scheduler.shutdown()


def _dirty(log: Log, rounds: int = 3) -> None:
    for value in range(rounds):
        append(log, [("a", str(value)), ("b", str(value))])
    roll(log)


@pytest.mark.spec("BRK-167", "BRK-147")
def test_dirty_logs_are_cleaned_and_the_next_life_goes_on_from_there(start: Start, tmp_path: Path) -> None:
    manager = start()
    for partition in (_A, _B):
        _dirty(manager.get_or_create(partition))
    checkpoint = tmp_path / _CHECKPOINT
    eventually(lambda: checkpoint.exists() and checkpoint.read_text().count(" 6") == 2, "both to be cleaned", 60)
    assert sorted(checkpoint.read_text().splitlines()) == ["0", "2", "a 0 6", "b 0 6"]
    manager.shutdown()
    again = start(log_cleaner_enable="false")
    found = again.get(_A)
    assert found is not None
    assert (found.state.cleaned_to, [r.offset for r in consumed(found)]) == (6, [4, 5])


@pytest.mark.spec("BRK-167")
def test_with_the_cleaner_off_logs_are_kept_whole(start: Start, tmp_path: Path) -> None:
    log = start(log_cleaner_enable="false").get_or_create(_A)
    _dirty(log)
    assert len(consumed(log)) == 6
    assert not (tmp_path / _CHECKPOINT).exists()


@pytest.mark.spec("BRK-167", "BRK-150")
def test_a_deleted_partition_leaves_the_checkpoint(start: Start, tmp_path: Path) -> None:
    manager = start()
    for partition in (_A, _B):
        _dirty(manager.get_or_create(partition))
    checkpoint = tmp_path / _CHECKPOINT
    eventually(lambda: checkpoint.exists() and checkpoint.read_text().count(" 6") == 2, "both to be cleaned", 60)
    manager.delete(_A)
    fresh = manager.get_or_create(_A)
    assert fresh.state.cleaned_to is None
    eventually(lambda: checkpoint.read_text() == "0\n1\nb 0 6\n", "the checkpoint to be written without it", 60)


@pytest.mark.spec("BRK-167", "BRK-150", "BRK-146")
def test_a_partition_deleted_in_the_middle_of_a_round_does_not_look_like_a_failed_disk(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start(log_cleaner_enable="false")
    log = manager.get_or_create(_A)
    _dirty(log)
    renamed, go_on = threading.Event(), threading.Event()
    deleting = threading.Thread(target=manager.delete, args=(_A,))
    rename, finish = LogDir.rename_away, SegmentCopy.finish

    def then_wait(directory: LogDir, partition: TopicPartition, path: Path, kind: str) -> Path:
        gone = rename(directory, partition, path, kind)
        renamed.set()
        assert go_on.wait(60)
        return gone

    def meanwhile(copy: SegmentCopy, modified_ms: float) -> Segment:
        cleaned = finish(copy, modified_ms)
        deleting.start()
        assert renamed.wait(60)
        return cleaned

    monkeypatch.setattr(LogDir, "rename_away", then_wait)
    monkeypatch.setattr(SegmentCopy, "finish", meanwhile)
    cleaner_of(log).clean_dirtiest()
    go_on.set()
    deleting.join()
    assert (manager.offline_dirs, manager.get(_A)) == ([], None)
    manager.get_or_create(_B)


@pytest.mark.spec("BRK-167", "BRK-142")
def test_a_cut_below_what_was_cleaned_is_in_the_checkpoint_at_once(start: Start, tmp_path: Path) -> None:
    log = start().get_or_create(_A)
    _dirty(log)
    checkpoint = tmp_path / _CHECKPOINT
    eventually(lambda: checkpoint.exists() and "a 0 6" in checkpoint.read_text(), "the cleaning", 60)
    log.truncate_to(4)
    assert checkpoint.read_text() == "0\n1\na 0 4\n"


@pytest.mark.spec("BRK-147", "BRK-167")
def test_a_damaged_checkpoint_takes_its_dir_offline(start: Start, tmp_path: Path) -> None:
    (tmp_path / _CHECKPOINT).write_text("0\n2\na 0 6\n")
    with pytest.raises(StorageError, match=_CHECKPOINT):
        start()


@pytest.mark.spec("BRK-167")
def test_a_checkpoint_beyond_the_log_counts_for_nothing(start: Start, tmp_path: Path) -> None:
    manager = start(log_cleaner_enable="false")
    _dirty(manager.get_or_create(_A))
    manager.shutdown()
    (tmp_path / _CHECKPOINT).write_text("0\n1\na 0 600\n")
    log = start().get(_A)
    assert log is not None
    log.high_watermark = 6
    eventually(lambda: log.state.cleaned_to == 6, "the whole log to be cleaned", 60)


@pytest.mark.spec("BRK-167", "BRK-137")
@pytest.mark.parametrize("crashes_again", [False, True])
def test_what_is_written_anew_behind_a_damage_is_not_taken_for_clean(tmp_path: Path, crashes_again: bool) -> None:
    """A tombstone there would go, and the older value, which it was never held against, come back."""

    def load() -> tuple[LogManager, Log]:
        overrides = {name.replace("_", "."): text for name, text in COMPACTED.items()} | {"delete.retention.ms": "0"}
        config = broker_config(log_dirs=str(tmp_path))
        manager = LogManager(config, lambda _: overrides, ManualScheduler())
        manager.load()
        log = manager.get_or_create(_A)
        log.high_watermark = log.log_end_offset
        return manager, log

    manager, log = load()
    for key in "abcd":
        append(log, [(key, "1")])
    roll(log)
    assert cleaner_of(log).clean_dirtiest()
    assert (tmp_path / _CHECKPOINT).read_text() == "0\n1\na 0 4\n"
    manager.abandon()
    os.truncate(tmp_path / "a-0" / f"{0:020d}.log", log.segments.first.size_bytes // 2 - 1)
    manager, log = load()
    assert (log.log_end_offset, log.state.cleaned_to) == (1, None)
    for key in "abc":
        append(log, [(key, None)])
    roll(log)
    if crashes_again:
        manager.abandon()
        manager, log = load()
        assert log.log_end_offset == 4
    append(log, [("e", "2")])
    roll(log)
    assert cleaner_of(log).clean_dirtiest()
    assert latest(consumed(log)) == {b"e": b"2"}
    manager.abandon()


@pytest.mark.spec("BRK-167")
def test_a_log_for_which_memory_is_lacking_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted_log(tmp_path / "a")
    _dirty(log)
    cleaner = LogCleaner(broker_config(log_cleaner_backoff_ms="0"), lambda: [log])

    def failing(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as lacking:
        lacking.setattr(LogCleaner, "_plan", failing)
        assert not cleaner.clean_dirtiest()
    assert cleaner.clean_dirtiest()


@pytest.mark.spec("BRK-167")
@pytest.mark.parametrize(("owner", "step"), [(LogCleaner, "_plan"), (log_cleaner, "CompactionRound")])
def test_a_log_at_which_compaction_fails_in_an_unforeseen_way_holds_up_no_other(
    tmp_path: Path, owner: Any, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dirtiest, other = (compacted_log(tmp_path / name) for name in "ab")
    append(other, [("a", "0")])
    roll(other)
    assert cleaner_of(other).clean_dirtiest()
    for log in (dirtiest, other):
        _dirty(log)
    work = getattr(owner, step)

    def failing(*arguments: Any) -> Any:
        if any(isinstance(one, LogSnapshot) and one.log is dirtiest for one in arguments):
            raise struct.error("unpack requires a buffer of 4 bytes")
        return work(*arguments)

    monkeypatch.setattr(owner, step, failing)
    cleaner = LogCleaner(broker_config(), lambda: [dirtiest, other])
    while cleaner.clean_dirtiest():
        pass
    assert ([r.offset for r in consumed(other)], len(consumed(dirtiest))) == ([5, 6], 6)
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert str(dirtiest.directory) in told.getMessage() and "next start" in told.getMessage()
    assert told.exc_info is not None, "what went wrong, for who mends it"


@pytest.mark.spec("BRK-145")
def test_a_copy_of_a_log_that_is_not_here_is_set_aside_and_not_adopted(start: Start, tmp_path: Path) -> None:
    future = tmp_path / f"a-0.{'0' * 32}-future"
    future.mkdir()
    (future / "00000000000000000000.log").write_bytes(b"half a batch")
    manager = start()
    assert (manager.logs(), manager.copies()) == ([], [])
    _dirty(manager.get_or_create(_A))
    manager.shutdown()
    (stray,) = tmp_path.glob("a-0.*-stray")
    assert [path.name for path in stray.iterdir()] == ["00000000000000000000.log"]
