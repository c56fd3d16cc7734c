"""The end of a term: what stops, in which order, and that nothing of it comes back."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kafkatool.broker.controller.controller import RUNNING_AS_BROKER, RUNNING_AS_CONTROLLER, Controller
from kafkatool.broker.controller.events import Event, EventQueue
from kafkatool.broker.controller.telling.channels import ControlRequest
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import BrokerInfo, Endpoint, LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataResponse
from kafkatool.core.zookeeper.session import Create, Delete, Op, SessionState
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.broker.controller.fake_cluster import FakeChannel, FakeCluster
from tests.core.zookeeper.memory import MemoryEnsemble, MemoryZooKeeper
from tests.waiting import eventually

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DELETES = {"delete.topic.enable": "true"}


class Sent(deque[tuple[FakeChannel, ControlRequest]]):
    """A network that remembers what was ever put on it."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: list[tuple[FakeChannel, ControlRequest]] = []

    def append(self, sent: tuple[FakeChannel, ControlRequest]) -> None:
        self.ever.append(sent)
        super().append(sent)


def at_work() -> tuple[FakeCluster, Sent]:
    """Return a cluster whose controller has a reassignment under way, every watch set and its timer running."""
    cluster = FakeCluster(1, 2, 3, 4, properties=DELETES)
    cluster.network = sent = Sent()
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    cluster.catching_up = False
    cluster.reassign({T0: [3, 4]})
    return cluster, sent


def touch_everything(cluster: FakeCluster) -> None:
    """Change each node that a controller watches."""
    zk = cluster.zk
    zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(LeaderAndIsr(1, 1, (1, 2, 3, 4), 1)), -1)
    zk.create(f"{IsrChangeZnode.PREFIX}1", IsrChangeZnode.encode([T1]))
    zk.create(f"{LogDirEventZnode.PREFIX}1", LogDirEventZnode.encode(2))
    zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode({T0: (3, 4), T1: (3, 4)}), -1)
    zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([T1]))
    zk.create(TopicZnode.path("u"), TopicZnode({0: (1, 2)}).encode())
    zk.set(TopicZnode.path("t"), TopicZnode({0: (1, 2), 1: (2, 1), 2: (3, 4)}).encode(), -1)
    zk.create(DeleteTopicsZnode.topic_path("t"))
    zk.create(BrokerZnode.path(9), BrokerZnode.encode(BrokerInfo(9, (Endpoint("PLAINTEXT", "h", 1),)), 0))
    zk.delete(BrokerZnode.path(2))


def answer(request: ControlRequest) -> None:
    """Answer so that a controller at work would have something to do."""
    assert request.on_answer is not None
    match request.message:
        case LeaderAndIsrRequest() as message:
            failed = [
                LeaderAndIsrResponsePartition(topic=s.topic, partition=s.partition, error_code=56)
                for s in message.partition_states
            ]
            request.on_answer(LeaderAndIsrResponse(partitions=failed))
        case StopReplicaRequest():
            request.on_answer(StopReplicaResponse(partitions=[]))
        case _:
            request.on_answer(UpdateMetadataResponse())


@pytest.mark.spec("CTL-16", "CTL-17", "Z-46")
def test_no_watch_answer_or_timer_of_a_former_term_does_anything() -> None:
    cluster, sent = at_work()
    worker = cluster.controller
    cluster.create_topic("doomed", {0: [1, 2]})
    cluster.zk.create(DeleteTopicsZnode.topic_path("doomed"))
    cluster.work(1)
    orders = [r.message for _, r in sent.ever if isinstance(r.message, StopReplicaRequest)]
    assert any(order.delete_partitions for order in orders), "a deletion waits for its answers"
    writes: list[str] = []
    cluster.ensemble.on_write = lambda session, op: writes.append(op.path) if session is not cluster.zk else None
    worker.resign()
    assert {channel.closed for channel, _ in sent.ever} == {True}
    before = len(sent.ever)
    touch_everything(cluster)
    for _, request in sent.ever:
        answer(request)
    cluster.timer.advance(10_000_000)
    assert len(worker.queue) == 0
    cluster.run()
    assert len(sent.ever) == before
    assert not writes


@pytest.mark.spec("CTL-17", "Z-46")
def test_events_that_waited_when_the_term_ended_read_write_and_send_nothing() -> None:
    cluster, sent = at_work()
    worker, session = cluster.controller, cluster.brokers[1].session
    touch_everything(cluster)
    for _, request in sent.ever:
        answer(request)
    cluster.timer.advance(10_000_000)
    assert len(worker.queue) > 10
    before = len(sent.ever)
    worker.resign()
    used: list[str] = []
    for name in ("get", "get_many", "children", "children_many", "set", "create", "delete", "commit", "commit_many"):
        setattr(session, name, lambda *_, name=name, **__: used.append(name))
    cluster.work(1)
    assert len(worker.queue) == 0
    assert (used, len(sent.ever)) == ([], before)


@pytest.mark.spec("CTL-16")
def test_it_stops_to_react_before_the_timer_ends_and_the_channels_last() -> None:
    cluster, _ = at_work()
    worker = cluster.controller
    term = worker.term
    assert term is not None
    context = term.context
    assert context.assignments and context.partition_status and context.replica_status
    seen: list[tuple[str, bool, bool, bool]] = []

    def noted(name: str, call: Callable[[], None]) -> Callable[[], None]:
        def act() -> None:
            is_empty = not (context.assignments or context.partition_status or context.replica_status)
            seen.append((name, term.is_over, is_empty, worker.term is term))
            call()

        return act

    term.rebalance.stop = noted("timer", term.rebalance.stop)  # type: ignore[method-assign]
    term.channels.close_all = noted("channels", term.channels.close_all)  # type: ignore[method-assign]
    worker.resign()
    assert seen == [("timer", True, False, True), ("channels", True, True, True)], "the state machines in between"
    assert worker.term is None
    cluster.timer.advance(10_000_000)
    assert len(worker.queue) == 0


@pytest.mark.spec("CTL-17", "CTL-15", "CTL-19")
def test_an_event_that_a_lost_session_cuts_short_writes_and_sends_nothing_more() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2]})
    worker, session = cluster.workers[1], cluster.brokers[1].session
    read = session.get_many
    cluster.network = sent = Sent()
    writers: list[object] = []

    def expiring(paths: list[str], watch: object = None) -> object:
        nodes = read(paths, watch)  # type: ignore[arg-type]
        if PartitionStateZnode.path(T0) in paths and session.session_id in cluster.ensemble.sessions:
            session.expire()
            session.reconnect()
            cluster.ensemble.on_write = lambda who, op: writers.append(who)
        return nodes

    session.get_many = expiring  # type: ignore[method-assign, assignment]
    cluster.kill(2)
    event = worker.queue.take(wait=False)
    assert event is not None
    sent.ever.clear()
    worker.process(event)
    assert not writers
    assert not [m for _, m in sent.ever if isinstance(m.message, LeaderAndIsrRequest)]
    assert not worker.has_resigned


@pytest.mark.spec("CTL-19", "CTL-20")
def test_after_an_expiry_the_new_session_is_not_used_before_the_term_is_over() -> None:
    cluster = FakeCluster(1, 2)
    worker, session = cluster.workers[1], cluster.brokers[1].session
    term, first = worker.term, session.session_id
    used: list[bool] = []

    def noted(call: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object) -> object:
            if session.session_id != first:
                used.append(term is not None and term.is_over and worker.has_resigned)
            return call(*arguments)

        return called

    for name in ("get", "get_many", "children", "children_many", "set", "create", "delete", "commit", "commit_many"):
        setattr(session, name, noted(getattr(session, name)))
    cluster.zk.create(TopicZnode.path("u"), TopicZnode({0: (1, 2)}).encode())  # an event that waits
    session.expire()
    session.reconnect()
    cluster.run()
    assert used and all(used)


@pytest.mark.spec("CTL-18")
def test_a_disconnection_in_the_midst_of_work_is_no_reason_to_decide_anything() -> None:
    cluster, sent = at_work()
    worker, term, before = cluster.controller, cluster.controller.term, len(sent.ever)
    writes: list[Op] = []
    cluster.ensemble.on_write = lambda session, op: writes.append(op)
    for _ in range(2):
        cluster.brokers[1].session.memory.tell(SessionState.SUSPENDED)
        cluster.brokers[1].session.memory.tell(SessionState.CONNECTED)
    cluster.run()
    assert worker.term is term and worker.known_id == 1
    assert (len(sent.ever), writes) == (before, [])


@pytest.mark.spec("BRK-122", "CTL-20")
def test_after_an_expiry_it_follows_who_rules_by_then_and_watches() -> None:
    cluster = FakeCluster(1, 2)
    session = cluster.brokers[1].session
    session.expire()
    cluster.run()
    assert cluster.controller_id == 2
    epochs: list[str] = []
    cluster.ensemble.on_write = lambda who, op: epochs.append(op.path)
    session.reconnect()
    cluster.work(1)
    assert cluster.workers[1].term is None and cluster.workers[1].known_id == 2
    assert not epochs, "no create is tried"
    cluster.kill(2)
    cluster.run()
    assert cluster.controller is cluster.workers[1], "it has watched /controller in the new session"


@pytest.mark.spec("CTL-20")
def test_told_of_the_new_session_twice_it_rules_on() -> None:
    cluster = FakeCluster(1)
    worker, session = cluster.workers[1], cluster.brokers[1].session
    session.expire()
    session.reconnect()
    cluster.run()
    term = worker.term
    assert term is not None and cluster.controller_epoch == 2
    session.memory.tell(SessionState.CONNECTED)
    cluster.run()
    assert worker.term is term and cluster.controller_epoch == 2


# --- the thread of it -------------------------------------------------------------------------------------------------


class Deaf:
    """A channel to nobody."""

    def send(self, request: ControlRequest) -> None: ...

    def close(self) -> None: ...


@contextmanager
def alone(zookeeper: MemoryZooKeeper, broker_id: int) -> Iterator[Controller]:
    found = Controller(
        zookeeper,
        config=BrokerConfig.from_properties({"zookeeper.connect": "x:1"}),
        broker_id=broker_id,
        open_channel=lambda actor: lambda info: Deaf(),
    )
    found.startup()
    try:
        yield found
    finally:
        found.shutdown()


def queue_of(found: Controller) -> EventQueue:
    return found._worker.queue  # noqa: SLF001  what other threads have but through a session


@pytest.mark.spec("CTL-1", "CTL-2", "CTL-3", "CTL-4", "CTL-18")
def test_a_start_listens_to_the_session_then_watches_then_makes_one_attempt() -> None:
    ensemble = MemoryEnsemble()
    zookeeper = MemoryZooKeeper(ensemble)
    done: list[str] = []

    def noted(name: str) -> None:
        call = getattr(zookeeper, name)

        def called(*arguments: object) -> object:
            watched = " watched" if len(arguments) > 1 and name == "get" else ""
            done.append(f"{name} {arguments[0]}{watched}" if name == "get" else name)
            return call(*arguments)

        setattr(zookeeper, name, called)

    for name in ("add_session_listener", "get", "commit"):
        noted(name)
    with alone(zookeeper, 7) as found:
        assert found.is_active and found.active_controller_id == 7, "though it is not registered"
        listened, watched = done.index("add_session_listener"), done.index("get /controller watched")
        assert listened < watched < done.index("commit")
        assert done.count("commit") == 1
        with alone(MemoryZooKeeper(ensemble), 8) as second:
            assert not second.is_active and second.active_controller_id == 7


@pytest.mark.spec("CTL-7", "CTL-16", "CTL-24", "CTL-29")
def test_who_does_not_rule_has_epoch_0_the_state_of_a_broker_and_counts_nothing() -> None:
    ensemble = MemoryEnsemble()
    outside = MemoryZooKeeper(ensemble)
    outside.create(TopicZnode.path("t"), TopicZnode({0: (1, 2)}).encode())
    outside.create(TopicZnode.path("u"), TopicZnode({0: (1, 2)}).encode())  # its preferred replica led, and is gone
    led = PartitionStateZnode.encode(LeaderAndIsr(1, 0, (1,), 0))
    outside.create(PartitionStateZnode.path(TopicPartition("u", 0)), led, make_parents=True)
    assert (RUNNING_AS_BROKER, RUNNING_AS_CONTROLLER) == (3, 4), "Kafka's numbers"
    names = ("BrokerState", "ActiveControllerCount", "OfflinePartitionsCount", "PreferredReplicaImbalanceCount")

    def shown(controller: Controller) -> tuple[float, ...]:
        gauges = controller.gauges()
        return (controller.epoch, *(gauges[name] for name in names))

    with alone(MemoryZooKeeper(ensemble), 1) as first, alone(MemoryZooKeeper(ensemble), 2) as second:
        assert shown(first) == (1, RUNNING_AS_CONTROLLER, 1, 2, 1), "two are offline, one is not led by its first"
        assert shown(second) == (0, RUNNING_AS_BROKER, 0, 0, 0)
        outside.commit([Delete(ControllerZnode.PATH), Create(ControllerZnode.PATH, ControllerZnode.encode(9, 0))])
        eventually(lambda: first.active_controller_id == second.active_controller_id == 9, "both to hear of the other")
        eventually(lambda: not first.is_active, "it to resign")
        assert shown(first) == shown(second) == (0, RUNNING_AS_BROKER, 0, 0, 0)


@pytest.mark.spec("CTL-21")
def test_events_of_many_threads_are_handled_one_at_a_time_on_one_thread() -> None:
    zookeeper = MemoryZooKeeper(MemoryEnsemble())
    at_once, most, threads, orders = 0, 0, set(), []

    def handle(number: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threads.add(threading.current_thread().name)
        orders.append(number)
        at_once -= 1

    with alone(zookeeper, 1) as found:
        queue = queue_of(found)

        def put(start: int) -> None:
            for number in range(start, start + 50):
                queue.put(Event("test", lambda n=number: handle(n)))  # type: ignore[misc]

        putting = [threading.Thread(target=put, args=(start,)) for start in (0, 100, 200)]
        for thread in putting:
            thread.start()
        for thread in putting:
            thread.join()
        eventually(lambda: len(orders) == 150, "all of them")
    assert most == 1 and threads == {"controller-1"}
    assert all(
        [n for n in orders if start <= n < start + 50] == list(range(start, start + 50)) for start in (0, 100, 200)
    )


@pytest.mark.spec("CTL-21")
def test_watches_answers_ticks_and_shutdown_requests_wait_for_their_turn() -> None:
    cluster, sent = at_work()
    queue = cluster.controller.queue
    cluster.create_topic("doomed", {0: [2, 3]})
    cluster.zk.create(DeleteTopicsZnode.topic_path("doomed"))
    cluster.work(1)  # its orders to delete are on their way
    used: list[str] = []
    for name in ("get", "get_many", "children", "children_many", "set", "create", "delete", "commit", "commit_many"):
        setattr(cluster.brokers[1].session, name, lambda *_, name=name, **__: used.append(name))
    waiting, before = [len(queue)], len(sent.ever)

    def came() -> int:
        waiting.append(len(queue))
        return waiting[-1] - waiting[-2]

    touch_everything(cluster)
    assert came() == 9, "one for each node that it watches"
    answer(next(r for _, r in sent.ever if isinstance(r.message, LeaderAndIsrRequest)))
    assert came() == 1, "an answer"
    for _, request in sent:
        if isinstance(request.message, StopReplicaRequest) and request.message.delete_partitions:
            answer(request)
    assert came() == 2, "the answers to deletions"
    cluster.timer.advance(300_000)
    assert came() == 1, "a tick"
    assert (used, len(sent.ever)) == ([], before), "nothing is read, written or sent meanwhile"


@pytest.mark.spec("CTL-21", "CTL-112")
def test_a_shutdown_request_waits_for_the_event_before_it() -> None:
    inside, may_end, asked = threading.Event(), threading.Event(), []
    with alone(MemoryZooKeeper(MemoryEnsemble()), 1) as found:

        def hold() -> None:
            inside.set()
            assert may_end.wait(60)
            asked.append("event")

        queue_of(found).put(Event("held", hold))
        assert inside.wait(60)

        def ask() -> None:
            found.controlled_shutdown(5, None)
            asked.append("shutdown")

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(lambda: len(queue_of(found)) == 1, "the request to be queued")
        assert asked == []
        may_end.set()
        asking.join(60)
    assert asked == ["event", "shutdown"]
