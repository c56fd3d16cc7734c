"""Partition directories that the cluster does not assign to this broker: left by a move or a deletion it has missed."""

import logging
from collections.abc import Collection

from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import TopicZnode

log = logging.getLogger(__name__)


def find_strays(zookeeper: ZooKeeper, broker_id: int, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    """Return those of which ZooKeeper says that they are not assigned here, or that there is no such topic.

    The session must have written before (``make_base_paths`` has): then what it reads is not older than that, whatever
    server it is connected to. Of a topic whose node cannot be read none is a stray. Raises ZooKeeperError.
    """
    topics = sorted({partition.topic for partition in partitions})
    assigned: set[TopicPartition] = set()
    for topic, node in zip(topics, zookeeper.get_many([TopicZnode.path(topic) for topic in topics]), strict=True):
        try:
            assignment = TopicZnode.decode(topic, node.data).assignment if node else {}
        except ZnodeFormatError as e:
            log.warning("%s; its directories are left where they are", e)
            assigned.update(partition for partition in partitions if partition.topic == topic)
            continue
        assigned.update(TopicPartition(topic, number) for number, on in assignment.items() if broker_id in on)
    return set(partitions) - assigned
