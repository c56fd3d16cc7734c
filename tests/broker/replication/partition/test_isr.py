"""Who is in sync: joining, leaving, writing it to ZooKeeper, and telling the controller."""

import contextlib
import logging
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import orjson
import pytest

from kafkatool.broker.replication.partition.partition import IsrChange, Partition, StaleRoleError
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.errors import ConnectionLostError, ZooKeeperError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from tests.broker.replication.world import CONSUMER, TP, Clock, World, follower, role, wanted, world
from tests.broker.storage.batch_builders import batch

LAG_MS = 10_000


def fetch_all(broker: World, partition: Partition, replica: int) -> None:
    broker.fetch(partition.log.log_end_offset, follower(replica))


@pytest.mark.spec("BRK-50", "BRK-53", "BRK-54")
def test_a_follower_that_reaches_the_high_watermark_joins(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3), epoch=4, version=6)
    broker.produce(count=2)
    fetch_all(broker, partition, 2)
    broker.fetch(1, follower(3))
    assert not broker.scheduler.jobs, "below the high watermark"
    broker.produce(count=3)
    broker.fetch(2, follower(3))  # at the high watermark, not at the end
    broker.scheduler.run()
    assert broker.zookeeper.state(TP) == (LeaderAndIsr(1, 4, (1, 2, 3), 1), 7)
    content = orjson.loads(broker.zookeeper.nodes["/brokers/topics/t/partitions/0/state"].data)
    assert content == {"version": 1, "leader": 1, "leader_epoch": 4, "controller_epoch": 1, "isr": [1, 2, 3]}
    assert (partition.isr, partition.in_sync.version) == ((1, 2, 3), 7)
    assert broker.manager.isr_writer.expansions == 1
    broker.clock.pass_ms(5001)
    broker.manager.isr_propagation.run()
    assert len(changes_told(broker)) == 1


@pytest.mark.spec("BRK-50")
def test_one_below_the_start_of_the_leaders_epoch_does_not_join(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3))
    broker.produce(count=5)
    broker.lead(epoch=1, isr=(1, 3), replicas=(1, 2, 3))  # the epoch begins at 5, the high watermark is still 0
    assert partition.high_watermark.offset == 0
    broker.fetch(4, follower(2))
    assert not broker.scheduler.jobs
    broker.fetch(5, follower(2))
    broker.scheduler.run()
    assert partition.isr == (1, 3, 2)


@pytest.mark.spec("BRK-50", "BRK-101", "SEC-51")
def test_a_broker_that_is_not_assigned_does_not_join_and_gets_nothing(broker: World) -> None:
    broker.lead(isr=(1,))
    broker.produce()
    read = broker.fetch(0, follower(8))[0]
    assert (read.error, read.size_bytes, read.high_watermark) == (0, 0, 1)
    assert not broker.scheduler.jobs


@pytest.mark.spec("BRK-51", "BRK-77", "BRK-53", "BRK-90")
def test_a_stuck_follower_leaves_and_the_high_watermark_moves_on(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), epoch=2, version=3)
    waiting = broker.produce(acks=-1, count=5000)  # how many records it lacks plays no part
    task, period_ms = broker.scheduler.periodic["isr-expiration"]
    assert period_ms == LAG_MS / 2
    broker.clock.pass_ms(LAG_MS)
    task()
    assert partition.isr == (1, 2), "not longer than the limit yet"
    broker.clock.pass_ms(1)
    task()
    assert partition.isr == (1,)
    assert broker.zookeeper.state(TP) == (LeaderAndIsr(1, 2, (1,), 1), 4)
    assert waiting[0].error == 0
    assert broker.manager.isr_writer.shrinks == 1
    broker.clock.pass_ms(10 * LAG_MS)
    broker.produce()
    task()
    assert (partition.isr, broker.zookeeper.state(TP)[1]) == ((1,), 4), "the leader never leaves"


@pytest.mark.spec("BRK-77", "BRK-51")
@pytest.mark.parametrize("phase_ms", [0, 1, 2500, 4999])
def test_a_stuck_follower_leaves_after_one_to_one_and_a_half_times_the_limit(broker: World, phase_ms: int) -> None:
    partition = broker.lead(isr=(1, 2))
    task, period_ms = broker.scheduler.periodic["isr-expiration"]
    broker.clock.pass_ms(phase_ms)  # since the run before
    fetch_all(broker, partition, 2)
    broker.produce()
    stuck_at = broker.clock.now_ms
    broker.clock.pass_ms(period_ms - phase_ms)
    while task() or 2 in partition.isr:
        broker.clock.pass_ms(period_ms)
    assert LAG_MS < broker.clock.now_ms - stuck_at <= 1.5 * LAG_MS


@pytest.mark.spec("BRK-51", "BRK-77")
def test_the_limit_and_the_period_are_those_of_the_setting(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock(), replica_lag_time_max_ms="6000") as broker:
        partition = broker.lead(isr=(1, 2))
        broker.produce()
        task, period_ms = broker.scheduler.periodic["isr-expiration"]
        assert period_ms == 3000
        for step_ms, isr in [(6000, (1, 2)), (1, (1,))]:
            broker.clock.pass_ms(step_ms)
            task()
            assert partition.isr == isr


@pytest.mark.spec("BRK-51")
def test_on_an_idle_partition_nobody_leaves_however_long_ago_he_fetched(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    fetch_all(broker, partition, 2)
    broker.clock.pass_ms(LAG_MS * 100)
    broker.manager.shrink_isrs()
    assert partition.isr == (1, 2)


@pytest.mark.spec("BRK-52")
def test_one_that_never_reaches_the_end_leaves_one_that_trails_by_a_fetch_stays(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3))
    for step in range(60):
        end = partition.log.log_end_offset
        broker.produce(count=2)
        broker.fetch(end, follower(2))  # all that was there before this append
        broker.fetch(step // 2, follower(3))  # fetches steadily, falls behind steadily
        broker.clock.pass_ms(500)
        broker.manager.shrink_isrs()
    assert partition.isr == (1, 2)


@pytest.mark.spec("BRK-54", "Z-40")
def test_a_lost_reply_is_found_out(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.zookeeper.lose_replies = True
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert partition.isr == (1, 2)
    assert broker.manager.isr_writer.failures == 1
    broker.zookeeper.lose_replies = False
    broker.manager.shrink_isrs()
    assert (partition.isr, partition.in_sync.version) == ((1,), 1), "the first write had got through"
    assert broker.zookeeper.writes == 1
    broker.clock.pass_ms(5001)
    broker.manager.isr_propagation.run()
    assert len(changes_told(broker)) == 1, "recorded, as any other success"


@pytest.mark.spec("Z-40", "Z-39")
@pytest.mark.parametrize(
    ("held", "isr"),
    [
        (LeaderAndIsr(1, 0, (1,), 1), (1,)),
        (LeaderAndIsr(2, 0, (1,), 1), (1, 2)),
        (LeaderAndIsr(1, 1, (1,), 1), (1, 2)),
        (LeaderAndIsr(1, 0, (1, 2), 1), (1, 2)),
        (LeaderAndIsr(1, 0, (1,), 2), (1, 2)),
    ],
    ids=["what was to be written", "another leader", "another leader epoch", "another ISR", "another controller epoch"],
)
def test_a_version_that_does_not_fit_is_our_own_write_only_if_all_four_are_as_written(
    broker: World, held: LeaderAndIsr, isr: tuple[int, ...]
) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.zookeeper.put_state(TP, held, 1)
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert partition.isr == isr
    assert broker.manager.isr_writer.failures == (isr != (1,))
    assert broker.zookeeper.state(TP) == (held, 1), "nothing more was written"
    if isr != (1,):
        broker.clock.pass_ms(LAG_MS + 1)
        broker.manager.shrink_isrs()
        assert (partition.isr, broker.manager.isr_writer.failures) == ((1, 2), 1), "not tried again"
        broker.lead(epoch=2, isr=(1, 2), version=1)
        broker.clock.pass_ms(LAG_MS + 1)
        broker.manager.shrink_isrs()
        assert partition.isr == (1,), "LeaderAndIsr has brought the version"


@pytest.mark.spec("BRK-54")
def test_a_replica_that_may_have_left_or_not_holds_the_high_watermark_back(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.zookeeper.fail_next = ConnectionLostError("lost")
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    broker.produce()
    assert partition.high_watermark.offset == 0
    assert partition.in_sync.version == 0 and broker.manager.isr_writer.failures == 1
    broker.clock.pass_ms(100_000)
    broker.manager.isr_propagation.run()
    assert not changes_told(broker)


@pytest.mark.spec("BRK-54")
def test_a_node_that_is_gone_leaves_everything_as_it_was(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    del broker.zookeeper.nodes["/brokers/topics/t/partitions/0/state"]
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert (partition.isr, partition.in_sync.version, partition.is_leader) == ((1, 2), 0, True)
    assert broker.manager.isr_writer.failures == 1
    broker.clock.pass_ms(100_000)
    broker.manager.isr_propagation.run()
    assert not changes_told(broker)


@pytest.mark.spec("BRK-51", "BRK-53")
def test_all_that_lag_leave_at_once_and_nobody_else(broker: World) -> None:
    partition = broker.lead(isr=(2, 3, 1, 4, 5))
    broker.produce(count=3)
    fetch_all(broker, partition, 3)
    broker.clock.pass_ms(LAG_MS)
    broker.fetch(1, follower(2))  # fetches, and lags all the same
    fetch_all(broker, partition, 5)
    broker.produce()
    broker.clock.pass_ms(1)
    fetch_all(broker, partition, 3)
    broker.manager.shrink_isrs()
    assert partition.isr == (3, 1, 5)
    assert broker.zookeeper.state(TP) == (LeaderAndIsr(1, 0, (3, 1, 5), 1), 1)


@pytest.mark.spec("BRK-53", "BRK-54")
@pytest.mark.parametrize(
    "found", [LeaderAndIsr(1, 0, (1, 2, 3), 1), LeaderAndIsr(1, 0, (1,), 2), LeaderAndIsr(1, 0, (2,), 1)]
)
def test_a_node_that_somebody_else_wrote_is_neither_overwritten_nor_taken_for_ours(
    broker: World, found: LeaderAndIsr
) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.produce()
    broker.zookeeper.put_state(TP, found, 5)
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert broker.zookeeper.state(TP) == (found, 5)
    assert (partition.isr, partition.in_sync.version, partition.is_leader) == ((1, 2), 0, True)
    assert (broker.manager.isr_writer.failures, broker.manager.isr_writer.shrinks) == (1, 0)
    broker.clock.pass_ms(100_000)
    broker.manager.isr_propagation.run()
    assert not changes_told(broker)


@pytest.mark.spec("BRK-55", "Z-39")
def test_a_leader_that_was_deposed_unnoticed_takes_no_more_writes(broker: World) -> None:
    broker.lead(isr=(1, 2))
    parked = broker.produce(acks=-1)
    broker.zookeeper.put_state(TP, LeaderAndIsr(2, 1, (2,), 1), 5)
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert broker.produce()[0].error == 6
    assert parked[0].error == 6
    broker.lead(epoch=2)
    assert broker.produce()[0].error == 0


@pytest.mark.spec("BRK-55", "Z-17", "Z-39")
def test_when_the_node_names_another_epoch_the_isr_is_left_alone(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.produce()
    broker.zookeeper.put_state(TP, LeaderAndIsr(1, 1, (1, 2), 1), 5)
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    broker.manager.shrink_isrs()
    fetch_all(broker, partition, 3)
    broker.scheduler.run()
    assert (broker.manager.isr_writer.failures, partition.isr) == (1, (1, 2)), "nobody leaves, nobody joins"
    assert broker.zookeeper.state(TP) == (LeaderAndIsr(1, 1, (1, 2), 1), 5)
    assert broker.produce()[0].error == 0
    broker.lead(epoch=1, isr=(1, 2), version=5)
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert partition.isr == (1,)


@pytest.mark.spec("BRK-53")
def test_the_controller_epoch_written_is_that_of_the_decision(broker: World) -> None:
    broker.zookeeper.put_state(TP, LeaderAndIsr(1, 0, (1, 2), 3), 0)
    broker.leader_and_isr(role(TP, 1, 0, (1, 2), (1, 2), controller_epoch=3), controller_epoch=8)
    broker.produce()
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert broker.zookeeper.state(TP)[0].controller_epoch == 3


def _append(broker: World) -> None:
    broker.produce()


def _fetch(broker: World) -> None:
    broker.fetch(1, follower(3))


def _follow(broker: World) -> None:
    broker.follow(epoch=1)


def _lead_alone(broker: World) -> None:
    broker.lead(epoch=1, isr=(1,), replicas=(1, 2))


def _stop(broker: World, delete: bool) -> None:
    broker.manager.control.stop_replicas(
        StopReplicaRequest(controller_id=9, controller_epoch=1, delete_partitions=delete, partitions=[TP])
    )


def _shrink(broker: World) -> None:
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()


def _expire(broker: World) -> None:
    broker.manager.delayed.expire_all()


def _fail_disk(broker: World) -> None:
    broker.fail_disk(broker.partition().log.directory.parent)


@pytest.mark.spec("BRK-43", "GRP-20")
@pytest.mark.parametrize(
    ("change", "completed"),
    [
        (_append, {"follower"}),
        (_fetch, {"produce", "consumer"}),
        (_follow, {"produce", "follower", "consumer"}),
        (_lead_alone, {"produce", "consumer"}),
        (partial(_stop, delete=False), {"produce", "follower", "consumer"}),
        (partial(_stop, delete=True), {"produce", "follower", "consumer"}),
        (_shrink, {"produce", "consumer"}),
        (_expire, {"produce", "follower", "consumer"}),
        (_fail_disk, {"produce", "follower", "consumer"}),
    ],
)
def test_whatever_completes_a_parked_request_holds_no_lock_of_the_partition(
    tmp_path: Path, change: Callable[[World], None], completed: set[str]
) -> None:
    done: dict[str, bool] = {}
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"  # one may fail
    with world(tmp_path, clock=Clock(), log_dirs=dirs) as broker:
        partition = broker.lead(isr=(1, 2, 3))

        def note(kind: str, _: object) -> None:
            done[kind] = partition.lock.locked()

        broker.manager.appends.append({TP: batch()}, acks=-1, timeout_ms=60_000, on_done=partial(note, "produce"))
        for kind, reader, offset in [("follower", follower(2), 1), ("consumer", CONSUMER, 0)]:
            broker.manager.fetches.fetch(
                [(TP, wanted(0, offset))],
                reader,
                max_wait_ms=60_000,
                min_bytes=1,
                max_bytes=1 << 20,
                on_done=partial(note, kind),
            )
        assert done == {}
        change(broker)
        assert done.keys() >= completed
        assert set(done.values()) <= {False}


@pytest.mark.spec("BRK-42", "BRK-43", "GRP-20")
def test_the_lock_is_free_while_zookeeper_is_written_and_parked_requests_are_completed(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    held: list[bool] = []
    commit_many = broker.zookeeper.commit_many

    def watched(transactions: object) -> object:
        held.append(partition.lock.locked())
        return commit_many(transactions)  # type: ignore[arg-type]

    broker.zookeeper.commit_many = watched  # type: ignore[assignment,method-assign]
    broker.manager.appends.append(
        {TP: batch()}, acks=-1, timeout_ms=60_000, on_done=lambda _: held.append(partition.lock.locked())
    )
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert held == [False, False]


@pytest.mark.spec("BRK-45", "BRK-54")
def test_a_leadership_decision_that_comes_during_the_write_wins(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.clock.pass_ms(LAG_MS + 1)
    change = partition.propose_shrink()
    assert change is not None
    broker.lead(epoch=1, isr=(1, 2), version=2)
    assert not partition.isr_written(change, 1)
    assert (partition.isr, partition.in_sync.version) == ((1, 2), 2)


@pytest.mark.spec("BRK-42")
def test_roles_positions_and_appends_wait_for_the_lock_and_reads_do_not(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce(count=2)
    broker.fetch(2, follower(2))
    waiting: dict[str, Callable[[], object]] = {
        "append": lambda: partition.append_as_leader(batch()),
        "follow": lambda: partition.append_as_follower(
            memoryview(b""), 2, fetched_at=2, high_watermark=0, log_start_offset=0
        ),
        "fetch": lambda: partition.record_fetch(2, LogOffset(2), 2, 0, read_in=0),
        "shrink": partition.propose_shrink,
        "written": lambda: partition.isr_written(IsrChange(partition, LeaderAndIsr(1, 0, (1,), 1), 0, (1, 2)), 1),
        "leader": lambda: partition.make_leader(role(TP, 1, 1, [1, 2], [1, 2])),
        "follower": lambda: partition.make_follower(role(TP, 2, 2, [2], [1, 2])),
        "retire": partition.retire,
    }
    begun: SimpleQueue[str] = SimpleQueue()
    done: list[str] = []

    def run(name: str) -> None:
        begun.put(name)
        with contextlib.suppress(AppendError, StaleRoleError):  # it may come after the change of role
            waiting[name]()
        done.append(name)

    threads = [threading.Thread(target=run, args=(name,)) for name in waiting]
    with partition.lock:
        for thread in threads:
            thread.start()
        assert {begun.get(timeout=60) for _ in threads} == waiting.keys()
        for _ in range(3):  # each answered, though the lock is held
            assert broker.fetch(0, CONSUMER)[0].size_bytes > 0
            assert partition.acknowledged(2, partition.leader_epoch) == (True, 0)
        assert done == []
    for thread in threads:
        thread.join(60)
    assert sorted(done) == sorted(waiting)


@pytest.mark.spec("BRK-42", "BRK-44", "BRK-111")
def test_a_broker_leads_from_the_decision_on_until_another_one_or_until_the_replica_is_gone(broker: World) -> None:
    broker.leader_and_isr(role(TP, 9, 0, [9], [9, 1]))  # the replica is there, its leader is not known yet
    partition = broker.partition()

    def refused() -> bool:
        with pytest.raises(AppendError) as caught:
            partition.append_as_leader(batch())
        return caught.value.code is ErrorCode.NOT_LEADER_FOR_PARTITION

    assert refused()
    assert (partition.is_leader, partition.leader_id, partition.leader_epoch) == (False, None, -1)
    assert (partition.assigned, partition.isr, partition.epoch_start, partition.controller_epoch) == ((), (), -1, 0)
    assert partition.in_sync.version == -1
    broker.lead(epoch=1, isr=(1, 2))
    assert (partition.is_leader, partition.leader_id) == (True, 1)
    broker.follow(epoch=2)
    assert (partition.is_leader, partition.leader_id) == (False, 2)
    assert refused()
    broker.lead(epoch=3, isr=(1, 2))
    broker.leader_and_isr(role(TP, 9, 4, [9], [9, 1]))
    assert (partition.is_leader, partition.leader_id) == (False, None), "deposed, by whom is not known yet"
    assert refused()
    broker.lead(epoch=5, isr=(1, 2))
    _stop(broker, delete=True)
    assert (partition.is_leader, partition.leader_id) == (False, None)
    assert (partition.assigned, partition.isr, partition.remote) == ((), (), {})
    assert refused()


def changes_told(broker: World) -> list[Any]:
    nodes = sorted(p for p in broker.zookeeper.nodes if p.startswith("/isr_change_notification/isr_change_"))
    return [orjson.loads(broker.zookeeper.nodes[p][0]) for p in nodes]


@pytest.mark.spec("BRK-78", "BRK-79", "Z-30")
def test_changes_are_told_together_when_it_is_quiet_and_kept_when_it_fails(broker: World) -> None:
    run, period_ms = broker.scheduler.periodic["isr-change-propagation"]
    assert period_ms == 2500
    broker.lead(isr=(1, 2))
    broker.produce()
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    broker.clock.pass_ms(5000)
    run()
    assert changes_told(broker) == []
    broker.clock.pass_ms(1)
    broker.zookeeper.fail_next = ZooKeeperError("no")
    run()
    assert changes_told(broker) == []
    run()
    run()
    assert changes_told(broker) == [{"version": 1, "partitions": [{"topic": "t", "partition": 0}]}]
    (path,) = (p for p in broker.zookeeper.nodes if p.startswith("/isr_change_notification/"))
    assert re.fullmatch(r"/isr_change_notification/isr_change_\d{10}", path)
    assert broker.zookeeper.nodes[path].ephemeral_owner == 0, "it outlives this broker"
    broker.clock.pass_ms(60_001)
    run()
    assert len(changes_told(broker)) == 1, "told once"


@pytest.mark.spec("BRK-78", "Z-30")
def test_under_constant_change_they_are_told_after_a_minute(broker: World) -> None:
    run, _ = broker.scheduler.periodic["isr-change-propagation"]
    for _ in range(30):
        broker.manager.isr_propagation.record(TP)
        broker.clock.pass_ms(2000)
        run()
    assert changes_told(broker) == []
    other = TopicPartition("u", 3)
    broker.manager.isr_propagation.record(other)
    broker.clock.pass_ms(1)
    run()
    both = [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 3}]
    assert changes_told(broker) == [{"version": 1, "partitions": both}], "all in one node"
    for _ in range(30):
        broker.manager.isr_propagation.record(TP)
        broker.clock.pass_ms(2000)
        run()
    assert len(changes_told(broker)) == 1, "the minute counts from the last time"
    broker.manager.isr_propagation.record(TP)
    broker.clock.pass_ms(1)
    run()
    assert changes_told(broker)[1:] == [{"version": 1, "partitions": both[:1]}], "those told before are forgotten"


@pytest.mark.spec("BRK-78", "BRK-79", "Z-30")
def test_more_than_a_node_can_hold_are_told_in_several_and_none_of_them_twice(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = broker.scheduler.periodic["isr-change-propagation"]
    changed = [TopicPartition("t" * 249, number) for number in range(3001)]  # no name is longer
    for partition in changed:
        broker.manager.isr_propagation.record(partition)
    broker.clock.pass_ms(5001)
    create = broker.zookeeper.create

    def only_once(path: str, data: bytes = b"", **options: Any) -> str:
        assert len(data) < 1 << 20, "what ZooKeeper takes"
        made = create(path, data, **options)
        broker.zookeeper.fail_next = ZooKeeperError("no")
        return made

    with monkeypatch.context() as failing:
        failing.setattr(broker.zookeeper, "create", only_once)
        run()
    assert [len(told["partitions"]) for told in changes_told(broker)] == [3000]
    broker.zookeeper.fail_next = None
    broker.clock.pass_ms(5001)
    run()
    told = [TopicPartition(**one) for node in changes_told(broker) for one in node["partitions"]]
    assert told == changed
    run()
    assert len(changes_told(broker)) == 2


@pytest.mark.spec("BRK-80", "BRK-31", "CTL-32", "CTL-59")
def test_the_high_watermark_checkpoint_begins_with_the_first_leader_and_isr_once(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        assert "highwatermark-checkpoint" not in broker.scheduler.periodic
        broker.lead()
        broker.lead(epoch=1)  # the scheduler of the test refuses a second one
        broker.produce(count=3)
        broker.lead(TopicPartition("u", 7))
        followed = TopicPartition("u", 8)
        broker.lead(followed)
        broker.produce(followed, count=2)
        broker.follow(followed, epoch=1)
        task, period_ms = broker.scheduler.periodic["highwatermark-checkpoint"]
        assert period_ms == 5000
        task()
        lines = (tmp_path / "logs/replication-offset-checkpoint").read_text().splitlines()
        assert (lines[:2], sorted(lines[2:])) == (["0", "3"], ["t 0 3", "u 7 0", "u 8 2"]), "followers' too"
    with world(tmp_path / "other", replica_high_watermark_checkpoint_interval_ms="777") as broker:
        broker.lead()
        assert broker.scheduler.periodic["highwatermark-checkpoint"][1] == 777


@pytest.mark.spec("BRK-31", "CTL-32", "CTL-59")
def test_the_high_watermark_checkpoint_begins_also_where_the_first_leader_and_isr_only_follows(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.follow()
        assert "highwatermark-checkpoint" in broker.scheduler.periodic


@pytest.mark.spec("BRK-54", "BRK-56")
def test_every_change_whose_outcome_is_unknown_holds_the_high_watermark_back(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    fetch_all(broker, partition, 2)
    broker.zookeeper.lose_replies = True
    fetch_all(broker, partition, 3)
    broker.scheduler.run()  # 3 is in the node's ISR now, and nobody here knows
    broker.clock.pass_ms(LAG_MS + 1)
    broker.produce()
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()  # 2 is to leave; refused, but that is not known either
    assert partition.in_sync.waited_for >= {1, 2, 3}
    broker.fetch(1, follower(2))
    assert partition.high_watermark.offset == 0, "3 may be elected, and lacks the record"
    broker.zookeeper.lose_replies = False
    broker.clock.pass_ms(LAG_MS + 1)
    broker.produce()
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert partition.isr == (1, 2, 3), "the first write had got through"
    broker.manager.shrink_isrs()
    assert partition.isr == (1,)


@pytest.mark.spec("BRK-54", "BRK-56")
def test_a_shrink_found_to_have_been_written_raises_the_high_watermark(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    parked = broker.produce(acks=-1)
    broker.zookeeper.lose_replies = True
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert not parked
    broker.zookeeper.lose_replies = False
    broker.manager.shrink_isrs()
    assert partition.high_watermark.offset == 1
    assert parked, "nothing else comes that would complete it: the follower is gone"


class HookedLock:
    """A lock after whose release something happens."""

    def __init__(self, after: Callable[[], None]) -> None:
        self._lock, self._after = threading.Lock(), after

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._after()


def test_however_changes_come_one_run_writes_them(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = broker.lead(isr=(1,), replicas=(1, 2, 3))
    writer, runs = broker.manager.isr_writer, broker.scheduler.jobs
    fetch_all(broker, partition, 2)

    def another_comes() -> None:
        if len(partition.isr) == 2 and not runs:  # written; the run has found nothing more to do
            fetch_all(broker, partition, 3)

    monkeypatch.setattr(writer, "_lock", HookedLock(another_comes))
    runs.pop()()
    assert len(runs) == 1, "the run that ends has started another"
    writer.submit(IsrChange(partition, LeaderAndIsr(1, 0, (1,), 1), 99, (1,)))  # outdated: refused when it is written
    assert len(runs) == 1, "the run that is to come takes it too"
    broker.scheduler.run()
    assert partition.isr == (1, 2, 3)


def test_a_write_that_raises_keeps_none_of_the_later_ones(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = broker.lead(isr=(1,), replicas=(1, 2))
    writer = broker.manager.isr_writer

    def fail(changes: object) -> None:
        monkeypatch.undo()
        fetch_all(broker, partition, 2)
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(writer, "write", fail)
    writer.submit(IsrChange(partition, LeaderAndIsr(1, 0, (1,), 1), 99, (1,)))
    broker.scheduler.run()
    assert partition.isr == (1, 2)


@pytest.mark.spec("BRK-50", "BRK-51")
def test_what_joins_and_leaves_is_told_before_it_is_written(broker: World, caplog: pytest.LogCaptureFixture) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.produce()
    fetch_all(broker, partition, 2)
    with caplog.at_level(logging.INFO):
        fetch_all(broker, partition, 3)
        broker.zookeeper.fail_next = ConnectionLostError("lost")
        broker.scheduler.run()
        assert [m for m in caplog.messages if "ISR" in m] == ["Expanding ISR for partition t-0 from 1,2 to 1,2,3"]
        fetch_all(broker, partition, 3)
        broker.scheduler.run()
        assert partition.isr == (1, 2, 3)
        caplog.clear()
        broker.produce()
        broker.clock.pass_ms(LAG_MS + 1)
        broker.manager.shrink_isrs()
    assert partition.isr == (1,)
    assert [(r.levelname, r.getMessage()) for r in caplog.records if "ISR" in r.getMessage()] == [
        ("INFO", "Shrinking ISR for partition [t,0] from 1,2,3 to 1")
    ]
