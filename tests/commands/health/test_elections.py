"""What two looks of kt health make of elections that really happened between them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.zookeeper.cluster_view import read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.steady import STEADY, crash
from tests.waiting import eventually

T0 = TopicPartition("t", 0)
CERTAIN = "1 partition seen to be elected uncleanly"
NOT_TOLD = "1 partition with none in sync that was at the look before: whether by an unclean election is not told"


@pytest.mark.spec("ADM-107")
@pytest.mark.usefixtures("unhurried")
def test_brokers_started_anew_one_by_one_are_no_alarm_and_an_unclean_election_is_one(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=2, options=STEADY) as cluster, ZooKeeper(cluster.zookeeper) as zk:
        cluster.create_topic("t", partitions=1, replication_factor=2)

        def in_sync(*brokers: int) -> None:
            def found() -> bool:
                state = read_states(zk, [T0]).get(T0)
                return state is not None and set(state.leader_and_isr.isr) == set(brokers)

            eventually(found, f"{brokers} in sync", 60)

        def elections() -> set[tuple[str, str]]:
            where = ["--zookeeper", cluster.zookeeper, "--state", str(tmp_path / "state.json")]
            result = CliRunner().invoke(kt, ["health", *where, "--output", "json"])
            items = json.loads(result.stdout)["items"]
            return {(i["level"], i["what"]) for i in items if i["check"] == "unclean elections" and "t-0" in i["names"]}

        cluster.stop_broker(2)
        in_sync(1)
        assert elections() == set()
        cluster.start_broker(2)
        in_sync(1, 2)
        cluster.stop_broker(1)
        in_sync(2)
        assert elections() == {("unknown", NOT_TOLD)}, "2 was back before 1 went"

        crash(cluster, zk, 2)
        (config,) = read_configs(zk, [("topics", "t")])
        config.setting({"unclean.leader.election.enable": "true"}).write(zk)
        cluster.start_broker(1)
        in_sync(1)
        assert elections() == {("degraded", CERTAIN)}
