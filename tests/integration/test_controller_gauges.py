"""The controller's gauges, as ``kt cluster status --output json`` shows them of a cluster of processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.integration.load import await_in_sync
from tests.steady import STEADY
from tests.waiting import awaited, eventually

pytestmark = pytest.mark.slow

WAIT_S = 90


def status(cluster: EmbeddedCluster) -> dict[str, Any]:
    found = CliRunner().invoke(kt, ["cluster", "status", "--dir", str(cluster.files.directory), "--output", "json"])
    assert found.exit_code == 0, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    return document


@pytest.mark.spec("ADM-75", "CTL-29", "CTL-24")
def test_status_shows_what_the_controller_says_of_itself(tmp_path: Path) -> None:
    with (
        EmbeddedCluster(2, directory=tmp_path / "cluster", options=STEADY) as cluster,
        ZooKeeper(cluster.zookeeper) as zk,
    ):
        controller: int = awaited(lambda: status(cluster)["controller"], "a controller", WAIT_S)
        other = 3 - controller
        gauges: dict[str, float] = {}
        create_topic(zk, "alone", {0: (other,)}, {})
        create_topic(zk, "both", {0: (other, controller)}, {})
        await_in_sync(zk, ["alone", "both"], WAIT_S)

        def shows(**wanted: float) -> bool:
            gauges.update(status(cluster)["controller_gauges"] or {})
            return bool(gauges) and all(gauges[name] == value for name, value in wanted.items())

        eventually(lambda: shows(ActiveControllerCount=1, OfflinePartitionsCount=0), "all to be online", WAIT_S)
        cluster.kill_broker(other)
        eventually(
            lambda: shows(OfflinePartitionsCount=1, PreferredReplicaImbalanceCount=2, FailoverCount=1),
            "the dead broker to show",
            WAIT_S,
        )
        broker_gauges = cluster.files.logs(controller) / "broker-gauges.json"

        def under_replicated() -> float:
            return float(json.loads(broker_gauges.read_bytes())["UnderReplicatedPartitions"])

        eventually(lambda: under_replicated() == 1, "the leader to count what lacks a replica", WAIT_S)
        assert gauges["LeaderElectionCount"] >= 2 and gauges["RequestBatchTimeMaxMs"] > 0
        assert gauges["EventQueueTimeMaxMs"] >= gauges["EventQueueTimeMs"] > 0
        cluster.kill_broker(controller)
        eventually(lambda: status(cluster)["controller_gauges"] is None, "nobody to say anything", WAIT_S)
