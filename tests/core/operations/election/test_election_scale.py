"""An election of 100,000 partitions without a file, which Kafka's own tool cannot do (ELE-13)."""

import pytest

from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.operations.election import election
from kafkatool.core.planner.plan_files import split_election
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import Create, Op, ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    PartitionStateZnode,
    PartitionsZnode,
    PartitionZnode,
    PreferredElectionZnode,
    TopicZnode,
)
from tests.core.zookeeper import cluster_nodes as nodes

TOPICS, PARTITIONS = 100, 1000


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(900)
@pytest.mark.spec("ELE-14X", "ELE-17X")
def test_a_hundred_thousand_partitions(zk_connect: str, zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={})
    state = PartitionStateZnode.encode(LeaderAndIsr(2, 0, (2, 1), 1))
    names = [f"topic-{number:044d}" for number in range(TOPICS)]
    for name in names:
        zk.create(TopicZnode.path(name), TopicZnode(dict.fromkeys(range(PARTITIONS), (1, 2))).encode())
        zk.create(PartitionsZnode.path(name))
        writes: list[Op] = []
        for partition in (TopicPartition(name, p) for p in range(PARTITIONS)):
            writes += [Create(PartitionZnode.path(partition)), Create(PartitionStateZnode.path(partition), state)]
        zk.commit_many([writes[i : i + 500] for i in range(0, len(writes), 500)])

    elected: list[TopicPartition] = []

    def forget(own: ZooKeeper) -> None:
        node = own.get(PreferredElectionZnode.PATH)
        assert node is not None
        elected.extend(PreferredElectionZnode.decode(node.data))
        own.delete(PreferredElectionZnode.PATH)

    with nodes.controller(zk_connect, PreferredElectionZnode.PATH, forget):
        selection = election.select(read_cluster(zk))
        batches = split_election(selection.partitions, max_bytes=512_000)
        result = election.run(zk, selection, batches, timeout_s=300, on_batch=lambda _: None)
    assert elected == list(selection.partitions) and len(elected) == TOPICS * PARTITIONS
    assert len(batches) > 10 and result.stopped is None
