"""Requests and topics larger than a packet that ZooKeeper takes by default, on one that was told to take more.

Kafka's tools take the limit from Java's jute.maxbuffer, which brokers and ZooKeeper may have been given; a controller that
was not told of it must rule all the same.
"""

from collections.abc import Iterator

import pytest

from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import ZnodeTooLargeError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.session import DEFAULT_MAX_PACKET_BYTES, SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import PartitionStateZnode, ReassignmentZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster
from tests.ports import free_port

_TAKEN = 4 * 1_048_576
LONG = "x" * 240


@pytest.fixture(scope="module")
def large_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djute.maxbuffer={_TAKEN}")
        server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), free_port()).start()
    try:
        yield server.wait_ready(100_000)
    finally:
        server.stop(gentle=False)


@pytest.fixture
def operator(large_server: ZooKeeperProcess, request: pytest.FixtureRequest) -> Iterator[ZooKeeper]:
    """A session that may write as much as this server takes, in a chroot of the test's own."""
    connect = f"{large_server.connect}/{abs(hash(request.node.name))}"
    with ZooKeeper(connect, session_timeout_ms=60_000, create_chroot=True, max_packet_bytes=_TAKEN) as zk:
        yield zk


def lead_alone(zk: ZooKeeper, partition: TopicPartition) -> None:
    data = PartitionStateZnode.encode(LeaderAndIsr(1, 0, (1,), 0))
    zk.create(PartitionStateZnode.path(partition), data, make_parents=True)


def request(zk: ZooKeeper) -> dict[TopicPartition, tuple[int, ...]]:
    node = zk.get(ReassignmentZnode.PATH)
    return dict(ReassignmentZnode.decode(node.data)) if node else {}


def rules(zk: ZooKeeper, max_packet_bytes: int = DEFAULT_MAX_PACKET_BYTES) -> bool:
    """Tell whether a controller that goes by that limit becomes one."""
    with ZooKeeper(zk.connect, session_timeout_ms=60_000, max_packet_bytes=max_packet_bytes) as session:
        config = BrokerConfig.from_properties({"zookeeper.connect": zk.connect})
        controller = Controller(session, config=config, broker_id=1, state_change_log=StateChangeLog(None))
        try:
            controller.startup()
            return controller.is_active
        finally:
            controller.shutdown()


@pytest.mark.spec("CTL-26", "CTL-91", "CTL-98", "COM-10X")
def test_a_request_above_the_default_limit_is_taken_over_and_its_finished_entries_go(operator: ZooKeeper) -> None:
    make_base_paths(operator)
    operator.create(TopicZnode.path(LONG), TopicZnode(dict.fromkeys(range(4600), (1,))).encode())
    done = TopicPartition(LONG, 0)
    lead_alone(operator, done)
    entries = {TopicPartition(LONG, n): (2,) for n in range(4600)} | {done: (1,)}
    data = ReassignmentZnode.encode(entries)
    assert len(data) > 1_200_000
    operator.create(ReassignmentZnode.PATH, data)
    assert rules(operator)
    assert request(operator) == {p: replicas for p, replicas in entries.items() if p != done}


@pytest.mark.spec("CTL-26", "CTL-91", "CTL-98", "COM-10X")
@pytest.mark.slow
def test_a_request_too_large_to_be_written_again_stays_whole_until_one_that_may_rules(
    operator: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """Without one short entry it is hardly smaller, and a packet with the check of the epoch is larger than it was."""
    make_base_paths(operator)
    operator.create(TopicZnode.path(LONG), TopicZnode(dict.fromkeys(range(4600), (1,))).encode())
    operator.create(TopicZnode.path("d"), TopicZnode({0: (1,)}).encode())
    done = TopicPartition("d", 0)
    lead_alone(operator, done)
    entries = {TopicPartition(LONG, n): (2,) for n in range(4600)} | {done: (1,)}
    operator.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(entries))
    assert rules(operator)
    assert request(operator) == entries
    assert "finished reassignments stay in it for now" in caplog.text
    assert rules(operator, max_packet_bytes=_TAKEN)
    assert request(operator) == {p: replicas for p, replicas in entries.items() if p != done}


@pytest.mark.spec("CTL-26", "CTL-91", "CTL-98")
def test_a_topic_whose_node_would_become_too_large_waits_alone(
    operator: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """Step 1 writes the old and the new replicas: more than was ever written."""
    make_base_paths(operator)
    wide, replicas = 9000, tuple(range(10_000, 10_020))
    data = TopicZnode(dict.fromkeys(range(wide), replicas)).encode()
    assert 1_048_576 < len(data) < _TAKEN // 2
    operator.create(TopicZnode.path("wide"), data)
    operator.create(TopicZnode.path("t"), TopicZnode({0: (1,)}).encode())
    entries = {TopicPartition("wide", 0): (1,), TopicPartition("t", 0): (2,)}
    operator.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(entries))
    assert rules(operator)
    assert "/brokers/topics/wide needs a packet of" in caplog.text
    assert request(operator) == entries
    node = operator.get(TopicZnode.path("t"))
    assert node is not None and TopicZnode.decode("t", node.data).assignment == {0: (1, 2)}


@pytest.mark.spec("COM-10X", "Z-23")
def test_what_zookeeper_has_taken_may_be_written_again_and_no_more(operator: ZooKeeper) -> None:
    data = b"x" * 1_500_000
    operator.create("/large", data)
    with ZooKeeper(operator.connect, session_timeout_ms=60_000) as session:
        with pytest.raises(ZnodeTooLargeError, match=r"kt\.zookeeper\.max\.packet\.bytes"):
            session.commit([SetData("/large", data[:-1000], 0)])
        with pytest.raises(ZnodeTooLargeError):
            session.commit([SetData("/large", data + data, 0, len(data))])
        assert session.commit([SetData("/large", data[:-1000], 0, len(data))]) == [1]


@pytest.mark.spec("CTL-91", "CTL-98")
def test_entries_that_had_to_stay_go_with_the_next_ones() -> None:
    cluster = FakeCluster(1, 2, 3, properties={"auto.leader.rebalance.enable": "false"})
    cluster.create_topic("t", {0: [1, 2], 1: [1, 2], 2: [1, 2]})
    session = cluster.brokers[1].session
    many = session.commit_many
    refused: list[bool] = []

    def too_large_once(transactions: list[list[object]]) -> object:
        if not refused and any(getattr(op, "path", "") == ReassignmentZnode.PATH for ops in transactions for op in ops):
            refused.append(True)
            raise ZnodeTooLargeError("too large")
        return many(transactions)  # type: ignore[arg-type]

    session.commit_many = too_large_once  # type: ignore[method-assign, assignment]
    first, second, third = (TopicPartition("t", n) for n in range(3))
    cluster.kill(2)
    cluster.run()
    cluster.reassign({first: [1, 3], second: [1, 2], third: [3, 1]})
    assert refused
    cluster.restart(2)
    assert not cluster.exists(ReassignmentZnode.PATH)
    assert cluster.assignment("t") == {0: (1, 3), 1: (1, 2), 2: (3, 1)}
