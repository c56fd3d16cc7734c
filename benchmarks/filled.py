"""The nodes of a cluster's topics, all replicas in sync, as a controller that takes over finds them."""

from collections.abc import Iterator, Sequence
from typing import Final

from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.zookeeper.session import Create, Op
from kafkatool.core.zookeeper.znodes import PartitionStateZnode, PartitionsZnode, PartitionZnode, TopicZnode

BROKERS: Final = (1, 2, 3)
TOPIC_PARTITIONS: Final = 100


def topics(partitions: int) -> Iterator[Sequence[Op]]:
    """Make topics, one after the other: RF 3, each broker leads, and is preferred by, a third of the partitions."""
    for first in range(0, partitions, TOPIC_PARTITIONS):
        topic, count = f"topic-{first}", min(TOPIC_PARTITIONS, partitions - first)
        assigned = {n: tuple(BROKERS[(n + i) % 3] for i in range(3)) for n in range(count)}
        made: list[Op] = [
            Create(TopicZnode.path(topic), TopicZnode(assigned).encode()),
            Create(PartitionsZnode.path(topic)),
        ]
        for number, replicas in assigned.items():
            partition = TopicPartition(topic, number)
            state = PartitionStateZnode.encode(LeaderAndIsr(replicas[0], 0, replicas, 1))
            made += [Create(PartitionZnode.path(partition)), Create(PartitionStateZnode.path(partition), state)]
        yield made
