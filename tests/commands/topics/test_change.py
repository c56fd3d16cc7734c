"""kt topics alter and delete: what they print, what they write, what they refuse."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from kafkatool.commands.main import kt
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import SOME_RACKS
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.operations.reassignment import submission
from kafkatool.core.operations.topics import deletion
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokerZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConfigZnode,
    DeleteTopicsZnode,
    ReassignmentZnode,
    TopicZnode,
)
from tests.commands.topics.runner import GROWTH, NOT_A_PAIR, answer, make_orders, refusal, topics
from tests.core.zookeeper import cluster_nodes as nodes
from tests.paths import ROOT

SCHEMA = ROOT / "docs" / "schemas" / "kt-topics-alter.schema.json"
CONFIG = ConfigZnode.path("topics", "orders")
MARKED = (
    "Topic orders is marked for deletion.\nNote: This will have no impact if delete.topic.enable is not set to true.\n"
)


@pytest.fixture(autouse=True)
def cluster(zk: ZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ZooKeeper:
    monkeypatch.chdir(tmp_path)
    make_orders(zk)
    return zk


def data(zk: ZooKeeper, path: str) -> bytes:
    node = zk.get(path)
    assert node is not None
    return node.data


# --- configs ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("TOP-14", "COM-2")
def test_configs_are_merged_deletion_wins_and_brokers_are_told(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(CONFIG, b'{"version":1,"config":{"retention.ms":"1","flush.ms":"2"}}')
    args = ("--config", "segment.bytes=99", "--config", "flush.ms=3", "--delete-config", "flush.ms")
    assert answer(zk_connect, "alter", "--topic", "orders", *args) == 'Updated config for topic "orders".\n'
    assert data(zk, CONFIG) == b'{"version":1,"config":{"retention.ms":"1","segment.bytes":"99"}}'
    (change,) = zk.children(ConfigChangeZnode.PATH) or []
    assert change == "config_change_0000000000"
    node = zk.get(f"{ConfigChangeZnode.PATH}/{change}")
    assert node is not None and node.ephemeral_owner == 0
    assert node.data == b'{"version":2,"entity_path":"topics/orders"}'
    answer(zk_connect, "alter", "--topic", "orders", "--delete-config", "segment.bytes")
    assert sorted(zk.children(ConfigChangeZnode.PATH) or ()) == [change, "config_change_0000000001"]


@pytest.mark.spec("TOP-14", "TOP-20", "TOP-21", "TOP-6")
@pytest.mark.parametrize(
    ("flag", "why"),
    [
        (("--config", "nope=1"), "Unknown Log configuration nope."),
        (("--delete-config", "nope"), "Unknown Log configuration nope."),
        (
            ("--config", "flush.ms=5", "--config", "segment.bytes=1"),
            "Invalid value 1 for configuration segment.bytes: Value must be at least 14",
        ),
        *[(("--config", pair), NOT_A_PAIR) for pair in ("flush.ms=5=6", "flush.ms", "flush.ms=", "=5", "")],
    ],
)
def test_a_config_that_is_not_one_is_refused_before_any_write(
    zk: ZooKeeper, zk_connect: str, flag: tuple[str, ...], why: str
) -> None:
    before = nodes.tree(zk)
    assert refusal(zk_connect, "alter", "--topic", "orders", *flag) == why
    assert nodes.tree(zk) == before


# --- partitions ------------------------------------------------------------------------------------------------


@pytest.mark.spec("TOP-15", "ASG-6", "TOP-27X", "Z-13")
@pytest.mark.parametrize(
    ("version", "more"),
    [
        (1, {}),
        (2, {"adding_replicas": {}, "removing_replicas": {}}),
        (3, {"topic_id": "x", "adding_replicas": {}, "removing_replicas": {}, "unknown": [{"a": 1}]}),
    ],
)
def test_partitions_are_added_and_the_rest_of_the_node_stays(
    zk: ZooKeeper, zk_connect: str, version: int, more: dict[str, object]
) -> None:
    stored = {"version": version, "partitions": {"0": [1, 2, 3], "1": [2, 3, 4]}, **more}
    zk.set(TopicZnode.path("orders"), json.dumps(stored).encode(), 0)
    assert answer(zk_connect, "alter", "--topic", "orders", "--partitions", 4) == (
        GROWTH + "Adding partitions succeeded!\n"
    )
    assert json.loads(data(zk, TopicZnode.path("orders"))) == {
        "version": version,
        "partitions": {"0": [1, 2, 3], "1": [2, 3, 4], "2": [3, 4, 1], "3": [4, 1, 2]},
        **more,
    }


@pytest.mark.spec("TOP-16")
def test_added_partitions_by_hand(zk: ZooKeeper, zk_connect: str) -> None:
    answer(zk_connect, "alter", "--topic", "orders", "--partitions", 3, "--replica-assignment", "9,9,3:1:4")
    assert nodes.assignment(zk, "orders") == {0: (1, 2, 3), 1: (2, 3, 4), 2: (3, 1, 4)}


@pytest.mark.spec("TOP-16")
def test_added_partitions_by_hand_have_as_many_replicas_as_partition_0(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(TopicZnode.path("uneven"), TopicZnode({0: (1, 2), 1: (3,), 2: (1, 2, 3)}).encode())
    grow = ("--topic", "uneven", "--partitions", 4, "--replica-assignment")
    for group, count in (("4", 1), ("4:1:2", 3)):
        assert refusal(zk_connect, "alter", *grow, f"1,1,1,{group}") == GROWTH + (
            "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [3] have "
            f"replication factors [{count}], respectively."
        )
    answer(zk_connect, "alter", *grow, "1,1,1,4:1")
    assert nodes.assignment(zk, "uneven")[3] == (4, 1)


@pytest.mark.spec("TOP-6", "TOP-15", "TOP-16")
@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((2,), "The number of partitions for a topic can only be increased"),
        ((1,), "The number of partitions for a topic can only be increased"),
        (
            (3, "--replica-assignment", "1,2,3"),
            "Inconsistent replication factor between partitions, partition 0 has 3 while partitions [2] have "
            "replication factors [1], respectively.",
        ),
        (
            (3, "--replica-assignment", "1,2,3:9:1"),
            "Some brokers specified for partition id 2 are not available. Specified brokers: 3, 9, 1, "
            "available brokers: 1, 2, 3, 4.",
        ),
        (
            (3, "--replica-assignment", "1,2,3:3:1"),
            "Duplicate brokers not allowed in replica assignment: 3, 3, 1 for partition id 2.",
        ),
        (
            (4, "--replica-assignment", "1,2,3:2:1"),
            "--replica-assignment has 3 groups for 4 partitions; "
            "it takes one for every partition, the existing ones included",
        ),
        (
            (3, "--replica-assignment", "1,2,3:2:1,1:2:3"),
            "--replica-assignment has 4 groups for 3 partitions; "
            "it takes one for every partition, the existing ones included",
        ),
    ],
)
def test_a_refused_growth_writes_nothing(zk: ZooKeeper, zk_connect: str, args: tuple[object, ...], why: str) -> None:
    before = nodes.tree(zk)
    assert refusal(zk_connect, "alter", "--topic", "orders", "--partitions", *args) == GROWTH + why
    assert nodes.tree(zk) == before


@pytest.mark.spec("ASG-14")
def test_a_topic_grows_over_racks_on_some_brokers_only_when_they_are_ignored(zk: ZooKeeper, zk_connect: str) -> None:
    info = BrokerInfo(5, (Endpoint("PLAINTEXT", "127.0.0.1", 1),), "r1")
    zk.create(BrokerZnode.path(5), BrokerZnode.encode(info, 0))
    args = ("--topic", "orders", "--partitions", 3)
    assert refusal(zk_connect, "alter", *args) == GROWTH + SOME_RACKS
    answer(zk_connect, "alter", *args, "--disable-rack-aware")
    assert nodes.assignment(zk, "orders")[2] == (3, 4, 5)


@pytest.mark.spec("TOP-6", "TOP-15", "TOP-17", "TOP-19")
def test_the_offsets_topic_neither_grows_nor_goes(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(TopicZnode.path("__consumer_offsets"), TopicZnode({0: (1,)}).encode())
    before = nodes.tree(zk)
    why = refusal(zk_connect, "alter", "--topic", "__consumer_offsets", "--partitions", 3)
    assert why == "The number of partitions for the offsets topic cannot be changed."
    why = refusal(zk_connect, "delete", "--topic", "__consumer_offsets")
    assert why == ("Topic __consumer_offsets is a kafka internal topic and is not allowed to be marked for deletion.")
    pattern = "'__ consumer.* , zzz'"  # internal topics are matched too
    assert refusal(zk_connect, "delete", "--topic", pattern) == why
    why = refusal(zk_connect, "alter", "--topic", pattern, "--partitions", 3)
    assert why == "The number of partitions for the offsets topic cannot be changed."
    assert nodes.tree(zk) == before


@pytest.mark.spec("TOP-19", "COM-3X")
def test_one_topic_of_many_that_is_refused_does_not_keep_the_others(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(TopicZnode.path("order2"), TopicZnode({0: (1,)}).encode())
    flags = ("--topic", "'order.* ,zzz'", "--force", "--partitions", 2, "--output", "json")
    result = topics(zk_connect, "alter", *flags)
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert document["items"] == [{"topic": "order2", "change": "partitions", "value": {"1": [2]}}]
    assert [(e["topic"], e["error"]) for e in document["errors"]] == [("orders", "refused")]


@pytest.mark.spec("TOP-6", "TOP-12", "TOP-19")
@pytest.mark.parametrize(("action", "args"), [("alter", ("--partitions", 2)), ("delete", ())])
@pytest.mark.parametrize("topic", ["nope", "rders", "order"])  # the last two: not the whole name
def test_no_match_is_an_error_unless_if_exists(
    zk_connect: str, action: str, args: tuple[object, ...], topic: str
) -> None:
    why = refusal(zk_connect, action, "--topic", topic, *args)
    assert why == f"Topic {topic} does not exist on ZK path {zk_connect}"
    assert answer(zk_connect, action, "--topic", topic, "--if-exists", *args) == ""


@pytest.mark.spec("COM-3X")
@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--replica-assignment", "1"),
        ("--partitions", 9, "--replication-factor", 1),
        ("--config", "flush.ms=1", "--replica-assignment", "1"),
    ],
)
def test_alter_without_a_change_or_with_two_that_exclude_each_other_is_bad_usage(
    zk: ZooKeeper, zk_connect: str, args: tuple[object, ...]
) -> None:
    before = nodes.tree(zk)
    assert topics(zk_connect, "alter", "--topic", "orders", *args).exit_code == 2
    assert nodes.tree(zk) == before


@pytest.mark.spec("COM-5X")
@pytest.mark.parametrize("action", ["--config flush.ms=1", "--partitions 9", "--replication-factor 1", ""])
def test_another_cluster_is_not_changed(zk: ZooKeeper, zk_connect: str, action: str) -> None:
    before = nodes.tree(zk)
    verb = "alter" if action else "delete"
    result = topics(zk_connect, verb, "--topic", "orders", "--cluster-id", "other", *action.split())
    assert result.exit_code == 1
    assert "--cluster-id is other, but" in result.stderr and "id the-cluster" in result.stderr
    assert nodes.tree(zk) == before
    zk.delete(ClusterIdZnode.PATH)
    result = topics(zk_connect, verb, "--topic", "orders", "--cluster-id", "the-cluster", *action.split())
    assert result.exit_code == 1
    assert "--cluster-id is the-cluster, but" in result.stderr and "no id" in result.stderr
    assert nodes.tree(zk) == {path: node for path, node in before.items() if path != ClusterIdZnode.PATH}


@pytest.mark.spec("COM-6X")
def test_a_dry_run_shows_every_write(zk: ZooKeeper, zk_connect: str) -> None:
    before = nodes.tree(zk)
    args = ("--topic", "orders", "--partitions", 3, "--config", "flush.ms=1", "--dry-run")
    assert answer(zk_connect, "alter", *args) == (
        'create /config/topics/orders {"version":1,"config":{"flush.ms":"1"}}\n'
        'create sequential /config/changes/config_change_ {"version":2,"entity_path":"topics/orders"}\n'
        'set /brokers/topics/orders {"version":1,"partitions":{"0":[1,2,3],"1":[2,3,4],"2":[3,4,1]}}\n'
    )
    assert answer(zk_connect, "delete", "--topic", "orders", "--dry-run") == "create /admin/delete_topics/orders\n"
    assert nodes.tree(zk) == before
    answer(zk_connect, "delete", "--topic", "orders")
    assert answer(zk_connect, "delete", "--topic", "orders", "--dry-run") == (
        "Topic orders is already marked for deletion.\n"
    )


@pytest.mark.spec("COM-6X")
def test_a_dry_run_shows_what_is_refused_and_what_would_be_written_all_the_same(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(TopicZnode.path("__consumer_offsets"), TopicZnode({0: (1,)}).encode())
    before = nodes.tree(zk)
    result = topics(zk_connect, "delete", "--topic", ".*", "--dry-run")
    assert result.exit_code == 1
    refused, *planned = result.stdout.splitlines()
    assert "Topic __consumer_offsets is a kafka internal topic" in refused
    assert planned == ["create /admin/delete_topics/orders"]
    result = topics(zk_connect, "alter", "--topic", "orders", "--partitions", 1, "--config", "flush.ms=1", "--dry-run")
    assert result.exit_code == 1
    refused, *planned = result.stdout.splitlines()
    assert refused.endswith("The number of partitions for a topic can only be increased")
    assert [line.split()[:3] for line in planned] == [
        ["create", CONFIG, '{"version":1,"config":{"flush.ms":"1"}}'],
        ["create", "sequential", "/config/changes/config_change_"],
    ]
    result = topics(zk_connect, "delete", "--topic", ".*", "--dry-run", "--output", "json")
    document = json.loads(result.stdout)
    assert [item["path"] for item in document["items"]] == ["/admin/delete_topics/orders"]
    assert [error["topic"] for error in document["errors"]] == ["__consumer_offsets"]
    assert nodes.tree(zk) == before


# --- replication factor ----------------------------------------------------------------------------------------


@pytest.mark.spec("TOP-29X", "COM-6X")
def test_another_replication_factor_starts_a_reassignment_after_telling_its_plan(
    zk: ZooKeeper, zk_connect: str
) -> None:
    plan = (
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]},'
        '{"topic":"orders","partition":1,"replicas":[3,4]}]}'
    )
    args = ("--topic", "orders", "--replication-factor", 2)
    before = nodes.tree(zk)
    assert answer(zk_connect, "alter", *args, "--dry-run") == f"create {ReassignmentZnode.PATH} {plan}\n"
    assert nodes.tree(zk) == before
    text = answer(zk_connect, "alter", *args)
    assert '"replicas":[1,2,3]' in text.splitlines()[2]  # the way back
    assert text.splitlines()[-3:-1] == ["Proposed partition reassignment configuration", plan]
    assert data(zk, ReassignmentZnode.PATH).decode() == plan
    for flags in ((), ("--dry-run",)):
        again = topics(zk_connect, "alter", *args, *flags)
        assert again.exit_code == 1 and again.stdout.endswith("There is an existing assignment running.\n")
        assert again.stderr.startswith("kt reassign --list shows")


@pytest.mark.spec("TOP-29X")
def test_the_plan_of_another_replication_factor_is_told_before_it_is_sent(
    zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("not sent")

    monkeypatch.setattr(submission, "start", refuse)
    result = topics(zk_connect, "alter", "--topic", "orders", "--replication-factor", 2)
    assert result.exit_code == 1
    title, _, way_back, *_, proposed, plan, last = result.stdout.splitlines()
    assert title == "Current partition replica assignment" and way_back.endswith('"replicas":[2,3,4]}]}')
    assert proposed == "Proposed partition reassignment configuration" and plan.endswith('"replicas":[3,4]}]}')
    assert last == "Error while executing topic command : not sent"


@pytest.mark.spec("TOP-29X", "RSN-21X", "COM-4X")
@pytest.mark.parametrize("form", ["text", "json"])
def test_another_replication_factor_saves_its_way_back_before_it_starts(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, form: str
) -> None:
    way_back = (
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3]},'
        '{"topic":"orders","partition":1,"replicas":[2,3,4]}]}\n'
    )
    file = tmp_path / "orders.replication-factor-2.rollback.json"
    file.write_text("of an earlier command\n")
    args = ("--topic", "orders", "--replication-factor", 2, "--output", form)
    topics(zk_connect, "alter", *args, "--dry-run")
    assert file.read_text() == "of an earlier command\n"
    result = topics(zk_connect, "alter", *args)
    assert result.exit_code == 0, result.output
    assert file.read_text() == way_back
    assert (tmp_path / f"{file.name}.1").read_text() == "of an earlier command\n"
    assert f"rollback plan: {file.name}; the one of an earlier command is kept as {file.name}.1\n" in result.stderr
    back = f"--execute --reassignment-json-file {file.name}"
    assert f"kt reassign --zookeeper {zk_connect} {back}  # go back, once it has ended\n" in result.stderr
    if form == "json":
        document = json.loads(result.stdout)
        Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
        (item,) = document["items"]
        assert item["value"] == {"0": [1, 2], "1": [3, 4]}
        assert item["before"] == {"0": [1, 2, 3], "1": [2, 3, 4]}
    zk.delete(ReassignmentZnode.PATH)
    zk.set(TopicZnode.path("orders"), b'{"version":1,"partitions":{"0":[1,2],"1":[3,4]}}', 0)
    command = ["reassign", "--zookeeper", zk_connect, *back.split()]
    assert CliRunner().invoke(kt, command).exit_code == 0
    assert data(zk, ReassignmentZnode.PATH).decode() + "\n" == way_back


@pytest.mark.spec("TOP-29X", "RSN-21X")
def test_the_way_back_of_one_command_is_not_replaced_by_that_of_another_topic(zk: ZooKeeper, zk_connect: str) -> None:
    long = "x" * 249
    others = ("payments", "-", ".hidden", long, f"{long[1:]}y")
    for name in others:
        zk.create(TopicZnode.path(name), b'{"version":1,"partitions":{"0":[1]}}')

    def change(topics_given: str) -> tuple[Path, set[str]]:
        result = topics(zk_connect, "alter", "--topic", topics_given, "--replication-factor", 2, "--force")
        assert result.exit_code == 0, result.output
        file, told = re.findall(r"(?:rollback plan: |--reassignment-json-file )(\S+)", result.stderr)
        assert file == told and "is kept as" not in result.stderr
        zk.delete(ReassignmentZnode.PATH)
        return Path(file), {entry["topic"] for entry in json.loads(Path(file).read_text())["partitions"]}

    assert change("orders") == (Path("orders.replication-factor-2.rollback.json"), {"orders"})
    assert change("payments") == (Path("payments.replication-factor-2.rollback.json"), {"payments"})
    found = [change(name) for name in others[1:]]
    assert [moved for _, moved in found] == [{name} for name in others[1:]]
    several = [change("orders,payments"), change("orders,-"), change("orders,payments,-")]
    assert several[1][1] == {"orders", "-"}
    assert len(list(Path().iterdir())) == 2 + len(found) + len(several)
    for file, _ in found:
        command = ["reassign", "--zookeeper", zk_connect, "--execute", "--reassignment-json-file", str(file)]
        result = CliRunner().invoke(kt, command)
        assert result.exit_code == 0, result.output  # also the file of its own way back can have such a name
        zk.delete(ReassignmentZnode.PATH)


@pytest.mark.spec("TOP-29X", "RSN-21X")
def test_another_replication_factor_whose_way_back_cannot_be_saved_is_not_started(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path
) -> None:
    (tmp_path / "orders.replication-factor-2.rollback.json").mkdir()
    before = nodes.tree(zk)
    result = topics(zk_connect, "alter", "--topic", "orders", "--replication-factor", 2)
    assert result.exit_code == 1
    assert "cannot write orders.replication-factor-2.rollback.json" in result.stdout
    assert nodes.tree(zk) == before


@pytest.mark.spec("TOP-29X")
def test_a_replication_factor_that_is_refused_is_told_with_what_to_do_now(zk: ZooKeeper, zk_connect: str) -> None:
    zk.delete("/brokers/ids/4")
    before = nodes.tree(zk)
    for factor, why, now in (
        (
            4,
            "replication factor: 4 larger than available brokers: 3",
            "only registered brokers count: start the missing",
        ),
        (
            2,
            "The proposed assignment contains non-existent brokerIDs: 4",
            "replicas that stay are on brokers that are d",
        ),
    ):
        result = topics(zk_connect, "alter", "--topic", "orders", "--replication-factor", factor)
        assert (result.exit_code, result.stdout) == (1, f"Error while executing topic command : {why}\n")
        assert result.stderr.startswith(now)
    assert nodes.tree(zk) == before


@pytest.mark.spec("TOP-15")
def test_a_topic_does_not_grow_while_it_moves_and_has_replicas_of_before_and_after(
    zk: ZooKeeper, zk_connect: str
) -> None:
    path = TopicZnode.path("orders")
    zk.create(ReassignmentZnode.PATH, b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[4]}]}')
    zk.set(path, b'{"version":1,"partitions":{"0":[1,2,3,4],"1":[2,3,4]}}', 0)
    why = "A partition reassignment is in progress for the topic 'orders'."
    before = nodes.tree(zk)
    assert refusal(zk_connect, "alter", "--topic", "orders", "--partitions", 3).endswith(why)
    assert nodes.tree(zk) == before
    zk.delete(ReassignmentZnode.PATH)
    zk.set(path, b'{"version":3,"partitions":{"0":[4,1,2,3],"1":[2,3,4]},"adding_replicas":{"0":[4]}}', 1)
    assert refusal(zk_connect, "alter", "--topic", "orders", "--partitions", 3).endswith(why)
    zk.set(path, b'{"version":3,"partitions":{"0":[4,1,2],"1":[2,3,4]},"adding_replicas":{}}', 2)
    answer(zk_connect, "alter", "--topic", "orders", "--partitions", 3)
    assert len(nodes.assignment(zk, "orders")[2]) == 3


@pytest.mark.spec("TOP-16", "COM-3X")
def test_an_empty_replica_assignment_is_one(zk_connect: str) -> None:
    flags = ("--topic", "orders", "--replica-assignment", "")
    assert refusal(zk_connect, "alter", *flags, "--partitions", 3).startswith("replica assignment of partition 0 is ''")
    assert topics(zk_connect, "alter", *flags, "--config", "flush.ms=3").exit_code == 2


# --- delete ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("TOP-17", "TOP-18", "Z-20", "COM-2")
def test_delete_marks_and_says_so_once(zk: ZooKeeper, zk_connect: str) -> None:
    before = nodes.tree(zk)
    assert answer(zk_connect, "delete", "--topic", "orders") == MARKED
    changed = {path for path, node in nodes.tree(zk).items() if before.get(path) != node}
    assert changed == {DeleteTopicsZnode.topic_path("orders")}
    node = zk.get(DeleteTopicsZnode.topic_path("orders"))
    assert node is not None and node.data == b"" and node.ephemeral_owner == 0
    assert answer(zk_connect, "delete", "--topic", "orders") == "Topic orders is already marked for deletion.\n"
    assert nodes.assignment(zk, "orders")


@pytest.mark.spec("TOP-24X", "TOP-6")
def test_waiting_for_a_topic_that_stays_names_the_causes(zk: ZooKeeper, zk_connect: str) -> None:
    zk.delete("/brokers/ids/4")
    zk.delete("/controller")
    result = topics(zk_connect, "delete", "--topic", "orders", "--wait", 0.1)
    assert (result.exit_code, result.stdout) == (1, MARKED)
    for cause in ("its mark is still present", "no controller", "brokers that are down: 4"):
        assert cause in result.stderr
    assert "reassignment" not in result.stderr and "the mark was removed" not in result.stderr


@pytest.mark.spec("TOP-24X")
def test_waiting_names_a_controller_that_does_not_delete(zk: ZooKeeper, zk_connect: str) -> None:
    mark = DeleteTopicsZnode.topic_path("orders")
    theirs = b'{"version":1,"partitions":[{"topic":"other","partition":0,"replicas":[4]}]}'
    zk.create(ReassignmentZnode.PATH, theirs)
    taken = threading.Event()

    def take(own: ZooKeeper) -> None:
        own.delete(mark)
        taken.set()

    with nodes.controller(zk_connect, mark, take):
        answer(zk_connect, "delete", "--topic", "orders")
        assert taken.wait(60)
    (left,) = deletion.wait_until_gone(zk, ["orders"], 0, lambda *_: None)
    assert left.causes == ("the mark was removed without deleting it: delete.topic.enable is false at the controller",)


@pytest.mark.spec("TOP-24X")
def test_waiting_names_a_reassignment_of_the_topic(zk: ZooKeeper, zk_connect: str) -> None:
    moving = b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[4]}]}'
    zk.create(ReassignmentZnode.PATH, moving)
    result = topics(zk_connect, "delete", "--topic", "orders", "--wait", 0.1)
    assert result.exit_code == 1
    assert "Topic orders is still there: " in result.stderr and "a reassignment of it is running" in result.stderr
    for cause in ("brokers that are down", "no controller", "the mark was removed"):
        assert cause not in result.stderr


@pytest.mark.spec("TOP-24X")
def test_waiting_ends_when_the_topic_is_gone(zk: ZooKeeper, zk_connect: str) -> None:
    def delete(own: ZooKeeper) -> None:
        for number in (0, 1):
            for path in ("/state", ""):
                own.delete(f"{TopicZnode.path('orders')}/partitions/{number}{path}")
        own.delete(f"{TopicZnode.path('orders')}/partitions")
        own.delete(TopicZnode.path("orders"))
        own.delete(DeleteTopicsZnode.topic_path("orders"))

    with nodes.controller(zk_connect, DeleteTopicsZnode.topic_path("orders"), delete):
        text = answer(zk_connect, "delete", "--topic", "orders", "--wait", 60, "--output", "json")
    assert json.loads(text)["items"] == [{"topic": "orders", "status": "deleted"}]


@pytest.mark.spec("TOP-28X")
def test_a_terminal_is_asked_when_a_regex_hits_several(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(TopicZnode.path("order2"), TopicZnode({0: (1,)}).encode())
    before = nodes.tree(zk)
    refused = on_terminal("n\n", "delete", zk_connect, "order.*")
    assert "Mark 2 topics for deletion: order2, orders? [y/N]" in refused.stderr
    assert refused.stderr.count("[y/N]") == 1 and refused.returncode == 1
    assert nodes.tree(zk) == before
    assert "Mark" not in on_terminal("", "delete", zk_connect, "orders").stderr
    assert zk.children(DeleteTopicsZnode.PATH) == ["orders"]
    zk.delete(DeleteTopicsZnode.topic_path("orders"))
    agreed = on_terminal("y\n", "delete", zk_connect, "order.*")
    assert (agreed.stderr.count("[y/N]"), agreed.returncode) == (1, 0), "once for both"
    assert sorted(zk.children(DeleteTopicsZnode.PATH) or ()) == ["order2", "orders"]
    for topic in ("order2", "orders"):
        zk.delete(DeleteTopicsZnode.topic_path(topic))
    assert "Mark" not in on_terminal("", "delete", zk_connect, "order.*", "--force").stderr
    assert sorted(zk.children(DeleteTopicsZnode.PATH) or ()) == ["order2", "orders"]


@pytest.mark.spec("TOP-28X")
def test_a_terminal_is_asked_before_several_are_altered(zk: ZooKeeper, zk_connect: str) -> None:
    zk.create(TopicZnode.path("order2"), TopicZnode({0: (1,)}).encode())
    before = nodes.tree(zk)
    refused = on_terminal("n\n", "alter", zk_connect, "order.*", "--config", "flush.ms=3")
    assert "Change 2 topics: order2, orders? [y/N]" in refused.stderr and refused.returncode == 1
    assert nodes.tree(zk) == before
    assert on_terminal("y\n", "alter", zk_connect, "order.*", "--config", "flush.ms=3").returncode == 0
    assert data(zk, CONFIG) == b'{"version":1,"config":{"flush.ms":"3"}}'


@pytest.mark.spec("TOP-6", "TOP-19", "TOP-28X")
@pytest.mark.parametrize("action", [("delete",), ("alter", "--config", "flush.ms=3"), ("alter", "--partitions", "9")])
def test_off_a_terminal_several_topics_are_changed_with_force_alone(
    zk: ZooKeeper, zk_connect: str, action: tuple[str, ...]
) -> None:
    zk.create(TopicZnode.path("order2"), TopicZnode({0: (1,)}).encode())
    before = nodes.tree(zk)
    why = refusal(zk_connect, action[0], "--topic", "order.*", *action[1:])
    assert why == "the pattern matches 2 topics: order2, orders; nothing was changed"
    assert nodes.tree(zk) == before
    assert answer(zk_connect, action[0], "--topic", "order.*", *action[1:], "--dry-run")
    assert answer(zk_connect, action[0], "--topic", "order.*", *action[1:], "--force")


@pytest.mark.spec("TOP-19")
@pytest.mark.parametrize("action", [("delete",), ("alter", "--config", "flush.ms=3")])
def test_a_topic_of_exactly_that_name_is_meant_alone(zk: ZooKeeper, zk_connect: str, action: tuple[str, ...]) -> None:
    for name in ("a.b", "a-b"):
        zk.create(TopicZnode.path(name), TopicZnode({0: (1,)}).encode())
    text = answer(zk_connect, action[0], "--topic", "a.b", *action[1:])
    assert "a.b" in text and "a-b" not in text
    assert (zk.children(DeleteTopicsZnode.PATH) or zk.children(ConfigZnode.path_of("topics"))) == ["a.b"]


@pytest.mark.spec("TOP-19")
@pytest.mark.parametrize("action", [("delete",), ("alter", "--config", "flush.ms=3")])
@pytest.mark.parametrize("typed", ["a.b", "x,a.b", "a.b|x", "'a.b'"])
def test_what_can_be_a_name_is_no_regex_where_it_is_not_there_either(
    zk: ZooKeeper, zk_connect: str, action: tuple[str, ...], typed: str
) -> None:
    """It may have been deleted before, or be a topic of another cluster: its neighbour is not meant."""
    zk.create(TopicZnode.path("a-b"), TopicZnode({0: (1,)}).encode())
    before = nodes.tree(zk)
    assert "does not exist" in refusal(zk_connect, action[0], "--topic", typed, *action[1:], "--force")
    answer(zk_connect, action[0], "--topic", typed, *action[1:], "--if-exists", "--force")
    assert nodes.tree(zk) == before
    assert "a-b" in answer(zk_connect, action[0], "--topic", "a[.-]b", *action[1:])


def on_terminal(typed: str, action: str, zk_connect: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run that action of ``kt topics`` as a process whose stdin is a terminal where ``typed`` has been typed."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, typed.encode())
        command = [sys.executable, "-m", "kafkatool", "topics", action, "--zookeeper", zk_connect, "--topic", *args]
        return subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=100, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
