"""Replicas of one broker that move between its log dirs while it leads, follows and is told to stop."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kafkatool.broker.replication.moving.copying import Move
from kafkatool.broker.replication.partition.replica_copy import ReplicaCopy
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from tests.broker.replication.world import CONSUMER, TP, Clock, World, follower, role, world
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import everything
from tests.waiting import eventually

_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_HELD = {_RATE: "0"}  # after the first batch no more is copied


@contextmanager
def two_dirs(tmp_path: Path, clock: Clock | None = None) -> Iterator[World]:
    dirs = [tmp_path / "1", tmp_path / "2"]
    with world(tmp_path, log_dirs=",".join(map(str, dirs)), log_segment_bytes="20000", clock=clock) as made:
        yield made


def other_dir(made: World, partition: TopicPartition = TP) -> Path:
    """Return a dir in which the replica is not."""
    log = made.logs.get(partition)
    assert log is not None
    return next(path for path in made.logs.live_dirs if path != log.directory.parent)


def ask(made: World, path: Path | str, partition: TopicPartition = TP) -> ErrorCode:
    return made.manager.control.alter_log_dirs({partition: str(path)})[partition]


def written(made: World, batches: int = 10) -> Log:
    for _ in range(batches):
        assert made.produce(count=2)[0].error is ErrorCode.NONE
    return made.partition().log


def begin_held(made: World, batches: int = 10) -> tuple[Log, Path]:
    """Lead, write, and begin a move to the other dir that stops after its first batch; return the log, and that dir."""
    made.lead()
    log = written(made, batches)
    made.manager.on_broker_config(_HELD)
    target = other_dir(made)
    assert ask(made, target) is ErrorCode.NONE
    return log, target


def is_in(made: World, path: Path, partition: TopicPartition = TP) -> bool:
    log = made.logs.get(partition)
    return log is not None and log.directory.parent == path and made.logs.copy_of(partition) is None


def reached(copy: Log, size_bytes: int) -> bool:
    return copy.size_bytes >= size_bytes


def stop_replica(made: World, partition: TopicPartition = TP) -> None:
    request = StopReplicaRequest(controller_id=9, controller_epoch=1, delete_partitions=True, partitions=[partition])
    made.manager.control.stop_replicas(request)


@pytest.mark.spec("ADM-68", "ADM-69")
def test_a_leader_moves_while_it_is_written_to_and_read(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        partition = made.lead()
        former = written(made, 200)
        target, source = other_dir(made), former.directory.parent
        assert ask(made, target) is ErrorCode.NONE
        sent = 200
        while not is_in(made, target):
            assert made.produce(count=2)[0].error is ErrorCode.NONE
            sent += 1
            (read,) = made.fetch(2 * sent - 2)
            assert (read.error, read.high_watermark) == (ErrorCode.NONE, 2 * sent)
        written(made, 1)
        assert (partition.log, partition.leader_log) == (made.logs.get(TP), made.logs.get(TP))
        assert [partition.log.log_start_offset, partition.log.log_end_offset] == [0, 2 * sent + 2]
        assert partition.high_watermark.offset == 2 * sent + 2
        assert partition.log.directory == target / "t-0"
        assert everything(partition.log).startswith(everything(former))
        (gone,) = source.glob("t-0.*")
        assert gone.name.endswith("-delete")
        made.scheduler.run()
        assert not gone.exists()
        recovery = (source / "recovery-point-offset-checkpoint").read_text()
        assert recovery == "0\n0\n"


@pytest.mark.spec("ADM-69")
def test_a_fetch_that_waits_is_served_from_the_new_log(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        made.lead(isr=(1, 2))
        written(made)
        waiting = made.fetch(20, follower(2), max_wait_ms=600_000)
        assert not waiting
        target = other_dir(made)
        assert ask(made, target) is ErrorCode.NONE
        eventually(lambda: is_in(made, target), "the replica to be in the other dir")
        made.produce(count=2)
        eventually(lambda: bool(waiting), "the follower's fetch to be answered")
        assert waiting[0].error is ErrorCode.NONE
        made.fetch(22, follower(2))
        assert made.partition().high_watermark.offset == 22


@pytest.mark.spec("ADM-69")
def test_what_no_follower_has_yet_moves_too_and_is_not_served_before(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        partition = made.lead(isr=(1, 2))
        written(made)
        target = other_dir(made)
        assert ask(made, target) is ErrorCode.NONE
        eventually(lambda: is_in(made, target), "the replica to be in the other dir")
        assert (partition.high_watermark.offset, partition.log.log_end_offset) == (0, 20)
        assert made.fetch(0)[0].size_bytes == 0
        made.fetch(20, follower(2))
        assert partition.high_watermark.offset == 20
        assert made.fetch(0)[0].size_bytes == partition.log.size_bytes


@pytest.mark.spec("ADM-61", "ADM-68")
def test_the_answers_name_what_is_wrong(tmp_path: Path) -> None:
    long = TopicPartition("n" * 215, 0)
    fits = TopicPartition("n" * 213, 0)
    with two_dirs(tmp_path) as made:
        made.lead()
        made.lead(long)
        made.lead(fits)
        made.know(TP, TopicPartition("elsewhere", 0))
        here = made.partition().log.directory.parent
        assert ask(made, here) is ErrorCode.NONE
        assert ask(made, tmp_path / "3") is ErrorCode.LOG_DIR_NOT_FOUND
        assert ask(made, "2") is ErrorCode.LOG_DIR_NOT_FOUND
        assert ask(made, other_dir(made, long), long) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert ask(made, tmp_path / "3", long) is ErrorCode.INVALID_TOPIC_EXCEPTION
        target = other_dir(made, fits)
        assert ask(made, target, fits) is ErrorCode.NONE
        eventually(lambda: is_in(made, target, fits), "the longest name to move")
        assert ask(made, here, TopicPartition("elsewhere", 0)) is ErrorCode.REPLICA_NOT_AVAILABLE
        assert ask(made, here, TopicPartition("unknown", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert made.logs.copies() == []


@pytest.mark.spec("ADM-68", "BRK-146")
def test_nothing_moves_while_a_log_dir_is_offline(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        made.lead()
        here, failing = made.partition().log.directory.parent, other_dir(made)
        there = TopicPartition("u", 0)
        made.logs.want_in(there, failing)
        made.lead(there)
        made.fail_disk(failing)
        assert ask(made, failing) is ErrorCode.KAFKA_STORAGE_ERROR
        assert ask(made, here, there) is ErrorCode.KAFKA_STORAGE_ERROR
        assert ask(made, here) is ErrorCode.NONE
        assert made.logs.copies() == []


@pytest.mark.spec("ADM-68")
def test_a_replica_that_is_not_here_is_made_where_it_was_asked_for(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        coming = [TopicPartition("new", number) for number in range(4)]
        made.know(*coming)
        for partition in coming:
            assert ask(made, tmp_path / "2", partition) is ErrorCode.REPLICA_NOT_AVAILABLE
            made.lead(partition)
        assert all(is_in(made, tmp_path / "2", partition) for partition in coming)
        made.lead(TopicPartition("next", 0))
        assert is_in(made, tmp_path / "1", TopicPartition("next", 0)), "else the dir with the fewest"


@pytest.mark.spec("ADM-68", "ADM-69")
def test_a_move_asked_for_again_goes_on_and_one_asked_back_is_given_up(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        log, target = begin_held(made)
        here = log.directory.parent
        copy = made.logs.copy_of(TP)
        assert copy is not None and copy.directory.parent == target
        assert copy.directory.name.startswith("t-0.") and copy.directory.name.endswith("-future")
        assert ask(made, target) is ErrorCode.NONE
        assert made.logs.copy_of(TP) is copy
        assert ask(made, here) is ErrorCode.NONE
        assert (made.logs.copy_of(TP), made.logs.get(TP), made.partition().copy) == (None, log, None)
        assert [path.name.rpartition("-")[2] for path in target.glob("t-0.*")] == ["delete"]
        written(made, 2)
        assert ask(made, target) is ErrorCode.NONE  # another one, from its beginning
        made.manager.on_broker_config({})
        eventually(lambda: is_in(made, target), "the second move")
        assert made.partition().log.log_end_offset == 24
        assert everything(made.partition().log) == everything(log)


@pytest.mark.spec("ADM-69")
def test_the_throttle_holds_the_copy_back_and_not_the_partition(tmp_path: Path) -> None:
    clock = Clock()
    with two_dirs(tmp_path, clock=clock) as made:
        made.lead()
        log = written(made, 60)
        each = log.size_bytes // 60
        target = other_dir(made)
        made.manager.on_broker_config({_RATE: str(each)})
        assert ask(made, target) is ErrorCode.NONE
        copy = made.logs.copy_of(TP)
        assert copy is not None
        for second in range(1, 4):
            allowed = each * (10 * second + 1)  # over the windows that count, and a chunk on top
            eventually(partial(reached, copy, each * second), "what the rate allows")
            assert copy.size_bytes <= allowed + each
            written(made, 1)
            clock.pass_ms(1000)
        assert not is_in(made, target)
        made.manager.on_broker_config({})
        eventually(lambda: is_in(made, target), "the rest at once")
        assert everything(made.partition().log) == everything(log)


@pytest.mark.spec("ADM-69", "BRK-109")
@pytest.mark.parametrize("moment", ["before the first byte", "while it is copied", "as it takes over"])
def test_a_replica_that_is_deleted_takes_its_copy_with_it(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, go_on = threading.Event(), threading.Event()
    step = {"while it is copied": "append_as_follower", "as it takes over": "flush"}.get(moment)
    with two_dirs(tmp_path) as made:
        made.lead()
        written(made)
        if step is None:
            made.manager.on_broker_config(_HELD)
        else:
            create = made.logs.create_copy

            def stopping(partition: TopicPartition, path: Path) -> Log:
                copy = create(partition, path)
                do = getattr(copy, step)

                def wait(*arguments: object) -> object:
                    arrived.set()
                    assert go_on.wait(600)
                    return do(*arguments)

                setattr(copy, step, wait)
                return copy

            monkeypatch.setattr(made.logs, "create_copy", stopping)
        assert ask(made, other_dir(made)) is ErrorCode.NONE
        if step is not None:
            assert arrived.wait(600)
        stop_replica(made)
        go_on.set()
        eventually(lambda: not made.manager.moves.under_way, "the move to end")
        assert (made.logs.get(TP), made.logs.copy_of(TP)) == (None, None)
        left = {path.name.rpartition("-")[2] for name in "12" for path in (tmp_path / name).glob("t-0*")}
        assert left == {"delete"}
        assert made.logs.offline_dirs == []
        made.lead(epoch=5)
        assert made.partition().log.log_end_offset == 0


@pytest.mark.spec("ADM-69")
def test_a_restart_goes_on_where_the_copy_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with two_dirs(tmp_path) as made:
        made.lead()
        log = written(made, 30)
        made.manager.on_broker_config({_RATE: "1"})
        target = other_dir(made)
        assert ask(made, target) is ErrorCode.NONE
        copy = made.logs.copy_of(TP)
        assert copy is not None
        eventually(lambda: copy.log_end_offset > 0, "the first batch")
    copied, expected = copy.log_end_offset, everything(log)
    assert copied < 60
    read: list[int] = []
    with two_dirs(tmp_path) as made:
        found = made.logs.copy_of(TP)
        assert found is not None and found.log_end_offset == copied
        append = found.append_as_follower

        def noted(records: memoryview) -> None:
            read.append(found.log_end_offset)
            append(records)

        monkeypatch.setattr(found, "append_as_follower", noted)
        made.lead(epoch=1)
        eventually(lambda: is_in(made, target), "the move to end")
        assert read[0] == copied
        assert everything(made.partition().log) == expected


@pytest.mark.spec("ADM-69", "BRK-137")
def test_what_a_power_cut_took_of_a_copy_is_copied_anew(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        log, target = begin_held(made, 30)
        expected = everything(log)
        copy = made.logs.copy_of(TP)
        assert copy is not None
        eventually(lambda: copy.log_end_offset == 2, "the first batch")
    with two_dirs(tmp_path) as made:
        copied = made.logs.copy_of(TP)
        assert copied is not None and copied.log_end_offset == 2
        copied.append_as_follower(memoryview(batch(2, base_offset=6, epoch=0)))
        copied.state.gap_at = 2
        made.lead(epoch=1)
        eventually(lambda: is_in(made, target), "the move to end")
        assert everything(made.partition().log) == expected


@pytest.mark.spec("ADM-69", "BRK-137")
def test_nothing_moves_while_a_power_cut_may_have_taken_records_of_it(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        log, target = begin_held(made)
        partition = made.follow(epoch=1)
        log.state.gap_at = 6
        copied = made.logs.copy_of(TP)
        assert copied is not None
        move = Move(partition, ReplicaCopy(copied))
        assert not move.is_due(float("inf"))
        partition.truncate(1, 6)
        assert move.is_due(float("inf"))
        made.manager.on_broker_config({})
        eventually(lambda: is_in(made, target), "the follower to move")
        assert partition.log.log_end_offset == 6


@pytest.mark.spec("ADM-69", "BRK-66")
def test_a_follower_moves_too_and_cuts_both(tmp_path: Path) -> None:
    with two_dirs(tmp_path) as made:
        log, target = begin_held(made)
        partition = made.follow(epoch=1)
        partition.truncate(1, 6)
        made.manager.on_broker_config({})
        eventually(lambda: is_in(made, target), "the follower to move")
        assert (partition.log.log_end_offset, everything(partition.log)) == (6, everything(log))
        assert partition.leader_log is None
        response = made.leader_and_isr(role(TP, 1, 2, [1], [1, 2], 1))
        assert [p.error_code for p in response.partitions] == [0]
        made.produce(count=1)
        (read,) = made.fetch(6)
        assert (read.error, read.high_watermark) == (ErrorCode.NONE, 7)
        assert made.fetch(0, CONSUMER)[0].error is ErrorCode.NONE


@pytest.mark.spec("ADM-69", "BRK-146")
@pytest.mark.parametrize("which", ["the dir it leaves", "the dir it goes to"])
def test_a_log_dir_that_fails_in_the_middle(tmp_path: Path, which: str) -> None:
    with two_dirs(tmp_path) as made:
        log, target = begin_held(made)
        here = log.directory.parent
        made.fail_disk(here if which == "the dir it leaves" else target)
        made.manager.on_broker_config({})
        eventually(lambda: not made.manager.moves.under_way, "the move to end")
        if which == "the dir it leaves":
            assert made.manager.partitions.find(TP) is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            assert made.partition().log is log and made.logs.copy_of(TP) is None
            assert made.produce()[0].error is ErrorCode.NONE
    for obstacle in tmp_path.glob("*/replication-offset-checkpoint.tmp"):
        obstacle.rmdir()
    with two_dirs(tmp_path) as made:  # the disk is whole again
        made.lead(epoch=1)
        assert ask(made, target) is ErrorCode.NONE
        eventually(lambda: is_in(made, target), "the move to end")
        assert made.partition().log.log_end_offset == (20 if which == "the dir it leaves" else 21)
