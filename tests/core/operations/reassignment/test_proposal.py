"""Plans proposed for whole topics: what they spread over, what is refused."""

import random

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.reassignment.proposal import generate
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode
from tests.core.operations.reassignment.plans import NINE, changes, plan
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.mark.spec("RSN-3", "ASG-10")
def test_generate_spreads_the_topic_over_the_listed_brokers_and_writes_nothing(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    proposals = [generate(zk, ["t"], [3, 2], rack_aware=True, rng=random.Random(seed)) for seed in range(20)]
    wanted = plan({p: (3 - p % 2,) for p in range(9)})
    assert all(proposal.current == plan(NINE) for proposal in proposals)
    assert any(proposal.proposed == wanted for proposal in proposals)  # start 1: the seed's plan
    assert not any(proposal.uneven_topics for proposal in proposals)
    assert zk.get(ReassignmentZnode.PATH) is None and not changes(zk)


@pytest.mark.spec("RSN-3")
def test_generate_names_topics_of_uneven_replica_counts_and_takes_partition_0s(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1,)}})
    found = generate(zk, ["t"], [1, 2, 3], rack_aware=True, rng=random.Random(1))
    assert found.uneven_topics == ("t",)
    assert {len(r) for r in found.proposed.values()} == {2}


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
        generate(zk, topics, brokers, rack_aware=True, rng=random.Random(1))
    assert str(refused.value) == message
