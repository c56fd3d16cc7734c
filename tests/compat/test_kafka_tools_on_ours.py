"""Kafka 2.8.2's own command-line tools on a cluster of ours: topics, consoles, load tools, election, reassignment.

One cluster for all tests here; each test has a topic of its own. The tools run with their defaults, but for the time
that a busy machine may take: the console producer sends again after 1.5 seconds, a member is out after ten.
ReplicaVerificationTool is in ``test_old_clients``.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.java import find_java
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import real_kafka
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VERSION: Final = "2.8.2"
TOOL_TIMEOUT_S: Final = 300
PATIENT_PRODUCER: Final = ("--request-timeout-ms", "60000")
PATIENT_MEMBER: Final = "session.timeout.ms=60000"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    real_kafka.require(VERSION)
    options = {**LASTING, "auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false"}
    with EmbeddedCluster(3, directory=tmp_path_factory.mktemp("cluster"), options=options) as running:
        yield running


def command(main: str, *arguments: str) -> list[str]:
    java = str(find_java().executable)
    return [java, "-Xmx256M", "-cp", f"{real_kafka.libraries(VERSION)}/*", main, *arguments]


def tool(main: str, *arguments: str, stdin: str = "") -> str:
    """Return what the tool printed; it must end with 0."""
    done = subprocess.run(
        command(main, *arguments), input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{main} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def topics(cluster: EmbeddedCluster, *arguments: str) -> str:
    return tool("kafka.admin.TopicCommand", "--zookeeper", cluster.zookeeper, *arguments)


def view(cluster: EmbeddedCluster, topic: str) -> ClusterView:
    with ZooKeeper(cluster.zookeeper) as zk:
        return read_cluster(zk, [topic], configs=True)


def until(cluster: EmbeddedCluster, topic: str, title: str, done: Callable[[ClusterView], bool]) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        eventually(lambda: done(read_cluster(zk, [topic])), f"{topic}: {title}", seconds=60)


def create(cluster: EmbeddedCluster, topic: str, assignment: str) -> None:
    """Created by Kafka's tool; returns when every replica is in sync."""
    topics(cluster, "--create", "--topic", topic, "--replica-assignment", assignment)
    replicas = [group.split(":") for group in assignment.split(",")]
    until(cluster, topic, "in sync", lambda v: isr_sizes(v) == [len(group) for group in replicas])


def isr_sizes(seen: ClusterView) -> list[int]:
    return [len(seen.states[p].leader_and_isr.isr) for p in sorted(seen.states)]


def leaders(seen: ClusterView) -> list[int | None]:
    return [seen.states[p].leader_and_isr.leader for p in sorted(seen.states)]


@pytest.mark.spec("CTL-70", "CTL-75", "CTL-81", "CTL-85", "BRK-150")
def test_the_topic_command_creates_lists_describes_grows_and_deletes(cluster: EmbeddedCluster) -> None:
    created = topics(cluster, "--create", "--topic", "orders", "--partitions", "4", "--replication-factor", "3")
    assert "Created topic orders." in created
    until(cluster, "orders", "in sync", lambda v: isr_sizes(v) == [3] * 4)
    assert "orders" in topics(cluster, "--list").split()

    described = topics(cluster, "--describe", "--topic", "orders")
    rows = re.findall(r"Partition: (\d)\tLeader: (\d)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)", described)
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert all(leader == replicas[0] and sorted(replicas) == sorted(isr) for _, leader, replicas, isr in rows)
    assert not topics(cluster, "--describe", "--topic", "orders", "--under-replicated-partitions").strip()

    topics(cluster, "--alter", "--topic", "orders", "--partitions", "6")
    until(cluster, "orders", "six partitions in sync", lambda v: isr_sizes(v) == [3] * 6)

    topics(cluster, "--delete", "--topic", "orders")
    until(cluster, "orders", "gone", lambda v: not v.topics and not v.marked_for_deletion)
    assert "orders" not in topics(cluster, "--list").split()
    directories = [Path(d) for broker in cluster.status().brokers for d in broker.log_dirs]
    eventually(
        lambda: not [p for d in directories for p in d.glob("orders-*") if not p.name.endswith("-delete")],
        "no directory of the topic in use",
    )


@pytest.mark.spec("BRK-125", "Z-27", "TOP-14")
def test_a_config_that_kafkas_tool_sets_is_in_force_at_the_brokers(cluster: EmbeddedCluster) -> None:
    create(cluster, "small", "1:2:3")
    changed = tool(
        "kafka.admin.ConfigCommand",
        *("--zookeeper", cluster.zookeeper, "--alter", "--entity-type", "topics", "--entity-name", "small"),
        *("--add-config", "max.message.bytes=2000"),
    )
    assert "Completed updating config" in changed
    assert "max.message.bytes=2000" in topics(cluster, "--describe", "--topic", "small")

    def refused() -> bool:
        one = ("--topic", "small", "--num-records", "1", "--record-size", "3000", "--throughput", "-1")
        where = ("--producer-props", f"bootstrap.servers={cluster.bootstrap}")
        performance = command("org.apache.kafka.tools.ProducerPerformance", *one, *where)
        done = subprocess.run(performance, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
        return "RecordTooLargeException" in done.stderr

    eventually(refused, "a record of 3000 bytes to be refused", seconds=120)


@pytest.mark.spec("BRK-1", "BRK-166", "GRP-3")
def test_what_the_console_producer_writes_the_console_consumer_reads_in_a_group(cluster: EmbeddedCluster) -> None:
    create(cluster, "console", "1:2:3,2:3:1")
    lines = [f"line {number} äöü" for number in range(500)]
    for acks in ("1", "all"):
        tool(
            "kafka.tools.ConsoleProducer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", "console", "--request-required-acks", acks),
            *PATIENT_PRODUCER,
            stdin="".join(f"{acks} {line}\n" for line in lines),
        )
    read = tool(
        "kafka.tools.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", "console", "--from-beginning"),
        *("--group", "readers", "--max-messages", "1000", "--timeout-ms", "120000"),
        *("--consumer-property", PATIENT_MEMBER),
    )
    assert sorted(read.splitlines()) == sorted(f"{acks} {line}" for acks in ("1", "all") for line in lines)
    ends = tool("kafka.tools.GetOffsetShell", "--broker-list", cluster.bootstrap, "--topic", "console")
    assert sum(int(line.rpartition(":")[2]) for line in ends.split()) == 1000


@pytest.mark.spec("BRK-1", "BRK-58", "BRK-104")
@pytest.mark.parametrize("settings", [("acks=1",), ("acks=all", "enable.idempotence=true"), ("compression.type=zstd",)])
def test_the_load_tools_write_and_read_every_record(
    cluster: EmbeddedCluster, settings: tuple[str, ...], tmp_path: Path
) -> None:
    topic = "load-" + re.sub(r"\W", "-", settings[-1])
    create(cluster, topic, "1:2:3,2:3:1,3:1:2")
    wrote = tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}", *settings),
    )
    assert wrote.splitlines()[-1].startswith("20000 records sent")
    patient = tmp_path / "consumer.properties"
    patient.write_text(f"{PATIENT_MEMBER}\n")
    read = tool(
        "kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--messages", "20000", "--timeout", "120000"),
        *("--consumer.config", str(patient)),
    )
    head, row = (line.split(", ") for line in read.splitlines()[-2:])
    assert int(row[head.index("data.consumed.in.nMsg")]) == 20000


@pytest.mark.spec("ELE-7", "CTL-100", "CTL-102", "CTL-104")
def test_the_preferred_election_command_gives_leadership_back(cluster: EmbeddedCluster) -> None:
    create(cluster, "elected", "1:2:3,2:3:1")
    cluster.stop_broker(1)
    until(cluster, "elected", "led by others", lambda v: 1 not in leaders(v))
    cluster.start_broker(1)
    until(cluster, "elected", "in sync again", lambda v: isr_sizes(v) == [3, 3])
    assert leaders(view(cluster, "elected")) == [2, 2]
    said = tool("kafka.admin.PreferredReplicaLeaderElectionCommand", "--zookeeper", cluster.zookeeper)
    assert "Successfully started preferred replica election" in said
    until(cluster, "elected", "led by the preferred", lambda v: leaders(v) == [1, 2] and v.election is None)


@pytest.mark.spec("CTL-91", "CTL-93", "Z-21")
def test_the_reassign_command_plans_moves_and_verifies(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    create(cluster, "moved", "1:2,2:1")
    tool(
        "kafka.tools.ConsoleProducer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", "moved", *PATIENT_PRODUCER),
        stdin="".join(f"{number}\n" for number in range(200)),
    )
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    proposed = reassign(cluster, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3")
    plan = tmp_path / "plan.json"
    plan.write_text(proposed.splitlines()[-1])
    targets = {p["partition"]: tuple(p["replicas"]) for p in json.loads(plan.read_text())["partitions"]}
    assert {broker for replicas in targets.values() for broker in replicas} == {2, 3}

    started = reassign(cluster, "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignments for moved-0,moved-1" in started
    until(cluster, "moved", "reassigned", lambda v: v.reassignment is None and v.topics["moved"].assignment == targets)
    verified = reassign(cluster, "--verify", "--reassignment-json-file", str(plan))
    assert verified.count("is complete.") == 2
    until(cluster, "moved", "in sync", lambda v: isr_sizes(v) == [2, 2])
    read = tool(
        "kafka.tools.ConsoleConsumer",
        *("--bootstrap-server", cluster.bootstrap, "--topic", "moved", "--from-beginning"),
        *("--max-messages", "200", "--timeout-ms", "120000", "--consumer-property", PATIENT_MEMBER),
    )
    assert sorted(map(int, read.split())) == list(range(200))


def reassign(cluster: EmbeddedCluster, *arguments: str) -> str:
    return tool("kafka.admin.ReassignPartitionsCommand", "--zookeeper", cluster.zookeeper, *arguments)
