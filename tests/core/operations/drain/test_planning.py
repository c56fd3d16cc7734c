"""What a drain plans, and what it refuses before anything is written."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.drain.planning import held_by, plan_drain
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import DeleteTopicsZnode, ReassignmentZnode, TopicZnode
from tests.core.zookeeper import cluster_nodes as nodes

pytestmark = pytest.mark.spec("ADM-106")
SIX = {0: (1, 2), 1: (2, 3), 2: (3, 4), 3: (4, 1), 4: (1, 3), 5: (2, 4)}


def view_of(
    zk: ZooKeeper,
    assigned: Mapping[int, Sequence[int]] = SIX,
    *,
    live: Sequence[int] = (1, 2, 3, 4),
    racks: Mapping[int, str] | None = None,
) -> ClusterView:
    nodes.make_cluster(zk, brokers=live, topics={"t": assigned}, racks=racks)
    return read_cluster(zk)


def test_nothing_is_left_on_the_drained_and_the_others_hold_equally_many(zk: ZooKeeper) -> None:
    plan = plan_drain(view_of(zk), [3, 4], rack_aware=True)
    assert {b for to in plan.proposed.values() for b in to} == {1, 2} == set(plan.targets)
    plan = plan_drain(read_cluster(zk), [4], rack_aware=True)
    held = Counter(b for to in plan.proposed.values() for b in to)
    assert held == {1: 4, 2: 4, 3: 4}
    assert set(plan.moves) == {TopicPartition("t", p) for p in (2, 3, 5)}  # those that 4 holds, and no other
    assert all(plan.current[p] == SIX[p.partition] for p in plan.proposed)


def test_a_dead_broker_can_be_drained(zk: ZooKeeper) -> None:
    plan = plan_drain(view_of(zk, live=(1, 2, 3)), [4], rack_aware=True)
    assert 4 not in {b for to in plan.proposed.values() for b in to}


@pytest.mark.parametrize(
    ("live", "drained", "why"),
    [
        ((1, 2, 3, 4), [9], r"no such broker: 9"),
        ((1, 2, 3, 4), [1, 2, 3], r"t-0 has 2 replicas, and 1 broker is left"),
        ((1, 2, 3), [1], r"1 broker is assigned replicas and not live: 4"),
        ((1, 2, 3), [4, 1, 2], r"t-0 has 2 replicas, and 1 broker is left"),
    ],
    ids=["unknown", "too-few", "dead-target", "too-few-with-dead"],
)
def test_it_is_refused_where_it_cannot_end_well(
    zk: ZooKeeper, live: Sequence[int], drained: Sequence[int], why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        plan_drain(view_of(zk, live=live), drained, rack_aware=True)


def test_what_nobody_alive_has_is_not_waited_for_to_the_end_of_time(zk: ZooKeeper) -> None:
    view_of(zk, {0: (1, 2), 1: (4,)}, live=(1, 2, 3))
    nodes.set_state(zk, TopicPartition("t", 1), None, (4,))
    with pytest.raises(
        RefusedError, match=r"^1 partition has no live replica in sync, so nothing could be copied: t-1$"
    ) as refused:
        plan_drain(read_cluster(zk), [4], rack_aware=True)
    assert refused.value.now == "start broker 4: the only copy may be there"


@pytest.mark.parametrize("by_request", [False, True], ids=["znode", "request"])
def test_it_is_refused_while_anything_moves(zk: ZooKeeper, by_request: bool) -> None:
    nodes.make_cluster(zk, brokers=(1, 2, 3), topics={"t": {0: (1, 2)}, "u": {0: (1, 2)}})
    if by_request:
        topic = TopicZnode({0: (1, 2)}, {"adding_replicas": {"0": [2]}})
        zk.set(TopicZnode.path("u"), topic.encode(), 0)
    else:
        zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({TopicPartition("u", 0): (1, 3)}))
    with pytest.raises(RefusedError, match="1 partition is being moved"):
        plan_drain(read_cluster(zk), [1], rack_aware=True)


def test_partitions_that_come_to_fewer_racks_are_named(zk: ZooKeeper) -> None:
    view = view_of(zk, {0: (1, 2), 1: (1, 3)}, live=(1, 2, 3), racks={1: "a", 2: "b", 3: "b"})
    plan = plan_drain(view, [1], rack_aware=True)
    assert plan.less_spread == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert plan_drain(view, [2], rack_aware=True).less_spread == ()


def test_topics_being_deleted_stay_where_they_are(zk: ZooKeeper) -> None:
    view_of(zk)
    zk.create(DeleteTopicsZnode.topic_path("t"))
    view = read_cluster(zk)
    assert held_by(view, [1]) == [] and plan_drain(view, [1], rack_aware=True).moves == {}
