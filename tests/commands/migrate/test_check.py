"""kt migrate check as its users see it: both sides of one cluster, rows, steps and exit codes; nothing is written."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.core.client.addresses import Address
from kafkatool.core.operations.migration.conditions import CONDITIONS
from kafkatool.core.operations.migration.differences import Difference
from kafkatool.core.protocol.messages import describe_quorum
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ClusterIdZnode
from tests.core.client.fake_controller import FakeController
from tests.core.operations.migration.evidence import BY_KRAFT, LOADED, evidence
from tests.core.zookeeper import cluster_nodes as nodes
from tests.steady import STEADY

pytestmark = [pytest.mark.spec("ADM-99"), pytest.mark.usefixtures("unhurried")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, options=STEADY) as running:
        running.create_topic("t", partitions=2, replication_factor=2)
        yield running


def run(zookeeper: str, *args: str) -> Result:
    return CliRunner().invoke(kt, ["migrate", "check", "--zookeeper", zookeeper, *args])


def test_each_condition_has_its_row_and_nothing_is_written(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        before = nodes.tree(zk)
        result = run(cluster.zookeeper, "--bootstrap-server", cluster.bootstrap, "--output", "json")
        assert nodes.tree(zk) == before
    assert result.exit_code == 1, result.output  # the brokers are of no release that can be migrated
    items = json.loads(result.stdout)["items"]
    assert [item["id"] for item in items] == [*CONDITIONS, "next", "back"]
    rows = {item["id"]: item for item in items}
    assert rows["phase"]["evidence"].startswith("none: /controller: broker ")
    assert (
        rows["software"]["severity"] == "blocker" and rows["software"]["remedy"] == "upgrade the brokers to 3.9 first"
    )
    assert rows["assignments"]["severity"] == rows["offline"]["severity"] == "ok"
    text = run(cluster.zookeeper, "--bootstrap-server", cluster.bootstrap).stdout
    assert (
        text.startswith("phase: none (")
        and "-> upgrade the brokers to 3.9 first" in text
        and "next: remove what blocks, and check again: ibp, software\n" in text
    )


def test_both_addresses_are_needed_and_must_be_of_one_cluster(
    cluster: EmbeddedCluster, zk: ZooKeeper, zk_connect: str
) -> None:
    result = run(cluster.zookeeper)
    assert result.exit_code == 2 and "give --bootstrap-server too" in result.stderr
    nodes.make_cluster(zk, topics={})
    result = run(zk_connect, "--bootstrap-server", cluster.bootstrap)
    assert result.exit_code == 1 and "ZooKeeper has the cluster the-cluster" in result.stderr


@pytest.mark.spec("ADM-4", "ADM-101")
def test_controllers_are_asked_by_their_own_address(cluster: EmbeddedCluster) -> None:
    both = (cluster.zookeeper, "--bootstrap-server", cluster.bootstrap)

    def controllers(address: Address) -> dict[str, Any]:
        result = run(*both, "--bootstrap-controller", str(address), "--output", "json")
        items = json.loads(result.stdout)["items"]
        return next(item for item in items if item["id"] == "controllers")

    with FakeController(3000, {describe_quorum.API: (0, 1)}) as controller:
        controller.answers[describe_quorum.API.key] = lambda _: _quorum(leader=3000)
        told = run(*both, "--bootstrap-controller", str(controller.address))
        assert told.exit_code == 1 and "the controllers of C: name one cluster" in told.stderr
        with ZooKeeper(cluster.zookeeper) as zk:
            node = zk.get(ClusterIdZnode.PATH)
        assert node is not None
        controller.cluster_id = str(ClusterIdZnode.decode(node.data))
        row = controllers(controller.address)
        assert (row["severity"], row["evidence"]) == (
            "blocker",
            "controllers 3000 are not set to migrate; controller 3001: it has not registered; controllers tell no "
            "metadata.version",
        )
    row = controllers(controller.address)
    assert (row["severity"], row["evidence"]) == ("unknown", f"no controller answers: {controller.address}: refused")
    broker = run(*both, "--bootstrap-controller", cluster.bootstrap)
    assert broker.exit_code == 1 and "is a broker, no controller" in broker.stderr
    assert run(*both, "--bootstrap-controller", "c").exit_code == 2


@pytest.mark.spec("ADM-102")
def test_json_has_what_zookeeper_and_the_brokers_tell_of_what_differs(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    differs = (Difference("t-0", "leader epoch 5", "leader epoch 6"), Difference("t overrides", "a=1", "none"))
    found = evidence(controller=BY_KRAFT, migration=LOADED, differences=differs)
    monkeypatch.setattr("kafkatool.commands.migrate.check.read", lambda *_: found)
    result = run(cluster.zookeeper, "--bootstrap-server", cluster.bootstrap, "--output", "json")
    assert result.exit_code == 1
    row = next(item for item in json.loads(result.stdout)["items"] if item["id"] == "diverged")
    assert (row["severity"], row["evidence"]) == (
        "blocker",
        "t-0: in ZooKeeper (leader epoch 5), by the brokers (leader epoch 6); "
        "t overrides: in ZooKeeper (a=1), by the brokers (none)",
    )


def test_a_warning_is_an_error_where_one_is_strict(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evidence(configs={"brokers": {"1": {"log.cleaner.threads": "2"}}})
    monkeypatch.setattr("kafkatool.commands.migrate.check.read", lambda *_: found)
    both = (cluster.zookeeper, "--bootstrap-server", cluster.bootstrap)
    assert (run(*both).exit_code, run(*both, "--strict").exit_code) == (0, 1)
    monkeypatch.setattr("kafkatool.commands.migrate.check.read", lambda *_: evidence())
    assert run(*both, "--strict").exit_code == 0


def _quorum(leader: int) -> describe_quorum.DescribeQuorumResponse:
    """Make the answer of a quorum of two, one of which has not registered."""
    voters = [
        describe_quorum.QuorumReplica(replica_id=voter, log_end_offset=9, last_caught_up_timestamp=1000)
        for voter in (leader, leader + 1)
    ]
    partition = describe_quorum.DescribedQuorumPartition(
        partition_index=0, leader_id=leader, leader_epoch=1, high_watermark=9, current_voters=voters, observers=[]
    )
    topic = describe_quorum.DescribedQuorumTopic(topic_name=describe_quorum.METADATA_TOPIC, partitions=[partition])
    return describe_quorum.DescribeQuorumResponse(topics=[topic])
