"""Plans proposed for whole topics: what they spread over, what is refused."""

import random

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.model.assignment import assign_replicas
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.operations.reassignment.proposal import Proposal, propose
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.operations.reassignment.plans import NINE, plan, tp
from tests.core.zookeeper import cluster_nodes as nodes


def generate(zk: ZooKeeper, topics: list[str], brokers: list[int], seed: int) -> Proposal:
    """Propose a plan for what stands in ZooKeeper."""
    view = read_cluster(zk, topics, states=False)
    return propose(view, topics, brokers, rack_aware=True, rng=random.Random(seed))


@pytest.mark.spec("RSN-3", "ASG-10")
def test_generate_spreads_the_topic_over_the_listed_brokers_and_writes_nothing(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    before = nodes.tree(zk)
    proposals = [generate(zk, ["t"], [3, 2], seed) for seed in range(20)]
    wanted = plan({p: (3 - p % 2,) for p in range(9)})
    assert all(proposal.current == plan(NINE) for proposal in proposals)
    assert any(proposal.proposed == wanted for proposal in proposals)  # start 1: the seed's plan
    assert not any(proposal.uneven_topics for proposal in proposals)
    assert nodes.tree(zk) == before


@pytest.mark.spec("RSN-3", "ASG-2", "ASG-3")
def test_each_topic_is_planned_as_a_new_one_over_the_listed_brokers_in_the_order_of_their_numbers(
    zk: ZooKeeper,
) -> None:
    topics: dict[str, dict[int, tuple[int, ...]]] = {
        "pairs": dict.fromkeys(range(7), (1, 2)),
        "single": dict.fromkeys(range(5), (3,)),
    }
    nodes.make_cluster(zk, brokers=(1, 2, 9, 10), topics=topics)
    brokers = [BrokerInfo(b, ()) for b in (2, 9, 10)]
    new = {
        topic: [
            assign_replicas(brokers, len(assignment), len(assignment[0]), start_index=start, replica_shift=shift)
            for start in range(3)
            for shift in range(3)
        ]
        for topic, assignment in topics.items()
    }
    drawn = set()
    for seed in range(50):
        found = generate(zk, list(topics), [10, 9, 2], seed).proposed
        drawn.add(found[tp(0, "pairs")])
        for topic, plans in new.items():
            assert {p.partition: replicas for p, replicas in found.items() if p.topic == topic} in plans
    assert len(drawn) == 6, "every ordered pair of three brokers: the two numbers are drawn apart"


@pytest.mark.spec("RSN-3")
def test_generate_names_topics_of_uneven_replica_counts_and_takes_partition_0s(zk: ZooKeeper) -> None:
    topics: dict[str, dict[int, tuple[int, ...]]] = {
        "even": {0: (1, 2), 1: (2, 1)},
        "first has fewest": {2: (1, 2, 3), 1: (1, 2, 3), 0: (1,)},
        "first has most": {0: (1, 2), 1: (1,), 2: (3,)},
    }
    nodes.make_cluster(zk, topics=topics)
    found = generate(zk, list(topics), [1, 2, 3], 1)
    assert found.uneven_topics == ("first has fewest", "first has most")
    assert {p: len(r) for p, r in found.proposed.items()} == {
        tp(p, topic): len(assignment[0]) for topic, assignment in topics.items() for p in assignment
    }


@pytest.mark.spec("RSN-17X")
@pytest.mark.parametrize(
    ("topics", "brokers", "message"),
    [
        (["t", "x"], [1], "List of topics to reassign contains topics that do not exist: x"),
        (["t"], [1, 9, 8], "Broker list contains brokers that are not registered: 8,9 (registered: 1,2,3)"),
    ],
)
def test_generate_refuses_what_kafka_drops_silently(
    zk: ZooKeeper, topics: list[str], brokers: list[int], message: str
) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    with pytest.raises(RefusedError) as refused:
        generate(zk, topics, brokers, 1)
    assert str(refused.value) == message
