import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.storage.directories.log_dir import LogDir
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition
from tests.broker.storage.batch_builders import batch
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


@pytest.mark.spec("BRK-137", "BRK-141", "BRK-127")
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


@pytest.mark.spec("BRK-41")
def test_new_logs_go_to_the_dir_with_the_fewest(start: Start) -> None:
    manager = start(dirs=2)
    where = [manager.get_or_create(TopicPartition("t", n)).directory.parent.name for n in range(4)]
    assert sorted(where) == ["1", "1", "2", "2"]
    assert manager.get_or_create(TopicPartition("t", 0)) is manager.get(TopicPartition("t", 0))


@pytest.mark.spec("BRK-150")
def test_deleted_partition_is_renamed_erased_and_gone_from_the_checkpoints(start: Start, tmp_path: Path) -> None:
    manager = start()
    doomed = manager.get_or_create(_A)
    doomed.append_as_leader(batch(3), 0)
    manager.get_or_create(_B)
    manager.shutdown()
    manager = start()
    doomed = manager.get_or_create(_A)
    manager.delete(_A)
    assert manager.get(_A) is None
    assert not (tmp_path / "1" / "a-0").exists()
    with pytest.raises(StorageError):
        doomed.append_as_leader(batch(), 0)
    fresh = manager.get_or_create(_A)
    assert fresh.log_end_offset == 0
    assert "a 0 3" not in (tmp_path / "1" / "recovery-point-offset-checkpoint").read_text()
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


@pytest.mark.spec("BRK-150", "BRK-110")
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
    with pytest.raises(StorageError, match=name):
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
