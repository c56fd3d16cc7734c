"""The evidence that ``kt migrate check`` judges: what ZooKeeper holds, and what the brokers say. Only reads."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import RefusedError, ZnodeFormatError
from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.operations.brokers.answers import Answers, LogDir, ask_brokers
from kafkatool.core.operations.migration.controllers import Controllers
from kafkatool.core.operations.migration.differences import WAITS_S, Difference, find_differences
from kafkatool.core.zookeeper.cluster_view import read_all_states, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
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
STALE_S: Final = 900


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found. ``brokers`` are those of the metadata, ``view.brokers`` those registered in ZooKeeper.

    ``unreadable``: nodes that do not parse. ``configs``: by kind of entity and name as in the path; ``orphans``:
    topics with configs that do not exist. ``stale_changes``: config changes older than 15 min. ``controllers``: None where
    they were not to be asked. ``uncompared``: what might differ as well, and why it is not known.
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
    uncompared: str = ""

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
        answers=ask_brokers({**view.brokers, **client.brokers}.values(), client.connections, configs=SETTINGS),
        controller=kraft,
        controller_epoch=ControllerEpochZnode.decode(epoch.data) if epoch else None,
        migration=MigrationZnode.decode(migration.data) if migration else None,
        unreadable=tuple(unreadable),
        topics=topics,
        configs=configs,
        orphans=tuple(sorted(set(configs["topics"]).difference(topics))),
        admin=frozenset(zk.children(AdminZnode.PATH) or ()),
        stale_changes=count_stale_changes(zk),
        generated_ids=seqid.version if seqid else 0,
        acls=sum(map(len, filter(None, resources))),
        tokens=len(zk.children(DelegationTokensZnode.PATH) or ()),
        controllers=controllers,
    )
    if kraft is None or kraft.kraft_epoch is None or found.finalized:
        return found
    differences, uncompared = find_differences(zk, client, found.kraft, sleep)
    return replace(found, differences=differences, uncompared=uncompared)


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


def count_stale_changes(zk: ZooKeeper, clock_s: Callable[[], float] = time.time) -> int:
    """Count the config changes that are older than they get: brokers read them at once, and delete them later."""
    names = zk.children(ConfigChangeZnode.PATH) or []
    nodes = zk.get_many([f"{ConfigChangeZnode.PATH}/{name}" for name in names])
    return sum(node is not None and clock_s() - node.ctime_ms / 1000 > STALE_S for node in nodes)
