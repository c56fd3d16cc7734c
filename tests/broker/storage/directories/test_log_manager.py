import contextlib
import errno
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafkatool.broker.runtime.scheduler import ScheduledTask, Scheduler
from kafkatool.broker.storage.checkpoint import LOG_START_OFFSETS, read_offsets
from kafkatool.broker.storage.directories import log_dir
from kafkatool.broker.storage.directories.log_dir import LogDir
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.directories.topic_identity import Judgement, TopicIdentity
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.errors import StartGivenUpError, StorageError
from kafkatool.core.model.topic_configs import DOCUMENTED
from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.crashing import Killed
from tests.broker.storage.logs import broker_config
from tests.waiting import eventually

_A, _B, _DASHED = TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("x-y", 3)
Start = Callable[..., LogManager]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Make loaded managers on the log dirs ``1`` and ``2``; all are shut down at the end."""
    scheduler = Scheduler(2)
    managers: list[LogManager] = []

    def make(dirs: int = 1, overrides: Mapping[str, str] | None = None, **properties: str) -> LogManager:
        log_dirs = ",".join(str(tmp_path / str(n + 1)) for n in range(dirs))
        config = broker_config(log_dirs=log_dirs, log_segment_delete_delay_ms="0", **properties)
        managers.append(LogManager(config, lambda topic: overrides or {}, scheduler))
        managers[-1].load()
        return managers[-1]

    yield make
    for manager in managers:
        manager.shutdown()
    scheduler.shutdown()


@pytest.mark.spec("BRK-137", "BRK-140", "BRK-141", "BRK-145", "BRK-127")
def test_clean_stop_leaves_the_mark_and_checkpoints_and_the_next_start_takes_the_mark_away(
    start: Start, tmp_path: Path
) -> None:
    manager = start()
    for partition in (_A, _DASHED):
        manager.get_or_create(partition).append_as_leader(batch(3), 2)
    manager.get_or_create(_A).advance_log_start(2)
    manager.shutdown()
    marker = tmp_path / "1" / ".kafka_cleanshutdown"
    assert marker.exists()
    assert (tmp_path / "1" / "recovery-point-offset-checkpoint").read_text() == "0\n2\na 0 3\nx-y 3 3\n"
    assert (tmp_path / "1" / "log-start-offset-checkpoint").read_text() == "0\n1\na 0 2\n"

    again = start()
    assert not marker.exists()
    opened = {
        one.partition: (one.log_start_offset, one.log_end_offset, one.state.recovery_point) for one in again.logs()
    }
    assert opened == {_A: (2, 3, 3), _DASHED: (0, 3, 3)}


@pytest.mark.spec("BRK-137", "BRK-138")
def test_after_a_crash_logs_are_scanned_and_a_damaged_recovery_file_means_from_the_start(
    start: Start, tmp_path: Path
) -> None:
    manager = start()
    log = manager.get_or_create(_A)
    log.append_as_leader(batch(3), 2)
    log.append_as_leader(batch(2), 2)
    manager.abandon()
    (tmp_path / "1" / "recovery-point-offset-checkpoint").write_text("rubbish")
    path = tmp_path / "1" / "a-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1])
    again = start().get(_A)
    assert again is not None
    assert again.log_end_offset == 3


@pytest.mark.spec("BRK-138", "BRK-147")
@pytest.mark.parametrize("damaged", [False, True])
def test_a_damaged_recovery_file_means_0_for_every_log_of_its_dir(start: Start, tmp_path: Path, damaged: bool) -> None:
    manager = start(log_segment_bytes=str(len(batch())))
    for partition in (_A, _DASHED):
        for _ in range(4):
            manager.get_or_create(partition).append_as_leader(batch(), 2)
        manager.get_or_create(partition).flush()
    manager.write_recovery_points()
    manager.abandon()
    points = tmp_path / "1" / "recovery-point-offset-checkpoint"
    assert points.read_text() == "0\n2\na 0 4\nx-y 3 4\n"
    if damaged:
        points.write_text("0\n9\na 0 4\nx-y 3 4\n")
    for name in ("a-0", "x-y-3"):
        second = tmp_path / "1" / name / f"{1:020d}.log"
        second.write_bytes(second.read_bytes()[:-1])
    again = start()
    assert again.offline_dirs == []
    assert {one.partition: one.log_end_offset for one in again.logs()} == dict.fromkeys(
        (_A, _DASHED), 1 if damaged else 4
    )


@pytest.mark.spec("BRK-147")
@pytest.mark.parametrize(
    "name",
    [
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "replication-offset-checkpoint",
        "a-0/leader-epoch-checkpoint",
    ],
)
def test_any_other_damaged_checkpoint_takes_its_dir_offline_alone(start: Start, tmp_path: Path, name: str) -> None:
    manager = start(dirs=2)
    for partition in (_A, _B):
        manager.get_or_create(partition).append_as_leader(batch(), 0)
    assert (tmp_path / "1" / "a-0").exists()
    manager.shutdown()
    (tmp_path / "1" / name).write_text("0\n2\na 0 1\n")
    again = start(dirs=2)
    again.read_high_watermarks()
    assert (again.offline_dirs, again.live_dirs) == ([tmp_path / "1"], [tmp_path / "2"])
    assert again.get(_B) is not None


@pytest.mark.spec("BRK-41")
def test_new_logs_go_to_the_dir_with_the_fewest(start: Start) -> None:
    manager = start(dirs=2)
    where = [manager.get_or_create(TopicPartition("t", n)).directory.parent.name for n in range(4)]
    assert sorted(where) == ["1", "1", "2", "2"]
    assert manager.get_or_create(TopicPartition("t", 0)) is manager.get(TopicPartition("t", 0))
    for number in range(4):
        if where[number] == "2":
            manager.delete(TopicPartition("t", number))
    more = [manager.get_or_create(TopicPartition("u", n)).directory.parent.name for n in range(2)]
    assert more == ["2", "2"], "two and none: not by turns"


@pytest.mark.spec("BRK-150")
def test_deleted_partition_is_renamed_erased_and_gone_from_the_checkpoints(start: Start, tmp_path: Path) -> None:
    manager = start()
    doomed = manager.get_or_create(_A)
    doomed.append_as_leader(batch(3), 0)
    manager.get_or_create(_B).append_as_leader(batch(3), 0)
    for partition in (_A, _B):
        manager.get_or_create(partition).advance_log_start(2)
    manager.write_high_watermarks({_A: 3, _B: 3})
    manager.shutdown()
    manager = start()
    doomed = manager.get_or_create(_A)
    checkpoints = sorted((tmp_path / "1").glob("*-offset-checkpoint"))
    assert ["a 0" in path.read_text() for path in checkpoints] == [True] * 3
    manager.delete(_A)
    assert manager.get(_A) is None
    assert not (tmp_path / "1" / "a-0").exists()
    with pytest.raises(StorageError):
        doomed.append_as_leader(batch(), 0)
    fresh = manager.get_or_create(_A)
    assert fresh.log_end_offset == 0
    assert ["a 0" in path.read_text() for path in checkpoints] == [False] * 3
    assert ["b 1" in path.read_text() for path in checkpoints] == [True] * 3
    eventually(lambda: not list((tmp_path / "1").glob("*-delete")), "the erasing")
    manager.delete(TopicPartition("never", 0))


@pytest.mark.spec("BRK-150", "BRK-146")
def test_deleting_a_topic_with_the_longest_name_costs_no_log_dir(start: Start, tmp_path: Path) -> None:
    longest = TopicPartition("t" * 249, 12345)
    manager = start()
    manager.get_or_create(longest)
    manager.delete(longest)
    assert manager.get(longest) is None
    assert manager.live_dirs == [tmp_path / "1"]
    manager.shutdown()
    assert start().logs() == []


@pytest.mark.spec("BRK-33", "BRK-146")
@pytest.mark.parametrize("topic", ["../escaped", "a/b", "t" * 250, "nul\0", "", "ü"])
def test_an_impossible_name_is_refused_and_costs_no_log_dir(start: Start, tmp_path: Path, topic: str) -> None:
    manager = start()
    for partition in (TopicPartition(topic, 0), TopicPartition("t", -1)):
        with pytest.raises(StorageError, match="no partition"):
            manager.get_or_create(partition, is_new=True)
    assert manager.live_dirs == [tmp_path / "1"]
    assert not any(path.is_dir() for path in (tmp_path / "1").iterdir())


@pytest.mark.spec("BRK-150", "BRK-110", "BRK-145")
def test_leftover_of_a_deletion_is_erased_at_start(start: Start, tmp_path: Path) -> None:
    leftover = tmp_path / "1" / f"a-0.{'0' * 32}-delete"
    leftover.mkdir(parents=True)
    (leftover / "00000000000000000000.log").write_bytes(b"x")
    assert start().logs() == []
    assert not leftover.exists()


@pytest.mark.spec("BRK-145")
@pytest.mark.parametrize("name", ["stranger", "a-b", "-1"])
def test_foreign_directory_stops_the_start_by_name(start: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "1" / name).mkdir(parents=True)
    with pytest.raises(StorageError, match=f"^{re.escape(str(tmp_path / '1' / name))} is not a partition directory"):
        start()


@pytest.mark.spec("BRK-128", "BRK-137", "BRK-148")
@pytest.mark.parametrize("failure", [RuntimeError("stop"), KeyboardInterrupt()])
def test_a_start_that_fails_unlocks_the_dirs_and_writes_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    manager = start(dirs=2)
    for partition in (_A, _B):
        manager.get_or_create(partition).append_as_leader(batch(3), 0)
    manager.shutdown()
    checkpoints = {path: path.stat().st_ino for path in tmp_path.glob("*/*-checkpoint")}
    with monkeypatch.context() as broken:

        def fail(directory: LogDir) -> None:
            if directory.path.name == "2":
                raise failure

        broken.setattr(LogDir, "erase_deleted", fail)
        with pytest.raises(type(failure)):
            start(dirs=2)
    assert not list(tmp_path.glob("*/.kafka_cleanshutdown"))
    assert {path: path.stat().st_ino for path in tmp_path.glob("*/*-checkpoint")} == checkpoints
    again = start(dirs=2)
    assert {one.partition: one.log_end_offset for one in again.logs()} == {_A: 3, _B: 3}


@pytest.mark.spec("BRK-126", "BRK-128")
@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_start_that_is_given_up_opens_no_further_log(start: Start, tmp_path: Path, threads: str) -> None:
    manager = start()
    for number in range(20):
        manager.get_or_create(TopicPartition("t", number)).append_as_leader(batch(3), 0)
    manager.shutdown()
    asked: list[None] = []

    def go_on() -> None:
        asked.append(None)
        if len(asked) >= 5:
            raise StartGivenUpError("told to stop")

    config = broker_config(log_dirs=str(tmp_path / "1"), num_recovery_threads_per_data_dir=threads)
    scheduler = Scheduler(1)
    with pytest.raises(StartGivenUpError):
        LogManager(config, lambda topic: {}, scheduler, go_on=go_on).load()
    scheduler.shutdown()
    assert len(asked) == 5 or threads != "1"
    assert len(start().logs()) == 20


@pytest.mark.spec("BRK-148", "BRK-128")
def test_a_log_dir_has_one_owner(start: Start) -> None:
    first = start()
    with pytest.raises(StorageError, match="in use"):
        start()
    first.shutdown()
    start()


@pytest.mark.spec("BRK-146", "BRK-33", "BRK-159")
def test_failed_dir_goes_offline_alone_and_its_partitions_are_told(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start(dirs=2)
    told: list[tuple[Path, list[TopicPartition]]] = []
    manager.on_dir_failure(lambda path, partitions: told.append((path, list(partitions))))
    bad, good = manager.get_or_create(_A), manager.get_or_create(_B)
    with monkeypatch.context() as broken:

        def fail(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        broken.setattr("os.pwrite", fail)
        with pytest.raises(StorageError):
            bad.append_as_leader(batch(), 0)
    eventually(lambda: bool(told), "the report")
    assert told == [(bad.directory.parent, [_A])]
    assert manager.offline_dirs == [bad.directory.parent]
    assert manager.live_dirs == [good.directory.parent]
    assert good.append_as_leader(batch(), 0).first_offset == 0
    with pytest.raises(StorageError):
        manager.get_or_create(_A)
    assert manager.get_or_create(_A, is_new=True).directory.parent == good.directory.parent


@pytest.mark.spec("BRK-146", "BRK-147")
def test_unusable_dirs_are_offline_from_the_start_and_none_left_is_an_error(start: Start, tmp_path: Path) -> None:
    (tmp_path / "1").write_text("a file, not a directory")
    manager = start(dirs=2)
    assert manager.offline_dirs == [tmp_path / "1"]
    manager.shutdown()
    (tmp_path / "2" / "log-start-offset-checkpoint").write_text("7")
    with pytest.raises(StorageError, match="no log dir"):
        start(dirs=2)


@pytest.mark.spec("BRK-80", "BRK-147")
def test_high_watermarks_are_kept_in_the_dir_of_their_log(start: Start, tmp_path: Path) -> None:
    manager = start(dirs=2)
    manager.get_or_create(_A)
    manager.get_or_create(_B)
    manager.write_high_watermarks({_A: 5, _B: 6, _DASHED: 7})
    texts = {(tmp_path / n / "replication-offset-checkpoint").read_text() for n in "12"}
    assert texts == {"0\n1\na 0 5\n", "0\n1\nb 1 6\n"}
    assert manager.read_high_watermarks() == {_A: 5, _B: 6}


@pytest.mark.spec("BRK-41", "BRK-80", "BRK-150")
def test_a_log_made_anew_after_a_deletion_has_no_high_watermark_from_before(start: Start) -> None:
    manager = start()
    for partition in (_A, _B):
        manager.get_or_create(partition).append_as_leader(batch(5), 0)
    manager.write_high_watermarks({_A: 5, _B: 4})
    manager.delete(_A)
    manager.get_or_create(_A, is_new=True).append_as_leader(batch(9), 0)
    manager.abandon()
    assert start().read_high_watermarks() == {_B: 4}


@pytest.mark.spec("BRK-41")
def test_configs_are_read_without_the_lock_and_again_when_they_changed_meanwhile(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    manager.get_or_create(_B)
    answers = [{"retention.ms": "1"}, {"retention.ms": "2"}]

    def slow(topic: str) -> Mapping[str, str]:
        found = answers.pop(0)
        if answers:  # another thread is served meanwhile, and the configs change
            other = threading.Thread(target=lambda: manager.update_topic_config(_A.topic, answers[0]), daemon=True)
            other.start()
            other.join(60)
            assert not other.is_alive(), "the lock is held while configs are read"
        return found

    monkeypatch.setattr(manager, "_overrides_of", slow)
    assert manager.get_or_create(_A).config.retention_ms == 2


@pytest.mark.spec("BRK-125")
def test_topic_configs_apply_to_open_logs(start: Start) -> None:
    manager = start(overrides={"retention.ms": "5"})
    log = manager.get_or_create(_A)
    other = manager.get_or_create(_B)
    assert log.config.retention_ms == 5
    manager.update_topic_config("a", {"min.insync.replicas": "2"})
    assert (log.config.min_insync_replicas, log.config.retention_ms) == (2, 604_800_000)
    assert other.config.min_insync_replicas == 1


def test_many_recovery_threads_open_the_same_logs(start: Start) -> None:
    manager = start()
    for number in range(20):
        manager.get_or_create(TopicPartition("t", number)).append_as_leader(batch(number + 1), 0)
    manager.abandon()
    again = start(num_recovery_threads_per_data_dir="4")
    assert {one.partition.partition: one.log_end_offset for one in again.logs()} == {n: n + 1 for n in range(20)}


class Waits(ManualScheduler):
    """Notes the delays."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[tuple[str, float]] = []

    def schedule(self, name: str, fn: Callable[[], object], **when: Any) -> ScheduledTask:
        self.delays.append((name, when.get("delay_ms", 0)))
        return super().schedule(name, fn, **when)


@pytest.mark.spec("BRK-150", "BRK-145")
def test_a_stray_directory_is_set_aside_at_the_start_and_erased_a_day_after(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start()
    for partition in (_A, _B):
        manager.get_or_create(partition).append_as_leader(batch(5), 3)
    manager.write_high_watermarks({_A: 5, _B: 5})
    manager.get_or_create(_A).advance_log_start(4)
    manager.shutdown()

    scheduler = Waits()
    config = broker_config(log_dirs=str(tmp_path / "1"))
    again = LogManager(config, lambda _: {}, scheduler, find_strays=lambda found: Judgement({_A} & found.keys(), {}))
    again.load()
    assert again.get(_A) is None and again.get(_B) is not None
    (stray,) = (tmp_path / "1").glob("a-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size
    assert f"set aside as {stray}" in caplog.text
    assert again.read_high_watermarks() == {_B: 5}
    assert again.get_or_create(_A, is_new=True).log_end_offset == 0
    again.abandon()

    later = LogManager(config, lambda _: {}, scheduler)
    scheduler.jobs.clear()
    scheduler.delays.clear()
    later.load()
    made = later.get(_A)
    assert made is not None and (made.log_start_offset, made.log_end_offset) == (0, 0)
    assert stray.exists(), "it was found by this start"
    assert scheduler.delays == [("stray-erasing", 24 * 3_600_000)]
    scheduler.run()
    assert not stray.exists()
    later.shutdown()


@pytest.mark.spec("BRK-150")
def test_a_log_that_is_set_aside_keeps_its_files_under_another_name(start: Start, tmp_path: Path) -> None:
    manager = start()
    old = manager.get_or_create(_A)
    old.append_as_leader(batch(5), 3)
    manager.set_aside(_A)
    with pytest.raises(StorageError):
        old.append_as_leader(batch(), 3)
    (stray,) = (tmp_path / "1").glob("a-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size == len(batch(5))
    assert manager.get_or_create(_A, is_new=True).log_end_offset == 0
    manager.set_aside(_B)  # nothing is there


class Topics:
    """The topics of a cluster by name, as a manager is told of them."""

    def __init__(self, **identities: TopicIdentity) -> None:
        self.now: dict[str, TopicIdentity] = identities
        self.asked: list[set[str]] = []

    def judge(self, found: Mapping[TopicPartition, TopicIdentity | None]) -> Judgement:
        strays = {tp for tp, noted in found.items() if noted is not None and noted.is_before(self.now[tp.topic])}
        return Judgement(strays, self.now)

    def of(self, topics: Collection[str]) -> Mapping[str, TopicIdentity]:
        self.asked.append(set(topics))
        return {topic: self.now[topic] for topic in topics if topic in self.now}

    def manager(self, path: Path) -> LogManager:
        config = broker_config(log_dirs=str(path))
        made = LogManager(config, lambda _: {}, ManualScheduler(), find_strays=self.judge, identities_of=self.of)
        made.load()
        return made


@pytest.mark.spec("BRK-150", "BRK-41")
def test_a_log_is_noted_with_its_topic_and_is_a_stray_of_the_next_one_of_that_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics(a=TopicIdentity(1, 5), b=TopicIdentity(1, 6))
    manager = topics.manager(tmp_path)
    manager.expect({"a", "b"})
    for partition in (_A, _B):
        manager.get_or_create(partition).append_as_leader(batch(5), 3)
    assert manager.find_strays() == set()
    topics.now["a"] = TopicIdentity(1, 9)
    assert manager.find_strays() == {_A}
    manager.abandon()
    again = topics.manager(tmp_path)
    assert again.get(_A) is None and again.get(_B) is not None
    assert len(list(tmp_path.glob("a-0.*-stray"))) == 1 and "a-0 is not assigned" in caplog.text
    again.expect({"a"})
    again.get_or_create(_A)
    again.abandon()
    third = topics.manager(tmp_path)
    assert third.find_strays() == set() and {one.partition for one in third.logs()} == {_A, _B}
    assert topics.asked == [{"a", "b"}, {"a"}]
    third.abandon()


@pytest.mark.spec("BRK-150", "BRK-41")
@pytest.mark.parametrize("why", ["ZooKeeper was away", "it crashed before", "no descriptors", "another ZooKeeper"])
def test_a_log_not_noted_with_its_topic_is_left_and_noted_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    topics = Topics() if why == "ZooKeeper was away" else Topics(a=TopicIdentity(1, 5))
    manager = topics.manager(tmp_path)
    manager.expect({"a"})
    with monkeypatch.context() as patched:

        def fail(path: Path, _: TopicIdentity) -> None:
            raise Killed if why == "it crashed before" else OSError(errno.EMFILE, "too many", path)

        if why in ("it crashed before", "no descriptors"):
            patched.setattr("kafkatool.broker.storage.directories.log_manager.write_identity", fail)
        with pytest.raises(Killed) if why == "it crashed before" else contextlib.nullcontext():
            manager.get_or_create(_A)
    assert manager.live_dirs
    manager.abandon()
    topics.now["a"] = TopicIdentity(2 if why == "another ZooKeeper" else 1, 9)
    again = topics.manager(tmp_path)
    assert again.get(_A) is not None
    again.abandon()
    topics.now["a"] = topics.now["a"]._replace(topic=10)
    third = topics.manager(tmp_path)
    assert third.get(_A) is None
    third.abandon()


@pytest.mark.spec("BRK-150")
@pytest.mark.parametrize("at_start", [False, True])
def test_the_name_of_a_stray_is_on_the_disk_before_the_next_log_is_made(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_start: bool
) -> None:
    manager = start()
    manager.get_or_create(_A)
    synced: list[list[str]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_dir():
            synced.append([one.name for one in path.glob("a-0*")])
        fsync(fd)

    if at_start:
        manager.abandon()
        again = LogManager(
            broker_config(log_dirs=str(tmp_path / "1")),
            lambda _: {},
            ManualScheduler(),
            find_strays=lambda found: Judgement(set(found), {}),
        )
        monkeypatch.setattr(os, "fsync", noted)
        again.load()
        again.abandon()
    else:
        monkeypatch.setattr(os, "fsync", noted)
        manager.set_aside(_A)
    assert len(synced[0]) == 1 and synced[0][0].endswith("-stray")


@pytest.mark.spec("BRK-150", "BRK-146")
def test_a_stray_that_cannot_be_synced_for_lack_of_descriptors_takes_no_dir_offline(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    manager.get_or_create(_A)

    def lacking(path: Path) -> None:
        raise OSError(errno.EMFILE, "too many", path)

    with monkeypatch.context() as patched:
        patched.setattr("kafkatool.broker.storage.directories.log_dir.sync_directory", lacking)
        manager.set_aside(_A)
    assert manager.live_dirs and manager.get(_A) is None


@pytest.mark.spec("BRK-141", "BRK-142", "BRK-143", "BRK-140")
def test_the_tasks_run_as_often_as_configured_and_checkpoint_what_moved(tmp_path: Path) -> None:
    scheduler = ManualScheduler()
    config = broker_config(
        log_dirs=str(tmp_path / "1"),
        log_retention_check_interval_ms="11",
        log_flush_offset_checkpoint_interval_ms="22",
        log_flush_start_offset_checkpoint_interval_ms="33",
        log_flush_scheduler_interval_ms="44",
        log_cleaner_enable="false",
    )
    manager = LogManager(config, lambda _: {}, scheduler)
    manager.load()
    manager.start_tasks(scheduler)
    periods = {name: period_ms for name, (_, period_ms) in scheduler.periodic.items()}
    del periods["log-release"]
    assert periods == {"log-retention": 11, "log-recovery-points": 22, "log-start-offsets": 33, "log-flush": 44}
    for partition in (_A, _B):
        manager.get_or_create(partition).append_as_leader(batch(3), 0)
    log = manager.get_or_create(_A)
    log.flush()
    log.advance_log_start(2)
    for name in ("log-recovery-points", "log-start-offsets"):
        scheduler.periodic[name][0]()
    points, starts = (tmp_path / "1" / f"{name}-checkpoint" for name in ("recovery-point-offset", "log-start-offset"))
    assert points.read_text() == "0\n2\na 0 3\nb 1 0\n"
    assert starts.read_text() == "0\n1\na 0 2\n"
    log.truncate_to(1)
    assert points.read_text() == "0\n2\na 0 0\nb 1 0\n", "before anything can be appended"
    assert starts.read_text() == "0\n0\n", "so is the start, which the segment's name tells by now"
    log.truncate_fully_and_start_at(50)
    log.append_as_leader(batch(), 0)
    scheduler.periodic["log-start-offsets"][0]()
    assert starts.read_text() == "0\n0\n", "the segment's name says it"
    log.high_watermark = 51
    log.roll(51)
    log.advance_log_start(51)
    scheduler.periodic["log-retention"][0]()
    assert [segment.base_offset for segment in log.segments] == [51]
    manager.shutdown()


@pytest.mark.spec("BRK-137")
def test_the_mark_of_the_clean_stop_is_there_until_the_last_log_is_open(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    for partition in (_A, _B, _DASHED):
        manager.get_or_create(partition)
    manager.shutdown()
    marker = tmp_path / "1" / ".kafka_cleanshutdown"
    seen: list[bool] = []

    def noted(*args: Any, **options: Any) -> Log:
        opened = open_log(*args, **options)
        seen.append(marker.exists())
        return opened

    monkeypatch.setattr("kafkatool.broker.storage.directories.log_dir.open_log", noted)
    start()
    assert seen == [True] * 3
    assert not marker.exists()


@pytest.mark.spec("BRK-150")
@pytest.mark.parametrize(("overrides", "delay_ms"), [({}, 4321), ({"file.delete.delay.ms": "1234"}, 1234)])
def test_a_deleted_directorys_name_and_how_long_it_stays(
    tmp_path: Path, overrides: Mapping[str, str], delay_ms: int
) -> None:
    scheduler = Waits()
    config = broker_config(log_dirs=str(tmp_path / "1"), log_segment_delete_delay_ms="4321")
    manager = LogManager(config, lambda _: overrides, scheduler)
    manager.load()
    manager.get_or_create(_DASHED).append_as_leader(batch(), 0)
    manager.delete(_DASHED)
    (renamed,) = [path for path in (tmp_path / "1").iterdir() if path.is_dir()]
    assert re.fullmatch(r"x-y-3\.[0-9a-f]{32}-delete", renamed.name)
    assert ("log-delete", delay_ms) in scheduler.delays
    assert (renamed / f"{0:020d}.log").stat().st_size
    scheduler.run()
    assert not renamed.exists()
    manager.shutdown()


@pytest.mark.spec("BRK-41")
def test_a_log_that_is_made_is_told_with_its_settings(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {"cleanup.policy": "compact,delete", "retention.ms": "5", "preallocate": "false"}
    manager = start(overrides=overrides, log_retention_ms="7", log_segment_bytes="12345")
    with caplog.at_level(logging.INFO):
        manager.get_or_create(_DASHED)
        manager.get_or_create(_DASHED)
    (told,) = [m for m in caplog.messages if m.startswith("Created log")]
    before, _, properties = told.partition(" with properties ")
    assert before == f"Created log for partition [x-y,3] in {tmp_path / '1'}"
    assert properties.startswith("{") and properties.endswith("}.")
    shown = dict(pair.split(" -> ") for pair in properties[1:-2].split(", "))
    assert {one.name for one in DOCUMENTED} <= shown.keys()
    assert (shown["cleanup.policy"], shown["retention.ms"], shown["preallocate"]) == ("compact,delete", "5", "false")
    assert shown["segment.bytes"] == "12345", "the broker's own, where the topic says nothing"


@pytest.mark.spec("BRK-80")
def test_a_failed_write_of_high_watermarks_is_told(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = start(dirs=2)
    manager.get_or_create(_A)
    (tmp_path / "1" / "replication-offset-checkpoint.tmp").mkdir()
    manager.write_high_watermarks({_A: 5})
    (told,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert told.getMessage() == "Error writing to highwatermark file: "
    assert told.exc_info is not None and told.exc_info[0] is IsADirectoryError
    assert manager.offline_dirs == [tmp_path / "1"]


class _Overtaken:
    """The lock of a dir's checkpoints; before it is taken for the first time, ``meanwhile`` is done."""

    def __init__(self, lock: threading.Lock, meanwhile: Callable[[], None]) -> None:
        self._lock = lock
        self._meanwhile: Callable[[], None] | None = meanwhile

    def __enter__(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.spec("BRK-141")
def test_an_older_checkpoint_takes_no_newer_ones_place(start: Start) -> None:
    """Whoever writes a checkpoint and stands still before must not have the last word: by it the log would be lost."""
    manager = start()
    log = manager.get_or_create(_A)
    log.append_as_leader(batch(9), 2)
    log.append_as_leader(batch(9), 2)
    log.advance_log_start(12)
    (directory,) = manager._dirs  # noqa: SLF001

    def cut() -> None:
        log.truncate_fully_and_start_at(7)
        log.append_as_leader(batch(2), 2)
        log.advance_log_start(8)
        directory.write_log_starts()

    directory._writing = _Overtaken(directory._writing, cut)  # type: ignore[assignment]  # noqa: SLF001
    directory.write_log_starts()
    assert read_offsets(directory.path / LOG_START_OFFSETS) == {_A: 8}


@pytest.mark.spec("BRK-141")
def test_log_starts_are_written_when_they_are_others_and_again_after_a_write_that_failed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followers ask for it with each log start that their leader raised: most of these the segments show."""
    manager = start()
    log = manager.get_or_create(_A)
    for _ in range(3):
        log.append_as_leader(batch(9), 2)
    log.high_watermark = 27
    (directory,) = manager._dirs  # noqa: SLF001
    file = directory.path / LOG_START_OFFSETS

    def written() -> bool:
        before = file.stat().st_ino if file.exists() else None
        manager.write_log_starts()
        return file.stat().st_ino != before

    assert written()
    assert not written()
    log.advance_log_start(4)
    assert written()
    assert not written()
    log.advance_log_start(12)
    with monkeypatch.context() as failing:
        failing.setattr(log_dir, "write_offsets", Mock(side_effect=OSError))
        with pytest.raises(OSError):
            directory.write_log_starts()
    assert written()
    assert read_offsets(file) == {_A: 12}


@pytest.mark.spec("BRK-141", "BRK-142")
@pytest.mark.parametrize("fully", [False, True], ids=["cut", "started over"])
def test_what_is_appended_after_a_cut_below_the_log_start_outlives_a_crash(tmp_path: Path, fully: bool) -> None:
    """The checkpointed start of before would have the next start drop the records as older than the log."""

    def opened(directory: Path) -> LogManager:
        config = broker_config(log_dirs=str(directory), log_cleaner_enable="false")
        made = LogManager(config, lambda _: {}, ManualScheduler())
        made.load()
        return made

    manager = opened(tmp_path / "d")
    log = manager.get_or_create(_A)
    log.append_as_leader(batch(30), 0)
    log.high_watermark = 30
    log.flush()
    log.advance_log_start(20)
    manager.write_log_starts()
    (log.truncate_fully_and_start_at if fully else log.truncate_to)(10)
    first = log.log_end_offset
    log.append_as_leader(batch(2), 0)
    log.flush()
    shutil.copytree(tmp_path / "d", tmp_path / "crashed", ignore=shutil.ignore_patterns(".lock"))
    again = opened(tmp_path / "crashed")
    found = again.get_or_create(_A)
    assert (found.log_start_offset, found.log_end_offset) == (first, first + 2)
    again.shutdown()
    manager.shutdown()


class _Asks(logging.Handler):
    """A slow log file: before a line is written, another thread wants something of the manager."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__()
        self._ask = ask
        self.answered: list[bool] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("Created log"):
            thread = threading.Thread(target=self._ask, daemon=True)
            thread.start()
            thread.join(20)
            self.answered.append(not thread.is_alive())


@pytest.mark.spec("BRK-41")
def test_the_line_of_a_made_log_is_written_without_the_lock_and_its_configs_are_formatted_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = start()
    formatted: list[LogConfig] = []
    text = LogConfig.__str__

    def counted(config: LogConfig) -> str:
        formatted.append(config)
        return text(config)

    monkeypatch.setattr(LogConfig, "__str__", counted)
    asks = _Asks(manager.logs)
    logger = logging.getLogger(LogManager.__module__)
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(asks)
    try:
        for number in range(3):
            manager.get_or_create(TopicPartition("of-one-topic", number))
    finally:
        logger.removeHandler(asks)
        logger.setLevel(level)
    assert asks.answered == [True] * 3
    assert len(formatted) <= 1, "partitions of one topic have one config"
