"""Moves of replicas by requests: checked, begun, cancelled, compared with a plan (ADM-33 to ADM-44)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import BrokerAnswerError, RefusedError, UnsupportedApiError
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.topics import Topic, missing, read_topics
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    PartitionMove,
    TopicMoves,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode

REQUEST_PARTITIONS: Final = 1000
ALREADY_MOVING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)

Replicas = Mapping[TopicPartition, tuple[int, ...]]
Refusals = dict[TopicPartition, BrokerAnswerError | None]


class AlreadyMovingError(RefusedError):
    """Something moves, and nobody said that this is to begin beside it."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan that can begin. ``current`` are the assigned replicas, ``origin`` those before any move under way."""

    plan: Replicas
    current: Replicas
    moving: Mapping[TopicPartition, Moving]

    @property
    def origin(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {p: self.moving[p].origin if p in self.moving else r for p, r in self.current.items()}

    @property
    def changes_factor(self) -> list[TopicPartition]:
        """Return the partitions that are to have another number of replicas."""
        origin = self.origin
        return [p for p, replicas in self.plan.items() if len(replicas) != len(origin[p])]


def check(client: ClusterClient, plan: Replicas, *, additional: bool) -> Checked:
    """Check a plan against the cluster, in the order of Kafka's tool; nothing is written. Raises RefusedError."""
    moving = read_moves(client, needed=True)
    if moving and not additional:
        raise AlreadyMovingError(ALREADY_MOVING)
    topics = read_topics(client, sorted({p.topic for p in plan}))
    for broker in sorted({b for replicas in plan.values() for b in replicas}):
        if broker not in client.brokers:
            raise RefusedError(f"Unknown broker id {broker}")
    current = replicas_in(topics, plan)
    for partition in plan:
        if partition.topic not in topics:
            raise missing(client, partition.topic, RefusedError(f"Topic {partition.topic} not found."))
        if partition not in current:
            raise RefusedError(f"Unable to find partition: {partition}")
    return Checked(plan, current, moving)


def replicas_in(
    topics: Mapping[str, Topic], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of those partitions that exist."""
    assigned = {name: topic.assignment for name, topic in topics.items()}
    return {p: tuple(r) for p in partitions if (r := assigned.get(p.topic, {}).get(p.partition)) is not None}


def requests(
    client: ClusterClient,
    targets: Mapping[TopicPartition, tuple[int, ...] | None],
    *,
    allow_factor_change: bool = True,
    most: int = REQUEST_PARTITIONS,
) -> list[AlterPartitionReassignmentsRequest]:
    """Make the requests that begin those moves, or cancel them where the target is None."""
    made = []
    ordered = sorted(targets.items())
    for part in (ordered[start : start + most] for start in range(0, len(ordered), most)):
        topics: dict[str, list[PartitionMove]] = {}
        for (topic, number), replicas in part:
            move = PartitionMove(partition=number, replicas=None if replicas is None else list(replicas))
            topics.setdefault(topic, []).append(move)
        made.append(
            AlterPartitionReassignmentsRequest(
                timeout_ms=client.request_ms,
                allow_replication_factor_change=allow_factor_change,
                topics=[TopicMoves(topic=t, partitions=m) for t, m in topics.items()],
            )
        )
    return made


def send(client: ClusterClient, wanted: Sequence[AlterPartitionReassignmentsRequest], *, least: int = 0) -> Refusals:
    """Send them one after the other; sent twice they do no harm. Return what became of each partition.

    Raises BrokerAnswerError where a whole request was refused.
    """
    outcome: Refusals = {}
    for request in wanted:
        answer = client.controller(altering.API, request, least=least, codes=_not_controller)
        if answer.error_code != ErrorCode.NONE:
            raise client.refusal(altering.API, answer.error_code, answer.error_message)
        for topic in answer.topics:
            for p in topic.partitions:
                outcome[TopicPartition(topic.topic, p.partition)] = (
                    client.refusal(altering.API, p.error_code, p.error_message, resource=topic.topic)
                    if p.error_code
                    else None
                )
    return outcome


def _not_controller(answer: AlterPartitionReassignmentsResponse) -> set[int]:
    """Return the code that asks to be sent elsewhere, if all of the answer says so; others are each partition's own."""
    found = {answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)} - {ErrorCode.NONE}
    return {int(ErrorCode.NOT_CONTROLLER)} if found == {ErrorCode.NOT_CONTROLLER} else set()


def least_to_keep_factors(client: ClusterClient, checked: Checked) -> int:
    """Return the version of the request that lets the controller refuse other numbers of replicas (ADM-42).

    Where it knows none, kt refuses the whole plan itself. Raises RefusedError.
    """
    try:
        client.version_of(altering.API, least=1)
    except UnsupportedApiError:
        for p in checked.changes_factor:
            raise RefusedError(
                f"{p}: The replication factor is changed from {len(checked.origin[p])} to {len(checked.plan[p])}"
            ) from None
        return 0
    return 1


def list_lines(moving: Mapping[TopicPartition, Moving]) -> list[str]:
    """Write what moves as Kafka's ``--list`` does (ADM-41)."""
    if not moving:
        return ["No partition reassignments found."]
    lines = ["Current partition reassignments:"]
    for partition, m in sorted(moving.items()):
        adding = f" adding: {join_ids(m.adding)}." if m.adding else ""
        removing = f" removing: {join_ids(m.removing)}." if m.removing else ""
        lines.append(f"{partition}: replicas: {join_ids(m.replicas)}.{adding}{removing}")
    return lines
