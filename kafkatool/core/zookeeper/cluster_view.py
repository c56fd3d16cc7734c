"""One pipelined read of the cluster into an immutable snapshot; every tool works on it (RSN-34X, ELE-17X).

Three round trips, whatever the number of partitions: child lists, then nodes, then partition states.
"""

import logging
from collections.abc import Callable, Container, Iterable
from itertools import islice
from typing import NamedTuple, TypeVar

from kafkatool.core.errors import ZnodeFormatError
from kafkatool.core.model.values import BrokerInfo, PartitionState, TopicPartition
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.view import ClusterView as ClusterView
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

Name = TypeVar("Name", int, str)
Content = TypeVar("Content")


def read_cluster(
    zk: ZooKeeper, topics: Iterable[str] | None = None, *, states: bool = True, configs: bool = False
) -> ClusterView:
    """Read brokers, the named topics (all when None) and, if wanted, their partition states and configs.

    Nodes that are gone or unreadable count as absent, the latter with a warning (Z-35, Z-36), and the view names them,
    except /controller, the reassignment and the election: ZnodeFormatError, since acting beside them would be wrong.
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
    configured = names if configs else []
    config_paths = [_config_path(t) for t in configured]
    nodes = iter(
        zk.get_many([*fixed, *(BrokerZnode.path(i) for i in ids), *(TopicZnode.path(t) for t in names), *config_paths])
    )
    controller, cluster_id, reassignment, election = islice(nodes, len(fixed))
    of_brokers, of_topics, of_configs = list(islice(nodes, len(ids))), list(islice(nodes, len(names))), list(nodes)
    brokers = decode_brokers(ids, of_brokers)
    found = _readable(names, of_topics, lambda t, n: TopicZnode.decode(t, n.data), "the topic is skipped")
    overrides = _readable(
        configured,
        of_configs,
        lambda t, n: ConfigZnode.decode(_config_path(t), n.data),
        "it counts as having no overrides",
    )
    made = {name: node.czxid for name, node in zip(names, of_topics, strict=True) if node is not None}
    partitions = [TopicPartition(t, p) for t in found for p in found[t].assignment] if states else []
    told = read_all_states(zk, partitions)
    unreadable = (
        *map(BrokerZnode.path, _unreadable(ids, of_brokers, brokers)),
        *map(TopicZnode.path, _unreadable(names, of_topics, found)),
        *map(PartitionStateZnode.path, sorted(told.unreadable)),
        *map(_config_path, _unreadable(configured, of_configs, overrides)),
    )
    return ClusterView(
        brokers=brokers,
        controller_id=ControllerZnode.decode(controller.data) if controller else None,
        cluster_id=ClusterIdZnode.decode(cluster_id.data) if cluster_id else None,
        topics=found,
        states=told.found,
        configs={topic: overrides.get(topic, {}) for topic in configured},
        marked_for_deletion=frozenset(marked),
        reassignment=ReassignmentZnode.decode(reassignment.data) if reassignment else None,
        election=tuple(PreferredElectionZnode.decode(election.data)) if election else None,
        topic_ids={name: str(topic.raw.get("topic_id") or made[name]) for name, topic in found.items()},
        unreadable=unreadable,
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
            log.error("%s; partition %s is skipped", e, partition)
            unreadable.add(partition)
    return States(found, written, frozenset(unreadable))


def decode_brokers(ids: Iterable[int], nodes: Iterable[Node | None]) -> dict[int, BrokerInfo]:
    """Decode the nodes registered under ``ids``; one that is gone or unreadable counts as absent (Z-7, Z-35 to 37)."""
    return _readable(
        ids, nodes, lambda i, node: BrokerZnode.decode(i, node.data, node.czxid), "the broker counts as absent"
    )


def _readable(
    names: Iterable[Name], nodes: Iterable[Node | None], decode: Callable[[Name, Node], Content], otherwise: str
) -> dict[Name, Content]:
    """Decode the nodes that are there; ``otherwise``: what becomes of one that is unreadable, for the warning."""
    found = {}
    for name, node in zip(names, nodes, strict=True):
        try:
            if node is not None:
                found[name] = decode(name, node)
        except ZnodeFormatError as e:
            log.warning("%s; %s", e, otherwise)
    return found


def _unreadable(names: Iterable[Name], nodes: Iterable[Node | None], found: Container[Name]) -> list[Name]:
    """Return those whose nodes are there and were not decoded."""
    return [name for name, node in zip(names, nodes, strict=True) if node is not None and name not in found]


def _config_path(topic: str) -> str:
    return ConfigZnode.path("topics", topic)
