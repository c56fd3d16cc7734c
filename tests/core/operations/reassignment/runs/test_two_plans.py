"""Two plans whose throttles meet: in whichever order they end, neither leaves a rate behind nor takes the other's off."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.runs.run import Run
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
from kafkatool.core.operations.reassignment.submission import prepare
from kafkatool.core.planner.plan_files import dashed
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode
from tests.core.operations.reassignment.plans import NINE, config, plan
from tests.core.zookeeper import cluster_nodes as nodes

LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Plan:
    """A plan that moves one partition, carried out with a throttle of its own."""

    def __init__(self, zk: ZooKeeper, directory: Path, name: str, topic: str, moves: Mapping[int, Sequence[int]]):
        self._zk, self._topic = zk, topic
        self._moves = plan(moves, topic)
        self._files = RunFiles(str(directory / f"{name}.json"))

    def run(self) -> Run:
        return Run(self._zk, self._moves, self._files, name_of=dashed, on_progress=lambda _: None)

    def begin(self, rate: int, *, followed: bool = True) -> None:
        """Start it; ``followed``: by a kt that gives up at once and leaves its state file."""
        list(self.run().start(prepare(self._zk, self._moves, throttle=rate), followed=followed, timeout_s=0))

    def end(self) -> list[str]:
        """Find that all is done, as --verify or --resume would; return what is told."""
        return [type(event).__name__ for event in self.run().verify(preserve_throttles=False)]


def rates(zk: ZooKeeper) -> list[str | None]:
    """Return the followers' rate of each broker."""
    return [(config(zk, "brokers", b) or {}).get(throttles.RATES[1]) for b in "123"]


@pytest.fixture
def cluster(zk: ZooKeeper) -> ZooKeeper:
    nodes.make_cluster(zk, topics={"t": NINE, "u": NINE}, brokers=(1, 2, 3))
    return zk


@pytest.mark.spec("RSN-23X")
@pytest.mark.parametrize(("second_topic", "first_ends_first"), [("t", False), ("u", False), ("u", True)])
@pytest.mark.parametrize("followed", [True, False])
def test_a_plan_started_under_anothers_throttle_leaves_none(
    cluster: ZooKeeper, tmp_path: Path, followed: bool, second_topic: str, first_ends_first: bool
) -> None:
    every = {p: (2, 3, 1)[p % 3 : p % 3 + 1] for p in range(9)}  # so that each broker has a rate
    first = Plan(cluster, tmp_path, "first", "t", every)
    second = Plan(cluster, tmp_path, "second", second_topic, {p: (r[0] % 3 + 1,) for p, r in every.items()})
    first.begin(1111, followed=followed)
    nodes.reassign(cluster)  # all of it is done, and nobody has looked
    second.begin(2222)
    assert rates(cluster) == ["2222"] * 3
    if first_ends_first:
        assert "ThrottleRemoved" not in first.end()
        assert rates(cluster) == ["2222"] * 3, "the second still moves under them"
    nodes.reassign(cluster)
    second.end()
    if second_topic == "u":
        first.end()
    assert rates(cluster) == [None] * 3
    if second_topic == "u":
        assert not any((config(cluster, "topics", t) or {}).get(key) for t in "tu" for key in LISTS)


@pytest.mark.spec("RSN-23X")
def test_the_first_plans_rate_comes_back_as_long_as_it_is_not_ended(cluster: ZooKeeper, tmp_path: Path) -> None:
    first = Plan(cluster, tmp_path, "first", "t", dict.fromkeys(range(9), (2,)))
    second = Plan(cluster, tmp_path, "second", "u", dict.fromkeys(range(9), (3,)))
    first.begin(1111)
    nodes.reassign(cluster)
    second.begin(2222)
    nodes.reassign(cluster)
    assert second.end()[-1] == "ThrottleRemoved"
    assert set(rates(cluster)) == {"1111"}, "the first may have batches to go"
    assert first.end()[-1] == "ThrottleRemoved"
    assert rates(cluster) == [None] * 3


@pytest.mark.spec("RSN-23X")
def test_an_administrators_own_rate_and_list_outlive_a_plan(cluster: ZooKeeper, tmp_path: Path) -> None:
    own = dict.fromkeys(throttles.RATES, "777")
    cluster.create("/config/brokers/1", ConfigZnode.encode(own))
    cluster.create("/config/topics/u", ConfigZnode.encode(dict.fromkeys(LISTS, "*")))
    moving = Plan(cluster, tmp_path, "plan", "t", dict.fromkeys(range(9), (2,)))
    moving.begin(1111)
    assert rates(cluster)[0] == "1111"
    nodes.reassign(cluster)
    assert moving.end()[-1] == "ThrottleRemoved"
    assert config(cluster, "brokers", "1") == own and rates(cluster)[1:] == [None, None]


@pytest.mark.spec("RSN-23X")
def test_lists_that_a_plan_has_left_long_ago_keep_no_rate_alive(cluster: ZooKeeper, tmp_path: Path) -> None:
    cluster.create("/config/topics/u", ConfigZnode.encode({LISTS[0]: "0:1", LISTS[1]: "0:2"}))
    moving = Plan(cluster, tmp_path, "plan", "t", dict.fromkeys(range(9), (2,)))
    moving.begin(1111)
    nodes.reassign(cluster)
    assert moving.end()[-1] == "ThrottleRemoved"
    assert rates(cluster) == [None] * 3
