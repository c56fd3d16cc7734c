"""Create a topic: check it, plan the transaction, commit it (TOP-1 to TOP-7, TOP-23X, TOP-24X, TOP-30X)."""

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafkatool.core.errors import NodeExistsError, NoNodeError, RefusedError, VersionConflictError
from kafkatool.core.model.topic_configs import check_configs
from kafkatool.core.model.topic_names import check_collision, check_name
from kafkatool.core.model.values import Assignment, BrokerInfo
from kafkatool.core.operations.topics.replica_lists import check_replica_lists
from kafkatool.core.operations.topics.spreading import spread_replicas
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import Create, Op, SetData, TransactionError, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, TopicsZnode, TopicZnode

ATTEMPTS: Final = 5  # how often a write that lost a race is planned anew


class TopicExistsError(RefusedError):
    """The topic is there already. ``marked``: it is marked for deletion (TOP-24X)."""

    def __init__(self, topic: str, *, marked: bool = False) -> None:
        super().__init__(f"Topic '{topic}' already exists.", now=None if marked else "--if-not-exists takes it as done")
        self.marked = marked


@dataclass(frozen=True, slots=True)
class Creation:
    """A topic to be made; ``ops`` are one transaction, config and assignment together (TOP-23X)."""

    topic: str
    assignment: Assignment
    configs: Mapping[str, str]
    ops: tuple[Op, ...]


def check_absent(zk: ZooKeeper, topic: str) -> None:
    """Check that the name is legal, free and collides with none (TOP-3 to TOP-5).

    Raises InvalidTopicError, TopicExistsError.
    """
    existing, marked = zk.children_many([TopicsZnode.PATH, DeleteTopicsZnode.PATH])
    if topic in (existing or ()):
        raise TopicExistsError(topic, marked=topic in (marked or ()))
    check_name(topic)
    check_collision(topic, existing or ())


def plan_creation(
    zk: ZooKeeper,
    topic: str,
    assignment: Assignment,
    configs: Mapping[str, str] | None = None,
    *,
    known_to_brokers: Collection[str] = (),
) -> Creation:
    """Check name, replica lists and configs, then plan the transaction. Writes nothing.

    Raises RefusedError and its kinds with Kafka's text.
    """
    check_absent(zk, topic)
    check_replica_lists([assignment[p] for p in sorted(assignment)])
    check_configs(configs or {}, known_to_brokers)
    return plan_nodes(zk, topic, assignment, configs or {})


def plan_nodes(zk: ZooKeeper, topic: str, assignment: Assignment, configs: Mapping[str, str]) -> Creation:
    """Plan the transaction without checks; config first, so that no topic is seen without it (Z-14)."""
    path = ConfigZnode.path("topics", topic)
    config = ConfigZnode.encode(configs)
    left_over = zk.get(path)  # of a topic deleted by a tool that does not know configs
    write_config: Op = Create(path, config) if left_over is None else SetData(path, config, left_over.version)
    write_topic = Create(TopicZnode.path(topic), TopicZnode(assignment).encode())
    return Creation(topic, assignment, dict(configs), (write_config, write_topic))


def plan_spread(
    zk: ZooKeeper,
    partitions: int,
    replication_factor: int,
    *,
    start_index: int | None = None,
    replica_shift: int | None = None,
    rack_aware: bool = True,
    rng: random.Random | None = None,
) -> dict[int, tuple[int, ...]]:
    """Assign a new topic's replicas to the registered brokers (ASG-2). Raises RefusedError (TOP-7, ASG-14)."""
    return spread_replicas(
        registered_brokers(zk),
        partitions,
        replication_factor,
        start_index=start_index,
        replica_shift=replica_shift,
        rack_aware=rack_aware,
        rng=rng,
    )


def registered_brokers(zk: ZooKeeper) -> list[BrokerInfo]:
    """Read the brokers registered now, in ascending id."""
    brokers = read_cluster(zk, (), states=False).brokers
    return [brokers[b] for b in sorted(brokers)]


def commit_creation(zk: ZooKeeper, creation: Creation) -> None:
    """Make the topic, or raise TopicExistsError if somebody else was first; never half of it (TOP-23X).

    The tools and the broker both write a topic here. Raises InvalidTopicError when one was made meanwhile that this one
    collides with, RefusedError when races are lost again and again.
    """
    for _ in range(ATTEMPTS):
        try:
            zk.commit(creation.ops)
            return
        except TransactionError as e:
            if isinstance(e.cause, NoNodeError) and isinstance(creation.ops[e.index], Create):
                _make_parents(zk, creation.ops)
                continue
            if not isinstance(e.cause, NodeExistsError | NoNodeError | VersionConflictError):
                raise
        # The config node came, went or changed: read it again. A topic made meanwhile is refused there.
        check_absent(zk, creation.topic)
        creation = plan_nodes(zk, creation.topic, creation.assignment, creation.configs)
    raise RefusedError(f"creating topic '{creation.topic}' lost {ATTEMPTS} races in a row; try again")


def create_topic(
    zk: ZooKeeper,
    topic: str,
    assignment: Assignment,
    configs: Mapping[str, str] | None = None,
) -> Creation:
    """Plan and commit in one call. Raises as both do."""
    creation = plan_creation(zk, topic, assignment, configs)
    commit_creation(zk, creation)
    return creation


def _make_parents(zk: ZooKeeper, ops: Iterable[Op]) -> None:
    """Make the parents of nodes to be made: no broker may have started in this chroot yet."""
    for op in ops:
        try:
            zk.create(op.path.rpartition("/")[0], make_parents=True)
        except NodeExistsError:
            continue
