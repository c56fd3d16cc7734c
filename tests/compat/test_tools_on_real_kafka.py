"""kt's tools on clusters of real Kafka: what kt writes the real controller carries out, what it shows Kafka's tools show.

One cluster per version for all tests here; each test has a topic of its own.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from kafkatool.commands.main import kt
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import real_kafka
from tests.compat.real_kafka import RealKafka
from tests.integration.load import is_unsure
from tests.steady import LASTING
from tests.waiting import awaited

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=real_kafka.versions("2.8.2", "1.1.1"))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    version: str = request.param
    real_kafka.require(version)
    # so that a throttle of 1 byte per second holds: what one fetch brings is let through, and then nothing for ten seconds
    small = {"replica.fetch.max.bytes": "1000", "replica.fetch.response.max.bytes": "1000"}
    with RealKafka(version, tmp_path_factory.mktemp("kafka"), options={**LASTING, **small}) as cluster:
        yield cluster


def run(kafka: RealKafka, command: str, *args: object, code: int | None = 0) -> Result:
    result = CliRunner().invoke(kt, [*command.split(), "--zookeeper", kafka.connect, *map(str, args)])
    assert code is None or result.exit_code == code, result.output
    return result


def create(kafka: RealKafka, topic: str, assignment: str, *configs: str) -> None:
    """Create the topic, and wait until each preferred replica leads with all replicas in sync."""
    flags = [flag for config in configs for flag in ("--config", config)]
    run(kafka, "topics create", "--topic", topic, "--replica-assignment", assignment, *flags)
    wanted = [sorted(map(int, group.split(":"))) for group in assignment.split(",")]
    wait_for(kafka, topic, lambda view: in_sync(view) == wanted)


def in_sync(view: ClusterView) -> list[list[int]]:
    return [sorted(view.states[p].leader_and_isr.isr) for p in sorted(view.states)]


def wait_for(kafka: RealKafka, topic: str, done: Callable[[ClusterView], bool], timeout_s: float = 120) -> ClusterView:
    deadline = time.monotonic() + timeout_s
    with ZooKeeper(kafka.connect) as zk:
        while True:
            view = read_cluster(zk, [topic])
            if done(view):
                return view
            assert time.monotonic() < deadline, view
            time.sleep(0.1)


def produce(kafka: RealKafka, topic: str, count: int) -> None:
    """Write ``count`` records, a batch at each flush: one record, then 20 each, whoever stands still meanwhile."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 60_000, "acks": "all"})
    for number in range(count):
        producer.produce(topic, f"value-{number}".encode())
        if number % 20 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def verify(*arguments: str, absent: Set[str] = frozenset()) -> Result:
    """``kt replica-verify --once``, asked again while a replica that is not ``absent`` did not go on for five seconds."""

    def is_sure(said: str) -> bool:
        if "json" not in arguments:
            return not is_unsure(said)
        items = json.loads(said)["items"]
        unread = {broker for item in items for broker in (*item["unreachable"], *item["unreadable"])}
        return unread <= absent and all(item["status"] != "incomplete" for item in items)

    def sure() -> Result | None:
        result = CliRunner().invoke(kt, ["replica-verify", *arguments])
        return result if is_sure(result.stdout) else None

    return awaited(sure, "all replicas to be read", 120)


def leaders(view: ClusterView) -> list[int | None]:
    return [view.states[p].leader_and_isr.leader for p in sorted(view.states)]


@pytest.mark.spec("TOP-1", "TOP-2", "TOP-8", "TOP-9", "TOP-14")
def test_topics_of_kt_are_topics_of_kafka(kafka: RealKafka) -> None:
    create(kafka, "made", "1:2,2:3,3:1", "retention.ms=60000")
    described = run(kafka, "topics describe", "--topic", "made").stdout
    theirs = kafka.tool(
        "kafka.admin.TopicCommand", "--zookeeper", kafka.connect, "--describe", "--topic", "made"
    ).stdout
    ours_rows = [line for line in described.splitlines() if "Partition: " in line]
    their_rows = [line for line in theirs.splitlines() if "Partition: " in line]
    assert ours_rows == their_rows and len(ours_rows) == 3
    assert "retention.ms=60000" in theirs and "made" in run(kafka, "topics list").stdout.splitlines()


@pytest.mark.spec("RSN-9", "RSN-12", "RSN-13", "RSN-14", "RSN-16", "RSN-33X")
def test_a_reassignment_with_a_throttle_from_generate_to_verify(kafka: RealKafka, tmp_path: Path) -> None:
    create(kafka, "moved", "1,2,1,2")
    produce(kafka, "moved", 200)
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics":[{"topic":"moved"}],"version":1}')
    plan = tmp_path / "plan.json"
    run(kafka, "reassign", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "3", "--out", plan)
    flags = ("--reassignment-json-file", plan)
    run(kafka, "reassign", "--execute", *flags, "--throttle", "100000000")
    wait_for(kafka, "moved", lambda view: view.reassignment is None)
    theirs = kafka.tool(
        "kafka.admin.ReassignPartitionsCommand",
        *("--zookeeper", kafka.connect, "--verify", "--reassignment-json-file", str(plan)),
    )
    assert len(re.findall(r"moved-\d (completed successfully|is complete)", theirs.stdout)) == 4, theirs.stdout
    verified = run(kafka, "reassign", "--verify", *flags).stdout.splitlines()
    assert verified[1:5] == [f"Reassignment of partition [moved,{p}] completed successfully" for p in range(4)]
    back = run(
        kafka, "reassign", "--execute", "--reassignment-json-file", tmp_path / "plan.rollback.json", "--wait",
        "--throttle", "100000000", "--timeout", "180",
    )  # fmt: skip
    assert back.stdout.splitlines()[-1] == "Throttle was removed."
    after = wait_for(kafka, "moved", lambda view: leaders(view) == [1, 2, 1, 2])
    assert [after.topics["moved"].assignment[p] for p in range(4)] == [(1,), (2,), (1,), (2,)]
    assert run(kafka, "reassign", "--list").stdout == "No partition reassignments found.\n"
    with ZooKeeper(kafka.connect) as zk:
        nodes = zk.get_many([f"/config/brokers/{b}" for b in (1, 2, 3)] + ["/config/topics/moved"])
    assert all("throttled" not in node.data.decode() for node in nodes if node)


@pytest.mark.spec("RSN-7", "RSN-31X")
def test_kafkas_tool_and_kt_respect_each_others_reassignment(kafka: RealKafka, tmp_path: Path) -> None:
    create(kafka, "slow", "1")
    produce(kafka, "slow", 400)
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"slow","partition":0,"replicas":[2]}]}')
    run(kafka, "reassign", "--execute", "--reassignment-json-file", plan, "--throttle", "1", "--force")
    refused = run(kafka, "reassign", "--execute", "--reassignment-json-file", plan, code=1)
    assert refused.stdout == "There is an existing assignment running.\n"
    assert "[slow,0]: replicas: " in run(kafka, "reassign", "--list").stdout
    faster = run(kafka, "reassign", "--execute", "--reassignment-json-file", plan, "--throttle", "100000000")
    assert faster.stdout.splitlines()[-1] == "The throttle limit was set to 100000000 B/s"
    wait_for(kafka, "slow", lambda view: view.reassignment is None, timeout_s=120)
    assert "Throttle was removed." in run(kafka, "reassign", "--verify", "--reassignment-json-file", plan).stdout


@pytest.mark.spec("ELE-1", "ELE-7", "ELE-16X", "ELE-18X")
def test_leaders_come_back_after_an_election(kafka: RealKafka) -> None:
    create(kafka, "led", "1:2:3,2:3:1,3:1:2")
    with kafka.without_broker(3):
        wait_for(kafka, "led", lambda view: 3 not in leaders(view) and 3 not in view.brokers)
        down = run(kafka, "elect", "--topic", "led", "--output", "json", code=1)
    statuses = [item["status"] for item in json.loads(down.stdout)["items"]]
    assert statuses == ["already_preferred", "already_preferred", "preferred_down"]
    wait_for(kafka, "led", lambda view: in_sync(view) == [[1, 2, 3]] * 3)
    elected = run(kafka, "elect", "--topic", "led", "--only-imbalanced")
    assert elected.stdout == (
        "Created preferred replica election path with led-2\n"
        "Successfully started preferred replica election for partitions Set(led-2)\n"
    )
    assert leaders(wait_for(kafka, "led", lambda view: view.election is None)) == [1, 2, 3]
    rows = json.loads(run(kafka, "elect", "--report", "--output", "json").stdout)["items"]
    assert [row["broker"] for row in rows] == [1, 2, 3]


@pytest.mark.spec("RPV-2", "RPV-3", "RPV-7X", "RPV-8X", "RPV-9X")
def test_replicas_are_read_from_followers_too(kafka: RealKafka) -> None:
    create(kafka, "data", "1:2:3,2:3:1")
    produce(kafka, "data", 300)
    flags = ["--topic-white-list", "data", "--once", "--output", "json", "--max-wait-ms", "200"]
    for where in (["--broker-list", kafka.bootstrap], ["--zookeeper", kafka.connect]):
        result = verify(*where, *flags)
        assert result.exit_code == 0, result.output
        items = json.loads(result.stdout)["items"]
        assert [item["status"] for item in items] == ["equal", "equal"]
        assert sum(item["verified"] for item in items) == 300 and sum(item["entries"] for item in items) >= 15
    with kafka.without_broker(2):
        wait_for(kafka, "data", lambda view: 2 not in leaders(view) and 2 not in view.brokers)
        absent = verify("--zookeeper", kafka.connect, *flags, absent={"2"})
    assert absent.exit_code == 1
    items = json.loads(absent.stdout)["items"]
    assert [(i["status"], list(i["unreachable"])) for i in items] == [("unreachable", ["2"])] * 2
    assert sum(item["verified"] for item in items) == 300
    wait_for(kafka, "data", lambda view: in_sync(view) == [[1, 2, 3]] * 2)


@pytest.mark.spec("RPV-2")
def test_latest_is_the_leaders_high_watermark(kafka: RealKafka) -> None:
    create(kafka, "tip", "1:2")
    produce(kafka, "tip", 10)
    flags = ["--topic-white-list", "tip", "--once", "--time", "-1", "--output", "json"]
    result = verify("--broker-list", kafka.bootstrap, *flags)
    assert result.exit_code == 0, result.output
    (item,) = json.loads(result.stdout)["items"]
    assert (item["start"], item["verified"], item["entries"]) == (10, 10, 0)


@pytest.mark.spec("RPV-5", "RPV-11X")
def test_one_rotten_byte_on_one_broker_is_found(kafka: RealKafka) -> None:
    create(kafka, "rotten", "1:2")
    produce(kafka, "rotten", 41)
    with kafka.without_broker(2):
        log = kafka.data_directory(2) / "rotten-0" / "00000000000000000000.log"
        content = bytearray(log.read_bytes())
        content[content.index(b"value-0")] ^= 1
        log.write_bytes(content)
    wait_for(kafka, "rotten", lambda view: in_sync(view) == [[1, 2]])
    flags = ["--topic-white-list", "rotten", "--once"]
    result = verify("--broker-list", kafka.bootstrap, *flags)
    assert result.exit_code == 1
    assert re.search(r"partition \[rotten,0\] has unmatched checksum at offset \d+; replica 1's", result.stdout)
    assert "partition [rotten,0] different" in result.stdout and "3 entries, 1 mismatch\n" in result.stdout
