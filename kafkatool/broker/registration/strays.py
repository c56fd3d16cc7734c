"""Logs that are not the cluster's: left by a move or a deletion that this broker has missed.

A topic's node tells what is assigned to this broker, and which topic it is: one made again under the name of a deleted
one has a node of its own.
"""

import contextlib
import logging
from collections.abc import Collection, Mapping

from kafkatool.broker.storage.directories.topic_identity import Judgement, TopicIdentity
from kafkatool.core.errors import NodeExistsError, ZnodeFormatError, ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.znodes import ClusterIdZnode, TopicsZnode, TopicZnode

log = logging.getLogger(__name__)


def find_strays(
    zookeeper: ZooKeeper, broker_id: int, found: Mapping[TopicPartition, TopicIdentity | None]
) -> Judgement:
    """Judge the logs found, with what is noted of them: no such topic, not assigned here, or made for an earlier one.

    The session must have written before (``make_base_paths`` has): then what it reads is not older than that, whatever
    server it is connected to. Of a topic whose node cannot be read none is a stray. Raises ZooKeeperError.
    """
    topics = sorted({partition.topic for partition in found})
    nodes, identities = _read(zookeeper, topics)
    own: set[TopicPartition] = set()
    for topic, node in nodes.items():
        try:
            assignment = TopicZnode.decode(topic, node.data).assignment
        except ZnodeFormatError as e:
            log.warning("%s; its directories are left where they are", e)
            own.update(partition for partition in found if partition.topic == topic)
            identities.pop(topic, None)
            continue
        own.update(TopicPartition(topic, number) for number, on in assignment.items() if broker_id in on)
    outlived = {
        partition
        for partition, noted in found.items()
        if noted is not None and (now := identities.get(partition.topic)) is not None and noted.is_before(now)
    }
    return Judgement(found.keys() - own | outlived, identities)


def read_identities(zookeeper: ZooKeeper, topics: Collection[str]) -> Mapping[str, TopicIdentity]:
    """Return which topics these are now; none where ZooKeeper cannot be asked: it is noted at a later time.

    Never an earlier one, which would have the log of the present topic set aside: a write goes before, as above.
    """
    session = zookeeper.session_id
    try:
        with contextlib.suppress(NodeExistsError):
            zookeeper.create(TopicsZnode.PATH)
        _, identities = _read(zookeeper, topics)
    except ZooKeeperError as e:
        log.warning("the logs being made are not noted with the identity of their topics: %s", e)
        return {}
    return identities if zookeeper.session_id == session else {}


def _read(zookeeper: ZooKeeper, topics: Collection[str]) -> tuple[dict[str, Node], dict[str, TopicIdentity]]:
    """Return nodes and identities of those there are, read in one pass."""
    if not topics:
        return {}, {}
    cluster, *found = zookeeper.get_many([ClusterIdZnode.PATH, *map(TopicZnode.path, topics)])
    nodes = {topic: node for topic, node in zip(topics, found, strict=True) if node is not None}
    if cluster is None:
        return nodes, {}
    return nodes, {topic: TopicIdentity(cluster.czxid, node.czxid) for topic, node in nodes.items()}
