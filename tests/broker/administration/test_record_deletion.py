"""A deletion of records that waits for the followers of a real broker: what has it look again, and what ends it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkatool.broker.administration.record_deletion import DelayedDeletion, Deletion, delete_on_leader
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from tests.broker.replication.world import TP, Clock, World, follower, world

TP1 = TopicPartition("t", 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock()) as made:
        yield made


def deleting(broker: World, *partitions: TopicPartition) -> tuple[dict[TopicPartition, Deletion], list[bool]]:
    """Records below 2 go on the leader; the list gets an item when the request is answered: whether a lock is held."""
    for tp in partitions:
        broker.lead(tp, isr=(1, 2), replicas=(1, 2, 3))
        broker.produce(tp, count=3)
        broker.fetch(3, follower(2), tp)
    broker.know(*partitions, brokers={1: 9001, 2: 9002, 3: 9003})
    leader = broker.manager.partitions.leader
    deletions = {tp: delete_on_leader(tp, 2, leader) for tp in partitions}
    answers: list[bool] = []
    locks = [broker.partition(tp).lock for tp in partitions]
    waiting = DelayedDeletion(
        60_000, deletions, leader, broker.cache, lambda: answers.append(any(lock.locked() for lock in locks))
    )
    broker.manager.delayed.deletions.watch(waiting, waiting.subjects)
    assert not answers
    return deletions, answers


@pytest.mark.spec("BRK-162")
def test_the_fetch_that_tells_of_the_last_followers_log_start_ends_it(broker: World) -> None:
    deletions, answers = deleting(broker, TP, TP1)
    for tp in (TP, TP1):
        for replica_id in (2, 3):
            assert not answers
            broker.fetch(3, follower(replica_id), tp, log_start=2)
    assert len(answers) == 1
    assert deletions == dict.fromkeys((TP, TP1), Deletion(2, ErrorCode.NONE, 2))
    assert not len(broker.manager.delayed.deletions)


def _fetch(broker: World) -> None:
    for replica_id in (2, 3):
        broker.fetch(3, follower(replica_id), log_start=2)


def _die(broker: World) -> None:
    broker.fetch(3, follower(2), log_start=2)
    broker.know(TP, brokers={1: 9001, 2: 9002})


def _follow(broker: World) -> None:
    broker.follow(epoch=1)


def _delete(broker: World) -> None:
    broker.manager.control.stop_replicas(
        StopReplicaRequest(controller_id=9, controller_epoch=1, delete_partitions=True, partitions=[TP])
    )


def _expire(broker: World) -> None:
    broker.manager.delayed.expire_all()


@pytest.mark.spec("BRK-43", "GRP-20")
@pytest.mark.parametrize("change", [_fetch, _die, _follow, _delete, _expire])
def test_whatever_ends_it_holds_no_lock_of_the_partition(broker: World, change: Callable[[World], None]) -> None:
    _, answers = deleting(broker, TP)
    change(broker)
    assert answers == [False]


@pytest.mark.spec("BRK-162")
def test_a_follower_that_dies_is_not_waited_for(broker: World) -> None:
    deletions, answers = deleting(broker, TP)
    broker.fetch(3, follower(2), log_start=2)
    assert not answers
    broker.know(TP, brokers={1: 9001, 2: 9002})
    assert len(answers) == 1
    assert deletions[TP] == Deletion(2, ErrorCode.NONE, 2)


@pytest.mark.spec("BRK-162")
def test_a_partition_that_is_led_elsewhere_ends_with_its_code_and_what_was_done_stays_done(broker: World) -> None:
    deletions, answers = deleting(broker, TP, TP1)
    for replica_id in (2, 3):
        broker.fetch(3, follower(replica_id), TP1, log_start=2)
    assert not answers
    broker.follow(TP1, epoch=1)
    assert not answers
    broker.follow(TP, epoch=1)
    assert len(answers) == 1
    assert [d.error for d in deletions.values()] == [ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.NONE]


@pytest.mark.spec("BRK-109", "BRK-162")
@pytest.mark.parametrize("delete", [False, True])
def test_a_stopped_replica_ends_it_only_when_it_is_deleted(broker: World, delete: bool) -> None:
    deletions, answers = deleting(broker, TP)
    broker.manager.control.stop_replicas(
        StopReplicaRequest(
            controller_id=9, controller_epoch=1, broker_epoch=-1, delete_partitions=delete, partitions=[TP]
        )
    )
    assert len(answers) == delete
    assert deletions[TP].error == (ErrorCode.NOT_LEADER_FOR_PARTITION if delete else ErrorCode.NONE)


@pytest.mark.spec("BRK-127", "BRK-162")
def test_the_end_of_its_time_is_told(broker: World) -> None:
    deletions, answers = deleting(broker, TP)
    broker.manager.delayed.expire_all()
    assert len(answers) == 1
    assert deletions[TP].error is ErrorCode.REQUEST_TIMED_OUT


def test_a_change_of_one_partition_has_that_one_looked_at_and_no_other(broker: World) -> None:
    """A follower's fetch of a thousand partitions must not look at a million."""
    partitions = [TopicPartition("t", number) for number in range(5)]
    looked_at: list[TopicPartition] = []

    def find_leader(partition: TopicPartition) -> ErrorCode | Partition:
        looked_at.append(partition)
        return broker.manager.partitions.leader(partition)

    for tp in partitions:
        broker.lead(tp, isr=(1, 2), replicas=(1, 2))
        broker.produce(tp, count=3)
        broker.fetch(3, follower(2), tp)
    broker.know(*partitions, brokers={1: 9001, 2: 9002})
    deletions = {tp: delete_on_leader(tp, 2, broker.manager.partitions.leader) for tp in partitions}
    waiting = DelayedDeletion(60_000, deletions, find_leader, broker.cache, lambda: None)
    broker.manager.delayed.deletions.watch(waiting, waiting.subjects)
    looked_at.clear()
    broker.fetch(3, follower(2), partitions[3], log_start=2)
    assert looked_at == [partitions[3]]
    looked_at.clear()
    broker.fetch(3, follower(2), partitions[3], log_start=2)
    assert looked_at == []
