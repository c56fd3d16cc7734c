"""One pipelined read of the cluster into an immutable snapshot; every tool works on it (RSN-34X, ELE-17X).

Three round trips, whatever the number of partitions: child lists, then nodes, then partition states.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import BrokerInfo, PartitionState, TopicPartition
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.znodes import (
    BrokersZnode,
    BrokerZnode,
    ClusterIdZnode,
    ConfigZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicsZnode,
    TopicZnode,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A snapshot of the cluster. ``topics``, ``states`` and ``configs`` cover the topics asked for, the rest the cluster."""

    brokers: Mapping[int, BrokerInfo]
    controller_id: int | None
    cluster_id: str | None
    topics: Mapping[str, TopicZnode]
    states: Mapping[TopicPartition, PartitionState]
    configs: Mapping[str, Mapping[str, str]]
    marked_for_deletion: frozenset[str]
    reassignment: Mapping[TopicPartition, tuple[int, ...]] | None
    election: tuple[TopicPartition, ...] | None

    def partitions(self) -> list[TopicPartition]:
        """Return every partition of the topics read, sorted."""
        return [TopicPartition(t, p) for t in sorted(self.topics) for p in sorted(self.topics[t].assignment)]


def read_cluster(
    zk: ZooKeeper, topics: Iterable[str] | None = None, *, states: bool = True, configs: bool = False
) -> ClusterView:
    """Read brokers, the named topics (all when None) and, if wanted, their partition states and configs.

    Nodes that are gone or unreadable count as absent, the latter with a warning (Z-35, Z-36), except /controller,
    the reassignment and the election: ZnodeFormatError, since acting beside them would be wrong.
    """
    broker_ids, all_topics, marked = (
        children or [] for children in zk.children_many([BrokersZnode.PATH, TopicsZnode.PATH, DeleteTopicsZnode.PATH])
    )
    if strange := [name for name in broker_ids if not name.isdecimal()]:
        log.warning("children of %s that are no broker ids are skipped: %s", BrokersZnode.PATH, ", ".join(strange))
    ids = sorted(int(i) for i in broker_ids if i.isdecimal())
    wanted = None if topics is None else set(topics)
    names = sorted(all_topics if wanted is None else wanted.intersection(all_topics))
    fixed = [ControllerZnode.PATH, ClusterIdZnode.PATH, ReassignmentZnode.PATH, PreferredElectionZnode.PATH]
    config_paths = [ConfigZnode.path("topics", t) for t in names] if configs else []
    nodes = iter(
        zk.get_many([*fixed, *(BrokerZnode.path(i) for i in ids), *(TopicZnode.path(t) for t in names), *config_paths])
    )
    controller, cluster_id, reassignment, election = islice(nodes, len(fixed))
    brokers = decode_brokers(ids, list(islice(nodes, len(ids))))
    found_topics = _topics(names, list(islice(nodes, len(names))))
    return ClusterView(
        brokers=brokers,
        controller_id=ControllerZnode.decode(controller.data) if controller else None,
        cluster_id=ClusterIdZnode.decode(cluster_id.data) if cluster_id else None,
        topics=found_topics,
        states=read_states(zk, _partitions(found_topics)) if states else {},
        configs={t: _config(t, n) for t, n in zip(names, nodes, strict=True)} if configs else {},
        marked_for_deletion=frozenset(marked),
        reassignment=ReassignmentZnode.decode(reassignment.data) if reassignment else None,
        election=tuple(PreferredElectionZnode.decode(election.data)) if election else None,
    )


class States(NamedTuple):
    """State nodes as read: those found, and those that are there but cannot be read (Z-35).

    ``written``: the ZooKeeper transaction that last wrote each one found (mzxid).
    """

    found: dict[TopicPartition, PartitionState]
    written: dict[TopicPartition, int]
    unreadable: frozenset[TopicPartition]


def read_states(zk: ZooKeeper, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
    """Read the state nodes of those partitions in one pass; partitions without a (readable) one are left out."""
    return read_all_states(zk, partitions).found


def read_all_states(zk: ZooKeeper, partitions: Iterable[TopicPartition]) -> States:
    """Read the same, and tell also of which partitions the node cannot be read."""
    wanted = list(partitions)
    found = {}
    written = {}
    unreadable = set()
    for partition, node in zip(wanted, zk.get_many([PartitionStateZnode.path(p) for p in wanted]), strict=True):
        if node is None:
            continue
        try:
            found[partition] = PartitionState(PartitionStateZnode.decode(partition, node.data), node.version)
            written[partition] = node.mzxid
        except ZnodeFormatError as e:
            log.warning("%s; partition %s is skipped", e, partition)
            unreadable.add(partition)
    return States(found, written, frozenset(unreadable))


def _partitions(topics: Mapping[str, TopicZnode]) -> list[TopicPartition]:
    return [TopicPartition(t, p) for t, topic in topics.items() for p in topic.assignment]


def decode_brokers(ids: Sequence[int], nodes: Sequence[Node | None]) -> dict[int, BrokerInfo]:
    """Decode the nodes registered under ``ids``; one that is gone or unreadable counts as absent (Z-7, Z-35 to 37)."""
    brokers = {}
    for broker_id, node in zip(ids, nodes, strict=True):
        try:
            if node is not None:
                brokers[broker_id] = BrokerZnode.decode(broker_id, node.data, node.czxid)
        except ZnodeFormatError as e:
            log.warning("%s; the broker counts as absent", e)
    return brokers


def _topics(names: list[str], nodes: list[Node | None]) -> dict[str, TopicZnode]:
    topics = {}
    for name, node in zip(names, nodes, strict=True):
        try:
            if node is not None:
                topics[name] = TopicZnode.decode(name, node.data)
        except ZnodeFormatError as e:
            log.warning("%s; the topic is skipped", e)
    return topics


def _config(topic: str, node: Node | None) -> dict[str, str]:
    try:
        return ConfigZnode.decode(ConfigZnode.path("topics", topic), node.data) if node else {}
    except ZnodeFormatError as e:
        log.warning("%s; it counts as having no overrides", e)
        return {}
