"""Moves of replicas by requests: checked, begun, cancelled, compared with a plan (ADM-33 to ADM-44)."""

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import (
    AlreadyMovingError,
    BrokerAnswerError,
    KafkatoolError,
    ProtocolError,
    RefusedError,
    UnsupportedApiError,
)
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.topic_reading import missing, read_topics, replicas_in
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import describe_quorum
from kafkatool.core.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    PartitionMove,
    TopicMoves,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode

REQUEST_PARTITIONS: Final = 1000
"""Of a controller with ZooKeeper, which writes for each partition, one after the other, the topic's whole assignment and the
partition's state before it answers: more might take longer than a request may."""
KRAFT_REQUEST_PARTITIONS: Final = 10_000
"""The next request waits until the quorum has committed the one before, so few are quick. KRaft refuses a request that needs
more than 10,000 records, of which a partition takes one, whether its move begins or is cancelled."""
ENDING_S: Final = 10.0
"""How long it is asked again for a move that is ending: its old replicas are deleted, which takes their brokers a moment."""
ENDING_PAUSE_S: Final = 0.2
UNSURE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Codes of what the controller may have carried out all the same: it answers too early, or failed at it or behind it."""
ALREADY_MOVING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)

Replicas = Mapping[TopicPartition, tuple[int, ...]]
Refusals = dict[TopicPartition, BrokerAnswerError | None]


class CutShortError(KafkatoolError):
    """Of several requests one failed as a whole, or it is not known whether it was carried out (ADM-56).

    Its text tells all of it. ``outcome`` is what earlier answers said, ``accepted`` what they took. ``unknown`` are the
    partitions of the request where that is not known, ``undone`` those where it is known that it was not, ``unsent`` those
    of the requests after it. ``may_have_begun``: something of it all was carried out, or may have been.
    """

    def __init__(
        self,
        why: KafkatoolError,
        outcome: Refusals,
        *,
        unknown: Sequence[TopicPartition] = (),
        undone: Sequence[TopicPartition] = (),
        unsent: Sequence[TopicPartition] = (),
    ) -> None:
        self.accepted = sorted(p for p, refused in outcome.items() if refused is None)
        self.may_have_begun = bool(self.accepted or unknown) or any(e.code in UNSURE for e in outcome.values() if e)
        refused = [f"{p} ({refused})" for p, refused in sorted(outcome.items()) if refused is not None]
        told: Sequence[tuple[str, Sequence[object]]] = (
            ("done before: ", self.accepted),
            ("refused before: ", refused),
            ("whether it was done is not known of ", unknown),
            ("not done: ", undone),
            ("not asked for: ", unsent),
        )
        super().__init__(
            "; ".join([str(why), *(words + ",".join(map(str, found)) for words, found in told if found)]), now=why.now
        )


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


def requests(
    client: ClusterClient,
    targets: Mapping[TopicPartition, tuple[int, ...] | None],
    *,
    allow_factor_change: bool = True,
    most: int | None = None,
) -> list[AlterPartitionReassignmentsRequest]:
    """Make the requests that begin those moves, or cancel them where the target is None.

    ``most``: how many partitions one may carry; None: as many as the controller's kind takes well.
    """
    made = []
    ordered = sorted(targets.items())
    if most is None:
        is_kraft = len(ordered) > REQUEST_PARTITIONS and client.serves(describe_quorum.API)
        most = KRAFT_REQUEST_PARTITIONS if is_kraft else REQUEST_PARTITIONS
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

    What a controller of ours is just ending can be neither cancelled nor replaced for a moment: that is asked for again.

    Raises CutShortError where a request fails after others were answered, or may have been carried out all the same; else
    the KafkatoolError it failed with: nothing was begun.
    """
    outcome: Refusals = {}
    _send_each(client, wanted, outcome, least)
    until = time.monotonic() + min(ENDING_S, client.left_ms / 1000)
    while (ending := _ending(outcome)) and time.monotonic() < until:
        time.sleep(ENDING_PAUSE_S)
        for partition in ending:
            del outcome[partition]
        _send_each(client, [part for request in wanted if (part := _only(request, ending)).topics], outcome, least)
    return outcome


def _send_each(
    client: ClusterClient, wanted: Sequence[AlterPartitionReassignmentsRequest], outcome: Refusals, least: int
) -> None:
    """Send them, and note in ``outcome`` what became of each partition. Raises as ``send`` does."""
    for number, request in enumerate(wanted):
        own = _partitions_of(request)
        try:
            answer = client.controller(altering.API, request, least=least, codes=_not_controller)
            if answer.error_code != ErrorCode.NONE:
                raise client.refusal(altering.API, answer.error_code, answer.error_message)
        except KafkatoolError as e:
            unknown = client.repeated or _may_be_done(e)
            if not (outcome or unknown):
                raise
            raise CutShortError(
                e,
                outcome,
                unknown=own if unknown else (),
                undone=() if unknown else own,
                unsent=_partitions_of(*wanted[number + 1 :]),
            ) from e
        told = {(t.topic, p.partition) for t in answer.topics for p in t.partitions}
        outcome.update(dict.fromkeys(p for p in own if p in told))
        for topic in answer.topics:
            for p in topic.partitions:
                if p.error_code:
                    refusal = client.refusal(altering.API, p.error_code, p.error_message, resource=topic.topic)
                    outcome[TopicPartition(topic.topic, p.partition)] = refusal
        if untold := [p for p in own if p not in told]:
            raise CutShortError(
                ProtocolError(f"the controller's answer to {altering.API.name} leaves partitions out"),
                outcome,
                unknown=untold,
                unsent=_partitions_of(*wanted[number + 1 :]),
            )


def _ending(outcome: Refusals) -> set[TopicPartition]:
    return {p for p, e in outcome.items() if e is not None and e.code == ErrorCode.REASSIGNMENT_IN_PROGRESS}


def _only(
    request: AlterPartitionReassignmentsRequest, partitions: Container[TopicPartition]
) -> AlterPartitionReassignmentsRequest:
    """Return what the request asks for of those partitions."""
    kept = [
        replace(t, partitions=[p for p in t.partitions if TopicPartition(t.topic, p.partition) in partitions])
        for t in request.topics
    ]
    return replace(request, topics=[t for t in kept if t.partitions])


def _may_be_done(error: KafkatoolError) -> bool:
    """Tell whether a request that ended so may have been carried out: its answer is no answer, or came too early."""
    return isinstance(error, ProtocolError) or (isinstance(error, BrokerAnswerError) and error.code in UNSURE)


def _partitions_of(*requests: AlterPartitionReassignmentsRequest) -> list[TopicPartition]:
    return [TopicPartition(t.topic, p.partition) for r in requests for t in r.topics for p in t.partitions]


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
