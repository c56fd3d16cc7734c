"""kt brokers on brokers of processes: what they say is in their rows, and who says nothing is told."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.operations.brokers import answers
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.reassignment.throttles import RATES
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode
from tests.core.zookeeper import cluster_nodes as nodes
from tests.steady import STEADY
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, options=STEADY) as running:
        running.create_topic("t", partitions=4, replication_factor=2)
        yield running


def run(zookeeper: str, *args: object) -> Result:
    return CliRunner().invoke(kt, ["brokers", "--zookeeper", zookeeper, *map(str, args)])


@pytest.mark.spec("ADM-105", "ADM-109")
def test_brokers_tell_their_directories_and_their_software(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        before = nodes.tree(zk)
        result = run(cluster.zookeeper, "--output", "json")
        assert nodes.tree(zk) == before  # it only reads
    assert result.exit_code == 0, result.output
    items = json.loads(result.stdout)["items"]
    assert [(i["broker"], i["live"], i["preferred"], i["replicas"]) for i in items] == [
        (1, True, 2, 4),
        (2, True, 2, 4),
    ]
    assert sum(item["controller"] for item in items) == 1
    for item in items:
        assert [Path(path).is_dir() for path in item["bytes"]] == [True] and item["offline_log_dirs"] == []
        assert item["software"].startswith("like ")
    text = run(cluster.zookeeper).stdout
    assert "replicas: 4 to 4 a live broker, 1.00 to 1" in text and "leaders: " in text and "bytes: " in text


@pytest.mark.spec("ADM-105", "ADM-109")
def test_both_ways_to_the_cluster_tell_the_same(cluster: EmbeddedCluster) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        (read,) = read_configs(zk, [("brokers", "2")])
        read.setting({RATES[0]: "5000"}).write(zk)

    def items(*way: str) -> list[dict[str, Any]]:
        result = CliRunner().invoke(kt, ["brokers", *way, "--output", "json"])
        assert result.exit_code == 0, result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)["items"]
        for item in found:
            assert item["free_bytes"].keys() == item["bytes"].keys()
            item["free_bytes"] = None  # others use the disk: it is another with each look
        return found

    def are_the_same() -> bool:
        return items("--bootstrap-server", cluster.bootstrap) == items("--zookeeper", cluster.zookeeper)

    assert items("--zookeeper", cluster.zookeeper)[1]["leader_throttle"] == "5000"
    eventually(are_the_same, "the same by requests")


@pytest.mark.spec("ADM-105")
def test_who_does_not_answer_leaves_its_own_columns_empty(
    zk: ZooKeeper, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "LIMIT_S", 0.2)
    monkeypatch.setitem(answers.ask_brokers.__kwdefaults__ or {}, "limit_s", 0.2)
    nodes.make_cluster(zk, brokers=(), topics={"t": {0: (1, 9)}}, controller=None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = BrokerInfo(1, (Endpoint("PLAINTEXT", "127.0.0.1", silent.getsockname()[1]),))
        zk.create(BrokerZnode.path(1), BrokerZnode.encode(broker, 0))
        result = run(zk_connect, "--output", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [(i["broker"], i["live"], i["replicas"], i["bytes"], i["software"]) for i in found["items"]] == [
        (1, True, 1, None, None),
        (9, False, 1, None, None),
    ]
    assert [(e["broker"], e["error"]) for e in found["errors"]] == [(1, "broker_unreachable")]
    assert "broker 1: " in result.stderr
    assert "- (dead)" in run(zk_connect).stdout
