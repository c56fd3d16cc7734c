"""kt drain by requests to brokers of processes: the same as by ZooKeeper, interrupted, resumed, undone, of a dead broker."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.drain.drain_output import DrainOutput
from kafkatool.commands.main import kt
from kafkatool.core.operations.drain.drain import Proven
from kafkatool.core.operations.reassignment import events
from kafkatool.core.operations.reassignment.throttles import rates_by_broker
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.operations.reassignment.plans import config
from tests.core.zookeeper import cluster_nodes as nodes
from tests.steady import STEADY, crash
from tests.waiting import eventually

pytestmark = [pytest.mark.spec("ADM-106", "ADM-109"), pytest.mark.usefixtures("unhurried")]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    monkeypatch.chdir(tmp_path)
    with EmbeddedCluster(brokers=4, options=STEADY) as running:
        running.create_topic("t", partitions=8, replication_factor=2)
        running.create_topic("u", partitions=2, replication_factor=3)
        yield running


def run(cluster: EmbeddedCluster, *args: object) -> Result:
    words = ["drain", *map(str, args), "--bootstrap-server", cluster.bootstrap]
    return CliRunner().invoke(kt, words)


def assignments(zk: ZooKeeper) -> dict[str, dict[int, Sequence[int]]]:
    return {name: dict(topic.assignment) for name, topic in read_cluster(zk).topics.items()}


def held(zk: ZooKeeper, broker: int) -> int:
    return sum(broker in replicas for topic in assignments(zk).values() for replicas in topic.values())


@pytest.mark.spec("ADM-20")
def test_a_broker_is_emptied_by_requests_in_batches_under_a_throttle_and_that_is_proven(
    cluster: EmbeddedCluster,
) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        before, origin = nodes.tree(zk), assignments(zk)
        planned = run(cluster, 3, "--throttle", 5_000_000, "--dry-run", "--output", "json")
        assert planned.exit_code == 0, planned.output
        assert nodes.tree(zk) == before and list(Path().iterdir()) == []
        would = json.loads(planned.stdout)["items"]
        assert {item["api"] for item in would[:-1]} == {"IncrementalAlterConfigs"}
        assert would[-1]["api"] == "AlterPartitionReassignments"
        result = run(cluster, 3, "--throttle", 5_000_000, "--batch-partitions", 2, "--output", "json")
        assert result.exit_code == 0, result.output
        (item,) = json.loads(result.stdout)["items"]
        assert item == {
            "broker": 3,
            "live": True,
            "drained": True,
            "assigned": [],
            "in_isr": [],
            "leads": [],
            "on_disk": [],
        }
        assert held(zk, 3) == 0
        assert {t: len(r) for t, topic in assignments(zk).items() for r in topic.values()} == {
            t: len(r) for t, topic in origin.items() for r in topic.values()
        }
        assert rates_by_broker(zk) == {} and config(zk, "topics", "t") == {} == config(zk, "topics", "u")
        assert sorted(path.name for path in Path().iterdir()) == ["drain-3.json", "drain-3.rollback.json"]
        moves = {
            (topic["topic"], p["partition"]): p["replicas"]
            for topic in would[-1]["fields"]["topics"]
            for p in topic["partitions"]
        }
        plan = json.loads(Path("drain-3.json").read_text())["partitions"]
        assert moves == {(p["topic"], p["partition"]): p["replicas"] for p in plan}
        again = run(cluster, 3, "--no-throttle")
        assert again.exit_code == 0 and "broker 3: drained: no replica" in again.stdout
        idle = run(cluster, 3, "--no-throttle", "--dry-run")
        assert idle.exit_code == 0 and idle.stdout == "" and "nothing is assigned to them" in idle.stderr
        back = run(cluster, 3, "--cancel", "--rollback", "--no-throttle")
        assert back.exit_code == 0, back.output
        assert assignments(zk) == origin


def test_a_drain_by_requests_that_was_cut_short_is_gone_on_with_or_undone_by_either_way(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = DrainOutput.show

    def interrupt(self: DrainOutput, event: events.Event) -> None:
        show(self, event)
        if isinstance(event, events.Started):
            raise KeyboardInterrupt

    with ZooKeeper(cluster.zookeeper) as zk:
        origin = assignments(zk)
        for way in ("--resume", "--resume --zookeeper", "--cancel --rollback --throttle 5000000"):
            with monkeypatch.context() as patch:
                patch.setattr(DrainOutput, "show", interrupt)
                result = run(cluster, 4, "--throttle", 5_000_000, "--batch-partitions", 1)
            assert result.exit_code == 130, result.output
            ways_on = [line for line in result.stderr.splitlines() if line.startswith("kt drain 4 --bootstrap-server")]
            assert "--throttle 5000000 --batch-partitions 1 --resume  # go on" in ways_on[0], result.stderr
            assert "--cancel  # send no more" in ways_on[1]
            assert "--cancel --rollback --throttle 5000000 --batch-partitions 1  # bring all back" in ways_on[2]
            refused = run(cluster, 4, "--no-throttle")
            assert refused.exit_code == 1 and "was not finished" in refused.stdout
            if way.endswith("--zookeeper"):
                words = ["drain", "4", "--resume", "--zookeeper", cluster.zookeeper]
                result = CliRunner().invoke(kt, words)
            else:
                result = run(cluster, 4, *way.split())
            assert result.exit_code == 0, result.output
            assert rates_by_broker(zk) == {} and config(zk, "topics", "t") == {}
            if "--resume" in way:
                assert held(zk, 4) == 0
                assert run(cluster, 4, "--cancel", "--rollback", "--no-throttle").exit_code == 0
            assert assignments(zk) == origin
            assert not Path("drain-4.state.json").exists()
        assert run(cluster, 4, "--resume").exit_code == 1


def test_a_drain_cut_short_before_its_proof_says_how_to_have_that(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> Proven:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kafkatool.core.operations.drain.drain.Drain.prove", interrupt)
        result = run(cluster, 4, "--no-throttle")
    assert result.exit_code == 130, result.output
    look, back = [line for line in result.stderr.splitlines() if line.startswith("kt drain 4 --bootstrap-server")]
    assert look.endswith("--no-throttle  # look again whether anything is left")
    assert back.endswith("--cancel --rollback --no-throttle  # bring all back")
    assert run(cluster, 4, "--no-throttle").exit_code == 0


def test_a_dead_broker_is_drained_by_requests(
    cluster: EmbeddedCluster,
) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        crash(cluster, zk, 4)
        eventually(lambda: 4 not in read_cluster(zk, [], states=False).brokers, "4 gone")

        def refused_for_4() -> bool:
            """Brokers learn of it after ZooKeeper, and a plan of before would put replicas there."""
            refused = run(cluster, 3, "--no-throttle", "--dry-run")
            return refused.exit_code == 1 and "not live: 4" in refused.stdout

        eventually(refused_for_4, "brokers to tell that 4 is gone")
        result = run(cluster, 4, "--throttle", 5_000_000)
        assert result.exit_code == 0, result.output
        assert "broker 4: drained: no replica, no ISR, no leader; it is dead" in result.stdout
        assert held(zk, 4) == 0 and rates_by_broker(zk) == {}
        misspelt = run(cluster, 44, "--no-throttle")
        assert misspelt.exit_code == 1 and "no such broker: 44, neither registered" in misspelt.stdout
        factor = run(cluster, 1, "--no-throttle")
        assert factor.exit_code == 1 and "u-0 has 3 replicas, and 2 brokers are left" in factor.stdout, factor.output
