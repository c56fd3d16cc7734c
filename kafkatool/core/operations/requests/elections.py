"""Elections by requests: preferred replicas, or any live one where no leader is left (ADM-45 to ADM-50)."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import BrokerAnswerError, KafkatoolError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.topic_reading import Topic, read_topics
from kafkatool.core.protocol.messages import elect_leaders
from kafkatool.core.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataResponsePartition

POLL_S: Final = 0.5
LOOK_MS: Final = 900  # at what became of an election whose time is over: kt ends within a second (ADM-57)
_TOLD_BY_METADATA: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE})
"""What these mean for a partition is seen in its metadata."""

_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)  # a number is compared in a tenth of the time
_NOT_NEEDED: Final = int(ErrorCode.ELECTION_NOT_NEEDED)
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

_MAY_BE_DONE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Codes of a request that may have been carried out all the same."""

Leaders = Mapping[TopicPartition, MetadataResponsePartition]


class LostAnswerError(BrokerAnswerError):
    """The answer about a partition never came: it stands for one that came before the election had ended (ADM-56)."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(
            _TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT.name, f"whether it was elected is not known: {_said(why)}"
        )


class NotAskedError(KafkatoolError):
    """A partition of a batch that was never sent."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(f"not asked for: {_said(why)}")


def _said(why: BaseException) -> str:
    return "interrupted" if isinstance(why, KeyboardInterrupt) else str(why)


class Outcome(NamedTuple):
    """What became of one partition: ``error`` is the controller's refusal, ``status`` a word for it (ADM-48).

    ``doubtful``: it has the leader wanted, elected by this request or by something else: its first answer was lost.
    """

    partition: TopicPartition
    preferred: int | None
    leader_before: int | None
    leader: int | None
    status: str
    error: BrokerAnswerError | NotAskedError | None = None
    doubtful: bool = False

    @property
    def failed(self) -> bool:
        return self.status not in ("elected", "already_preferred", "has_leader")


class Result(NamedTuple):
    """What became of each partition. ``cut_short``: why not all were asked for, or not all answered.

    ``unread``: why the leaders of after are not known.
    """

    outcomes: dict[TopicPartition, Outcome]
    cut_short: KafkatoolError | KeyboardInterrupt | None
    unread: KafkatoolError | KeyboardInterrupt | None


Codes = dict[TopicPartition, BrokerAnswerError | NotAskedError | None]


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
) -> Result:
    """Ask for each batch (None: all there is) and return what became of each partition that an answer names.

    One that is still pending when its time is over counts as elected if the metadata then tells so (ADM-49). Without
    ``leaders`` an outcome names them only where the metadata had to be asked.

    A batch that is refused, not answered or interrupted ends it; then what the batches before it did is returned, too.
    Raises KafkatoolError only where nothing was elected, nor may have been: the first request was refused.
    """
    codes: Codes = {}
    doubtful: set[TopicPartition] = set()
    asked = False
    for number, batch in enumerate(batches):
        try:
            if number and interval_s:
                time.sleep(interval_s)
            client.begin_anew()
            asked = True
            answered = _ask(client, batch, unclean)
        except (KafkatoolError, KeyboardInterrupt) as e:
            may_be_done = asked and _may_be_done(client, e)
            if not (codes or may_be_done):
                raise
            own = [p for p, m in before.items() if not _as_wanted(client, m, unclean)] if batch is None else batch
            if may_be_done:
                doubtful.update(own)
            codes |= _unanswered(own, batches[number + 1 :], e, may_be_done=may_be_done)
            if isinstance(e, KeyboardInterrupt):
                for connection in client.connections.open.values():  # on one of them an answer may be due
                    connection.close()
            client.begin_anew(LOOK_MS)
            return _look(client, codes, before, doubtful, unclean, leaders, cut_short=e)
        codes |= answered
        if client.repeated:
            doubtful.update(p for p, error in answered.items() if error is not None and error.code == _NOT_NEEDED)
        asked = False
    return _look(client, codes, before, doubtful, unclean, leaders)


def _unanswered(
    own: Iterable[TopicPartition],
    later: Iterable[Sequence[TopicPartition] | None],
    why: KafkatoolError | KeyboardInterrupt,
    *,
    may_be_done: bool,
) -> Codes:
    """Return what stands for the answers about the batch that ended it, and about those that would have followed."""
    unasked = NotAskedError(why)
    refused = why if isinstance(why, BrokerAnswerError) else unasked
    codes: Codes = dict.fromkeys(own, LostAnswerError(why) if may_be_done else refused)
    return codes | {p: unasked for batch in later for p in batch or ()}


def _ask(
    client: ClusterClient, batch: Sequence[TopicPartition] | None, unclean: bool
) -> dict[TopicPartition, BrokerAnswerError | None]:
    """Ask for one batch. Return what the answer says of each partition. Raises BrokerAnswerError: all of it was refused."""
    request = election_request(batch, unclean=unclean, timeout_ms=client.request_ms)
    answer = client.controller(elect_leaders.API, request, least=1 if unclean else 0, codes=_not_controller)
    if answer.error_code != ErrorCode.NONE:
        raise client.refusal(elect_leaders.API, answer.error_code)
    refusals: dict[tuple[int, str | None, str], BrokerAnswerError] = {}  # 10,000 are most often refused alike

    def refusal(topic: str, code: int, message: str | None) -> BrokerAnswerError:
        found = refusals.get((code, message, topic))
        if found is None:
            found = refusals[code, message, topic] = client.refusal(elect_leaders.API, code, message, resource=topic)
        return found

    return {
        TopicPartition(t.topic, p.partition): refusal(t.topic, p.error_code, p.error_message) if p.error_code else None
        for t in answer.topics
        for p in t.partitions
    }


def _may_be_done(client: ClusterClient, error: KafkatoolError | KeyboardInterrupt) -> bool:
    """Tell whether a request that ended so may have been carried out."""
    if isinstance(error, KeyboardInterrupt) or client.repeated:
        return True
    return isinstance(error, BrokerAnswerError) and error.code in _MAY_BE_DONE


def _not_controller(answer: elect_leaders.ElectLeadersResponse) -> set[int]:
    """Return the code that asks to be sent elsewhere, if all of the answer says so; others are each partition's own."""
    found = {answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)} - {ErrorCode.NONE}
    return {int(ErrorCode.NOT_CONTROLLER)} if found == {ErrorCode.NOT_CONTROLLER} else set()


def _look(
    client: ClusterClient,
    codes: Codes,
    before: Leaders,
    doubtful: Iterable[TopicPartition],
    unclean: bool,
    leaders: bool,
    cut_short: KafkatoolError | KeyboardInterrupt | None = None,
) -> Result:
    """Read the leaders of after, while there is time for what is pending, and make the outcomes.

    An answer that was lost is none lost where all that it was about is elected.
    """
    topics = {p.topic for p, e in codes.items() if leaders or (_code(e) in _TOLD_BY_METADATA)}
    pending = [p for p, e in codes.items() if _code(e) == _TIMED_OUT]
    after: dict[TopicPartition, MetadataResponsePartition] = {}
    unread: KafkatoolError | KeyboardInterrupt | None = None
    try:
        after = partitions_of(read_topics(client, sorted(topics))) if topics else {}
        while (
            cut_short is None
            and any(not _as_wanted(client, after.get(p), unclean) for p in pending)
            and client.left_ms > POLL_S * 1000
        ):
            time.sleep(POLL_S)
            after |= partitions_of(read_topics(client, sorted({p.topic for p in pending})))
    except (KafkatoolError, KeyboardInterrupt) as e:
        unread = e
    found = {p: _outcome(client, p, error, before.get(p), after.get(p), unclean) for p, error in sorted(codes.items())}
    found |= {p: found[p]._replace(doubtful=True) for p in doubtful if not found[p].failed}
    left = [p for p, e in codes.items() if isinstance(e, LostAnswerError | NotAskedError)]
    if isinstance(cut_short, KafkatoolError) and left and not any(found[p].failed for p in left):
        cut_short = None
    return Result(found, cut_short, unread)


def _code(error: BrokerAnswerError | NotAskedError | None) -> int | None:
    """Return the code of an answer, 0 where nothing was refused; None: there is no answer."""
    if error is None:
        return 0
    return error.code if isinstance(error, BrokerAnswerError) else None


def _as_wanted(client: ClusterClient, found: MetadataResponsePartition | None, unclean: bool) -> bool:
    if found is None or found.leader_id < 0:
        return False
    return found.leader_id in client.brokers if unclean else found.leader_id == found.replica_nodes[0]


def _outcome(
    client: ClusterClient,
    partition: TopicPartition,
    error: BrokerAnswerError | NotAskedError | None,
    before: MetadataResponsePartition | None,
    after: MetadataResponsePartition | None,
    unclean: bool,
) -> Outcome:
    now = after or before
    preferred = now.replica_nodes[0] if now is not None and now.replica_nodes else None
    status = _status(client, _code(error), now, unclean)
    if status == "pending" and _as_wanted(client, after, unclean):
        needless = not unclean and _as_wanted(client, before, unclean)
        status, error = "already_preferred" if needless else "elected", None
    return Outcome(partition, preferred, leader_of(before), leader_of(after), status, error)


def leader_of(partition: MetadataResponsePartition | None) -> int | None:
    """Return the leader; None for none."""
    return None if partition is None or partition.leader_id < 0 else partition.leader_id


def _status(client: ClusterClient, code: int | None, now: MetadataResponsePartition | None, unclean: bool) -> str:
    if code is None:
        return "failed"
    if code == _PREFERRED_GONE:
        down = now is None or not now.replica_nodes or now.replica_nodes[0] not in client.brokers
        return "preferred_down" if down else "not_in_isr"
    return (_AFTER_UNCLEAN if unclean else _AFTER_PREFERRED).get(code, "failed")
