"""Who becomes controller, who stops being it, and what a deposed one can still do: nothing."""

import logging
from collections.abc import Sequence

import pytest

from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.core.errors import ConnectionLostError, NoPermissionError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.session import Op, SessionState
from kafkatool.core.zookeeper.znodes import (
    ControllerEpochZnode,
    ControllerZnode,
    IsrChangeZnode,
    PartitionStateZnode,
    TopicZnode,
)
from tests.broker.controller.fake_cluster import FakeCluster


@pytest.mark.spec("CTL-1", "CTL-2", "CTL-3", "CTL-4", "CTL-10", "CTL-118")
def test_exactly_one_broker_wins_and_the_others_follow(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = FakeCluster(2, 1, 3)
    assert cluster.controller_id == 2
    assert cluster.controller_epoch == 1
    assert [w.known_id for w in cluster.workers.values()] == [2, 2, 2]
    said = [r.getMessage() for r in caplog.records]
    assert "2 successfully elected as leader" in said
    assert "Broker 2 starting become controller state transition" in said
    assert "Broker 2 has been elected as leader, so stopping the election process." in said
    assert "Broker change listener fired for path /brokers/ids with children 1,2,3" in said
    assert "Newly added brokers: 1,2,3, deleted brokers: , all live brokers: 1,2,3" in said
    assert "New broker startup callback for 1,2,3" in said


@pytest.mark.spec("CTL-7", "CTL-8", "CTL-9", "CTL-12")
def test_deleting_the_node_by_hand_makes_one_new_controller_of_a_higher_epoch() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.sent.clear()
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert cluster.controller_epoch == 2
    assert cluster.controller.known_id == cluster.controller_id
    assert {m.controller_epoch for _, m in cluster.sent} == {2}
    assert {m.controller_id for _, m in cluster.sent} == {cluster.controller_id}
    assert sorted({b for b, _ in cluster.leader_and_isr()}) == [1, 2]


@pytest.mark.spec("CTL-8", "CTL-24", "CTL-43")
def test_the_controllers_death_is_survived() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2, 3]})
    cluster.kill(1)
    cluster.run()
    assert cluster.controller_id in (2, 3)
    assert cluster.state("t") == LeaderAndIsr(2, 1, (2, 3), 2)


@pytest.mark.spec("CTL-10", "CTL-11")
def test_losing_the_epoch_writes_nothing_and_the_attempt_begins_anew() -> None:
    cluster = FakeCluster(1)
    session = cluster.brokers[1].session
    read = session.get
    path = ControllerEpochZnode.PATH
    raised: list[int] = []

    def overtaken(asked: str, watch: object = None) -> object:
        node = read(asked)
        if asked == path and not raised:
            raised.append(cluster.zk.set(path, b"7", -1))
        return read(asked, watch) if watch else node  # type: ignore[arg-type]

    session.get = overtaken  # type: ignore[method-assign, assignment]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert cluster.controller_epoch == 8
    assert cluster.controller.term is not None


@pytest.mark.spec("CTL-4", "CTL-10", "CTL-11")
def test_who_is_not_first_does_not_raise_the_epoch_over_the_head_of_the_winner() -> None:
    """Held up after it has read the epoch, while another wins and rules (seed 30163 of the simulation)."""
    cluster = FakeCluster(1, 2)
    cluster.controller.resign()
    session = cluster.brokers[1].session
    commit = session.commit
    late: list[bool] = []

    def held_up(ops: Sequence[Op]) -> list[int | None]:
        if not late:
            late.append(True)
            cluster.workers[2].elect()
        return commit(ops)

    session.commit = held_up  # type: ignore[method-assign]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.workers[1].elect()
    cluster.run()
    assert late
    assert cluster.controller is cluster.workers[2] and cluster.controller_epoch == 2
    assert cluster.workers[1].term is None and cluster.workers[1].known_id == 2


@pytest.mark.spec("CTL-4", "CTL-5")
def test_to_take_over_is_not_forgotten_when_the_answer_is_lost() -> None:
    cluster = FakeCluster(1, 2)
    session = cluster.brokers[2].session
    commit = session.commit
    lost: list[bool] = []

    def without_answer(ops: Sequence[Op]) -> list[int | None]:
        outcome = commit(ops)
        if not lost:
            lost.append(True)
            raise ConnectionLostError("the answer to the transaction did not come")
        return outcome

    session.commit = without_answer  # type: ignore[method-assign]
    cluster.workers[2].queue.put(Event("take over", lambda: cluster.workers[2].elect(depose=True)))
    cluster.run()
    assert lost
    assert cluster.controller is cluster.workers[2] and cluster.controller.term is not None
    assert cluster.controller_epoch == 3, "once without knowing it, once more; nobody came between"


@pytest.mark.spec("CTL-15", "CTL-17", "Z-46")
def test_a_deposed_controller_writes_nothing_and_resigns() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    term = cluster.controller.term
    cluster.zk.set(ControllerEpochZnode.PATH, b"41", -1)
    cluster.sent.clear()
    cluster.create_topic("u", {0: [2, 1]})
    assert term is not None
    assert term.is_over
    assert cluster.controller_epoch == 42
    assert cluster.state("u").controller_epoch == 42
    assert {m.controller_epoch for _, m in cluster.sent} == {42}


@pytest.mark.spec("CTL-16", "CTL-17")
def test_after_resigning_no_watch_answer_or_timer_does_anything() -> None:
    cluster = FakeCluster(1, 2)
    worker = cluster.controller
    worker.resign()
    before = dict(cluster.ensemble.nodes)
    cluster.zk.create(TopicZnode.path("t"), TopicZnode({0: (1, 2)}).encode())
    cluster.timer.advance(10_000_000)
    cluster.sent.clear()
    cluster.run()
    assert not cluster.sent
    assert cluster.ensemble.nodes.keys() - before.keys() == {TopicZnode.path("t")}


@pytest.mark.spec("CTL-19", "CTL-20")
def test_an_expired_controller_discards_its_events_and_resigns_first() -> None:
    cluster = FakeCluster(1, 2)
    worker = cluster.workers[1]
    session = cluster.brokers[1].session
    cluster.brokers[2].session.close()  # so that nobody else takes over meanwhile
    cluster.workers.pop(2)
    discarded: list[str] = []
    worker.queue.put(Event("old", lambda: discarded.append("run"), lambda: discarded.append("discarded")))
    session.expire()
    session.reconnect()
    assert discarded == ["discarded"]
    assert not worker.has_resigned
    cluster.run()
    assert worker.has_resigned
    assert cluster.controller_epoch == 2
    assert worker.term is not None


@pytest.mark.spec("CTL-18")
def test_a_disconnection_changes_nothing() -> None:
    cluster = FakeCluster(1, 2)
    worker = cluster.controller
    term = worker.term
    worker.on_session(SessionState.SUSPENDED)
    worker.on_session(SessionState.CONNECTED)
    cluster.run()
    assert worker.term is term


@pytest.mark.spec("CTL-20")
def test_a_node_of_the_own_old_session_is_waited_for() -> None:
    cluster = FakeCluster(1)
    worker = cluster.workers[1]
    ensemble = cluster.ensemble
    node = ensemble.nodes[ControllerZnode.PATH]
    old_id = node.ephemeral_owner
    cluster.brokers[1].session.reconnect()  # the server still holds the old session
    cluster.run()
    assert worker.term is None
    assert ensemble.nodes[ControllerZnode.PATH].ephemeral_owner == old_id
    cluster.zk.delete(ControllerZnode.PATH)  # the old session ends
    cluster.run()
    assert worker.term is not None


@pytest.mark.spec("CTL-119", "CTL-118")
def test_a_controller_that_was_shut_down_takes_over_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster = FakeCluster(1)
    worker = cluster.workers[1]
    worker.resign()
    cluster.zk.delete(ControllerZnode.PATH)
    worker.stopping = True
    worker.elect()
    assert cluster.zk.get(ControllerZnode.PATH) is None
    assert worker.term is None
    assert cluster.controller_epoch == 1
    assert "Controller has been shut down, aborting startup/failover" in [r.getMessage() for r in caplog.records]


@pytest.mark.spec("CTL-6", "CTL-26", "CTL-118")
def test_an_error_during_failover_makes_room_for_the_next_attempt(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1)
    session = cluster.brokers[1].session
    children = session.children
    broken = [True]

    def failing(path: str, watch: object = None) -> object:
        if path == IsrChangeZnode.PATH and broken.pop():
            broken.append(False)
            raise ValueError("out of order")
        return children(path, watch)  # type: ignore[arg-type]

    session.children = failing  # type: ignore[method-assign, assignment]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert cluster.controller_epoch == 2 and not cluster.exists(ControllerZnode.PATH)
    cluster.timer.advance(100)  # not at full speed: what is wrong may last
    cluster.run()
    assert cluster.controller_epoch == 3
    assert cluster.controller_id == 1
    assert "Error while electing or becoming leader on broker 1" in [r.getMessage() for r in caplog.records]


@pytest.mark.spec("CTL-8", "CTL-26")
@pytest.mark.parametrize(("later_s", "waits"), [(1, True), (61, False)])
def test_a_failure_of_long_ago_delays_no_attempt(later_s: float, waits: bool) -> None:
    cluster = FakeCluster(1, 2)
    session = cluster.brokers[1].session
    children = session.children
    broken = [True]

    def failing(path: str, watch: object = None) -> object:
        if path == IsrChangeZnode.PATH and broken:
            broken.clear()
            raise ValueError("out of order")
        return children(path, watch)  # type: ignore[arg-type]

    session.children = failing  # type: ignore[method-assign, assignment]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert cluster.controller_id == 2 and not broken
    cluster.now_s = later_s
    cluster.kill(2)
    cluster.run()
    assert cluster.exists(ControllerZnode.PATH) is not waits
    cluster.timer.advance(100)
    cluster.run()
    assert cluster.controller_id == 1


@pytest.mark.spec("CTL-50", "CTL-118")
def test_an_open_batch_forces_the_controller_to_resign(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2)
    term = cluster.controller.term
    assert term is not None
    with term.batch.filling():
        cluster.create_topic("t", {0: [1, 2]})
    assert cluster.controller_epoch == 2
    assert cluster.state("t").controller_epoch == 2
    assert "Forcing the controller to resign" in [r.getMessage() for r in caplog.records]


@pytest.mark.spec("CTL-24", "CTL-25", "CTL-28", "CTL-63", "CTL-68")
def test_a_new_controller_finishes_what_the_old_one_left() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    cluster.kill(1)  # leader of t-0 and controller at once; meanwhile a topic is created
    cluster.zk.create(TopicZnode.path("u"), TopicZnode({0: (3, 2)}).encode())
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}0000000001", IsrChangeZnode.encode([TopicPartition("t", 1)]))
    cluster.sent.clear()
    cluster.run()
    assert cluster.state("t", 0).leader == 2
    assert cluster.state("u") == LeaderAndIsr(3, 0, (3, 2), 2)
    assert cluster.zk.children(IsrChangeZnode.PATH) == []
    for broker in (2, 3):
        kinds = [type(m).__name__ for b, m in cluster.sent if b == broker]
        assert kinds[:2] == ["UpdateMetadataRequest", "LeaderAndIsrRequest"]  # 7a before 8
        assert kinds[-1] == "UpdateMetadataRequest"  # 10


@pytest.mark.spec("CTL-29")
def test_gauges_count_offline_and_imbalanced_partitions() -> None:
    cluster = FakeCluster(1, 2, 3, properties={"auto.leader.rebalance.enable": "false"})
    cluster.create_topic("t", {0: [2, 3], 1: [3], 2: [1, 2]})
    term = cluster.controller.term
    assert term is not None
    assert (term.context.offline_partition_count(), term.context.imbalance_count()) == (0, 0)
    cluster.kill(3)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    assert (term.context.offline_partition_count(), term.context.imbalance_count()) == (2, 2)
    assert cluster.controller.gauges.broker_changes.count == 3


@pytest.mark.spec("CTL-121", "CTL-118", "Z-35")
def test_an_error_in_a_broker_change_ends_only_that_event(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2)
    term = cluster.controller.term
    assert term is not None
    read = term.broker_changes.read
    calls = []

    def failing(names: list[str]) -> object:
        calls.append(names)
        if len(calls) == 1:
            raise NoPermissionError("no permission for znode /brokers/ids/3")
        return read(names)

    term.broker_changes.read = failing  # type: ignore[method-assign, assignment]
    cluster.restart(3)
    assert "Error while handling broker changes" in [r.getMessage() for r in caplog.records]
    assert cluster.controller.term is term
    cluster.restart(4)
    assert sorted(term.context.brokers) == [1, 2, 3, 4]


@pytest.mark.spec("CTL-21")
def test_the_queue_keeps_the_order_and_discards_at_the_end() -> None:
    queue = EventQueue()
    seen: list[str] = []
    for name in "abc":
        queue.put(Event(name, lambda: None, lambda name=name: seen.append(name)))  # type: ignore[misc]
    first = queue.take()
    assert first is not None
    assert first.name == "a"
    queue.close()
    assert seen == ["b", "c"]
    assert queue.take() is None
    queue.put(Event("late", lambda: None, lambda: seen.append("late")))
    assert seen[-1] == "late"


@pytest.mark.spec("CTL-14", "CTL-15")
def test_one_bad_write_does_not_keep_back_the_others_of_its_transaction() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {n: [2, 3] for n in range(40)})
    session = cluster.brokers[1].session
    commit = session.commit_many
    seen: list[int] = []

    def interfering(transactions: list[list[object]]) -> object:
        if not seen:  # three states change after the controller has read them
            for n in (3, 17, 39):
                cluster.zk.set(
                    PartitionStateZnode.path(TopicPartition("t", n)),
                    PartitionStateZnode.encode(LeaderAndIsr(2, 0, (2, 3), 1)),
                    -1,
                )
        seen.append(len(transactions))
        return commit(transactions)  # type: ignore[arg-type]

    session.commit_many = interfering  # type: ignore[method-assign, assignment]
    cluster.kill(2)
    cluster.run()
    assert cluster.leaders("t") == [3] * 40
    assert {cluster.state("t", n).leader_epoch for n in range(40)} == {1}
    assert seen[0] == 1
