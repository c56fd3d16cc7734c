"""``kt elect`` with ``--bootstrap-server``: the words of Kafka's own tool of 3.9 (ADM-45 to ADM-50)."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from kafkatool.commands.elect.columns import CAUTION, COLUMNS
from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.options import no_topic_text
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.shared.printable import one_line
from kafkatool.commands.shared.termination import interruptions_kept
from kafkatool.core.errors import (
    BrokerAnswerError,
    BrokerUnreachableError,
    DeadlineError,
    KafkatoolError,
    NotPermittedError,
    RefusedError,
    UsageError,
)
from kafkatool.core.model import topic_names
from kafkatool.core.model.values import TopicPartition, in_number, join_ids
from kafkatool.core.operations.requests import elections
from kafkatool.core.operations.requests.elections import Leaders, LostAnswerError, NotAskedError, Outcome, Result
from kafkatool.core.operations.requests.topic_reading import Topic, read_meant, read_topics
from kafkatool.core.planner.plan_files import STDIN, parse_election, read_text
from kafkatool.core.protocol.messages import elect_leaders
from kafkatool.core.protocol.messages.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient

WHOLE_MS: Final = 30_000
REQUEST_MS: Final = 15_000
ONLY_ONE: Final = (
    "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
)
TIMED_OUT: Final = "Timeout waiting for election results"
NOT_AUTHORIZED: Final = "Not authorized to perform leader election"
EXCEPTIONS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "UnknownTopicOrPartitionException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.NOT_CONTROLLER: "NotControllerException",
    ErrorCode.INVALID_REQUEST: "InvalidRequestException",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "PreferredLeaderNotAvailableException",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "EligibleLeadersNotAvailableException",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be elected, by the flags. ``partitions`` is the file's content or the one that is named."""

    unclean: bool
    everything: bool
    partitions: tuple[TopicPartition, ...] | None
    topic: str | None  # a name, or a regex
    broker: int | None
    only_imbalanced: bool


def wanted_of(
    kind: str,
    topic: str | None,
    partition: int | None,
    file: str | None,
    everything: bool,
    broker: int | None,
    only_imbalanced: bool,
) -> Wanted:
    """Read the flags and the file. Raises UsageError with the words of Kafka's tool (ADM-45), RefusedError (ADM-47)."""
    if kind.lower() not in ("preferred", "unclean"):
        raise UsageError(f"Cannot parse argument '{kind}' of option election-type")
    selects = topic is not None or broker is not None or only_imbalanced
    if kind.lower() == "preferred" and partition is None and not (selects or file is not None):
        everything = True  # as with ZooKeeper; an unclean election of all has to be asked for
    if partition is not None and topic is None and (everything or file is not None):
        raise UsageError("Option partition is only allowed if topic is used")
    if [selects, file is not None, everything].count(True) != 1 or (partition is not None and topic is None):
        raise UsageError(ONLY_ONE)
    if only_imbalanced and kind.lower() == "unclean":
        raise UsageError(
            "--only-imbalanced is of preferred elections: an unclean one is of partitions without a leader"
        )
    named: tuple[TopicPartition, ...] | None = None
    if partition is not None and topic is not None:
        named, topic = (TopicPartition(topic, partition),), None
    elif file is not None:
        named = _read_file(file)
    return Wanted(kind.lower() == "unclean", everything, named, topic, broker, only_imbalanced)


def _read_file(source: str) -> tuple[TopicPartition, ...]:
    """Read the partitions of a file. Raises RefusedError with the words of Kafka's tool."""
    try:
        text = read_text(source, sys.stdin)
    except UsageError as e:
        raise RefusedError(f"Unable to read file {source}") from e
    empty = RefusedError("Replica election data is empty")
    try:
        value = parse_election(text, "stdin" if source == STDIN else source)
    except UsageError as e:
        raise empty from e
    except RefusedError as e:
        if "duplicate" in str(e):
            names = str(e).rpartition(": ")[2].replace(",", ", ")
            raise RefusedError(f"Replica election data contains duplicate partitions: [{names}]") from e
        if str(e).endswith("is empty") and text.strip() not in ("", "{}") and text.lstrip().startswith("{"):
            raise RefusedError('Replica election data is missing "partitions" field') from e
        raise empty if str(e).endswith("is empty") else e from e
    return value


def report(out: Output, bootstrap: Bootstrap, topic: str | None, threshold: float, *, cluster_id: str | None) -> int:
    """Show leaders and imbalance of each broker, of topics that match; ``threshold`` is in percent (ELE-18X)."""
    from kafkatool.commands.elect.rendering import report_answer
    from kafkatool.core.operations.requests.cluster_view import read_cluster

    with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
        view = read_cluster(client, moves=False)
    if topic is not None:
        view = replace(view, topics={t: view.topics[t] for t in topic_names.select(view.topics, topic)})
    out.show(report_answer(view, threshold))
    out.note(CAUTION)
    return 0


def elect(
    out: Output,
    bootstrap: Bootstrap,
    wanted: Wanted,
    *,
    batch_partitions: int,
    interval_s: float,
    timeout_s: float | None,
    force: bool,
    dry_run: bool,
    cluster_id: str | None,
) -> int:
    """Elect, and tell of each partition; 0 if none failed."""
    if wanted.partitions is not None and not wanted.partitions:
        out.show(Answer((), (), COLUMNS))
        return 0
    whole_ms = WHOLE_MS if timeout_s is None else int(timeout_s * 1000)
    if bootstrap.command_config is None:
        bootstrap = replace(bootstrap, settings=replace(bootstrap.settings, request_timeout_ms=REQUEST_MS))
    with connect_brokers(bootstrap, cluster_id=cluster_id, whole_timeout_ms=whole_ms) as client:
        before: Leaders = {}
        if wanted.partitions is None or wanted.unclean or not out.is_text:  # else nothing of it would be used
            before = elections.partitions_of(_read_wanted(client, wanted))
        chosen = _chosen(client, wanted, before)
        if chosen is not None and not chosen:
            out.note(f"no partition to elect: {_why_none(client, wanted)}")
            out.show(Answer((), (), COLUMNS, client.cluster_id))
            return 0 if wanted.only_imbalanced else 1  # nothing to improve is well
        found: dict[TopicPartition, Outcome] = {}
        if wanted.unclean:
            found, chosen = _without_leader(client, before, list(before) if chosen is None else chosen)
        asked = None if chosen is None else len(chosen)
        size = batch_partitions or asked or 1
        batches: list[Sequence[TopicPartition] | None] = (
            [None] if chosen is None else [chosen[i : i + size] for i in range(0, len(chosen), size)]
        )
        if dry_run:
            from kafkatool.core.operations.requests import planned

            requests = [
                elections.election_request(b, unclean=wanted.unclean, timeout_ms=client.request_ms) for b in batches
            ]
            least = 1 if wanted.unclean else 0
            out.planned_requests(planned.plan(client, elect_leaders.API, r, least=least) for r in requests)
            return 0
        if wanted.unclean and chosen:
            _agree(chosen, force=force)
        try:
            with interruptions_kept():
                result = elections.elect(
                    client, batches, before, unclean=wanted.unclean, leaders=not out.is_text, interval_s=interval_s
                )
        except NotPermittedError as e:
            out.note(str(e))
            return out.failed(e, text=NOT_AUTHORIZED)
        except (BrokerUnreachableError, DeadlineError) as e:
            return out.failed(RefusedError(TIMED_OUT, now=str(e)))
        found_id = client.cluster_id
    found |= result.outcomes
    failed = sorted(o for o in found.values() if o.failed)
    lines = list(_lines(found, failed, "UNCLEAN" if wanted.unclean else "PREFERRED"))
    if chosen is None:
        found |= {p: _already(p, m) for p, m in before.items() if p not in found}
    _show(out, found, failed, lines, result, found_id)
    if wanted.unclean:
        _note_doubts(out, found)
    for why in (result.cut_short, result.unread):
        if isinstance(why, KeyboardInterrupt):
            raise why
    return 1 if failed or result.cut_short or result.unread else 0


def _read_wanted(client: "ClusterClient", wanted: Wanted) -> Mapping[str, Topic]:
    """Read the topics that may have partitions to elect."""
    if wanted.topic is not None:
        return read_meant(client, wanted.topic)
    return read_topics(client, None if wanted.partitions is None else sorted({p.topic for p in wanted.partitions}))


def _chosen(client: "ClusterClient", wanted: Wanted, before: Leaders) -> list[TopicPartition] | None:
    """Return the partitions to ask for; None: all there is."""
    if wanted.partitions is not None:
        return list(wanted.partitions)
    if wanted.everything:
        return None
    return [
        p
        for p, m in sorted(before.items())
        if (wanted.broker is None or m.replica_nodes[:1] == [wanted.broker])
        and (not wanted.only_imbalanced or _would_change(client, m))
    ]


def _why_none(client: "ClusterClient", wanted: Wanted) -> str:
    """Say why the flags choose nothing."""
    if wanted.topic is not None and not read_meant(client, wanted.topic):
        return no_topic_text(wanted.topic, list(read_topics(client)))
    if wanted.only_imbalanced:
        return "an election would change none"
    if wanted.broker is not None:
        return f"none prefers broker {wanted.broker}; brokers that are up: {join_ids(sorted(client.brokers))}"
    return "there is none"


def _would_change(client: "ClusterClient", partition: Any) -> bool:
    preferred = partition.replica_nodes[0]
    return partition.leader_id != preferred and preferred in client.brokers and preferred in partition.isr_nodes


def _without_leader(
    client: "ClusterClient", before: Leaders, chosen: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, Outcome], list[TopicPartition]]:
    """Return what has a live leader, which is not asked for, and what is to be (ADM-50)."""
    led = {p: m for p in chosen if (m := before.get(p)) is not None and m.leader_id in client.brokers}
    done = {p: Outcome(p, m.replica_nodes[0], m.leader_id, m.leader_id, "has_leader") for p, m in led.items()}
    return done, [p for p in chosen if p not in led]


def _agree(partitions: Sequence[TopicPartition], *, force: bool) -> None:
    """Ask before acknowledged records may be lost. Raises UsageError where nobody can be asked, RefusedError for no."""
    if force:
        return
    if not sys.stdin.isatty():
        raise UsageError("an unclean election may lose acknowledged records: off a terminal it needs --force")
    names = one_line(", ".join(map(str, partitions)))
    if not click.confirm(f"Acknowledged records of {names} may be lost. Elect all the same?", err=True):
        raise RefusedError("nothing was elected")


def _already(partition: TopicPartition, found: Any) -> Outcome:
    leader = elections.leader_of(found)
    return Outcome(
        partition, found.replica_nodes[0] if found.replica_nodes else None, leader, leader, "already_preferred"
    )


def _lines(found: Mapping[TopicPartition, Outcome], failed: Iterable[Outcome], kind: str) -> Iterable[str]:
    ordered = sorted(found.values())

    def names(*statuses: str) -> str:
        return ", ".join([str(o.partition) for o in ordered if o.status in statuses])

    if elected := names("elected"):
        yield f"Successfully completed leader election ({kind}) for partitions {elected}"
    if valid := names("already_preferred", "has_leader"):
        yield f"Valid replica already elected for partitions {valid}"
    for outcome in failed:
        if isinstance(error := outcome.error, BrokerAnswerError) and not isinstance(error, LostAnswerError):
            kafkas = EXCEPTIONS.get(ErrorCode(error.code)) if error.code in ErrorCode._value2member_map_ else None
            exception = f"org.apache.kafka.common.errors.{kafkas or 'ApiException'}"
            yield f"Error completing leader election ({kind}) for partition: {outcome.partition}: {exception}: {error}"


def _show(
    out: Output,
    found: Mapping[TopicPartition, Outcome],
    failed: Sequence[Outcome],
    lines: Sequence[str],
    result: Result,
    cluster_id: str | None,
) -> None:
    items = []
    if not out.is_text:
        items = [
            {**o.partition._asdict(), **{key: getattr(o, key) for key in COLUMNS[2:]}} for _, o in sorted(found.items())
        ]
    errors = [_error(o) for o in failed if o.error is not None]
    if isinstance(result.cut_short, KafkatoolError):
        words = _kafkas_words(result.cut_short)
        lines = [*lines, words]
        errors = [error_item(RefusedError(words)), *errors]
    if isinstance(result.unread, KafkatoolError):
        errors = [error_item(result.unread), *errors]
    out.show(Answer(lines, items, COLUMNS, cluster_id, errors))
    _note_ends(out, failed, result)


def _error(outcome: Outcome) -> dict[str, Any]:
    code = {"code": outcome.error.code} if isinstance(outcome.error, BrokerAnswerError) else {}
    assert outcome.error is not None
    return error_item(outcome.error, **outcome.partition._asdict(), **code)


def _kafkas_words(why: KafkatoolError) -> str:
    if isinstance(why, BrokerUnreachableError | DeadlineError):
        return TIMED_OUT
    return NOT_AUTHORIZED if isinstance(why, NotPermittedError) else str(why)


def _note_ends(out: Output, failed: Sequence[Outcome], result: Result) -> None:
    """Say what could not be elected, what is not known, and what was never asked for."""
    if isinstance(result.cut_short, KafkatoolError):
        out.note(str(result.cut_short) + (f" ({now})" if (now := result.cut_short.now) else ""))
    if isinstance(result.unread, KafkatoolError):
        out.note(f"the leaders could not be read: {result.unread}")
    lost = [str(o.partition) for o in failed if isinstance(o.error, LostAnswerError)]
    unasked = [str(o.partition) for o in failed if isinstance(o.error, NotAskedError)]
    for words, names in (("not known whether elected: ", lost), ("not asked for: ", unasked)):
        if names:
            out.note(words + ", ".join(names))
    if refused := len(failed) - len(lost) - len(unasked):
        out.note(f"{in_number(refused, 'replica(s)', 'replica(s)')} could not be elected")


def _note_doubts(out: Output, found: Mapping[TopicPartition, Outcome]) -> None:
    """Say of which partitions it is not known whether they lost records by this: the answer is of the second request."""
    if names := ", ".join(str(p) for p, outcome in sorted(found.items()) if outcome.doubtful):
        out.note(
            f"{names}: elected, perhaps by this request, whose first answer was lost: acknowledged records may be lost"
        )
