"""Who becomes controller, who stops being it, and what a deposed one can still do: nothing."""

import logging
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.failover import take_over
from kafkatool.broker.controller.term import Term
from kafkatool.core.errors import ConnectionLostError, NoPermissionError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.session import Check, Create, Delete, Node, Op, SessionState, TransactionError, Watch
from kafkatool.core.zookeeper.znodes import (
    ControllerEpochZnode,
    ControllerZnode,
    IsrChangeZnode,
    PartitionStateZnode,
    PartitionZnode,
    TopicZnode,
)
from tests.broker.controller.fake_cluster import FakeCluster


@pytest.mark.spec("CTL-3", "CTL-4", "CTL-10", "CTL-118")
def test_exactly_one_broker_wins_and_the_others_follow(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = FakeCluster(2, 1, 3)
    assert cluster.controller_id == 2
    assert cluster.controller_epoch == 1
    assert [w.known_id for w in cluster.workers.values()] == [2, 2, 2]
    said = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert ("INFO", "2 successfully elected as leader") in said
    assert ("INFO", "Broker 2 starting become controller state transition") in said
    assert ("DEBUG", "Broker 2 has been elected as leader, so stopping the election process.") in said
    assert ("INFO", "Broker change listener fired for path /brokers/ids with children 1,2,3") in said
    assert ("INFO", "Newly added brokers: 1,2,3, deleted brokers: , all live brokers: 1,2,3") in said
    assert ("INFO", "New broker startup callback for 1,2,3") in said


@pytest.mark.spec("CTL-4", "Z-15", "Z-18", "Z-19")
def test_the_nodes_of_an_election_say_who_and_since_when() -> None:
    cluster = FakeCluster(2, 1)
    node, epoch = cluster.zk.get(ControllerZnode.PATH), cluster.zk.get(ControllerEpochZnode.PATH)
    assert node is not None and epoch is not None
    assert orjson.loads(node.data) == {"version": 1, "brokerid": 2, "timestamp": "0"}
    assert node.ephemeral_owner == cluster.brokers[2].session.session_id
    assert (epoch.data, epoch.version, epoch.ephemeral_owner) == (b"1", 0, 0), "created with 1, and it stays"
    cluster.now_s = 1500000000.25
    cluster.kill(2)
    cluster.run()
    node = cluster.zk.get(ControllerZnode.PATH)
    assert node is not None
    assert orjson.loads(node.data) == {"version": 1, "brokerid": 1, "timestamp": "1500000000250"}, "of its own election"
    after = cluster.zk.get(ControllerEpochZnode.PATH)
    assert after is not None and (after.data, after.version, after.czxid) == (b"2", 1, epoch.czxid)


@pytest.mark.spec("CTL-2", "CTL-3", "CTL-7", "CTL-8", "CTL-9", "Z-43", "Z-44")
def test_every_broker_hears_of_every_change_of_the_controller() -> None:
    cluster = FakeCluster(1, 2, 3)
    watched: list[int] = []
    for broker, worker in cluster.workers.items():
        session = cluster.brokers[broker].session
        read = session.get

        def get(path: str, watch: Watch | None = None, read: Any = read, broker: int = broker) -> Node | None:
            if path == ControllerZnode.PATH and watch is not None:
                watched.append(broker)
            return read(path, watch)  # type: ignore[no-any-return]

        session.get = get  # type: ignore[method-assign]
        assert worker.known_id == 1
    for epoch in (2, 3, 4):
        watched.clear()
        cluster.zk.delete(ControllerZnode.PATH)
        cluster.run()
        assert cluster.controller_epoch == epoch
        assert (
            {w.known_id for w in cluster.workers.values()} == {cluster.controller_id} == {cluster.controller.known_id}
        )
        assert set(watched) == {1, 2, 3}


@pytest.mark.spec("CTL-3")
def test_who_reads_that_another_rules_tries_no_create_and_no_node_is_nobody() -> None:
    cluster = FakeCluster(1, 2)
    written: list[str] = []
    cluster.ensemble.on_write = lambda session, op: written.append(op.path)
    commit = cluster.brokers[2].session.commit
    tried: list[Sequence[Op]] = []

    def counted(ops: Sequence[Op]) -> list[int | None]:
        tried.append(ops)
        return commit(ops)

    cluster.brokers[2].session.commit = counted  # type: ignore[method-assign]
    cluster.workers[2].elect()
    assert (cluster.workers[2].known_id, tried, written) == (1, [], [])
    cluster.workers[2].stopping = True
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.workers[2].elect()
    assert cluster.workers[2].known_id is None


@pytest.mark.spec("CTL-2", "CTL-7", "CTL-16", "Z-44")
def test_a_controller_whose_node_names_another_resigns() -> None:
    cluster = FakeCluster(1, 2, 3)
    term = cluster.controller.term
    node = cluster.zk.get(ControllerZnode.PATH)
    assert term is not None and node is not None
    cluster.zk.set(ControllerZnode.PATH, ControllerZnode.encode(2, 0), node.version)
    for follower in (2, 3):
        cluster.work(follower)
        assert cluster.workers[follower].known_id == 2, "as the node says"
    cluster.run()
    assert term.is_over
    assert cluster.controller_epoch == 2, "what it leaves is its own node, which makes room for the next"
    assert {w.known_id for w in cluster.workers.values()} == {cluster.controller_id}, (
        "the change was watched behind, too"
    )


@pytest.mark.spec("CTL-7", "Z-18", "CTL-6", "Z-35")
@pytest.mark.parametrize("is_own", [True, False])
def test_a_controller_whose_node_names_nobody_resigns_and_deletes_it_if_it_is_its_own(is_own: bool) -> None:
    cluster = FakeCluster(1, 2)
    term = cluster.controller.term
    if is_own:
        cluster.zk.set(ControllerZnode.PATH, b"rubbish", -1)
    else:
        cluster.zk.commit([Delete(ControllerZnode.PATH), Create(ControllerZnode.PATH, b"rubbish")])
    cluster.work(2)
    assert cluster.workers[2].known_id is None, "nor does who follows take the last one for it"
    cluster.run()
    assert term is not None and term.is_over
    if not is_own:
        assert {(w.term, w.known_id) for w in cluster.workers.values()} == {(None, None)}
        cluster.zk.delete(ControllerZnode.PATH)
        cluster.run()
    assert cluster.controller_epoch == 2 and cluster.controller.known_id == cluster.controller_id


@pytest.mark.spec("CTL-7", "CTL-20")
def test_a_controller_whose_node_is_of_another_session_resigns_though_it_names_its_id() -> None:
    cluster = FakeCluster(1)
    worker, term = cluster.controller, cluster.controller.term
    cluster.zk.commit([Delete(ControllerZnode.PATH), Create(ControllerZnode.PATH, ControllerZnode.encode(1, 0))])
    cluster.run()
    assert term is not None and term.is_over and worker.term is None
    assert cluster.controller_id == 1 and cluster.controller_epoch == 1, "it waits for that node to go"
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert worker.term is not None and cluster.controller_epoch == 2


@pytest.mark.spec("CTL-8", "CTL-16")
def test_the_former_controller_resigns_before_it_makes_an_attempt() -> None:
    cluster = FakeCluster(1)
    worker, session = cluster.workers[1], cluster.brokers[1].session
    term, commit = worker.term, session.commit
    ruled: list[bool] = []

    def noted(ops: Sequence[Op]) -> list[int | None]:
        ruled.append(worker.term is not None or term is None or not term.is_over)
        return commit(ops)

    session.commit = noted  # type: ignore[method-assign]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert ruled == [False] and cluster.controller_epoch == 2


@pytest.mark.spec("CTL-8", "CTL-9")
@pytest.mark.parametrize("first", [1, 2, 3])
def test_whichever_broker_hears_first_that_the_place_is_free_takes_it(first: int) -> None:
    cluster = FakeCluster(1, 2, 3)
    term = cluster.workers[1].term
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.work(first)
    assert cluster.controller_id == first, "each makes an attempt, the former controller too"
    cluster.run()
    assert cluster.controller is cluster.workers[first] and cluster.controller.term is not term
    assert cluster.controller_epoch == 2


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
    for broker in (1, 2, 3):  # 7a, 8 and 10; who has no replica hears of 8 by metadata alone
        kinds = [type(m).__name__ for b, m in cluster.sent if b == broker]
        roles = ["LeaderAndIsrRequest"] if broker != 3 else []
        assert kinds == ["UpdateMetadataRequest", *roles, "UpdateMetadataRequest", "UpdateMetadataRequest"]


@pytest.mark.spec("CTL-8", "CTL-24", "CTL-42", "CTL-43")
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
    commit = session.commit
    refused: list[int] = []

    def noted(ops: Sequence[Op]) -> list[int | None]:
        before = dict(cluster.ensemble.nodes)
        try:
            return commit(ops)
        except TransactionError:
            refused.append(len(cluster.network))
            assert cluster.ensemble.nodes == before, "neither the epoch nor /controller"
            raise

    session.commit = noted  # type: ignore[method-assign]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert refused == [0]
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


@pytest.mark.spec("CTL-15", "CTL-6")
def test_the_own_node_is_given_up_bound_to_the_epoch_as_it_is_by_then() -> None:
    cluster = FakeCluster(1, 2)
    session, worker = cluster.brokers[1].session, cluster.workers[1]
    commit = session.commit
    tried: list[Sequence[Op]] = []

    def overtaken(ops: Sequence[Op]) -> list[int | None]:
        tried.append(ops)
        if len(tried) == 1:
            cluster.zk.set(ControllerEpochZnode.PATH, b"41", -1)
            before = dict(cluster.ensemble.nodes)
            with pytest.raises(TransactionError):
                commit(ops)
            assert cluster.ensemble.nodes == before, "refused"
        return commit(ops)

    session.commit = overtaken  # type: ignore[method-assign]
    worker.step_down()
    assert [[type(op) for op in ops] for ops in tried] == [[Check, Delete]] * 2
    assert [(op.path, op.version) for ops in tried for op in ops if isinstance(op, Check)] == [
        (ControllerEpochZnode.PATH, 0),
        (ControllerEpochZnode.PATH, 1),
    ]
    assert worker.term is None and not cluster.exists(ControllerZnode.PATH)


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
    assert told_that_it_is_shut_down(caplog) == ["INFO"]


def told_that_it_is_shut_down(caplog: pytest.LogCaptureFixture) -> list[str]:
    text = "Controller has been shut down, aborting startup/failover"
    return [r.levelname for r in caplog.records if r.getMessage() == text]


@pytest.mark.spec("CTL-119")
def test_a_controller_shut_down_while_it_was_elected_begins_no_term(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster = FakeCluster(1, 2)
    worker, session = cluster.workers[1], cluster.brokers[1].session
    worker.resign()
    cluster.create_topic("t", {0: [2]})
    cluster.zk.delete(ControllerZnode.PATH)
    commit = session.commit
    written: list[str] = []

    def won(ops: Sequence[Op]) -> list[int | None]:
        outcome = commit(ops)
        worker.stopping = True
        cluster.ensemble.on_write = lambda session, op: written.append(op.path)
        return outcome

    session.commit = won  # type: ignore[method-assign]
    cluster.sent.clear()
    worker.elect()
    cluster.run()
    assert cluster.controller_id == 1 and worker.term is None, "the node goes with the session"
    assert not written and not cluster.sent
    assert told_that_it_is_shut_down(caplog) == ["INFO"]
    cluster.kill(1)
    cluster.run()
    assert cluster.controller_id == 2 and cluster.state("t").leader == 2


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
    assert cluster.work_once(1)
    worker = cluster.workers[1]
    assert worker.term is None and worker.known_id is None, "at once: what has fired meanwhile finds no controller"
    cluster.run()
    assert cluster.controller_epoch == 2 and not cluster.exists(ControllerZnode.PATH)
    cluster.timer.advance(100)  # not at full speed: what is wrong may last
    cluster.run()
    assert cluster.controller_epoch == 3
    assert cluster.controller_id == 1
    assert ("ERROR", "Error while electing or becoming leader on broker 1") in [
        (r.levelname, r.getMessage()) for r in caplog.records
    ]


@pytest.mark.spec("CTL-6", "CTL-16", "CTL-26")
def test_an_error_at_the_end_of_a_failover_ends_the_term_with_all_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    worker = cluster.workers[1]
    terms: list[Term] = []

    def failing(term: Term) -> None:
        take_over(term)
        assert term.context.partition_status and term.context.replica_status
        terms.append(term)
        raise ValueError("out of order")

    monkeypatch.setattr("kafkatool.broker.controller.worker.take_over", failing)
    cluster.zk.delete(ControllerZnode.PATH)
    assert cluster.work_once(1) and terms
    assert worker.term is None and worker.known_id is None
    assert terms[0].is_over and not (terms[0].context.partition_status or terms[0].context.replica_status)
    assert {channel.broker.id for channel, _ in cluster.network} == {1, 2}
    assert all(channel.closed for channel, _ in cluster.network)
    waiting = len(worker.queue)
    cluster.timer.advance(10_000_000)
    assert len(worker.queue) == waiting, "its timer is off"


@pytest.mark.spec("CTL-6")
def test_an_error_in_an_election_deletes_no_other_brokers_node() -> None:
    cluster = FakeCluster(1, 2)
    session = cluster.brokers[2].session
    read, before = session.get, cluster.zk.get(ControllerZnode.PATH)

    def refused(path: str, watch: object = None) -> object:
        session.get = read  # type: ignore[method-assign]
        raise NoPermissionError("no permission for znode /controller")

    session.get = refused  # type: ignore[method-assign, assignment]
    cluster.workers[2].elect()
    assert session.get == read and cluster.workers[2].known_id is None
    assert before is not None and cluster.zk.get(ControllerZnode.PATH) == before
    cluster.run()
    assert cluster.controller is cluster.workers[1] and cluster.controller_epoch == 1


@pytest.mark.spec("CTL-6")
def test_an_error_while_creating_leaves_nobody_known_and_the_next_round_to_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(1, 2)
    cluster.kill(2)
    session = cluster.brokers[1].session
    commit = session.commit

    def refused(ops: Sequence[Op]) -> list[int | None]:
        session.commit = commit  # type: ignore[method-assign]
        raise NoPermissionError("no permission for znode /controller")

    session.commit = refused  # type: ignore[method-assign]
    worker = cluster.workers[1]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert worker.term is None and worker.known_id is None
    assert not cluster.exists(ControllerZnode.PATH) and cluster.controller_epoch == 1
    assert "Error while electing or becoming leader on broker 1" in [r.getMessage() for r in caplog.records]
    cluster.restart(3)
    assert cluster.controller_id == 3 and worker.known_id == 3
    cluster.kill(3)
    cluster.run()
    assert cluster.controller is worker


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
        term.batch.add_metadata()
        cluster.create_topic("t", {0: [1, 2]})
    assert cluster.controller_epoch == 2
    assert not [r for r in caplog.records if "not sending" in r.getMessage()], "what was in it is dropped"
    assert cluster.state("t").controller_epoch == 2
    assert ("ERROR", "Forcing the controller to resign") in [(r.levelname, r.getMessage()) for r in caplog.records]


@pytest.mark.spec("CTL-24", "CTL-25", "CTL-28", "CTL-63", "CTL-68", "CTL-71")
def test_a_new_controller_finishes_what_the_old_one_left(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    cluster.kill(1)  # leader of t-0 and controller at once; meanwhile a topic is created
    cluster.zk.create(TopicZnode.path("u"), TopicZnode({0: (3, 2)}).encode())
    cluster.zk.create(PartitionZnode.path(TopicPartition("u", 0)), make_parents=True)  # and that far alone
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}0000000001", IsrChangeZnode.encode([TopicPartition("t", 1)]))
    cluster.sent.clear()
    cluster.log.lines.clear()
    cluster.run()
    assert cluster.state("t", 0).leader == 2
    assert cluster.state("u") == LeaderAndIsr(3, 0, (3, 2), 2)
    (led,) = cluster.log.told("Changed partition u-0")
    assert led.startswith("Changed partition u-0 from NewPartition to OnlinePartition")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING], "a partition without state is no error"
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

    def counts() -> tuple[int, int]:
        return term.context.offline_partition_count(), term.context.imbalance_count()

    assert counts() == (0, 0)
    cluster.kill(2)
    cluster.run()
    assert counts() == (0, 1), "3 leads t-0 for 2"
    cluster.kill(3)
    cluster.run()
    assert counts() == (2, 2)
    term.context.shutting_down.add(1)
    assert counts() == (2, 2), "it is registered still"
    registered = term.context.brokers.pop(1)
    assert counts() == (3, 2), "whom the state names as leader is not enough"
    term.context.brokers[1] = registered
    term.context.deleting["t"] = None  # counts in neither
    assert counts() == (0, 0)
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
    assert ("ERROR", "Error while handling broker changes") in [(r.levelname, r.getMessage()) for r in caplog.records]
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


@pytest.mark.spec("CTL-42")
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
