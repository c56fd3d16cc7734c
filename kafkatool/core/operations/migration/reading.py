"""The evidence that ``kt migrate check`` judges: what ZooKeeper holds, and what the brokers say. Only reads."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import RefusedError, ZnodeFormatError
from kafkatool.core.model.uuids import uuid_text
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.operations.brokers.answers import Answers, LogDir, ask_brokers
from kafkatool.core.operations.migration.controllers import Controllers
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.zookeeper.cluster_view import read_all_states, read_cluster
from kafkatool.core.zookeeper.session import Node, ZooKeeper
from kafkatool.core.zookeeper.view import ClusterView
from kafkatool.core.zookeeper.znodes import (
    AclsZnode,
    AdminZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DelegationTokensZnode,
    KRaftControllerZnode,
    MigrationZnode,
    SequenceIdZnode,
    TopicsZnode,
    TopicZnode,
)

SETTINGS: Final = (
    *("inter.broker.protocol.version", "log.dir", "log.dirs", "broker.id", "broker.id.generation.enable"),
    *("reserved.broker.max.id", "authorizer.class.name", "control.plane.listener.name", "delete.topic.enable"),
    *("log.message.format.version", "zookeeper.metadata.migration.enable"),
)
WAITS_S: Final = (2.0, 5.0)  # ZooKeeper is written behind: what differs is looked at again (ADM-102)


@dataclass(frozen=True, slots=True)
class Leadership:
    """One partition as one side tells it."""

    replicas: tuple[int, ...]
    leader: int | None
    leader_epoch: int
    isr: frozenset[int]


@dataclass(frozen=True, slots=True)
class Difference:
    """What ZooKeeper and the brokers tell differently of a partition or topic, and neither has changed meanwhile."""

    name: str
    zookeeper: str
    brokers: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found. ``brokers`` are those of the metadata, ``view.brokers`` those registered in ZooKeeper.

    ``unreadable``: nodes that do not parse. ``configs``: by kind of entity and name as in the path; ``orphans``:
    topics with configs that do not exist. ``stale_changes``: config changes older than 15 min. ``controllers``: None where
    they were not to be asked.
    """

    view: ClusterView
    brokers: Mapping[int, BrokerInfo]
    answers: Answers
    controller: KRaftControllerZnode | None
    controller_epoch: int | None
    migration: MigrationZnode | None
    unreadable: tuple[str, ...]
    topics: tuple[str, ...]
    configs: Mapping[str, Mapping[str, Mapping[str, str]]]
    orphans: tuple[str, ...]
    admin: frozenset[str]
    stale_changes: int
    generated_ids: int
    acls: int
    tokens: int
    controllers: Controllers | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def kraft(self) -> frozenset[int]:
        """Return the brokers that are in the metadata, and not registered in ZooKeeper."""
        return frozenset(set(self.brokers) - set(self.view.brokers))

    @property
    def finalized(self) -> bool:
        """Tell whether ZooKeeper counts no more: all brokers are without it, and each controller says so too."""
        c = self.controllers
        return bool(self.brokers and not self.view.brokers and c and c.are_complete and not c.migrate)

    @property
    def strays(self) -> dict[int, list[TopicPartition]]:
        """Return what each broker holds that no assignment names."""
        topics = self.view.topics
        found = {
            broker: sorted(
                p
                for d in answer.log_dirs or ()
                for p in d.sizes
                if p.topic not in topics or broker not in topics[p.topic].assignment.get(p.partition, ())
            )
            for broker, answer in sorted(self.answers.told.items())
        }
        return {broker: strays for broker, strays in found.items() if strays}

    @property
    def has_halves(self) -> bool:
        """Tell whether something is there in part: it may be on its way in or out."""
        stateless = any(p not in self.view.states for p in self.view.partitions())
        return bool(self.orphans or self.unreadable or self.strays or stateless)

    def setting(self, key: str) -> dict[int, str]:
        """Return what each broker that told it has there."""
        told = {b: (a.configs or {}).get(key) for b, a in sorted(self.answers.told.items())}
        return {b: value for b, value in told.items() if value is not None}


def read(
    zk: ZooKeeper,
    client: ClusterClient,
    controllers: Controllers | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Evidence:
    """Gather it; ``controllers`` are what those said, if they were asked. Raises RefusedError: addresses of two clusters.

    A topic that is made or deleted meanwhile is found by halves; so what only such a topic explains is looked at again.
    """
    found = _read(zk, client, controllers, sleep)
    if not found.has_halves:
        return found
    sleep(WAITS_S[0])
    return without_passing(_read(zk, client, controllers, sleep), found)


def without_passing(later: Evidence, before: Evidence) -> Evidence:
    """Return the later look without what came or went since the former one, or is found by halves in one of them alone."""
    topics = {name: node for name, node in later.view.topics.items() if name in before.view.topics}
    # What lost its state since is being deleted; who lost its leader still has one, which says so.
    states = {**before.view.states, **later.view.states}
    states = {p: state for p, state in states.items() if p.topic in topics}
    told = {
        broker: replace(answer, log_dirs=_without_passing(answer.log_dirs, topics, _held(before, broker)))
        for broker, answer in later.answers.told.items()
    }
    return replace(
        later,
        view=replace(later.view, topics=topics, states=states),
        answers=later.answers._replace(told=told),
        topics=tuple(name for name in later.topics if name in before.topics),
        unreadable=tuple(name for name in later.unreadable if name in before.unreadable),
        orphans=tuple(name for name in later.orphans if name in before.orphans),
    )


def _without_passing(
    dirs: Sequence[LogDir] | None, topics: Collection[str], held: Collection[TopicPartition]
) -> tuple[LogDir, ...] | None:
    if dirs is None:
        return None
    return tuple(
        replace(d, sizes={p: size for p, size in d.sizes.items() if p.topic in topics or p in held}) for d in dirs
    )


def _held(e: Evidence, broker: int) -> set[TopicPartition]:
    answer = e.answers.told.get(broker)
    return {p for d in (answer.log_dirs if answer else None) or () for p in d.sizes}


def _read(
    zk: ZooKeeper, client: ClusterClient, controllers: Controllers | None, sleep: Callable[[float], None]
) -> Evidence:
    view = read_cluster(zk, configs=True)
    if view.cluster_id != client.cluster_id:
        raise RefusedError(
            f"ZooKeeper has the cluster {view.cluster_id}, the brokers are of {client.cluster_id}: name one cluster"
        )
    if controllers is not None and controllers.cluster_id not in (None, client.cluster_id):
        raise RefusedError(
            f"the brokers are of the cluster {client.cluster_id}, the controllers of {controllers.cluster_id}: name one "
            "cluster"
        )
    topics = tuple(sorted(zk.children(TopicsZnode.PATH) or ()))
    controller, epoch, migration, seqid = zk.get_many(
        [ControllerZnode.PATH, ControllerEpochZnode.PATH, MigrationZnode.PATH, SequenceIdZnode.PATH]
    )
    kraft = KRaftControllerZnode.decode(controller.data) if controller else None
    unreadable = [TopicZnode.path(t) for t in topics if t not in view.topics]
    unreadable += [str(p) for p in sorted(read_all_states(zk, view.partitions()).unreadable)]
    configs = {kind: _configs(zk, kind, unreadable) for kind in ("topics", "users", "clients", "brokers")}
    kinds = zk.children(AclsZnode.PATH) or []
    resources = zk.children_many([f"{AclsZnode.PATH}/{kind}" for kind in kinds])
    found = Evidence(
        view=view,
        brokers=dict(client.brokers),
        answers=ask_brokers(
            {**view.brokers, **client.brokers}.values(),
            client.settings.access,
            configs=SETTINGS,
            client_id="kt-migrate",
        ),
        controller=kraft,
        controller_epoch=ControllerEpochZnode.decode(epoch.data) if epoch else None,
        migration=MigrationZnode.decode(migration.data) if migration else None,
        unreadable=tuple(unreadable),
        topics=topics,
        configs=configs,
        orphans=tuple(sorted(set(configs["topics"]).difference(topics))),
        admin=frozenset(zk.children(AdminZnode.PATH) or ()),
        stale_changes=_stale_changes(zk),
        generated_ids=seqid.version if seqid else 0,
        acls=sum(map(len, filter(None, resources))),
        tokens=len(zk.children(DelegationTokensZnode.PATH) or ()),
        controllers=controllers,
    )
    if kraft is None or kraft.kraft_epoch is None or found.finalized:
        return found
    return replace(found, differences=_differences(zk, client, sleep))


def _configs(zk: ZooKeeper, kind: str, unreadable: list[str]) -> dict[str, dict[str, str]]:
    """Read the configs of all entities of that kind, by name as in the path; users' clients are not looked into."""
    parent = ConfigZnode.path_of(kind)
    names = sorted(zk.children(parent) or ())
    found = {}
    for name, node in zip(names, zk.get_many([f"{parent}/{name}" for name in names]), strict=True):
        try:
            found[name] = ConfigZnode.decode(f"{parent}/{name}", node.data) if node else {}
        except ZnodeFormatError:
            unreadable.append(f"{parent}/{name}")
    return found


def _stale_changes(zk: ZooKeeper) -> int:
    names = zk.children(ConfigChangeZnode.PATH) or []
    nodes = zk.get_many([f"{ConfigChangeZnode.PATH}/{name}" for name in names])
    return sum(node is not None and _age_s(node) > 900 for node in nodes)


def _age_s(node: Node) -> float:
    return time.time() - node.ctime_ms / 1000


# --- both sides compared ----------------------------------------------------------------------------------------


def _differences(zk: ZooKeeper, client: ClusterClient, sleep: Callable[[float], None]) -> tuple[Difference, ...]:
    """Compare ZooKeeper with the metadata until nothing differs, or what does has stayed as it is on both sides."""
    found = compare(*_both(zk, client))
    for wait_s in WAITS_S:
        if not found:
            break
        sleep(wait_s)
        found = [d for d in compare(*_both(zk, client)) if d in found]
    return tuple(found)


def compare(zookeeper: Mapping[str, str | Leadership], brokers: Mapping[str, str | Leadership]) -> list[Difference]:
    """Return what differs, by partition, and topic ids by topic."""
    return [
        Difference(name, str(zookeeper.get(name)), str(brokers.get(name)))
        for name in sorted({*zookeeper, *brokers})
        if zookeeper.get(name) != brokers.get(name)
    ]


def _both(zk: ZooKeeper, client: ClusterClient) -> Sequence[Mapping[str, str | Leadership]]:
    view = read_cluster(zk)
    here: dict[str, str | Leadership] = {}
    for topic, node in view.topics.items():
        here[topic] = f"id {node.raw.get('topic_id')}"
        for number, replicas in node.assignment.items():
            state = view.states.get(TopicPartition(topic, number))
            if state is not None:
                one = state.leader_and_isr
                here[f"{topic}-{number}"] = Leadership(replicas, one.leader, one.leader_epoch, frozenset(one.isr))
    there: dict[str, str | Leadership] = {}
    for told in client.metadata(None, least=10).topics:
        there[told.topic or ""] = f"id {uuid_text(told.topic_id) if told.topic_id != NO_UUID else None}"
        for p in told.partitions:
            leader = p.leader_id if p.leader_id >= 0 else None
            there[f"{told.topic}-{p.partition}"] = Leadership(
                tuple(p.replica_nodes), leader, p.leader_epoch, frozenset(p.isr_nodes)
            )
    return here, there
