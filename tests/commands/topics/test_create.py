"""kt topics create: Kafka's texts, and the znodes it leaves."""

import json
import re

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from kafkatool.core.model.assignment import SOME_RACKS
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ClusterIdZnode,
    ConfigZnode,
    DeleteTopicsZnode,
    TopicsZnode,
    TopicZnode,
)
from tests.commands.topics.runner import COLLISION, NOT_A_PAIR, answer, make_orders, refusal, topics
from tests.core.zookeeper import cluster_nodes as nodes
from tests.ports import free_port


@pytest.fixture(autouse=True)
def cluster(zk: ZooKeeper) -> ZooKeeper:
    make_orders(zk)
    return zk


def data(zk: ZooKeeper, path: str) -> bytes:
    node = zk.get(path)
    assert node is not None and node.ephemeral_owner == 0
    return node.data


@pytest.mark.spec("TOP-1", "TOP-4", "TOP-30X", "ASG-3", "COM-2")
def test_config_and_assignment_are_written_and_nothing_else(zk: ZooKeeper, zk_connect: str) -> None:
    before = nodes.tree(zk)
    args = ("--topic", "t", "--partitions", 2, "--replication-factor", 2, "--start-index", 1, "--replica-shift", 0)
    assert answer(zk_connect, "create", *args, "--config", "retention.ms=5") == 'Created topic "t".\n'
    assert data(zk, TopicZnode.path("t")) == b'{"version":1,"partitions":{"0":[2,3],"1":[3,4]}}'
    assert data(zk, ConfigZnode.path("topics", "t")) == b'{"version":1,"config":{"retention.ms":"5"}}'
    written = {path for path, node in nodes.tree(zk).items() if before.get(path) != node}
    assert written == {TopicZnode.path("t"), ConfigZnode.path("topics", "t")}
    answer(zk_connect, "create", "--topic", "u", "--partitions", 3, "--replication-factor", 1, "--start-index", 2)
    assert data(zk, TopicZnode.path("u")) == b'{"version":1,"partitions":{"0":[3],"1":[4],"2":[1]}}'
    assert data(zk, ConfigZnode.path("topics", "u")) == b'{"version":1,"config":{}}'


@pytest.mark.spec("TOP-2", "TOP-4")
def test_by_hand_brokers_need_not_be_there(zk: ZooKeeper, zk_connect: str) -> None:
    text = answer(zk_connect, "create", "--topic", "pay-ments_1.x", "--replica-assignment", "1:9,9:1")
    assert text == COLLISION + 'Created topic "pay-ments_1.x".\n'
    assert nodes.assignment(zk, "pay-ments_1.x") == {0: (1, 9), 1: (9, 1)}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        pytest.param(("x", "--partitions", 0, "--replication-factor", 1), "number of partitions must be larger than 0"),
        pytest.param(("x", "--partitions", -1, "--replication-factor", 1), "number of partitions must be larger than 0"),
        pytest.param(("x", "--partitions", 1, "--replication-factor", 0), "replication factor must be larger than 0"),
        pytest.param(
            ("x", "--partitions", 1, "--replication-factor", 5),
            "replication factor: 5 larger than available brokers: 4",
        ),
        pytest.param(("x", "--partitions", 1, "--replication-factor", -1), "replication factor must be larger than 0"),
        pytest.param(("orders", "--replica-assignment", "1"), "Topic 'orders' already exists."),
        pytest.param(
            ("bad/name", "--replica-assignment", "1"),
            "topic name bad/name is illegal, contains a character other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        pytest.param(("n" * 250, "--replica-assignment", "1"), "topic name is illegal, can't be longer than 249 characters"),
        pytest.param((".", "--replica-assignment", "1"), COLLISION + 'topic name cannot be "." or ".."'),
        pytest.param(("..", "--replica-assignment", "1"), COLLISION + 'topic name cannot be "." or ".."'),
        pytest.param(
            ("x", "--replica-assignment", "1:1"), "Partition replica lists may not contain duplicate entries: 1"
        ),
        pytest.param(
            ("x", "--replica-assignment", ""),
            "replica assignment of partition 0 is '': expected broker ids joined by ':' such as 1:2",
        ),
        pytest.param(("x", "--replica-assignment", "1:2,3"), "Partition 1 has different replication factor: 3"),
        pytest.param(
            ("x", "--replica-assignment", "1,2,3:4"), "Partition 2 has different replication factor: 3:4"
        ),
        pytest.param(("x", "--replica-assignment", "1", "--config", "nope=1"), "Unknown Log configuration nope."),
        pytest.param(
            ("x", "--replica-assignment", "1", "--config", "retention.ms=abc"),
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        *[
            pytest.param(("x", "--replica-assignment", "1", "--config", pair), NOT_A_PAIR)
            for pair in ("a=b=c", "a", "a=", "=b", "")
        ],
        pytest.param(("", "--replica-assignment", "1"), "topic name is illegal, can't be empty"),
    ],
)  # fmt: skip
@pytest.mark.spec("TOP-2", "TOP-3", "TOP-5", "TOP-6", "TOP-7", "TOP-20", "TOP-21")
def test_a_refusal_is_told_in_kafkas_words_and_nothing_is_written(
    zk: ZooKeeper, zk_connect: str, args: tuple[object, ...], why: str
) -> None:
    before = nodes.tree(zk)
    assert refusal(zk_connect, "create", "--topic", *args) == why
    assert nodes.tree(zk) == before


@pytest.mark.spec("COM-2", "TOP-22")
def test_the_eight_further_configs_are_stored(zk: ZooKeeper, zk_connect: str) -> None:
    others = (
        "compression.type=gzip",
        "message.format.version=0.10.2",
        "preallocate=true",
        "min.compaction.lag.ms=5",
        "message.timestamp.type=LogAppendTime",
        "message.timestamp.difference.max.ms=60000",
        "leader.replication.throttled.replicas=*",
        "follower.replication.throttled.replicas=0:1",
    )
    flags = [word for config in others for word in ("--config", config)]
    made = topics(zk_connect, "create", "--topic", "u", "--replica-assignment", "1", *flags)
    assert (made.exit_code, made.stderr) == (0, "")
    altered = topics(zk_connect, "alter", "--topic", "orders", *flags)
    assert (altered.exit_code, altered.stderr) == (0, "")
    for topic in ("u", "orders"):
        stored = json.loads(data(zk, ConfigZnode.path("topics", topic)))["config"]
        assert stored == dict(config.split("=") for config in others)


@pytest.mark.spec("TOP-4")
def test_names_that_collide_in_metrics_are_refused(zk: ZooKeeper, zk_connect: str) -> None:
    text = answer(zk_connect, "create", "--topic", "a_b", "--replica-assignment", "1")
    assert text == COLLISION + 'Created topic "a_b".\n'
    text = answer(zk_connect, "create", "--topic", "c.d", "--replica-assignment", "1")
    assert text == COLLISION + 'Created topic "c.d".\n'
    why = refusal(zk_connect, "create", "--topic", "a.b", "--replica-assignment", "1")
    assert why == COLLISION + "Topic 'a.b' collides with existing topics: a_b"
    why = refusal(zk_connect, "create", "--topic", "c_d", "--replica-assignment", "1")
    assert why == COLLISION + "Topic 'c_d' collides with existing topics: c.d"
    for name in ("x_y.z", "x.y_z", "x.y"):
        zk.create(TopicZnode.path(name), TopicZnode({0: (1,)}).encode())
    why = refusal(zk_connect, "create", "--topic", "x.y.z", "--replica-assignment", "1")
    assert why == COLLISION + "Topic 'x.y.z' collides with existing topics: x.y_z, x_y.z"


@pytest.mark.spec("ASG-14")
def test_racks_on_some_brokers_only(zk: ZooKeeper, zk_connect: str) -> None:
    info = BrokerInfo(5, (Endpoint("PLAINTEXT", "127.0.0.1", 1),), "r1")
    zk.create(BrokerZnode.path(5), BrokerZnode.encode(info, 0))
    args = ("--topic", "m", "--partitions", 5, "--replication-factor", 2)
    assert refusal(zk_connect, "create", *args) == SOME_RACKS
    answer(zk_connect, "create", *args, "--disable-rack-aware")
    assert len(nodes.assignment(zk, "m")) == 5


@pytest.mark.spec("TOP-5")
def test_if_not_exists_says_nothing(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(TopicZnode.path("or_ders"), TopicZnode({0: (1,)}).encode())  # a name that is warned of when it is new
    before = nodes.tree(zk)
    for name in ("orders", "or_ders"):
        result = topics(zk_connect, "create", "--topic", name, "--replica-assignment", "1", "--if-not-exists")
        assert (result.exit_code, result.output) == (0, "")
    assert nodes.tree(zk) == before


@pytest.mark.spec("TOP-24X")
def test_a_topic_marked_for_deletion_is_told_as_such_and_no_other(zk: ZooKeeper, zk_connect: str) -> None:
    again = ("--topic", "orders", "--replica-assignment", "1")
    assert "marked for deletion" not in topics(zk_connect, "create", *again).stderr
    (error,) = json.loads(topics(zk_connect, "create", *again, "--output", "json").stdout)["errors"]
    assert error["marked_for_deletion"] is False
    zk.create(DeleteTopicsZnode.topic_path("orders"))
    result = topics(zk_connect, "create", "--topic", "orders", "--replica-assignment", "1")
    assert result.stdout == "Error while executing topic command : Topic 'orders' already exists.\n"
    assert "marked for deletion" in result.stderr
    result = topics(zk_connect, "create", "--topic", "orders", "--replica-assignment", "1", "--output", "json")
    (error,) = json.loads(result.stdout)["errors"]
    assert (result.exit_code, error["error"], error["marked_for_deletion"]) == (1, "topic_exists", True)


@pytest.mark.spec("COM-3X", "TOP-2", "TOP-6")
@pytest.mark.parametrize(
    "args",
    [
        ("--partitions", 1),
        ("--replication-factor", 1),
        ("--replica-assignment", "1", "--partitions", 1),
        ("--replica-assignment", "1", "--replication-factor", 1),
        ("--replica-assignment", "1", "--start-index", 1),
        ("--partitions", "x", "--replication-factor", 1),
        ("--under-replicated-partitions",),
    ],
)
def test_bad_usage_ends_with_2(zk: ZooKeeper, zk_connect: str, args: tuple[object, ...]) -> None:
    before = nodes.tree(zk)
    result = topics(zk_connect, "create", "--topic", "x", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert nodes.tree(zk) == before


@pytest.mark.spec("COM-6X", "Z-3")
def test_a_dry_run_shows_both_znodes_and_writes_neither(zk: ZooKeeper, zk_connect: str) -> None:
    before = nodes.tree(zk)
    text = answer(zk_connect, "create", "--topic", "x", "--replica-assignment", "1:2", "--dry-run")
    assert text == (
        'create /config/topics/x {"version":1,"config":{}}\n'
        'create /brokers/topics/x {"version":1,"partitions":{"0":[1,2]}}\n'
    )
    assert nodes.tree(zk) == before


@pytest.mark.spec("COM-5X")
def test_another_cluster_is_not_written_to(zk: ZooKeeper, zk_connect: str) -> None:
    args = ("--topic", "x", "--replica-assignment", "1", "--cluster-id")
    before = nodes.tree(zk)
    result = topics(zk_connect, "create", *args, "other")
    assert result.exit_code == 1 and "other" in result.stderr and "the-cluster" in result.stderr
    assert nodes.tree(zk) == before
    zk.delete(ClusterIdZnode.PATH)
    result = topics(zk_connect, "create", *args, "the-cluster")
    assert result.exit_code == 1 and "--cluster-id is the-cluster, but" in result.stderr and "no id" in result.stderr
    assert nodes.tree(zk) == {path: node for path, node in before.items() if path != ClusterIdZnode.PATH}
    zk.create(ClusterIdZnode.PATH, ClusterIdZnode.encode("the-cluster"))
    answer(zk_connect, "create", *args, "the-cluster")


@pytest.mark.spec("COM-10X", "TOP-6")
def test_a_topic_too_large_for_a_znode_is_refused_with_both_numbers(zk: ZooKeeper, zk_connect: str) -> None:
    args = ("--topic", "x", "--partitions", 500, "--replication-factor", 3, "--zk-max-bytes", 2000)
    result = topics(zk_connect, "create", *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.search(r"needs a packet of \d{4,} bytes, over ZooKeeper's limit of 2000 bytes", result.stderr)
    assert zk.children(TopicsZnode.PATH) == ["orders"]


@pytest.mark.spec("TOP-6")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("NOBODY",), "no ZooKeeper: nothing listens at "),
        (("--cluster-id", "other"), "--cluster-id is other, but "),
        (
            ("--zk-max-bytes", 1024, "--config", "leader.replication.throttled.replicas=" + "0:1," * 500 + "0:1"),
            "packet",
        ),
        ((), "no permission for znode /brokers/topics"),
    ],
    ids=["session", "cluster id", "packet size", "permission"],
)
def test_what_kafkas_tool_has_no_words_for_is_one_line_on_stderr(
    zk: ZooKeeper, zk_connect: str, flags: tuple[object, ...], said: str
) -> None:
    if not flags:
        client = KazooClient(zk.connect)
        client.start()
        client.set_acls(TopicsZnode.PATH, [make_acl("world", "anyone", read=True)])
        client.stop()
        client.close()
    before = nodes.tree(zk)
    connect, flags = (f"127.0.0.1:{free_port()}", ()) if flags == ("NOBODY",) else (zk_connect, flags)
    result = topics(connect, "create", "--topic", "x", "--replica-assignment", "1", *flags)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert said in result.stderr
    assert nodes.tree(zk) == before


@pytest.mark.spec("COM-4X")
def test_json_and_tsv_name_each_partition(zk_connect: str) -> None:
    document = json.loads(
        answer(zk_connect, "create", "--topic", "x", "--replica-assignment", "1:2", "--output", "json")
    )
    assert document == {
        "tool": "kt topics create",
        "cluster_id": "the-cluster",
        "items": [{"topic": "x", "partition": 0, "replicas": [1, 2]}],
        "errors": [],
    }
    result = topics(zk_connect, "create", "--topic", "x", "--replica-assignment", "1:2", "--output", "tsv")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("topic_exists\tTopic 'x' already exists.")


@pytest.mark.spec("TOP-2", "TOP-7")
def test_the_first_topic_of_an_empty_chroot(zk_connect: str) -> None:
    connect = f"{zk_connect}/fresh"
    with ZooKeeper(connect, create_chroot=True) as fresh:
        assert answer(connect, "create", "--topic", "late", "--replica-assignment", "1:2") == 'Created topic "late".\n'
        assert nodes.assignment(fresh, "late") == {0: (1, 2)}
        before = nodes.tree(fresh)
        refused = refusal(connect, "create", "--topic", "x", "--partitions", 1, "--replication-factor", 1)
        assert refused == "replication factor: 1 larger than available brokers: 0"
        assert nodes.tree(fresh) == before


@pytest.mark.spec("COM-1", "Z-2")
def test_a_missing_chroot_is_an_error_and_not_made(zk: ZooKeeper, zk_connect: str) -> None:
    result = topics(f"{zk_connect}/nowhere", "create", "--topic", "x", "--replica-assignment", "1")
    assert result.exit_code == 1 and "/nowhere" in result.stderr and result.stderr.count("\n") == 1
    assert zk.children("/nowhere") is None


@pytest.mark.parametrize(
    ("flags", "warned"),
    [
        (("--partitions", 1, "--replication-factor", 2, "--config", "min.insync.replicas=3"), "has 2 replicas"),
        (("--replica-assignment", "1,2", "--config", "min.insync.replicas=2", "--dry-run"), "has 1 replica:"),
        (("--partitions", 1, "--replication-factor", 2, "--config", "min.insync.replicas=2"), ""),
        (("--partitions", 1, "--replication-factor", 1), ""),
    ],
)
def test_a_topic_that_no_acks_all_can_be_written_to_is_warned_of(
    zk_connect: str, flags: tuple[object, ...], warned: str
) -> None:
    result = topics(zk_connect, "create", "--topic", "new", *flags)
    assert result.exit_code == 0, result.output
    assert ("acks=all can ever succeed" in result.stderr) == bool(warned) and warned in result.stderr


@pytest.mark.spec("COM-6X")
def test_a_dry_run_that_draws_says_how_to_keep_what_it_drew(zk: ZooKeeper, zk_connect: str) -> None:
    shown = topics(zk_connect, "create", "--topic", "t", "--partitions", 4, "--replication-factor", 2, "--dry-run")
    assert shown.exit_code == 0
    _, found, flag = shown.stderr.partition("to keep it: ")
    assert found, shown.stderr
    answer(zk_connect, "create", "--topic", "t", *flag.split())
    drawn = json.loads(shown.stdout.splitlines()[-1].split(" ", 2)[2])["partitions"]
    assert {str(p): list(r) for p, r in nodes.assignment(zk, "t").items()} == drawn
    fixed = ("--start-index", 0, "--replica-shift", 0)
    shown = topics(
        zk_connect, "create", "--topic", "u", "--partitions", 4, "--replication-factor", 2, *fixed, "--dry-run"
    )
    assert "to keep it" not in shown.stderr
