"""kt reassign --cancel by ZooKeeper on brokers of processes: the controller is asked, or, not knowing, told by znode."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.main import kt
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.throttles import rates_by_broker
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerZnode, ReassignmentZnode
from tests.commands.reassign.runner import plan_file, run
from tests.core.zookeeper import cluster_nodes as nodes
from tests.steady import ONE_BATCH_A_FETCH, STEADY, crash
from tests.waiting import eventually

pytestmark = [pytest.mark.spec("RSN-37X"), pytest.mark.usefixtures("unhurried")]

WAIT_S = 60


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=4, options={**STEADY, **ONE_BATCH_A_FETCH}) as running:
        yield running


def controller(zk: ZooKeeper) -> int | None:
    node = zk.get(ControllerZnode.PATH)
    return ControllerZnode.decode(node.data) if node else None


@pytest.mark.parametrize("changed", [False, True], ids=["the controller that began it", "its heir"])
def test_a_move_under_way_is_turned_round(cluster: EmbeddedCluster, tmp_path: Path, changed: bool) -> None:
    with ZooKeeper(cluster.zookeeper) as zk:
        first = controller(zk)
        assert first is not None
        one, two, three = (b for b in (1, 2, 3, 4) if b != first)
        flags = ["--topic", "t", "--replica-assignment", f"{one}:{two}"]
        made = CliRunner().invoke(kt, ["topics", "create", "--zookeeper", cluster.zookeeper, *flags])
        assert made.exit_code == 0, made.output
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 1})
        for _ in range(40):
            producer.produce("t", bytes(50_000), partition=0)
        assert producer.flush(WAIT_S) == 0
        file = ("--reassignment-json-file", plan_file(tmp_path / "plan.json", {0: (two, three)}))
        begun = run(cluster.zookeeper, "--execute", *file, "--throttle", 1, "--force")
        assert begun.exit_code == 0, begun.output
        eventually(lambda: three in nodes.assignment(zk, "t")[0], "the move to have begun", WAIT_S)
        if changed:
            crash(cluster, zk, first)
            eventually(lambda: controller(zk) not in (None, first), "another controller", WAIT_S)
        asked = zk.get(ReassignmentZnode.PATH)
        assert asked is not None
        assert ReassignmentZnode.decode(asked.data) == {TopicPartition("t", 0): (two, three)}
        cancelled = run(cluster.zookeeper, "--cancel", *file, "--timeout", WAIT_S)
        assert cancelled.exit_code == 0, cancelled.output
        assert "1 partition under way is sent back to the replicas from before" in cancelled.stderr
        assert zk.get(ReassignmentZnode.PATH) is None and nodes.assignment(zk, "t") == {0: (one, two)}
        assert rates_by_broker(zk) == {}
