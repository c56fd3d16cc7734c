"""Who is in sync: joining, leaving, writing it to ZooKeeper, and telling the controller."""

from pathlib import Path

import orjson
import pytest

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.core.errors import ConnectionLostError, ZooKeeperError
from kafkatool.core.model.values import LeaderAndIsr
from tests.broker.replication.world import TP, Clock, World, follower, role, world
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
    fetch_all(broker, partition, 3)
    broker.scheduler.run()
    assert broker.zookeeper.state(TP) == (LeaderAndIsr(1, 4, (1, 2, 3), 1), 7)
    assert partition.isr == (1, 2, 3)
    assert broker.manager.isr_writer.expansions == 1


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


@pytest.mark.spec("BRK-50", "BRK-101")
def test_a_broker_that_is_not_assigned_does_not_join_and_gets_nothing(broker: World) -> None:
    broker.lead(isr=(1,))
    broker.produce()
    read = broker.fetch(0, follower(8))[0]
    assert (read.error, read.size_bytes, read.high_watermark) == (0, 0, 1)
    assert not broker.scheduler.jobs


@pytest.mark.spec("BRK-51", "BRK-77", "BRK-53")
def test_a_stuck_follower_leaves_and_the_high_watermark_moves_on(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), epoch=2, version=3)
    waiting = broker.produce(acks=-1)
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


@pytest.mark.spec("BRK-54")
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


@pytest.mark.spec("BRK-54")
def test_a_replica_that_may_have_left_or_not_holds_the_high_watermark_back(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.zookeeper.fail_next = ConnectionLostError("lost")
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    broker.produce()
    assert partition.high_watermark.offset == 0


@pytest.mark.spec("BRK-54")
def test_a_node_that_is_gone_leaves_everything_as_it_was(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.zookeeper.nodes.clear()
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    assert (partition.isr, partition.in_sync.version, partition.is_leader) == ((1, 2), 0, True)
    assert broker.manager.isr_writer.failures == 1


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


@pytest.mark.spec("BRK-55", "Z-39")
def test_when_the_node_names_another_epoch_the_isr_is_left_alone(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    broker.zookeeper.put_state(TP, LeaderAndIsr(1, 1, (1, 2), 1), 5)
    broker.clock.pass_ms(LAG_MS + 1)
    broker.manager.shrink_isrs()
    broker.manager.shrink_isrs()
    assert (broker.manager.isr_writer.failures, partition.isr) == (1, (1, 2))
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


@pytest.mark.spec("BRK-42", "BRK-43")
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


def changes_told(broker: World) -> list[object]:
    nodes = sorted(p for p in broker.zookeeper.nodes if p.startswith("/isr_change_notification/isr_change_"))
    return [orjson.loads(broker.zookeeper.nodes[p][0]) for p in nodes]


@pytest.mark.spec("BRK-78", "BRK-79")
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


@pytest.mark.spec("BRK-78")
def test_under_constant_change_they_are_told_after_a_minute(broker: World) -> None:
    run, _ = broker.scheduler.periodic["isr-change-propagation"]
    for _ in range(30):
        broker.manager.isr_propagation.record(TP)
        broker.clock.pass_ms(2000)
        run()
    assert changes_told(broker) == []
    broker.manager.isr_propagation.record(TP)
    broker.clock.pass_ms(1)
    run()
    assert len(changes_told(broker)) == 1


@pytest.mark.spec("BRK-80", "BRK-31")
def test_the_high_watermark_checkpoint_begins_with_the_first_leader_and_isr_once(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        assert "highwatermark-checkpoint" not in broker.scheduler.periodic
        broker.lead()
        broker.lead(epoch=1)  # the scheduler of the test refuses a second one
        broker.produce(count=3)
        task, period_ms = broker.scheduler.periodic["highwatermark-checkpoint"]
        assert period_ms == 5000
        task()
        assert (tmp_path / "logs/replication-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"


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
