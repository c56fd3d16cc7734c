"""--cluster-id of every command that has it, by either way to a cluster: another's is not written to (COM-5X)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ClusterIdZnode
from tests.commands.shared.test_output_contract import commands
from tests.core.zookeeper import cluster_nodes as nodes
from tests.steady import STEADY

LIMIT_S: Final = 60
PLAN: Final = "--reassignment-json-file plan.json"
ALICE: Final = "--allow-principal User:alice --operation Read --topic t"
ABORT: Final = "transactions abort --topic t --partition 0 --producer-id 7 --producer-epoch 0 --coordinator-epoch 0"
ZOOKEEPER, BOOTSTRAP = "--zookeeper", "--bootstrap-server"
BOTH: Final = (ZOOKEEPER, BOOTSTRAP)
GUARDED: Final = {
    "topics create --topic new --partitions 1 --replication-factor 1": BOTH,
    "topics alter --topic t --config flush.ms=1": BOTH,
    "topics alter --topic t --partitions 9": BOTH,
    "topics delete --topic t": BOTH,
    f"reassign --execute {PLAN}": BOTH,
    f"reassign --verify {PLAN}": BOTH,
    f"reassign --cancel {PLAN}": BOTH,
    "elect --topic t": (ZOOKEEPER,),
    "elect --topic t --partition 0": (BOOTSTRAP,),
    "elect --election-type unclean --topic t --partition 0 --force": (BOOTSTRAP,),
    f"acls add {ALICE}": BOTH,
    f"acls remove {ALICE} --force": BOTH,
    "users alter --entity-name alice --add-config SCRAM-SHA-256=[] --password-file password": BOTH,
    "users alter --entity-name alice --delete-config SCRAM-SHA-256": BOTH,
    "drain 2 --no-throttle": BOTH,
    "drain 2 --cancel": BOTH,
    ABORT: (BOOTSTRAP,),
    "zk-acl --zookeeper.acl secure --force": (ZOOKEEPER,),
    "brokers": BOTH,
    "health": BOTH,
    "migrate check --bootstrap-server BOOT": (ZOOKEEPER,),
}
FAILED: Final = {"health": 3}  # its 1 and 2 are verdicts


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, options=STEADY) as running:
        running.create_topic("t", partitions=1, replication_factor=2)
        yield running


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = [{"topic": "t", "partition": 0, "replicas": [2]}]
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": moved}))
    (tmp_path / "password").write_text("any text will do")
    monkeypatch.chdir(tmp_path)


def run(cluster: EmbeddedCluster, command: str, way: str, cluster_id: str) -> Result:
    address = cluster.zookeeper if way == ZOOKEEPER else cluster.bootstrap
    words = command.replace("BOOT", cluster.bootstrap).split(" ")
    return CliRunner().invoke(kt, [*words, way, address, "--cluster-id", cluster_id])


def end_of_the_log(cluster: EmbeddedCluster) -> int:
    """Ask without a group: for the first one the brokers would make a topic, in their own time."""
    partition = TopicPartition("t", 0)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.list_offsets({partition: OffsetSpec.latest()}, request_timeout=LIMIT_S)[partition].result()
    return int(found.offset)


@pytest.mark.spec("COM-5X")
def test_every_command_that_has_the_flag_is_tried() -> None:
    having = {
        (" ".join(words), way)
        for words, command in commands(kt)
        for way in BOTH
        if {"--cluster-id", way} <= {flag for p in command.params if isinstance(p, click.Option) for flag in p.opts}
    }
    tried = {(words, way) for words, way in having for text, ways in GUARDED.items()
             if text.startswith(words) and way in ways}  # fmt: skip
    assert having - tried == {("migrate check", BOOTSTRAP)}, "it asks both at once"


@pytest.mark.spec("COM-5X", "ADM-8", "ADM-109")
def test_no_command_writes_to_a_cluster_of_another_id_or_of_none(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        own = read_cluster_id(zk)
        assert own is not None
        before = nodes.tree(zk)
        for command, ways in GUARDED.items():
            for way in ways:
                told = run(cluster, command, way, "other")
                assert "--cluster-id is other, but" in told.output, (command, told.output)
                assert told.exit_code == FAILED.get(command, 1), command
                assert f"has id {own}; nothing was written" in told.output, (command, told.output)
        assert nodes.tree(zk) == before and end_of_the_log(cluster) == 0
        zk.delete(ClusterIdZnode.PATH)  # as before 0.10.1; the brokers go on with theirs
        before = nodes.tree(zk)
        for command in (c for c, ways in GUARDED.items() if ZOOKEEPER in ways):
            told = run(cluster, command, ZOOKEEPER, own)
            assert f"--cluster-id is {own}, but" in told.output, (command, told.output)
            assert told.exit_code == FAILED.get(command, 1), command
            assert "has no id; nothing was written" in told.output, (command, told.output)
        assert nodes.tree(zk) == before
    assert run(cluster, ABORT, BOOTSTRAP, own).exit_code == 0 and end_of_the_log(cluster) == 1, "the id is right"
