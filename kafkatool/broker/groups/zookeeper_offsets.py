"""Offsets kept in ZooKeeper, where version 0 of OffsetCommit and OffsetFetch has them (GRP-46, 56).

Groups know nothing of them, and no broker owns them: any broker answers. Source: Kafka 2.3.1 server/KafkaApis.scala.
"""

import logging
from collections.abc import Mapping, Sequence

from kafkatool.core.errors import NodeExistsError, NoNodeError, ZnodeFormatError, ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConsumerOffsetZnode

log = logging.getLogger(__name__)


def store(zookeeper: ZooKeeper, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
    """Write each offset; one that fails does not keep the others."""
    return {partition: _store_one(zookeeper, group, partition, offset) for partition, offset in offsets.items()}


def _store_one(zookeeper: ZooKeeper, group: str, partition: TopicPartition, offset: int) -> ErrorCode:
    data = ConsumerOffsetZnode.encode(offset)
    try:
        path = ConsumerOffsetZnode.path(group, partition)
        try:
            zookeeper.set(path, data, -1)
        except NoNodeError:
            try:
                zookeeper.create(path, data, make_parents=True)
            except NodeExistsError:  # another commit was quicker: this one is later
                zookeeper.set(path, data, -1)
    except ValueError:
        return ErrorCode.INVALID_GROUP_ID
    except ZooKeeperError as e:
        log.warning("offset %d of group %s for %s could not be stored in ZooKeeper: %s", offset, group, partition, e)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def fetch(
    zookeeper: ZooKeeper, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, ErrorCode]]:
    """Return offset and code of each; -1 with UNKNOWN_TOPIC_OR_PARTITION where there is no node."""
    try:
        paths = [ConsumerOffsetZnode.path(group, partition) for partition in partitions]
        nodes = zookeeper.get_many(paths)
    except ValueError:
        return dict.fromkeys(partitions, (-1, ErrorCode.INVALID_GROUP_ID))
    except ZooKeeperError as e:
        log.warning("offsets of group %s could not be read from ZooKeeper: %s", group, e)
        return dict.fromkeys(partitions, (-1, ErrorCode.UNKNOWN_SERVER_ERROR))
    found = {}
    for partition, path, node in zip(partitions, paths, nodes, strict=True):
        try:
            missing = (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            found[partition] = (ConsumerOffsetZnode.decode(path, node.data), ErrorCode.NONE) if node else missing
        except ZnodeFormatError as e:
            log.warning("%s", e)
            found[partition] = (-1, ErrorCode.UNKNOWN_SERVER_ERROR)
    return found
