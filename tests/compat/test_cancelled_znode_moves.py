"""``kt reassign --cancel`` and ``kt drain --cancel`` by ZooKeeper, where controllers read a changed znode when elected."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.throttles import rates_by_broker
from kafkatool.core.planner.plan_files import parse_plan, plan_json
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode
from tests.compat import real_kafka
from tests.compat.real_kafka import RealKafka
from tests.core.operations.reassignment.plans import plan
from tests.steady import LASTING, ONE_BATCH_A_FETCH
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.spec("RSN-37X")]

WAIT_S = 120
MARK = "max.connections.per.ip"  # a broker's config that can be changed while it runs, and limits nothing here
_LIMITS = itertools.count(10_000)
BEFORE = {0: (1, 2), 1: (2, 1)}
GOAL = {0: (2, 3), 1: (3, 2)}  # after Kafka's own cancel the first would be left as 2, 1


@pytest.fixture(
    scope="module", params=["2.8.2", pytest.param("3.9.1", marks=pytest.mark.slowest)], ids=["2.8.2", "3.9.1"]
)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Three brokers."""
    real_kafka.require(request.param)
    options = {**LASTING, **ONE_BATCH_A_FETCH}
    with RealKafka(request.param, tmp_path_factory.mktemp("kafka"), options=options) as running:
        yield running


@pytest.fixture
def zk(kafka: RealKafka) -> Iterator[ZooKeeper]:
    with ZooKeeper(kafka.connect) as session:
        yield session


def run(kafka: RealKafka, *args: object) -> Result:
    return CliRunner().invoke(kt, [*map(str, args), "--zookeeper", kafka.connect])


def fill(kafka: RealKafka, topic: str) -> None:
    """Make a topic whose replicas take long to copy under a throttle."""
    assignment = ",".join(":".join(map(str, replicas)) for replicas in BEFORE.values())
    made = run(kafka, "topics", "create", "--topic", topic, "--replica-assignment", assignment)
    assert made.exit_code == 0, made.output
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "batch.num.messages": 1})
    for partition in BEFORE:
        for _ in range(40):
            producer.produce(topic, bytes(50_000), partition=partition)
    assert producer.flush(WAIT_S) == 0


def replicas(zk: ZooKeeper, topic: str) -> Mapping[int, Sequence[int]]:
    return topic_node(zk, topic).assignment


def topic_node(zk: ZooKeeper, topic: str) -> TopicZnode:
    node = zk.get(TopicZnode.path(topic))
    assert node is not None
    return TopicZnode.decode(topic, node.data)


def asked(zk: ZooKeeper) -> Mapping[TopicPartition, Sequence[int]] | None:
    node = zk.get(ReassignmentZnode.PATH)
    return None if node is None else ReassignmentZnode.decode(node.data)


def await_configs(kafka: RealKafka) -> None:
    """Wait until every broker has taken up all configs that were written before: it does so in their order."""
    limit, admin = str(next(_LIMITS)), AdminClient({"bootstrap.servers": kafka.bootstrap})

    def told(broker: int) -> str:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        (future,) = admin.describe_configs([resource]).values()
        return str(future.result(WAIT_S)[MARK].value)

    for broker in (1, 2, 3):
        entry = ConfigEntry(MARK, limit, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(WAIT_S)
    for broker in (1, 2, 3):
        eventually(lambda broker=broker: told(broker) == limit, f"the configs of broker {broker}", WAIT_S)  # type: ignore[misc]


def _are_moved(zk: ZooKeeper, topic: str) -> bool:
    node = topic_node(zk, topic)
    return node.being_moved == {0, 1} or any(node.assignment[p] == GOAL[p] for p in GOAL)


def begin(kafka: RealKafka, zk: ZooKeeper, name: str, directory: Path) -> tuple[str, tuple[str, Path]]:
    """Begin a move that does not end by itself; return its topic and its flags.

    A broker may copy before it hears of the throttle, in no time; then another topic's move is begun.
    """
    for topic in (f"{name}-{attempt}" for attempt in range(5)):
        fill(kafka, topic)
        file = directory / f"{topic}.json"
        file.write_text(plan_json(plan(GOAL, topic)))
        flags = ("--reassignment-json-file", file)
        begun = run(kafka, "reassign", "--execute", *flags, "--throttle", 1, "--force")
        assert begun.exit_code == 0, begun.output
        await_configs(kafka)
        eventually(lambda topic=topic: _are_moved(zk, topic), "both to be moved, or one to have been", WAIT_S)  # type: ignore[misc]
        if topic_node(zk, topic).being_moved == {0, 1}:
            return topic, flags
        ended = run(kafka, "reassign", "--cancel", *flags, "--timeout", WAIT_S)
        assert ended.exit_code == 0, ended.output
    raise AssertionError("five moves were not throttled in time")


def begin_drain(kafka: RealKafka, zk: ZooKeeper, topic: str) -> Result:
    """Begin to empty broker 2, which does not end by itself; return what kt said. If it did end, go back and begin anew."""

    def has_begun() -> bool:
        node = topic_node(zk, topic)
        return node.being_moved == {0, 1} or any(2 not in node.assignment[p] for p in BEFORE)

    for _ in range(5):
        begun = run(kafka, "drain", 2, "--throttle", 1024, "--timeout", 1)
        await_configs(kafka)
        eventually(has_begun, "both to be moved, or one to have been", WAIT_S)
        if topic_node(zk, topic).being_moved == {0, 1}:
            assert begun.exit_code == 1, begun.output
            return begun
        if begun.exit_code:
            ended = run(kafka, "drain", 2, "--resume", "--no-throttle", "--timeout", WAIT_S)
            assert ended.exit_code == 0, ended.output
        flags = ("--reassignment-json-file", "drain-2.rollback.json", "--wait", "--timeout", WAIT_S)
        back = run(kafka, "reassign", "--execute", *flags)
        assert back.exit_code == 0, back.output
    raise AssertionError("five drains were not throttled in time")


def ask_to_go_back(zk: ZooKeeper, topic: str) -> None:
    """Write the way back into the znode, as kt once did, and whoever follows what was right with Kafka 1.1 does."""
    node = zk.get(ReassignmentZnode.PATH)
    assert node is not None
    zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan(BEFORE, topic)), node.version)


def test_a_move_is_cancelled_at_once_and_leaves_nothing(kafka: RealKafka, zk: ZooKeeper, tmp_path: Path) -> None:
    topic, flags = begin(kafka, zk, "at-once", tmp_path)
    before = asked(zk)
    shown = run(kafka, "reassign", "--cancel", *flags, "--dry-run")
    assert shown.exit_code == 0 and shown.stdout.splitlines()[0].startswith("request broker "), shown.output
    assert asked(zk) == before
    refused = run(kafka, "reassign", "--cancel", *flags, "--listener", "NONE")
    assert refused.exit_code == 1 and "nothing was written" in refused.stdout, refused.output
    assert "kt reassign --bootstrap-server 127.0.0.1:" in refused.stderr and asked(zk) == before

    cancelled = run(kafka, "reassign", "--cancel", *flags, "--timeout", WAIT_S)
    assert cancelled.exit_code == 0, cancelled.output
    assert "2 partitions under way are sent back to the replicas from before" in cancelled.stderr
    assert asked(zk) is None and replicas(zk, topic) == BEFORE and rates_by_broker(zk) == {}
    again = run(kafka, "reassign", "--execute", *flags, "--wait", "--timeout", WAIT_S)
    assert again.exit_code == 0, again.output
    back = run(kafka, "reassign", "--cancel", "--rollback", *flags, "--timeout", WAIT_S)
    assert back.exit_code == 0 and replicas(zk, topic) == BEFORE, back.output


def test_a_way_back_that_the_controller_does_not_look_at_is_made_true(
    kafka: RealKafka, zk: ZooKeeper, tmp_path: Path
) -> None:
    topic, flags = begin(kafka, zk, "turned", tmp_path)
    ask_to_go_back(zk, topic)
    cancelled = run(kafka, "reassign", "--cancel", *flags, "--timeout", WAIT_S)
    assert cancelled.exit_code == 0, cancelled.output
    assert asked(zk) is None and replicas(zk, topic) == BEFORE and rates_by_broker(zk) == {}


def test_a_way_back_that_was_left_behind_is_taken_out(kafka: RealKafka, zk: ZooKeeper, tmp_path: Path) -> None:
    topic, flags = begin(kafka, zk, "left", tmp_path)
    ask_to_go_back(zk, topic)
    faster = run(kafka, "reassign", "--execute", *flags, "--throttle", 50_000_000)
    assert faster.exit_code == 0, faster.output
    eventually(lambda: replicas(zk, topic) == GOAL, "the move to end as planned", WAIT_S)
    assert asked(zk) == plan(BEFORE, topic)  # for the next controller
    released = run(kafka, "reassign", "--cancel", *flags, "--timeout", WAIT_S)
    assert released.exit_code == 0, released.output
    assert "2 partitions were taken out of /admin/reassign_partitions" in released.stderr
    assert asked(zk) is None and replicas(zk, topic) == GOAL and rates_by_broker(zk) == {}


@pytest.mark.spec("ADM-106")
def test_a_drain_is_cancelled_and_gone_on_with(
    kafka: RealKafka, zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(kafka, "drained")
    before = dict(replicas(zk, "drained"))
    begun = begin_drain(kafka, zk, "drained")
    assert "--resume  # go on" in begun.stderr, begun.output
    refused = run(kafka, "drain", 2, "--cancel", "--listener", "NONE")
    assert refused.exit_code == 1 and "drain-2.json" in refused.stderr, refused.output
    cancelled = run(kafka, "drain", 2, "--cancel", "--timeout", WAIT_S)
    assert cancelled.exit_code == 0, cancelled.output
    assert asked(zk) is None and replicas(zk, "drained") == before and rates_by_broker(zk) == {}

    begin_drain(kafka, zk, "drained")
    node = zk.get(ReassignmentZnode.PATH)
    assert node is not None
    way_back = parse_plan((tmp_path / "drain-2.rollback.json").read_text(), "the way back")
    turned = {p: way_back[p] for p in ReassignmentZnode.decode(node.data)}
    zk.set(ReassignmentZnode.PATH, ReassignmentZnode.encode(turned), node.version)
    faster = run(kafka, "reassign", "--execute", "--reassignment-json-file", "drain-2.json", "--throttle", 50_000_000)
    assert faster.exit_code == 0, faster.output
    resumed = run(kafka, "drain", 2, "--resume", "--no-throttle", "--timeout", WAIT_S)
    assert resumed.exit_code == 0, resumed.output
    assert asked(zk) is None and all(2 not in found for found in replicas(zk, "drained").values())
