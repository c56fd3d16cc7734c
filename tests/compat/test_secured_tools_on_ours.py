"""Kafka's own tools on a secured cluster of ours: by each of three logins all of them work, without rights none does.

Those that only a console feeds are clients of the client matrix.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.cluster_view import read_cluster
from tests.compat import real_kafka
from tests.compat.java_tools import JavaTools, Said
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WAIT_S: Final = 120
_ADMIN, _TOOLS = "kafka.admin", "org.apache.kafka.tools"
TOOLS: Final = {
    "acls": ("AclCommand", "4.0"),
    "broker-api-versions": ("BrokerApiVersionsCommand", "4.0"),
    "configs": ("ConfigCommand", "none"),
    "consumer-groups": ("ConsumerGroupCommand", "3.7"),
    "delete-records": ("DeleteRecordsCommand", "3.7"),
    "leader-election": ("LeaderElectionCommand", "3.7"),
    "log-dirs": ("LogDirsCommand", "3.7"),
    "reassign-partitions": ("ReassignPartitionsCommand", "3.7"),
    "topics": ("TopicCommand", "3.7"),
}
"""Main classes, and the version from which on they are in another package."""
PACKAGES: Final = {"ConsumerGroupCommand": ".consumer.group", "ReassignPartitionsCommand": ".reassign"}
REFUSED: Final = ("uthoriz", "does not exist", "TimeoutException")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    options = {**LASTING, "auto.leader.rebalance.enable": "false", "delete.topic.enable": "true"}
    directory = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster(3, directory=directory, options=options, security="sasl_ssl") as running:
        running.create_offsets_topic()
        yield running


class Tools(NamedTuple):
    """A version's tools, logged in as one user."""

    java: JavaTools
    cluster: EmbeddedCluster
    user: str
    mechanism: str

    def __call__(self, tool: str, *arguments: str) -> Said:
        config = str(self.cluster.client("java", user=self.user, mechanism=self.mechanism))
        bootstrap = self.cluster.bootstrap_ssl if self.mechanism == "SSL" else self.cluster.bootstrap
        flag = "--admin.config" if tool == "leader-election" else "--command-config"
        name, moved = TOOLS[tool]
        main = f"{_TOOLS}{PACKAGES.get(name, '')}" if self.java.version >= moved else _ADMIN
        return self.java(f"{main}.{name}", "--bootstrap-server", bootstrap, flag, config, *arguments)

    def ok(self, tool: str, *arguments: str) -> str:
        said = self(tool, *arguments)
        assert said.code == 0, f"{tool} {' '.join(arguments)}: {said.text}"
        return said.text


@pytest.fixture(params=real_kafka.versions("2.8.2", "3.9.1", "4.1.0"))
def java(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JavaTools]:
    real_kafka.require(request.param)
    with JavaTools(request.param, tmp_path / "java") as tools:
        yield tools


def written(path: Path, value: object) -> str:
    path.write_text(json.dumps(value))
    return str(path)


@pytest.mark.spec("SEC-113")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "SSL"])
def test_every_tool_works_for_who_has_all_rights(
    cluster: EmbeddedCluster, java: JavaTools, tmp_path: Path, mechanism: str
) -> None:
    tools = Tools(java, cluster, "admin", mechanism)
    topic = f"orders-{java.version}-{mechanism}"

    def until(done: Callable[[], bool], what: str) -> None:
        eventually(done, what, WAIT_S)

    with cluster.zookeeper_session() as zk:

        def state(partition: int = 0) -> tuple[int | None, set[int]]:
            found = read_cluster(zk, [topic]).states.get(TopicPartition(topic, partition))
            return (found.leader_and_isr.leader, set(found.leader_and_isr.isr)) if found else (None, set())

        tools.ok("topics", "--create", "--topic", topic, "--replica-assignment", "1:2,2:3")
        until(lambda: state() == (1, {1, 2}) and state(1) == (2, {2, 3}), "both partitions to be in sync")
        assert topic in tools.ok("topics", "--list")
        assert "Replicas: 1,2" in tools.ok("topics", "--describe", "--topic", topic)
        tools.ok("topics", "--alter", "--topic", topic, "--partitions", "3")
        until(lambda: state(2)[0] is not None, "the third partition to be led")

        entity = ("--entity-type", "topics", "--entity-name", topic)
        tools.ok("configs", "--alter", *entity, "--add-config", "retention.ms=3600000")
        until(lambda: "retention.ms=3600000" in tools.ok("configs", "--describe", *entity), "the config to be told")

        config = cluster.client("java", user="admin", mechanism=mechanism)
        bootstrap = cluster.bootstrap_ssl if mechanism == "SSL" else cluster.bootstrap
        sent = java(
            f"{_TOOLS}.ProducerPerformance",
            *("--producer.config", str(config), "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"),
            *("--topic", topic, "--num-records", "50", "--record-size", "100", "--throughput", "-1"),
        )
        assert sent.code == 0 and "50 records sent" in sent.text, sent.text

        group = ("--group", f"billing-{topic}", "--topic", topic)
        tools.ok("consumer-groups", "--reset-offsets", "--to-earliest", "--execute", *group)
        described = tools.ok("consumer-groups", "--describe", "--group", f"billing-{topic}")
        assert sum(int(line.split()[5]) for line in described.splitlines() if f" {topic} " in line) == 50, described
        assert f"billing-{topic}" in tools.ok("consumer-groups", "--list")
        tools.ok("consumer-groups", "--delete", "--group", f"billing-{topic}")

        files = {"partitions": [{"topic": topic, "partition": 0, "offset": -1}], "version": 1}
        told = tools.ok("delete-records", "--offset-json-file", written(tmp_path / "offsets.json", files))
        assert f"partition: {topic}-0\tlow_watermark:" in told

        plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 2]}]}
        moves = ("--reassignment-json-file", written(tmp_path / "plan.json", plan))
        tools.ok("reassign-partitions", "--execute", *moves)
        until(lambda: "is complete" in tools.ok("reassign-partitions", "--verify", *moves), "the move to be complete")
        until(lambda: state()[1] == {2, 3}, "the new replicas to be in sync")

        cluster.stop_broker(state()[0] or 0)
        cluster.restore()
        chosen = {"partitions": [{"topic": topic, "partition": 0}]}
        election = ("--path-to-json-file", written(tmp_path / "election.json", chosen))
        tools.ok("leader-election", "--election-type", "preferred", *election)
        until(lambda: state()[0] == 3, "the preferred leader")

        assert topic in tools.ok("log-dirs", "--describe", "--topic-list", topic)
        assert tools.ok("broker-api-versions").count("Produce(0)") == 3

        right = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", topic)
        tools.ok("acls", "--add", *right)
        until(lambda: "principal=User:alice" in tools.ok("acls", "--list", "--topic", topic), "the right to be listed")
        tools.ok("acls", "--remove", "--force", *right)
        until(lambda: "User:alice" not in tools.ok("acls", "--list", "--topic", topic), "the right to be gone")

        tools.ok("topics", "--delete", "--topic", topic)
        until(lambda: topic not in read_cluster(zk).topics, "the topic to be gone")


@pytest.mark.spec("SEC-113", "SEC-84")
def test_no_tool_works_for_who_has_no_rights(cluster: EmbeddedCluster, java: JavaTools, tmp_path: Path) -> None:
    topic = f"secret-{java.version}"
    cluster.create_topic(topic, 1)
    tools = Tools(java, cluster, "alice", "SCRAM-SHA-256")
    assert topic not in tools.ok("topics", "--list")
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3]}]}
    chosen = {"partitions": [{"topic": topic, "partition": 0}]}
    offsets = {"partitions": [{"topic": topic, "partition": 0, "offset": -1}], "version": 1}
    moves = ("--reassignment-json-file", written(tmp_path / "plan.json", plan))
    refused = {
        "topics": ("--create", "--topic", "made"),
        "configs": ("--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=1"),
        "acls": ("--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", topic),
        "consumer-groups": ("--describe", "--group", "theirs"),
        "delete-records": ("--offset-json-file", written(tmp_path / "offsets.json", offsets)),
        "reassign-partitions": ("--execute", *moves),
        "leader-election": (
            *("--election-type", "preferred"),
            *("--path-to-json-file", written(tmp_path / "election.json", chosen)),
        ),
    }
    for tool, arguments in refused.items():  # some of them end with 0 all the same
        said = tools(tool, *arguments)
        assert any(word in said.text for word in REFUSED), f"{tool}: {said}"
    with cluster.zookeeper_session() as zk:
        view = read_cluster(zk, configs=True)
        assert "made" not in view.topics and not view.reassignment
        assert zk.children("/kafka-acl/Topic") == []
        config = zk.get(f"/config/topics/{topic}")
        assert config is None or b"retention.ms" not in config.data
