"""Create, list, change and delete topics: check, plan the writes, commit them (TOP-1 to TOP-30X).

A plan is a frozen value with the operations it consists of; ``--dry-run`` shows them, ``commit_…`` carries them out.
The bundled broker creates topics through the same functions. Kafka's texts are those of 0.10.2.1 (AdminUtils.scala),
for added replica lists those of 1.1 (AdminZkClient.scala).
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkatool.core.errors import NodeExistsError, NoNodeError, RefusedError, VersionConflictError
from kafkatool.core.model.assignment import add_partitions, assign_replicas
from kafkatool.core.model.replication_factor import change_replication_factor
from kafkatool.core.model.topic_configs import check_configs
from kafkatool.core.model.topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC, check_collision, check_name
from kafkatool.core.model.values import Assignment, BrokerInfo, TopicPartition, join_ids
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import Create, Node, Op, SetData, TransactionError, ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode, ConfigZnode, DeleteTopicsZnode, TopicsZnode, TopicZnode

ATTEMPTS: Final = 5  # how often a write that lost a race is planned anew


class TopicExistsError(RefusedError):
    """The topic is there already. ``marked``: it is marked for deletion (TOP-24X)."""

    def __init__(self, topic: str, *, marked: bool = False) -> None:
        super().__init__(f"Topic '{topic}' already exists.", now=None if marked else "--if-not-exists takes it as done")
        self.marked = marked


class TopicMissingError(RefusedError):
    """No such topic (any more)."""


class MarkedForDeletionError(RefusedError):
    """The topic is marked for deletion already (TOP-17)."""


# --- replica lists given by hand -------------------------------------------------------------------------------


def parse_replica_lists(text: str) -> list[tuple[int, ...]]:
    """``1:2,2:3`` -> [(1, 2), (2, 3)]: one group per partition. Raises RefusedError on anything but broker ids."""
    groups = []
    for number, group in enumerate(text.split(",")):
        ids = [part.strip() for part in group.split(":")]
        if not all(part.isascii() and part.isdecimal() for part in ids):
            raise RefusedError(
                f"replica assignment of partition {number} is {group!r}: expected broker ids joined by ':' such as 1:2"
            )
        groups.append(tuple(map(int, ids)))
    return groups


def check_replica_lists(groups: Sequence[tuple[int, ...]]) -> None:
    """A new topic's lists (TOP-2); live brokers are not required. Raises RefusedError with Kafka's text."""
    for number, group in enumerate(groups):
        if twice := sorted({b for b in group if group.count(b) > 1}):
            ids = join_ids(twice)
            raise RefusedError(f"Partition replica lists may not contain duplicate entries: {ids}")
        if len(group) != len(groups[0]):
            raise RefusedError(f"Partition {number} has different replication factor: {':'.join(map(str, group))}")


def check_added_lists(added: Mapping[int, tuple[int, ...]], replication_factor: int, live: Iterable[int]) -> None:
    """Lists of added partitions: distinct, registered brokers, as many as partition 0 has (TOP-16).

    Raises RefusedError with the text of Kafka 1.1.
    """
    available = sorted(live)
    for number, replicas in added.items():
        shown = ", ".join(map(str, replicas))
        if len(set(replicas)) != len(replicas):
            raise RefusedError(
                f"Duplicate brokers not allowed in replica assignment: {shown} for partition id {number}."
            )
        if not set(replicas) <= set(available):
            raise RefusedError(
                f"Some brokers specified for partition id {number} are not available. Specified brokers: {shown}, "
                f"available brokers: {', '.join(map(str, available))}."
            )
    if uneven := {p: len(r) for p, r in sorted(added.items()) if len(r) != replication_factor}:
        raise RefusedError(
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{', '.join(map(str, uneven))}] have replication factors "
            f"[{', '.join(map(str, uneven.values()))}], respectively."
        )


# --- create ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Creation:
    """A topic to be made; ``ops`` are one transaction, config and assignment together (TOP-23X)."""

    topic: str
    assignment: Assignment
    configs: Mapping[str, str]
    ops: tuple[Op, ...]


def check_absent(zk: ZooKeeper, topic: str) -> None:
    """The name is legal, free, and collides with none (TOP-3 to TOP-5). Raises InvalidTopicError, TopicExistsError."""
    existing, marked = zk.children_many([TopicsZnode.PATH, DeleteTopicsZnode.PATH])
    if topic in (existing or ()):
        raise TopicExistsError(topic, marked=topic in (marked or ()))
    check_name(topic)
    check_collision(topic, existing or ())


def plan_creation(
    zk: ZooKeeper, topic: str, assignment: Assignment, configs: Mapping[str, str] | None = None
) -> Creation:
    """Check name, replica lists and configs, then plan the transaction. Writes nothing.

    Raises RefusedError and its kinds with Kafka's text.
    """
    check_absent(zk, topic)
    check_replica_lists([assignment[p] for p in sorted(assignment)])
    check_configs(configs or {})
    return plan_nodes(zk, topic, assignment, configs or {})


def plan_nodes(zk: ZooKeeper, topic: str, assignment: Assignment, configs: Mapping[str, str]) -> Creation:
    """The transaction for what was checked already; config first, so that no topic is seen without it (Z-14)."""
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
    """The assignment of a new topic over the registered brokers (ASG-2). Raises RefusedError (TOP-7, ASG-14).

    A fixed ``start_index`` is the shift too; else both are drawn (ASG-3).
    """
    rng = rng or random.Random()
    brokers = registered(zk)
    count = max(len(brokers), 1)
    if replica_shift is None:
        replica_shift = rng.randrange(count) if start_index is None else start_index
    if start_index is None:
        start_index = rng.randrange(count)
    return assign_replicas(
        brokers,
        partitions,
        replication_factor,
        start_index=start_index,
        replica_shift=replica_shift,
        rack_aware=rack_aware,
    )


def registered(zk: ZooKeeper) -> list[BrokerInfo]:
    """The brokers registered now, in ascending id."""
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
    zk: ZooKeeper, topic: str, assignment: Assignment, configs: Mapping[str, str] | None = None
) -> Creation:
    """Plan and commit in one call."""
    creation = plan_creation(zk, topic, assignment, configs)
    commit_creation(zk, creation)
    return creation


def _make_parents(zk: ZooKeeper, ops: Iterable[Op]) -> None:
    """The parents of nodes to be made: no broker may have started in this chroot yet."""
    for op in ops:
        try:
            zk.create(op.path.rpartition("/")[0], make_parents=True)
        except NodeExistsError:
            continue


# --- change configs --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A topic's whole new config (TOP-14). ``ops``: the config node, then the notification, whose node is sequential."""

    topic: str
    configs: Mapping[str, str]
    ops: tuple[Op, Op]


def plan_config_change(
    zk: ZooKeeper, topic: str, changed: Mapping[str, str], removed: Iterable[str] = ()
) -> ConfigChange:
    """Merge with what is stored, removal winning. Raises RefusedError when ``changed`` is not valid.

    What is stored is not judged: a newer Kafka may know more configs.
    """
    path = ConfigZnode.path("topics", topic)
    node = zk.get(path)
    before = ConfigZnode.decode(path, node.data) if node else {}
    gone = set(removed)
    configs = {k: v for k, v in {**before, **changed}.items() if k not in gone}
    check_configs(changed)
    data = ConfigZnode.encode(configs, node.data if node else b"")
    write: Op = Create(path, data) if node is None else SetData(path, data, node.version)
    notify = Create(ConfigChangeZnode.PREFIX, ConfigChangeZnode.encode(ConfigZnode.entity_path("topics", topic)))
    return ConfigChange(topic, configs, (write, notify))


def change_configs(zk: ZooKeeper, topic: str, changed: Mapping[str, str], removed: Iterable[str] = ()) -> ConfigChange:
    """Write the merged config on the version it was read at, then tell the brokers. Raises RefusedError."""
    removed = tuple(removed)
    for _ in range(ATTEMPTS):
        change = plan_config_change(zk, topic, changed, removed)
        write, notify = change.ops
        try:
            if isinstance(write, SetData):
                zk.set(write.path, write.data, write.version)
            elif isinstance(write, Create):
                zk.create(write.path, write.data, make_parents=True)
        except (VersionConflictError, NodeExistsError, NoNodeError):
            continue
        assert isinstance(notify, Create)
        zk.create(notify.path, notify.data, sequential=True, make_parents=True)
        return change
    raise RefusedError(f"the config of topic '{topic}' is being changed by somebody else all the time; try again")


# --- add partitions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Growth:
    """Partitions to be added: ``added`` alone, and the write of the whole assignment on the version it was read at."""

    topic: str
    added: Assignment
    ops: tuple[SetData]


def plan_growth(
    zk: ZooKeeper,
    topic: str,
    partitions: int,
    *,
    groups: Sequence[tuple[int, ...]] | None = None,
    rack_aware: bool = True,
) -> Growth:
    """Bring the topic to ``partitions`` partitions (TOP-15, TOP-16). Writes nothing. Raises RefusedError.

    ``groups``: one replica list for every partition, those of existing partitions being skipped.
    """
    if topic == OFFSETS_TOPIC:
        raise RefusedError("The number of partitions for the offsets topic cannot be changed.")
    node = zk.get(TopicZnode.path(topic))
    if node is None:
        raise TopicMissingError(f"Topic '{topic}' does not exist any more")
    return _grow(zk, topic, node, partitions, groups, rack_aware)


def _grow(
    zk: ZooKeeper,
    topic: str,
    node: Node,
    partitions: int,
    groups: Sequence[tuple[int, ...]] | None,
    rack_aware: bool,
) -> Growth:
    znode = TopicZnode.decode(topic, node.data)
    count = len(znode.assignment)
    if partitions <= count:
        raise RefusedError(
            "The number of partitions for a topic can only be increased",
            now=f"topic {topic} has {len(znode.assignment)} partitions",
        )
    brokers = registered(zk)
    if groups is None:
        added = add_partitions(brokers, znode.assignment, partitions, rack_aware=rack_aware)
    else:
        if len(groups) != partitions:
            raise RefusedError(
                f"--replica-assignment has {len(groups)} groups for {partitions} partitions; "
                "it takes one for every partition, the existing ones included"
            )
        added = dict(enumerate(groups[count:], start=count))
        check_added_lists(added, len(znode.assignment.get(0, ())), [b.id for b in brokers])
    data = znode.with_assignment({**znode.assignment, **added}).encode()
    return Growth(topic, added, (SetData(TopicZnode.path(topic), data, node.version),))


def grow(
    zk: ZooKeeper,
    topic: str,
    partitions: int,
    *,
    groups: Sequence[tuple[int, ...]] | None = None,
    rack_aware: bool = True,
) -> Growth:
    """Plan and write, anew when somebody else wrote first. Raises RefusedError."""
    for _ in range(ATTEMPTS):
        growth = plan_growth(zk, topic, partitions, groups=groups, rack_aware=rack_aware)
        (write,) = growth.ops
        try:
            zk.set(write.path, write.data, write.version)
            return growth
        except VersionConflictError:
            continue
        except NoNodeError as e:
            raise TopicMissingError(f"Topic '{topic}' does not exist any more") from e
    raise RefusedError(f"topic '{topic}' is being changed by somebody else all the time; try again")


# --- replication factor ----------------------------------------------------------------------------------------


def plan_replication_factor(
    zk: ZooKeeper, topics: Iterable[str], replication_factor: int
) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions of those topics that need other replicas, for a reassignment (TOP-29X). Raises RefusedError."""
    view = read_cluster(zk, topics)
    brokers = [view.brokers[b] for b in sorted(view.brokers)]
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in sorted(view.topics):
        assignment = view.topics[topic].assignment
        states = {p: view.states.get(TopicPartition(topic, p)) for p in assignment}
        in_sync = {p: state.leader_and_isr.isr for p, state in states.items() if state is not None}
        changed = change_replication_factor(brokers, assignment, in_sync, replication_factor)
        plan |= {TopicPartition(topic, p): replicas for p, replicas in changed.items()}
    return plan


# --- delete ----------------------------------------------------------------------------------------------------


def plan_deletion(topic: str) -> Create:
    """The mark of TOP-17. Raises RefusedError for Kafka's own topics."""
    if topic in INTERNAL_TOPICS:
        raise RefusedError(f"Topic {topic} is a kafka internal topic and is not allowed to be marked for deletion.")
    return Create(DeleteTopicsZnode.topic_path(topic))


def mark_for_deletion(zk: ZooKeeper, topic: str) -> None:
    """Ask the controller to delete the topic. Raises MarkedForDeletionError (already), RefusedError (internal)."""
    mark = plan_deletion(topic)
    try:
        zk.create(mark.path, mark.data, make_parents=True)
    except NodeExistsError as e:
        raise MarkedForDeletionError(f"Topic {topic} is already marked for deletion.") from e
