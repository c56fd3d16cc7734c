"""Steps of a move on real files: a kill at each change to the disk, log dirs that fail, cuts in between."""

import errno
import os
import shutil
import threading
from pathlib import Path

import pytest

from kafkatool.broker.storage.directories.topic_identity import Judgement
from kafkatool.core.errors import StorageError
from tests.broker.replication.moving.steps import BATCHES, CHUNK, A, go_on, managed, moving, plain_dirs, written
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.crashing import Killed, Steps
from tests.broker.storage.logs import everything


@pytest.mark.slow
@pytest.mark.spec("ADM-69")
def test_a_kill_at_any_write_leaves_one_whole_log_and_the_move_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with managed(tmp_path / "before") as manager:
        expected = everything(written(manager))
    steps = Steps(monkeypatch)
    number, killed, seen_two = 0, True, 0
    while killed:
        directory = tmp_path / f"killed-{number}"
        shutil.copytree(tmp_path / "before", directory)
        with managed(directory) as manager:
            steps.taken, steps.last = 0, number
            try:
                go_on(moving(manager, directory / "2"), manager)
                killed = False
            except Killed:
                pass
            steps.last = None
        seen_two += len(plain_dirs(directory)) > 1
        with managed(directory) as manager:
            log = manager.get(A)
            assert log is not None and everything(log) == expected, number
            assert len(plain_dirs(directory)) == 1, number
            # What is appended from here on must be in the log that the next start finds.
            log.append_as_leader(batch(1), 9)
            if log.directory.parent == directory / "1":
                go_on(moving(manager, directory / "2"), manager)
            moved = manager.get(A)
            assert moved is not None and moved.directory == directory / "2" / "a-0", number
            assert everything(moved) == everything(log), number
            assert moved.leader_epochs.entries == log.leader_epochs.entries, number
            assert moved.state.producers.entries[7].batches[-1].last_sequence == 2 * BATCHES - 1
        with managed(directory) as manager:
            again = manager.get(A)
            assert again is not None and len(everything(again)) > len(expected), number
            assert again.log_end_offset == 2 * BATCHES + 1, number
            assert (manager.copy_of(A), plain_dirs(directory)) == (None, ["2/a-0"])
            assert again.state.producers.entries[7].batches[-1].last_sequence == 2 * BATCHES - 1
        shutil.rmtree(directory)
        number += 1
    assert number > 30
    assert seen_two, "in the midst of the last step there are two directories of the partition"


@pytest.mark.spec("ADM-69")
def test_the_copy_is_on_the_disk_before_it_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with managed(tmp_path) as manager:
        log = written(manager)
        move = moving(manager, tmp_path / "2")
        synced: set[Path] = set()
        sync, rename = os.fsync, os.rename

        def noted(fd: int) -> None:
            synced.add(Path(f"/proc/self/fd/{fd}").readlink())
            sync(fd)

        order: list[tuple[str, set[Path]]] = []
        others_get_the_lock: list[bool] = []

        def try_lock() -> None:
            others_get_the_lock.append(move.partition.lock.acquire(blocking=False))

        def renamed(old: Path, new: Path) -> None:
            if Path(old).is_dir():
                order.append((Path(new).name, set(synced)))
                other = threading.Thread(target=try_lock)
                other.start()
                other.join()
            rename(old, new)

        monkeypatch.setattr(os, "fsync", noted)
        monkeypatch.setattr(os, "rename", renamed)
        copied = move.copy.log.directory
        go_on(move, manager)
    (first, before), (second, after) = order
    assert first == "a-0" and second.endswith("-delete")
    assert others_get_the_lock == [False, False]
    assert {copied / path.name for path in (tmp_path / "2" / "a-0").glob("*.log")} | {copied} <= before
    assert tmp_path / "2" in after
    assert log.state.closed


@pytest.mark.spec("ADM-69", "BRK-66")
@pytest.mark.parametrize("cut", [0, 9, 20])
@pytest.mark.parametrize("when", [1, 4, 99])
def test_what_is_cut_off_the_log_is_cut_off_the_copy(tmp_path: Path, cut: int, when: int) -> None:
    with managed(tmp_path) as manager:
        log = written(manager)
        move = moving(manager, tmp_path / "2")
        partition = move.partition
        for _ in range(when):
            if move.copy.log.log_end_offset < log.log_end_offset:
                move.advance(manager, CHUNK)
        partition.truncate(partition.leader_epoch, cut)
        end = log.log_end_offset
        log.append_as_leader(batch(3, value=b"another"), 9)
        expected, epochs = everything(log), log.leader_epochs.entries
        go_on(move, manager)
        assert partition.log is manager.get(A) is not log
        assert everything(partition.log) == expected
        assert partition.log.leader_epochs.entries == epochs
        assert partition.log.log_end_offset == end + 3


@pytest.mark.spec("ADM-69", "BRK-73")
def test_a_replica_that_starts_over_further_on_has_its_copy_start_over(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        written(manager)
        move = moving(manager, tmp_path / "2")
        move.advance(manager, CHUNK)
        move.partition.restart_at(move.partition.leader_epoch, 100)
        go_on(move, manager)
        assert (move.partition.log.log_start_offset, move.partition.log.log_end_offset) == (100, 100)
    with managed(tmp_path) as manager:
        log = manager.get(A)
        assert log is not None and (log.log_start_offset, log.log_end_offset) == (100, 100)


@pytest.mark.spec("ADM-69", "BRK-141")
def test_records_that_were_deleted_do_not_come_back_with_the_copy(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        log = written(manager)
        move = moving(manager, tmp_path / "2")
        move.advance(manager, CHUNK)
        log.advance_log_start(11)
        go_on(move, manager)
    with managed(tmp_path) as manager:
        moved = manager.get(A)
        assert moved is not None and moved.directory.parent == tmp_path / "2"
        assert (moved.log_start_offset, moved.log_end_offset) == (11, 2 * BATCHES)


@pytest.mark.spec("ADM-69", "BRK-146")
@pytest.mark.parametrize("step", range(5))
def test_a_target_that_fails_leaves_the_replica_where_it_is(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the last step the new name may be on the failed disk: when that comes back it is not the log."""
    with managed(tmp_path) as manager:
        log = written(manager)
        move = moving(manager, tmp_path / "2")
        for _ in range(step):
            move.advance(manager, CHUNK)
        if step == 4:
            fsync = os.fsync

            def broken(fd: int) -> None:
                if Path(f"/proc/self/fd/{fd}").readlink() == tmp_path / "2" and len(plain_dirs(tmp_path)) > 1:
                    raise OSError(errno.EIO, "the disk is gone")
                fsync(fd)

            monkeypatch.setattr(os, "fsync", broken)
        else:
            manager.take_offline(tmp_path / "2", OSError(errno.EIO, "the disk is gone"))
        with pytest.raises(StorageError):
            go_on(move, manager)
        monkeypatch.undo()
        assert (manager.get(A), manager.copy_of(A)) == (log, None)
        assert manager.offline_dirs == [tmp_path / "2"]
        assert move.partition.log is log
        log.append_as_leader(batch(2), 9)
        expected = everything(log)
    assert len(plain_dirs(tmp_path)) == 1 + (step == 4)
    with managed(tmp_path) as manager:
        again = manager.get(A)
        assert again is not None and everything(again) == expected
        assert plain_dirs(tmp_path) == ["1/a-0"]
        go_on(moving(manager, tmp_path / "2"), manager)
        again = manager.get(A)
        assert again is not None and everything(again) == expected
    assert plain_dirs(tmp_path) == ["2/a-0"]


@pytest.mark.spec("ADM-69", "BRK-146")
def test_a_source_that_fails_in_the_last_step_has_what_is_not_the_log_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with managed(tmp_path) as manager:
        former = written(manager)
        move = moving(manager, tmp_path / "2")
        rename = os.rename

        def broken(old: Path, new: Path) -> None:
            if str(new).endswith("-delete"):
                raise OSError(errno.EIO, "the disk is gone")
            rename(old, new)

        monkeypatch.setattr(os, "rename", broken)
        go_on(move, manager)
        monkeypatch.undo()
        assert manager.offline_dirs == [tmp_path / "1"]
        log = manager.get(A)
        assert log is not None and log is not former and not log.state.closed
        log.append_as_leader(batch(2), 9)
        expected = everything(log)
    assert plain_dirs(tmp_path) == ["1/a-0", "2/a-0"]
    with managed(tmp_path) as manager:
        again = manager.get(A)
        assert again is not None and everything(again) == expected
        assert plain_dirs(tmp_path) == ["2/a-0"]
        go_on(moving(manager, tmp_path / "1"), manager)  # and back
        assert plain_dirs(tmp_path) == ["1/a-0"]


@pytest.mark.spec("ADM-69", "BRK-159")
def test_a_copy_whose_log_lies_on_a_failed_disk_waits_for_it(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        expected = everything(written(manager))
        moving(manager, tmp_path / "2").advance(manager, CHUNK)
    (copied,) = (tmp_path / "2").glob("a-0.*-future")
    held = tmp_path / "held"
    (tmp_path / "1").rename(held)
    (tmp_path / "1").write_text("no directory")
    with managed(tmp_path) as manager:
        assert (manager.get(A), manager.copies()) == (None, [])
        with pytest.raises(StorageError):
            manager.get_or_create(A)
    assert copied.is_dir()
    (tmp_path / "1").unlink()
    held.rename(tmp_path / "1")
    with managed(tmp_path) as manager:
        assert manager.copy_of(A) is not None
        go_on(moving(manager, tmp_path / "2"), manager)
        log = manager.get(A)
        assert log is not None and everything(log) == expected


@pytest.mark.spec("ADM-69")
def test_a_topic_deleted_while_the_broker_was_down_leaves_no_copy(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        written(manager)
        moving(manager, tmp_path / "2").advance(manager, CHUNK)
    with managed(tmp_path, find_strays=lambda found: Judgement(set(found), {})) as manager:
        assert (manager.get(A), manager.copies()) == (None, [])
    assert not list(tmp_path.glob("*/*-future")) and plain_dirs(tmp_path) == []


@pytest.mark.spec("ADM-69", "BRK-80")
def test_after_a_kill_each_log_has_its_own_high_watermark(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        written(manager)
        move = moving(manager, tmp_path / "2")
        move.advance(manager, CHUNK)
        copied = move.copy.log.log_end_offset
        assert 0 < copied < 20
        manager.write_high_watermarks({A: 20})
        assert (tmp_path / "2" / "replication-offset-checkpoint").read_text() == f"0\n1\na 0 {copied}\n"
    with managed(tmp_path) as manager:
        assert manager.read_high_watermarks() == {A: 20}
        go_on(moving(manager, tmp_path / "2"), manager)
        manager.write_high_watermarks({A: 24})
    with managed(tmp_path) as manager:
        assert manager.read_high_watermarks() == {A: 24}


@pytest.mark.spec("ADM-69")
def test_two_directories_of_which_nothing_tells_stop_the_start(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        written(manager)
    shutil.copytree(tmp_path / "1" / "a-0", tmp_path / "2" / "a-0")
    with pytest.raises(StorageError, match="a-0 lies in two log dirs"), managed(tmp_path):
        pass
    assert plain_dirs(tmp_path) == ["1/a-0", "2/a-0"]


@pytest.mark.spec("ADM-69", "BRK-167")
def test_a_log_that_moves_is_not_cleaned_and_goes_on_from_what_was_clean(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        log = written(manager)
        log.state.cleaned_to = 8
        cleanable = manager._cleaner._logs  # noqa: SLF001 - what it is given to choose from
        assert cleanable() == [log]
        move = moving(manager, tmp_path / "2")
        assert cleanable() == []
        go_on(move, manager)
        assert cleanable() == [manager.get(A)]
        assert move.partition.log.state.cleaned_to == 8


@pytest.mark.spec("ADM-69", "BRK-167", "BRK-142")
def test_what_the_copy_takes_from_behind_a_cut_is_not_taken_for_clean(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        log = written(manager)
        log.state.cleaned_to = 20
        move = moving(manager, tmp_path / "2")
        move.advance(manager, CHUNK)
        move.partition.truncate(move.partition.leader_epoch, 10)
        assert (log.state.cleaned_to, move.copy.log.log_end_offset < 10) == (10, True)
        for _ in range(8):
            log.append_as_leader(batch(2), 9)
        go_on(move, manager)
        assert move.partition.log is not log
        assert (move.partition.log.log_end_offset, move.partition.log.state.cleaned_to) == (26, 10)
