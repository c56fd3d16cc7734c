"""Elections by requests: preferred replicas, or any live one where no leader is left (ADM-45 to ADM-50)."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import BrokerAnswerError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.topic_reading import Topic, read_topics
from kafkatool.core.protocol.messages import elect_leaders
from kafkatool.core.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataResponsePartition

POLL_S: Final = 0.5
_TOLD_BY_METADATA: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE})
"""What these mean for a partition is seen in its metadata."""

_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)  # a number is compared in a tenth of the time
_PREFERRED_GONE: Final = int(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
_AFTER_PREFERRED: Final[Mapping[int, str]] = {
    ErrorCode.NONE: "elected",
    ErrorCode.ELECTION_NOT_NEEDED: "already_preferred",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no_live_replica",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "unknown",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "being_deleted",
    ErrorCode.REQUEST_TIMED_OUT: "pending",
}
"""The word for an outcome by its code; that of all others is "failed"."""
_AFTER_UNCLEAN: Final[Mapping[int, str]] = {**_AFTER_PREFERRED, ErrorCode.ELECTION_NOT_NEEDED: "has_leader"}

Leaders = Mapping[TopicPartition, MetadataResponsePartition]


class Outcome(NamedTuple):
    """What became of one partition: ``error`` is the controller's refusal, ``status`` a word for it (ADM-48)."""

    partition: TopicPartition
    preferred: int | None
    leader_before: int | None
    leader: int | None
    status: str
    error: BrokerAnswerError | None = None

    @property
    def failed(self) -> bool:
        return self.status not in ("elected", "already_preferred", "has_leader")


def partitions_of(topics: Mapping[str, Topic]) -> dict[TopicPartition, MetadataResponsePartition]:
    """Return every partition of those topics."""
    return {TopicPartition(name, p.partition): p for name, topic in topics.items() for p in topic.partitions}


def election_request(
    partitions: Iterable[TopicPartition] | None, *, unclean: bool, timeout_ms: int
) -> ElectLeadersRequest:
    """Make the request; ``partitions`` None: all."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions or ():
        topics.setdefault(topic, []).append(number)
    asked = [ElectLeadersTopic(topic=t, partitions=p) for t, p in topics.items()]
    return ElectLeadersRequest(
        election_type=elect_leaders.UNCLEAN if unclean else elect_leaders.PREFERRED,
        topics=None if partitions is None else asked,
        timeout_ms=timeout_ms,
    )


def elect(
    client: ClusterClient,
    batches: Sequence[Sequence[TopicPartition] | None],
    before: Leaders,
    *,
    unclean: bool,
    leaders: bool = True,
    interval_s: float = 0,
    on_batch: Callable[[int], None] = lambda number: None,
) -> dict[TopicPartition, Outcome]:
    """Ask for each batch (None: all there is) and return what became of each partition that an answer names.

    One that is still pending when its time is over counts as elected if the metadata then tells so (ADM-49). Without
    ``leaders`` an outcome names them only where the metadata had to be asked. Raises BrokerAnswerError: the whole request
    was refused.
    """
    codes: dict[TopicPartition, BrokerAnswerError | None] = {}
    refusals: dict[tuple[int, str | None, str], BrokerAnswerError] = {}  # 10,000 are most often refused alike

    def refusal(topic: str, code: int, message: str | None) -> BrokerAnswerError:
        found = refusals.get((code, message, topic))
        if found is None:
            found = refusals[code, message, topic] = client.refusal(elect_leaders.API, code, message, resource=topic)
        return found

    for number, batch in enumerate(batches):
        if number and interval_s:
            time.sleep(interval_s)
        client.begin_anew()
        request = election_request(batch, unclean=unclean, timeout_ms=client.request_ms)
        answer = client.controller(elect_leaders.API, request, least=1 if unclean else 0, codes=_not_controller)
        if answer.error_code != ErrorCode.NONE:
            raise client.refusal(elect_leaders.API, answer.error_code)
        for t in answer.topics:
            for p in t.partitions:
                error = refusal(t.topic, p.error_code, p.error_message) if p.error_code else None
                codes[TopicPartition(t.topic, p.partition)] = error
        on_batch(number)
    return _outcomes(client, codes, before, unclean, leaders)


def _not_controller(answer: elect_leaders.ElectLeadersResponse) -> set[int]:
    """Return the code that asks to be sent elsewhere, if all of the answer says so; others are each partition's own."""
    found = {answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)} - {ErrorCode.NONE}
    return {int(ErrorCode.NOT_CONTROLLER)} if found == {ErrorCode.NOT_CONTROLLER} else set()


def _outcomes(
    client: ClusterClient,
    codes: Mapping[TopicPartition, BrokerAnswerError | None],
    before: Leaders,
    unclean: bool,
    leaders: bool,
) -> dict[TopicPartition, Outcome]:
    asked = {p.topic for p, e in codes.items() if leaders or (e is not None and e.code in _TOLD_BY_METADATA)}
    after = partitions_of(read_topics(client, sorted(asked))) if asked else {}
    pending = [p for p, e in codes.items() if e is not None and e.code == _TIMED_OUT]
    while any(not _as_wanted(after.get(p), unclean) for p in pending) and client.left_ms > POLL_S * 1000:
        time.sleep(POLL_S)
        after |= partitions_of(read_topics(client, sorted({p.topic for p in pending})))
    return {p: _outcome(client, p, error, before.get(p), after.get(p), unclean) for p, error in sorted(codes.items())}


def _as_wanted(found: MetadataResponsePartition | None, unclean: bool) -> bool:
    if found is None or found.leader_id < 0:
        return False
    return unclean or found.leader_id == found.replica_nodes[0]


def _outcome(
    client: ClusterClient,
    partition: TopicPartition,
    error: BrokerAnswerError | None,
    before: MetadataResponsePartition | None,
    after: MetadataResponsePartition | None,
    unclean: bool,
) -> Outcome:
    now = after or before
    preferred = now.replica_nodes[0] if now is not None and now.replica_nodes else None
    status = _status(client, error, now, unclean)
    if status == "pending" and _as_wanted(after, unclean):
        status, error = "elected", None
    return Outcome(partition, preferred, leader_of(before), leader_of(after), status, error)


def leader_of(partition: MetadataResponsePartition | None) -> int | None:
    """Return the leader; None for none."""
    return None if partition is None or partition.leader_id < 0 else partition.leader_id


def _status(
    client: ClusterClient, error: BrokerAnswerError | None, now: MetadataResponsePartition | None, unclean: bool
) -> str:
    code = 0 if error is None else error.code
    if code == _PREFERRED_GONE:
        down = now is None or not now.replica_nodes or now.replica_nodes[0] not in client.brokers
        return "preferred_down" if down else "not_in_isr"
    return (_AFTER_UNCLEAN if unclean else _AFTER_PREFERRED).get(code, "failed")
