"""Kafka's own tools for groups, configs, log dirs and records, of version 2.8.2, against brokers of ours."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import real_kafka
from tests.compat.real_kafka import RealKafka
from tests.compat.told import await_told
from tests.integration.load import await_in_sync, make_topic
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

VERSION = "2.8.2"
PARTITIONS = 3
RECORDS = 10
"""In each partition."""
CLIENT_WARNING = re.compile(r"\[[^]]+\] WARN ")
"""What a client logs before it tries again."""


class Tools:
    """Each call is a Java process; its answer is what it printed, in lines of words."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._kafka = RealKafka(VERSION, directory, brokers=0)
        self._bootstrap = bootstrap

    def __call__(self, main: str, *args: str) -> list[list[str]]:
        done = self._kafka.tool(main, "--bootstrap-server", self._bootstrap, *args, timeout_s=180)
        assert done.returncode == 0, done.stdout + done.stderr
        said = (line for line in (done.stdout + done.stderr).splitlines() if not CLIENT_WARNING.match(line))
        assert not [line for line in said if "Error" in line], done.stdout + done.stderr
        return [line.split() for line in done.stdout.splitlines() if line.strip()]

    def groups(self, *args: str) -> list[list[str]]:
        return self("kafka.admin.ConsumerGroupCommand", "--timeout", "60000", *args)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    real_kafka.require(VERSION)
    with EmbeddedCluster(3, directory=tmp_path_factory.mktemp("cluster"), options=LASTING) as running:
        yield running


@pytest.fixture(scope="module")
def tools(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("tools"), cluster.bootstrap)


def fill(cluster: EmbeddedCluster, topic: str) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        make_topic(zk, topic, PARTITIONS)
        await_in_sync(zk, [topic])
        await_told(zk, cluster.bootstrap, [topic])
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS * PARTITIONS):
        producer.produce(topic, b"value", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.mark.spec("GRP-47", "GRP-56", "GRP-58", "GRP-59", "GRP-60")
def test_the_consumer_group_command(cluster: EmbeddedCluster, tools: Tools) -> None:
    fill(cluster, "read")
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "client.id": "reader", "enable.auto.commit": False}
    )
    try:
        consumer.subscribe(["read"])

        def assigned() -> bool:
            consumer.poll(0.2)
            return len(consumer.assignment()) == PARTITIONS

        eventually(assigned, "the assignment", 120)
        consumer.commit(offsets=[TopicPartition("read", p, p + 1) for p in range(PARTITIONS)], asynchronous=False)
        assert ["g"] in tools.groups("--list")
        head, *rows = tools.groups("--describe", "--group", "g")
        assert head[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
        assert sorted(row[:6] for row in rows) == [
            ["g", "read", str(p), str(p + 1), str(RECORDS), str(RECORDS - p - 1)] for p in range(PARTITIONS)
        ]
        assert {row[7] for row in rows} == {"/127.0.0.1"} and {row[8] for row in rows} == {"reader"}
        (member,) = tools.groups("--describe", "--group", "g", "--members", "--verbose")[1:]
        assert member[-1] == "read(0,1,2)" or member[-3:] == ["3", "read(0,1,2)"], member
        state = tools.groups("--describe", "--group", "g", "--state")[-1]
        assert state[0] == "g" and state[-2:] == ["Stable", "1"] and "range" in state
    finally:
        consumer.close()

    def is_empty() -> bool:  # the coordinator hears of the leave in its own time
        return "Empty" in tools.groups("--describe", "--group", "g", "--state")[-1]

    eventually(is_empty, "the member to be gone", 120)
    reset = tools.groups("--group", "g", "--topic", "read", "--reset-offsets", "--to-earliest", "--execute")
    assert sorted(row[2:] for row in reset[1:]) == [[str(p), "0"] for p in range(PARTITIONS)]
    (deleted,) = tools.groups("--delete", "--group", "g")
    assert "successful" in " ".join(deleted)
    with pytest.raises(AssertionError, match="does not exist"):
        tools.groups("--describe", "--group", "g", "--state")


@pytest.mark.spec("BRK-125", "BRK-162")
def test_the_tools_for_configs_topics_records_and_log_dirs(
    cluster: EmbeddedCluster, tools: Tools, tmp_path: Path
) -> None:
    fill(cluster, "kept")
    entity = ("--entity-type", "topics", "--entity-name", "kept")
    tools("kafka.admin.ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=7200000,segment.ms=3600000")
    tools("kafka.admin.ConfigCommand", *entity, "--alter", "--delete-config", "segment.ms")
    described = " ".join(" ".join(row) for row in tools("kafka.admin.ConfigCommand", *entity, "--describe"))
    assert "retention.ms=7200000" in described and "segment.ms" not in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=7200000" in described
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    everything = " ".join(" ".join(r) for r in tools("kafka.admin.ConfigCommand", *broker, "--describe", "--all"))
    assert "broker.id=1" in everything and "log.dirs=" in everything
    tools("kafka.admin.TopicCommand", "--alter", "--topic", "kept", "--partitions", "5")

    def described_with_all() -> bool:  # the broker that is asked may hear of them after the one that has answered
        rows = tools("kafka.admin.TopicCommand", "--describe", "--topic", "kept")
        return sum(row[:2] == ["Topic:", "kept"] for row in rows) == 1 + 5

    eventually(described_with_all, "five partitions to be shown", 120)
    deletion = tmp_path / "deletion.json"
    wanted = [{"topic": "kept", "partition": p, "offset": o} for p, o in ((0, 4), (1, -1))]
    deletion.write_text(json.dumps({"version": 1, "partitions": wanted}))
    deleted = tools("kafka.admin.DeleteRecordsCommand", "--offset-json-file", str(deletion))
    assert {tuple(row[1:]) for row in deleted if row[0] == "partition:"} == {
        ("kept-0", "low_watermark:", "4"),
        ("kept-1", "low_watermark:", str(RECORDS)),
    }
    sizes: dict[tuple[int, str], int] = {}

    def on_each_broker() -> bool:  # a follower makes the log of a new partition in its own time
        found = tools("kafka.admin.LogDirsCommand", "--describe", "--topic-list", "kept", "--broker-list", "1,2,3")
        answer = json.loads(" ".join(found[-1]))
        sizes.clear()
        sizes.update(
            ((b["broker"], p["partition"]), p["size"])
            for b in answer["brokers"]
            for directory in b["logDirs"]
            for p in directory["partitions"]
        )
        assert {b["broker"] for b in answer["brokers"]} == {1, 2, 3}
        return len(sizes) == 5 * 3

    eventually(on_each_broker, "each partition on each broker", 120)
    assert all(size > 0 for (_, partition), size in sizes.items() if partition in ("kept-0", "kept-1", "kept-2"))
