"""Add partitions to a topic (TOP-15, TOP-16), or plan another number of replicas (TOP-29X)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafkatool.core.errors import NoNodeError, RefusedError, VersionConflictError
from kafkatool.core.model.assignment import add_partitions
from kafkatool.core.model.replication_factor import change_replication_factor
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import Assignment, TopicPartition, in_number, join_ids
from kafkatool.core.operations.topics.creation import ATTEMPTS, registered_brokers
from kafkatool.core.operations.topics.replica_lists import check_added_lists
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import SetData, ZooKeeper
from kafkatool.core.zookeeper.znodes import ReassignmentZnode, TopicZnode


class TopicMissingError(RefusedError):
    """No such topic (any more)."""


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
    """Plan to bring the topic to ``partitions`` partitions (TOP-15, TOP-16). Raises RefusedError.

    ``groups``: one replica list for every partition, those of existing partitions being skipped.
    """
    if topic == OFFSETS_TOPIC:
        raise RefusedError("The number of partitions for the offsets topic cannot be changed.")
    node = zk.get(TopicZnode.path(topic))
    if node is None:
        raise TopicMissingError(f"Topic '{topic}' does not exist any more")
    znode = TopicZnode.decode(topic, node.data)
    _check_not_moving(zk, topic, znode)
    count = len(znode.assignment)
    if partitions <= count:
        raise RefusedError(
            "The number of partitions for a topic can only be increased",
            now=f"topic {topic} has {in_number(count, 'partition', 'partitions')}",
        )
    brokers = registered_brokers(zk)
    if groups is None:
        added = add_partitions(brokers, znode.assignment, partitions, rack_aware=rack_aware)
    else:
        if len(groups) != partitions:
            raise RefusedError(
                f"--replica-assignment has {in_number(len(groups), 'group', 'groups')} for {partitions} partitions; "
                "it takes one for every partition, the existing ones included"
            )
        added = dict(enumerate(groups[count:], start=count))
        check_added_lists(added, len(znode.assignment.get(0, ())), [b.id for b in brokers])
    data = znode.with_assignment({**znode.assignment, **added}).encode()
    return Growth(topic, added, (SetData(TopicZnode.path(topic), data, node.version),))


def _check_not_moving(zk: ZooKeeper, topic: str, znode: TopicZnode) -> None:
    """Refuse while partitions move: they have the old and the new replicas, and are no model for those to be added."""
    request = zk.get(ReassignmentZnode.PATH)
    moving = ReassignmentZnode.decode(request.data) if request is not None else {}
    if znode.being_moved or any(p.topic == topic for p in moving):
        raise RefusedError(
            f"A partition reassignment is in progress for the topic '{topic}'.",
            now="kt reassign --list shows what runs; try again when it has ended",
        )


def grow(
    zk: ZooKeeper,
    topic: str,
    partitions: int,
    *,
    groups: Sequence[tuple[int, ...]] | None = None,
    rack_aware: bool = True,
) -> Growth:
    """Plan the growth and write it; plan anew when somebody else wrote first. Raises RefusedError."""
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


def plan_replication_factor(
    zk: ZooKeeper, topics: Iterable[str], replication_factor: int
) -> dict[TopicPartition, tuple[int, ...]]:
    """Plan other replicas for those partitions that need them, for a reassignment (TOP-29X). Raises RefusedError."""
    view = read_cluster(zk, topics)
    brokers = [view.brokers[b] for b in sorted(view.brokers)]
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in sorted(view.topics):
        assignment = view.topics[topic].assignment
        states = {p: view.states.get(TopicPartition(topic, p)) for p in assignment}
        in_sync = {p: state.leader_and_isr.isr for p, state in states.items() if state is not None}
        changed = change_replication_factor(brokers, assignment, in_sync, replication_factor)
        plan |= {TopicPartition(topic, p): replicas for p, replicas in changed.items()}
    if down := sorted({b for replicas in plan.values() for b in replicas} - set(view.brokers)):
        ids = join_ids(down)
        raise RefusedError(
            f"The proposed assignment contains non-existent brokerIDs: {ids}",
            now=f"replicas that stay are on brokers that are down: start {ids}, or give these replicas to others first "
            f"with kt reassign --generate --exclude-brokers {ids}",
        )
    return plan
