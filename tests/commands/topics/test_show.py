"""kt topics list and describe: Kafka's lines, and the same facts as JSON and TSV."""

import itertools
import json

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, ReassignmentZnode, TopicZnode
from tests.commands.topics.runner import answer, make_orders, refusal, topics
from tests.core.zookeeper import cluster_nodes as nodes

HEADER = "Topic:orders\tPartitionCount:2\tReplicationFactor:3\tConfigs:\n"
ROW_0 = "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\n"
ROW_1 = "\tTopic: orders\tPartition: 1\tLeader: 3\tReplicas: 2,3,4\tIsr: 4,3\n"


@pytest.fixture(autouse=True)
def cluster(zk: ZooKeeper) -> ZooKeeper:
    make_orders(zk)
    return zk


def add_topic(zk: ZooKeeper, topic: str, *replicas: int) -> None:
    zk.create(TopicZnode.path(topic), TopicZnode({0: replicas}).encode())


@pytest.mark.spec("TOP-6", "TOP-8", "TOP-12", "TOP-19", "COM-2")
def test_list_in_code_point_order_by_regex(zk: ZooKeeper, zk_connect: str) -> None:
    for name in ("racked", "unracked", "Z", "__consumer_offsets"):
        add_topic(zk, name, 1)
    zk.create(DeleteTopicsZnode.topic_path("racked"))
    everything = "Z\n__consumer_offsets\norders\nracked - marked for deletion\nunracked\n"
    assert answer(zk_connect, "list") == everything
    assert answer(zk_connect, "list", "--topic", "'rack.*, unracked'") == "racked - marked for deletion\nunracked\n"
    assert answer(zk_connect, "list", "--topic", "rack") == ""
    assert answer(zk_connect, "list", "--exclude-internal") == everything.replace("__consumer_offsets\n", "")
    assert answer(zk_connect, "list", "--topic", "'.*o.*'") == "__consumer_offsets\norders\n"
    assert answer(zk_connect, "describe", "--topic", "__.*, Z").splitlines()[::2] == [
        f"Topic:{topic}\tPartitionCount:1\tReplicationFactor:1\tConfigs:" for topic in ("Z", "__consumer_offsets")
    ]
    assert refusal(zk_connect, "list", "--topic", "[") == "[ is an invalid regex."


@pytest.mark.spec("COM-4X", "TOP-8")
def test_list_as_json_and_tsv(zk: ZooKeeper, zk_connect: str) -> None:
    add_topic(zk, "__consumer_offsets", 1)
    assert answer(zk_connect, "list", "--output", "json") == (
        '{"tool":"kt topics list","cluster_id":"the-cluster","items":['
        '{"topic":"__consumer_offsets","marked_for_deletion":false,"internal":true},'
        '{"topic":"orders","marked_for_deletion":false,"internal":false}],"errors":[]}\n'
    )
    assert answer(zk_connect, "list", "--output", "tsv").splitlines() == [
        "TOPIC\tMARKED_FOR_DELETION\tINTERNAL\tERROR\tMESSAGE",
        "__consumer_offsets\tfalse\ttrue\t\t",
        "orders\tfalse\tfalse\t\t",
    ]


@pytest.mark.spec("TOP-9", "TOP-10", "TOP-11", "COM-2")
def test_describe_prints_replicas_as_assigned_and_isr_as_stored(zk: ZooKeeper, zk_connect: str) -> None:
    config = {"retention.ms": "86400000", "min.insync.replicas": "2"}
    zk.create(ConfigZnode.path("topics", "orders"), ConfigZnode.encode(config))
    add_topic(zk, "dead", 9)
    nodes.set_state(zk, TopicPartition("orders", 0), None, ())
    assert answer(zk_connect, "describe") == (
        "Topic:dead\tPartitionCount:1\tReplicationFactor:1\tConfigs:\n"
        "\tTopic: dead\tPartition: 0\tLeader: none\tReplicas: 9\tIsr: \n"
        "Topic:orders\tPartitionCount:2\tReplicationFactor:3\tConfigs:min.insync.replicas=2,retention.ms=86400000\n"
        "\tTopic: orders\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: \n" + ROW_1
    )
    assert answer(zk_connect, "describe", "--topics-with-overrides") == (
        "Topic:orders\tPartitionCount:2\tReplicationFactor:3\tConfigs:min.insync.replicas=2,retention.ms=86400000\n"
    )


@pytest.mark.spec("TOP-9", "TOP-10")
def test_describe_by_number_with_the_lists_as_stored_and_the_replication_factor_of_partition_0(
    zk: ZooKeeper, zk_connect: str
) -> None:
    stored = b'{"version":1,"partitions":{"10":[2],"2":[3,1,2],"0":[3,1]}}'
    zk.create(TopicZnode.path("uneven"), stored)
    nodes.set_state(zk, TopicPartition("uneven", 0), 1, (1, 3))
    nodes.set_state(zk, TopicPartition("uneven", 2), None, (2, 1, 3))  # -1 in the znode
    assert answer(zk_connect, "describe", "--topic", "uneven") == (
        "Topic:uneven\tPartitionCount:3\tReplicationFactor:2\tConfigs:\n"
        "\tTopic: uneven\tPartition: 0\tLeader: 1\tReplicas: 3,1\tIsr: 1,3\n"
        "\tTopic: uneven\tPartition: 2\tLeader: none\tReplicas: 3,1,2\tIsr: 2,1,3\n"
        "\tTopic: uneven\tPartition: 10\tLeader: none\tReplicas: 2\tIsr: \n"
    )
    items = json.loads(answer(zk_connect, "describe", "--topic", "uneven", "--output", "json"))["items"]
    assert [(i["partition"], i["leader"], i["isr"]) for i in items] == [
        (0, 1, [1, 3]),
        (2, None, [2, 1, 3]),
        (10, None, []),
    ]


@pytest.mark.spec("TOP-11", "TOP-25X")
@pytest.mark.parametrize(
    ("flag", "rows"),
    [
        ("--under-replicated-partitions", ROW_1),
        ("--unavailable-partitions", ""),
        ("--leader-not-preferred", ROW_1),
        ("--under-min-isr-partitions", ROW_1),
        ("--at-min-isr-partitions", ROW_0),
        ("--topics-with-overrides", HEADER.replace("Configs:", "Configs:min.insync.replicas=3")),
    ],
)
def test_each_filter_without_headers(zk: ZooKeeper, zk_connect: str, flag: str, rows: str) -> None:
    zk.create(ConfigZnode.path("topics", "orders"), ConfigZnode.encode({"min.insync.replicas": "3"}))
    assert answer(zk_connect, "describe", flag) == rows


@pytest.mark.spec("TOP-25X")
def test_without_an_override_one_replica_in_sync_is_the_least(zk: ZooKeeper, zk_connect: str) -> None:
    add_topic(zk, "alone", 1, 2)
    nodes.set_state(zk, TopicPartition("alone", 0), 1, (1,))
    add_topic(zk, "unled", 1, 2)
    nodes.set_state(zk, TopicPartition("unled", 0), None, (1,))
    alone = "\tTopic: alone\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\n"
    unled = "\tTopic: unled\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: 1\n"
    assert answer(zk_connect, "describe", "--at-min-isr-partitions") == alone + unled
    assert answer(zk_connect, "describe", "--under-min-isr-partitions") == unled


@pytest.mark.spec("TOP-11")
def test_a_leader_that_is_not_registered_makes_a_partition_unavailable(zk: ZooKeeper, zk_connect: str) -> None:
    zk.delete("/brokers/ids/1")
    add_topic(zk, "unled", 2)
    unled = "\tTopic: unled\tPartition: 0\tLeader: none\tReplicas: 2\tIsr: \n"
    assert answer(zk_connect, "describe", "--unavailable-partitions") == ROW_0 + unled
    assert answer(zk_connect, "describe", "--under-replicated-partitions") == ROW_1 + unled


@pytest.mark.spec("TOP-11", "COM-3X")
@pytest.mark.parametrize(
    ("first", "second"),
    list(
        itertools.combinations(
            ("--under-replicated-partitions", "--unavailable-partitions", "--topics-with-overrides"), 2
        )
    ),
)
def test_two_filters_are_bad_usage(zk_connect: str, first: str, second: str) -> None:
    result = topics(zk_connect, "describe", first, second)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{first} can't be used with {second}" in result.stderr


@pytest.mark.spec("TOP-6", "TOP-12", "TOP-19")
def test_a_missing_topic_is_an_error(zk_connect: str) -> None:
    assert refusal(zk_connect, "describe", "--topic", "nope") == "Topic 'nope' does not exist as expected"
    assert answer(zk_connect, "describe", "--topic", "orders") == HEADER + ROW_0 + ROW_1
    assert answer(zk_connect, "describe", "--topic", "'nope, or.*s'") == HEADER + ROW_0 + ROW_1
    assert refusal(zk_connect, "describe", "--topic", "rders") == "Topic 'rders' does not exist as expected"


@pytest.mark.spec("TOP-13")
def test_a_mark_shows_in_the_header_or_else_in_the_rows(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(DeleteTopicsZnode.topic_path("orders"))
    text = answer(zk_connect, "describe", "--topic", "orders")
    assert text == HEADER.replace("\n", "\tMarkedForDeletion:true\n") + ROW_0 + ROW_1
    rows = answer(zk_connect, "describe", "--under-replicated-partitions")
    assert rows == ROW_1.replace("\n", "\tMarkedForDeletion: true\n")
    for broker in (1, 3):
        zk.delete(f"/brokers/ids/{broker}")
    both = answer(zk_connect, "describe", "--unavailable-partitions")
    assert both == (ROW_0 + ROW_1).replace("\n", "\tMarkedForDeletion: true\n")


@pytest.mark.spec("TOP-10", "TOP-26X")
def test_describe_as_json(zk: ZooKeeper, zk_connect: str) -> None:
    add_topic(zk, "dead", 9)
    dead, _, second = json.loads(answer(zk_connect, "describe", "--output", "json"))["items"]
    assert second == {
        "topic": "orders",
        "partition": 1,
        "leader": 3,
        "preferred": 2,
        "replicas": [2, 3, 4],
        "isr": [4, 3],
        "leader_epoch": 0,
        "controller_epoch": 1,
        "under_replicated": True,
        "available": True,
    }
    assert dead == {
        "topic": "dead",
        "partition": 0,
        "leader": None,
        "preferred": 9,
        "replicas": [9],
        "isr": [],
        "leader_epoch": None,
        "controller_epoch": None,
        "under_replicated": True,
        "available": False,
    }
    assert (
        list(second)
        == list(dead)
        == [
            *("topic", "partition", "leader", "preferred", "replicas", "isr", "leader_epoch", "controller_epoch"),
            *("under_replicated", "available"),
        ]
    )
    tsv = answer(zk_connect, "describe", "--topic", "orders", "--output", "tsv").splitlines()
    assert tsv[2].split("\t")[:6] == ["orders", "1", "3", "2", "2,3,4", "4,3"]


@pytest.mark.spec("ADM-75")
def test_replicas_that_a_move_adds_need_not_be_in_sync(zk: ZooKeeper, zk_connect: str) -> None:
    path = TopicZnode.path("orders")
    under = ("describe", "--topic", "orders", "--under-replicated-partitions")
    assert answer(zk_connect, *under) == ROW_1, "2 is not in sync"
    moving = TopicZnode({0: (1, 2, 3), 1: (2, 3, 4)}, {"adding_replicas": {"1": [2]}, "removing_replicas": {}})
    zk.set(path, moving.encode(), 0)
    assert answer(zk_connect, *under) == ""
    items = json.loads(answer(zk_connect, "describe", "--topic", "orders", "--output", "json"))["items"]
    assert [item["under_replicated"] for item in items] == [False, False]
    zk.set(path, TopicZnode(moving.assignment, {"adding_replicas": {"1": [4]}, "removing_replicas": {}}).encode(), 1)
    assert answer(zk_connect, *under) == "", "as many in sync as there were before"
    zk.set(path, TopicZnode({0: (1, 2, 3), 1: (2, 3, 4, 5)}, {"adding_replicas": {"1": [5]}}).encode(), 2)
    assert "Replicas: 2,3,4,5" in answer(zk_connect, *under), "of those from before 2 is missing"


@pytest.mark.spec("ADM-75")
def test_of_a_move_by_znode_what_is_wanted_need_not_be_in_sync(zk: ZooKeeper, zk_connect: str) -> None:
    under = ("describe", "--topic", "orders", "--under-replicated-partitions")
    assert answer(zk_connect, *under) == ROW_1, "2 of 2,3,4 is not in sync"
    moved = TopicPartition("orders", 1)
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({moved: (2, 3)}))
    assert answer(zk_connect, *under) == "", "which of them are new is not told, so that 2 may be"
    zk.delete(ReassignmentZnode.PATH)
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({moved: (3, 5)}))
    assert answer(zk_connect, *under) == ROW_1, "2 is not wanted any more, and was there before"


@pytest.mark.spec("TOP-27X")
def test_a_topic_node_of_a_newer_kafka_is_read(zk: ZooKeeper, zk_connect: str) -> None:
    newer = b'{"partitions":{"0":[1]},"topic_id":"x","adding_replicas":{},"removing_replicas":{},"version":3}'
    zk.create(TopicZnode.path("newer"), newer)
    assert "\tReplicas: 1\t" in answer(zk_connect, "describe", "--topic", "newer")
