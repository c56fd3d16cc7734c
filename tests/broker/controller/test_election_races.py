"""What may happen between reading ``/controller`` and creating it; and nodes that are nobody's business."""

import logging
from collections.abc import Callable, Sequence

import pytest

from kafkatool.core.errors import ConnectionLostError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.link import LinkWatch, Reply
from kafkatool.core.zookeeper.session import Delete, Node, Op, Watch
from kafkatool.core.zookeeper.znodes import ControllerZnode, PreferredElectionZnode, ReassignmentZnode
from tests.broker.controller.fake_cluster import FakeCluster


def before_the_create(cluster: FakeCluster, broker_id: int, act: Callable[[], None]) -> None:
    """Let that broker's next election find no controller, then ``act`` happen, then it creates the node."""
    session = cluster.brokers[broker_id].session
    read = session.get
    done: list[bool] = []

    def get(path: str, watch: Watch | None = None) -> Node | None:
        if path != ControllerZnode.PATH or done:
            return read(path, watch)
        done.append(True)
        node = read(path, watch)
        act()
        return None if node is None else node

    session.get = get  # type: ignore[method-assign]


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.fixture
def idle(caplog: pytest.LogCaptureFixture) -> FakeCluster:
    """Return two brokers without a controller, both still to hear of that."""
    caplog.set_level(logging.DEBUG)
    cluster = FakeCluster(1, 2)
    cluster.controller.resign()
    cluster.zk.delete(ControllerZnode.PATH)
    return cluster


@pytest.mark.spec("CTL-5", "CTL-4", "CTL-118")
def test_who_comes_second_follows_the_winner(idle: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    before_the_create(idle, 1, idle.workers[2].elect)
    idle.workers[1].elect()
    assert idle.controller_id == 2
    assert idle.workers[1].term is None and idle.workers[1].known_id == 2
    assert ("DEBUG", "Broker 2 was elected as leader instead of broker 1") in said(caplog)
    idle.run()
    assert idle.controller_epoch == 2 and idle.controller is idle.workers[2]


@pytest.mark.spec("CTL-4", "CTL-9")
def test_of_many_that_try_at_once_one_succeeds() -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5)
    cluster.controller.resign()
    cluster.zk.delete(ControllerZnode.PATH)
    for broker in (1, 2, 3, 4):  # each finds the place free, and only then lets the next one try
        before_the_create(cluster, broker, cluster.workers[broker + 1].elect)
    cluster.workers[1].elect()
    assert [b for b, w in cluster.workers.items() if w.term is not None] == [5]
    assert {w.known_id for w in cluster.workers.values()} == {5}
    cluster.run()
    assert cluster.controller_epoch == 2 and cluster.controller_id == 5


@pytest.mark.spec("CTL-5", "CTL-118")
def test_a_winner_that_is_gone_again_is_told_and_the_next_round_comes(
    idle: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    session = idle.brokers[1].session
    commit = session.commit

    def beaten(ops: Sequence[Op]) -> list[int | None]:
        idle.zk.create(ControllerZnode.PATH, ControllerZnode.encode(7, 0))
        try:
            return commit(ops)
        finally:
            idle.zk.delete(ControllerZnode.PATH)
            session.commit = commit  # type: ignore[method-assign]

    session.commit = beaten  # type: ignore[method-assign]
    idle.workers[1].elect()
    assert idle.workers[1].term is None
    resigned = "A leader has been elected but just resigned, this will result in another round of election"
    assert said(caplog).count(("WARNING", resigned)) == 1
    idle.run()
    assert idle.controller_epoch == 2, "exactly one of them rules in the next round"


@pytest.mark.spec("CTL-4", "CTL-5", "Z-40")
def test_a_winner_whose_reply_is_lost_has_won(idle: FakeCluster) -> None:
    link = idle.brokers[1].session.memory
    commit = link.commit
    lost: list[bool] = []

    class Lost:
        def get(self, timeout_s: float, /) -> list[int | None]:
            raise ConnectionLostError("lost")

    def without_reply(ops: Sequence[Op]) -> Reply[list[int | None]]:
        reply = commit(ops)
        if lost:
            return reply
        lost.append(True)
        return Lost()

    link.commit = without_reply  # type: ignore[method-assign]
    idle.workers[1].elect()
    assert lost and idle.controller is idle.workers[1]
    idle.run()
    assert idle.controller is idle.workers[1] and idle.controller_epoch == 2, "nobody was elected again"


@pytest.mark.spec("CTL-5", "Z-40")
def test_a_node_of_our_own_that_nobody_knows_of_makes_room_for_an_election(idle: FakeCluster) -> None:
    session = idle.brokers[1].session

    def made_after_all() -> None:
        session.create(ControllerZnode.PATH, ControllerZnode.encode(1, 0), ephemeral=True)

    gone: list[int] = []

    def note(writer: object, op: Op) -> None:
        if isinstance(op, Delete) and op.path == ControllerZnode.PATH:
            gone.append(1 if writer is session else 0)

    idle.ensemble.on_write = note
    before_the_create(idle, 1, made_after_all)
    idle.workers[1].elect()
    assert gone == [1] and idle.workers[1].term is None, "given up"
    idle.run()
    assert idle.controller is idle.workers[1] and idle.controller_epoch == 2


@pytest.mark.spec("CTL-6", "Z-18", "Z-35")
@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"seven"])
def test_an_unreadable_controller_is_an_error_and_not_no_controller(
    idle: FakeCluster, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    idle.zk.create(ControllerZnode.PATH, data)
    idle.run()
    idle.workers[1].elect()
    assert [w.term for w in idle.workers.values()] == [None, None]
    assert [w.known_id for w in idle.workers.values()] == [None, None]
    assert ("ERROR", "Error while electing or becoming leader on broker 1") in said(caplog)
    node = idle.zk.get(ControllerZnode.PATH)
    assert node is not None and node.data == data, "it is not ours to delete"
    idle.zk.delete(ControllerZnode.PATH)
    idle.run()
    assert idle.controller_epoch == 2


@pytest.mark.spec("Z-44", "CTL-2")
def test_absent_nodes_are_watched_so_that_their_creation_is_seen(idle: FakeCluster) -> None:
    """Requests by the controller, ``/controller`` by every broker."""

    def is_watched_by(broker_id: int, path: str) -> bool:
        assert not idle.exists(path)
        return idle.brokers[broker_id].session.memory in [client for client, _ in idle.ensemble.watching(path)]

    watched: list[bool] = []
    for broker_id, worker in idle.workers.items():
        before_the_create(idle, broker_id, lambda b=broker_id: watched.append(is_watched_by(b, ControllerZnode.PATH)))  # type: ignore[misc]
        worker.elect()
        worker.resign()
        idle.zk.delete(ControllerZnode.PATH)
    assert watched == [True, True]
    idle.run()
    for path in (ReassignmentZnode.PATH, PreferredElectionZnode.PATH):
        assert is_watched_by(idle.controller_id, path)
    idle.create_topic("t", {0: [1, 2]})
    for replicas in ((2,), (1, 2), (2,)):
        idle.reassign({TopicPartition("t", 0): list(replicas)})
        assert idle.assignment("t") == {0: replicas} and not idle.exists(ReassignmentZnode.PATH)
    for _ in range(2):
        idle.elect_preferred(TopicPartition("t", 0))
        assert not idle.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("Z-32", "Z-37")
def test_unknown_nodes_and_odd_names_are_left_alone_by_every_controller() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2]})
    foreign = (
        "/brokers/ids/abc",
        "/brokers/other",
        "/brokers/topics/t/partitions/0/other",
        "/admin/something",
        "/feature",
        "/kafka-acl",
        "/kafka-acl-changes",
        "/kafka-acl-extended",
        "/kafka-acl-extended-changes",
        "/delegation_token",
        "/config/ips",
        "/config/topics/t/below",
    )
    for path in foreign:
        cluster.zk.create(path, b"\xff not json", make_parents=True)
    cluster.run()
    asked: set[str] = set()

    def noting(ask: Callable[[str, LinkWatch | None], object]) -> Callable[[str, LinkWatch | None], object]:
        def noted(path: str, watch: LinkWatch | None) -> object:
            asked.add(path)
            return ask(path, watch)

        return noted

    for broker in cluster.brokers.values():
        for name in ("get", "exists", "children"):
            setattr(broker.session.link, name, noting(getattr(broker.session.link, name)))
    cluster.kill(1)  # the controller and a leader
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(2, 1, (2,), 2)
    cluster.restart(1)
    assert "/brokers/ids" in asked and asked.isdisjoint(foreign), "nobody reads or watches them"
    nodes = [cluster.zk.get(path) for path in foreign]
    assert [node and (node.data, node.version) for node in nodes] == [(b"\xff not json", 0)] * len(foreign)
