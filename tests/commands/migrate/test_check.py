"""kt migrate check as its users see it: both sides of one cluster, rows, steps and exit codes; nothing is written."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.core.operations.migration.conditions import CONDITIONS
from kafkatool.core.zookeeper.session import ZooKeeper
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
