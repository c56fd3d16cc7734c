"""What ZooKeeper and the brokers tell differently while both are written: for ``diverged`` (ADM-102). Only reads.

ZooKeeper is written behind: what differs is looked at again, and counts only if neither side has changed meanwhile.
Overrides are compared once a broker is without ZooKeeper: one with it would tell what it has read there itself.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError, ZnodeFormatError
from kafkatool.core.model.uuids import uuid_text
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import describe_configs
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.cluster_view import read_states
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, TopicsZnode, TopicZnode

WAITS_S: Final = (2.0, 5.0)
TOPICS_AT_ONCE: Final = 500  # whose settings are asked for in one request
_TOPIC: Final = 2  # the resource type
_OF_TOPIC: Final = 1  # the source of what is set on the topic itself
_WITH_IDS: Final = 10  # the first version of Metadata that tells topics' ids


@dataclass(frozen=True, slots=True)
class Leadership:
    """One partition as one side tells it."""

    replicas: tuple[int, ...]
    leader: int | None
    leader_epoch: int
    isr: frozenset[int]

    def __str__(self) -> str:
        leader = "none" if self.leader is None else self.leader
        isr = join_ids(sorted(self.isr))
        return f"replicas {join_ids(self.replicas)}, leader {leader}, leader epoch {self.leader_epoch}, ISR {isr}"


Told = Leadership | str
"""What one side tells under one name."""


class Read(NamedTuple):
    """The same of ZooKeeper, with the version of the node that it was read from."""

    told: Told
    version: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What both tell of a partition, of a topic's id or of its overrides; ``version``: of the node, where there is one."""

    name: str
    zookeeper: str
    brokers: str
    version: int | None = None


class Differences(NamedTuple):
    """What differs, and why some of it may have been missed."""

    found: tuple[Difference, ...]
    unread: str = ""


def find_differences(
    zk: ZooKeeper, client: ClusterClient, kraft: Iterable[int], sleep: Callable[[float], None] = time.sleep
) -> Differences:
    """Compare both until nothing differs, or what does has stayed as it is; ``kraft``: the brokers without ZooKeeper."""
    brokers = sorted(kraft)

    def look() -> Differences:
        there, topics = _by_metadata(client)
        compared, unread = bool(brokers), ""
        try:
            there |= _overrides(client, brokers, topics) if brokers else {}
        except KafkatoolError as e:
            compared, unread = False, f"overrides of topics: {e}"
        return Differences(tuple(compare(_in_zookeeper(zk, overrides=compared), there)), unread)

    found, unread = look()
    for wait_s in WAITS_S:
        if not found:
            break
        sleep(wait_s)
        again = look()
        found, unread = tuple(d for d in again.found if d in found), again.unread or unread
    return Differences(found, unread)


def compare(zookeeper: Mapping[str, Read], brokers: Mapping[str, Told]) -> list[Difference]:
    """Return what differs, by name."""
    found = []
    for name in sorted({*zookeeper, *brokers}):
        read, there = zookeeper.get(name), brokers.get(name)
        if read is None or read.told != there:
            here, version = ("nothing", None) if read is None else (str(read.told), read.version)
            found.append(Difference(name, here, "nothing" if there is None else str(there), version))
    return found


def _in_zookeeper(zk: ZooKeeper, *, overrides: bool) -> dict[str, Read]:
    """Read it. Of a node that cannot be read nothing is told; ``assignments`` names it."""
    names = sorted(zk.children(TopicsZnode.PATH) or ())
    side: dict[str, Read] = {}
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    for name, node in zip(names, zk.get_many([TopicZnode.path(t) for t in names]), strict=True):
        if node is None:
            continue
        with suppress(ZnodeFormatError):
            topic = TopicZnode.decode(name, node.data)
            side[_id_name(name)] = Read(str(topic.raw.get("topic_id") or "none"), node.version)
            replicas |= {TopicPartition(name, number): tuple(r) for number, r in topic.assignment.items()}
    for partition, state in read_states(zk, replicas).items():
        one = state.leader_and_isr
        told = Leadership(replicas[partition], one.leader, one.leader_epoch, frozenset(one.isr))
        side[str(partition)] = Read(told, state.version)
    paths = [ConfigZnode.path("topics", t) for t in names] if overrides else []
    for name, path, node in zip(names, paths, zk.get_many(paths), strict=False):  # none where they are not compared
        with suppress(ZnodeFormatError):
            config = ConfigZnode.decode(path, node.data) if node is not None else {}
            side[_overrides_name(name)] = Read(_shown(config), node.version if node is not None else -1)
    return side


def _by_metadata(client: ClusterClient) -> tuple[dict[str, Told], list[str]]:
    """Return what it tells, and the topics."""
    side: dict[str, Told] = {}
    topics = client.metadata(None, least=_WITH_IDS).topics
    for told in topics:
        side[_id_name(told.topic)] = uuid_text(told.topic_id) if told.topic_id != NO_UUID else "none"
        for p in told.partitions:
            leader = p.leader_id if p.leader_id >= 0 else None
            one = Leadership(tuple(p.replica_nodes), leader, p.leader_epoch, frozenset(p.isr_nodes))
            side[f"{told.topic}-{p.partition}"] = one
    return side, sorted(t.topic for t in topics)


def _overrides(client: ClusterClient, brokers: Iterable[int], topics: Sequence[str]) -> dict[str, Told]:
    """Ask the first of the brokers that answers for what is set on the topics. Raises KafkatoolError."""
    last: BrokerUnreachableError | None = None
    for broker in brokers:
        try:
            found: dict[str, Told] = {}
            for start in range(0, len(topics), TOPICS_AT_ONCE):
                found |= _overrides_by(client, broker, topics[start : start + TOPICS_AT_ONCE])
        except BrokerUnreachableError as e:
            last = e
        else:
            return found
    assert last is not None, "no broker to ask"
    raise last


def _overrides_by(client: ClusterClient, broker: int, topics: Iterable[str]) -> dict[str, Told]:
    resources = [DescribeConfigsResource(resource_type=_TOPIC, resource_name=name) for name in topics]
    answer = client.broker(broker, describe_configs.API, DescribeConfigsRequest(resources=resources), least=1)
    found: dict[str, Told] = {}
    for result in answer.results:
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue  # it has gone since
        if result.error_code:
            raise client.refusal(describe_configs.API, result.error_code, resource=result.resource_name)
        config = {c.name: c.value for c in result.configs if c.config_source == _OF_TOPIC and c.value is not None}
        found[_overrides_name(result.resource_name)] = _shown(config)
    return found


def _id_name(topic: str) -> str:
    """Return what no partition is named like, as a topic may be."""
    return f"{topic} id"


def _overrides_name(topic: str) -> str:
    return f"{topic} overrides"


def _shown(config: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(config.items())) or "none"
