"""Topics by requests: listed, described, created, grown, deleted, their configs changed (ADM-21 to ADM-31, 54 to 56).

Each change is a request made first and sent then, so that ``--dry-run`` shows just what would be sent. What an item of an
answer says is judged by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient, throttled_ms
from kafkatool.core.errors import (
    BrokerAnswerError,
    KafkatoolError,
    NotPermittedError,
    ProtocolError,
    RefusedError,
    UnsupportedApiError,
)
from kafkatool.core.model.uuids import uuid_text
from kafkatool.core.model.values import Assignment, TopicPartition, in_number
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.topic_reading import NOT_THERE, Topic, read_topics
from kafkatool.core.operations.topics.description import PartitionDescription, TopicDescription
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from kafkatool.core.protocol.messages import describe_topic_partitions as pages
from kafkatool.core.protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest
from kafkatool.core.protocol.messages.create_topics import CreateTopicsRequest
from kafkatool.core.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

TOPIC: Final = 2  # kind of a config's resource
SET, DELETE = 0, 1  # config operations
DEFAULT_SOURCE: Final = 5
DEFAULTS_SINCE: Final = 4  # version of CreateTopics that takes -1 for the cluster's default
VALIDATED_SINCE: Final = 1  # version of CreateTopics that can be asked what it would do
BY_ID_SINCE: Final = 6  # version of DeleteTopics that takes ids, and names in the same list
MIN_IN_SYNC: Final = "min.insync.replicas"
PAGE_PARTITIONS: Final = 2000


# --- describing ------------------------------------------------------------------------------------------------


class Config(NamedTuple):
    """The configs of a topic: those that are not default, and how many replicas must be in sync."""

    overrides: Mapping[str, str]
    min_isr: int


def describe(
    client: ClusterClient, topics: Mapping[str, Topic], *, page_partitions: int = PAGE_PARTITIONS, paged: bool = True
) -> list[TopicDescription]:
    """Describe topics as they were read, with their configs and moves, and eligible leaders where brokers tell them.

    ``paged``: those are asked for, in pages of so many partitions (ADM-21).
    """
    if not topics:
        return []
    configs = read_configs(client, topics)
    moves: Mapping[TopicPartition, Moving] = {}
    try:
        moves = read_moves(client)
    except NotPermittedError as e:
        client.unseen.note(e, "what is being moved is not known", only_maybe=True)
    eligible = _eligible(client, list(topics), page_partitions) if paged else {}
    return [_description(client, topic, configs.get(topic.name), moves, eligible) for topic in topics.values()]


def read_configs(client: ClusterClient, topics: Iterable[str]) -> dict[str, Config]:
    """Read the configs of topics; those of a topic that cannot be read are left out."""
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=t) for t in topics]
    answer = client.any(describe_configs.API, DescribeConfigsRequest(resources=resources))
    found = {}
    for result in answer.results:
        if result.error_code == ErrorCode.NONE:
            entries = {c.name: c for c in sorted(result.configs, key=lambda c: c.name)}
            overrides = {
                c.name: c.value or ""
                for c in entries.values()
                if c.config_source != DEFAULT_SOURCE and not c.is_default
            }
            needed = entries[MIN_IN_SYNC].value if MIN_IN_SYNC in entries else None
            found[result.resource_name] = Config(overrides, int(needed) if needed and needed.isdecimal() else 1)
        error = client.refusal(describe_configs.API, result.error_code, resource=result.resource_name)
        if isinstance(error, NotPermittedError):
            client.unseen.note(error, "its configs are not known")
    return found


class _Eligible(NamedTuple):
    leaders: Sequence[int] | None
    last_known: Sequence[int] | None


def _eligible(client: ClusterClient, names: Sequence[str], page_partitions: int) -> dict[TopicPartition, _Eligible]:
    """Read page after page. Raises RefusedError where a broker's pages go in a circle."""
    if not client.serves(pages.API):
        return {}
    found: dict[TopicPartition, _Eligible] = {}
    cursor: pages.Cursor | None = None
    left = sorted(names)
    while True:
        request = pages.DescribeTopicPartitionsRequest(
            topics=[pages.TopicName(name=t) for t in left], response_partition_limit=page_partitions, cursor=cursor
        )
        answer = client.any(pages.API, request)
        for topic in answer.topics:
            for p in topic.partitions:
                found[TopicPartition(topic.name or "", p.partition_index)] = _Eligible(
                    p.eligible_leader_replicas, p.last_known_elr
                )
        if answer.next_cursor is None:
            return found
        if cursor is not None and _place(answer.next_cursor) <= _place(cursor):
            raise RefusedError(f"a broker tells of page {_place(cursor)} again: not all partitions can be described")
        cursor = answer.next_cursor
        left = [t for t in left if t >= cursor.topic_name]


def _place(cursor: pages.Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _description(
    client: ClusterClient,
    topic: Topic,
    config: Config | None,
    moves: Mapping[TopicPartition, Moving],
    eligible: Mapping[TopicPartition, _Eligible],
) -> TopicDescription:
    partitions = []
    for p in topic.partitions:
        partition = TopicPartition(topic.name, p.partition)
        leader = p.leader_id if p.leader_id >= 0 else None
        moving = moves.get(partition)
        leaders, last_known = eligible.get(partition, _Eligible(None, None))
        partitions.append(
            PartitionDescription(
                partition,
                leader,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                p.leader_epoch if p.leader_epoch >= 0 else None,
                None,
                leader in client.brokers,
                config.min_isr if config else 1,
                adding=moving.adding if moving else None,
                removing=moving.removing if moving else None,
                eligible=None if leaders is None else tuple(leaders),
                last_known_eligible=None if last_known is None else tuple(last_known),
            )
        )
    topic_id = None if topic.topic_id == NO_UUID else uuid_text(topic.topic_id)
    return TopicDescription(topic.name, tuple(partitions), config.overrides if config else None, None, topic_id)


# --- creating --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made: with an assignment, or with numbers, of which None leaves it to the cluster."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Assignment | None = None
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def least_version(self) -> int:
        """Return the version of CreateTopics that can say it."""
        left_open = self.assignment is None and None in (self.partitions, self.replication_factor)
        return DEFAULTS_SINCE if left_open else 0


def creation_request(client: ClusterClient, topic: NewTopic, *, validate_only: bool = False) -> CreateTopicsRequest:
    """Make the request that creates it; ``validate_only``: that has it judged, from version 1 on."""
    assigned = topic.assignment or {}
    wanted = create_topics.CreateTopicsTopic(
        name=topic.name,
        num_partitions=-1 if topic.partitions is None else topic.partitions,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=[
            create_topics.CreateTopicsAssignment(partition=p, broker_ids=list(r)) for p, r in assigned.items()
        ],
        configs=[create_topics.CreateTopicsConfig(name=k, value=v) for k, v in topic.configs.items()],
    )
    return CreateTopicsRequest(topics=[wanted], timeout_ms=client.request_ms, validate_only=validate_only)


def create(client: ClusterClient, topic: NewTopic) -> None:
    """Create the topic. Raises BrokerAnswerError with the controller's words.

    One that is there when the request had to be sent again is the one asked for, if it looks like it (ADM-54).
    """
    (result,) = client.controller(
        create_topics.API,
        creation_request(client, topic),
        least=topic.least_version,
        codes=lambda answer: [t.error_code for t in answer.topics],
    ).topics
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and client.repeated and _is_as_asked(client, topic):
        return
    if result.error_code != ErrorCode.NONE:
        raise client.refusal(create_topics.API, result.error_code, result.error_message, resource=topic.name)


def check_creation(client: ClusterClient, topic: NewTopic) -> bool:
    """Have the controller judge the topic, which is not made. False: it is too old to judge without making it.

    Raises BrokerAnswerError with its words.
    """
    least = max(topic.least_version, VALIDATED_SINCE)
    try:
        client.version_of(create_topics.API, least=least)
    except UnsupportedApiError:
        return False
    (result,) = client.controller(
        create_topics.API,
        creation_request(client, topic, validate_only=True),
        least=least,
        codes=lambda answer: [t.error_code for t in answer.topics],
    ).topics
    if result.error_code != ErrorCode.NONE:
        raise client.refusal(create_topics.API, result.error_code, result.error_message, resource=topic.name)
    return True


def _is_as_asked(client: ClusterClient, topic: NewTopic) -> bool:
    found = read_topics(client, [topic.name]).get(topic.name)
    if found is None:
        return False
    assignment = found.assignment
    if topic.assignment is not None:
        same = dict(topic.assignment) == dict(assignment)
    else:
        same = topic.partitions in (None, len(assignment)) and all(
            topic.replication_factor in (None, len(r)) for r in assignment.values()
        )
    configs = read_configs(client, [topic.name]).get(topic.name)
    return same and configs is not None and all(configs.overrides.get(k) == v for k, v in topic.configs.items())


# --- changing --------------------------------------------------------------------------------------------------


def growth_request(
    client: ClusterClient,
    topic: Topic,
    partitions: int,
    groups: Sequence[tuple[int, ...]] | None,
    *,
    validate_only: bool = False,
) -> CreatePartitionsRequest:
    """Make the request that brings a topic to so many partitions; ``validate_only``: that has it judged.

    ``groups``: a replica list for each partition, those of the existing ones being skipped. Raises RefusedError: too few.
    """
    added = None
    if groups is not None:
        if len(groups) < partitions:
            raise RefusedError(
                f"--replica-assignment has {in_number(len(groups), 'group', 'groups')} for {partitions} partitions; "
                "it takes one for every partition, the existing ones included"
            )
        new = groups[len(topic.partitions) : partitions]
        added = [CreatePartitionsAssignment(broker_ids=list(group)) for group in new]
    wanted = create_partitions.CreatePartitionsTopic(name=topic.name, count=partitions, assignments=added)
    return CreatePartitionsRequest(topics=[wanted], timeout_ms=client.request_ms, validate_only=validate_only)


def grow(
    client: ClusterClient,
    topic: Topic,
    partitions: int,
    groups: Sequence[tuple[int, ...]] | None = None,
    *,
    validate_only: bool = False,
) -> None:
    """Bring the topic to so many partitions, or have that judged alone. Raises BrokerAnswerError, RefusedError.

    The number there are is one broker's word, which on KRaft may be behind: refused for its assignment, it is read again.
    """
    try:
        _grow(client, topic, partitions, groups, validate_only)
    except BrokerAnswerError as e:
        again = read_topics(client, [topic.name]).get(topic.name)
        if e.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and again and len(again.partitions) != len(topic.partitions):
            _grow(client, again, partitions, groups, validate_only)
        elif not (e.code == ErrorCode.INVALID_PARTITIONS and client.repeated and again_has(again, partitions)):
            raise


def again_has(topic: Topic | None, partitions: int) -> bool:
    """Tell whether a topic has just so many partitions: a growth whose answer was lost has been carried out."""
    return topic is not None and len(topic.partitions) == partitions


def _grow(
    client: ClusterClient,
    topic: Topic,
    partitions: int,
    groups: Sequence[tuple[int, ...]] | None,
    validate_only: bool,
) -> None:
    (result,) = client.controller(
        create_partitions.API,
        growth_request(client, topic, partitions, groups, validate_only=validate_only),
        codes=lambda answer: [r.error_code for r in answer.results],
    ).results
    if result.error_code != ErrorCode.NONE:
        raise client.refusal(create_partitions.API, result.error_code, result.error_message, resource=topic.name)


def config_request(
    topics: Sequence[str], changed: Mapping[str, str], removed: Iterable[str], *, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    """Make the request that sets and deletes just those configs; a name that is in both is deleted.

    ``validate_only``: it has that judged alone.
    """
    gone = list(dict.fromkeys(removed))
    operations = [
        *(ConfigOperation(name=k, config_operation=SET, value=v) for k, v in changed.items() if k not in gone),
        *(ConfigOperation(name=k, config_operation=DELETE, value=None) for k in gone),
    ]
    resources = [
        IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=t, configs=operations) for t in topics
    ]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)


def change_configs(
    client: ClusterClient,
    topics: Sequence[str],
    changed: Mapping[str, str],
    removed: Iterable[str],
    *,
    validate_only: bool = False,
) -> dict[str, BrokerAnswerError | None]:
    """Set and delete just those configs; two that do so at once lose nothing (ADM-27). Return what became of each topic.

    ``validate_only``: what would become of it.
    """
    request = config_request(topics, changed, removed, validate_only=validate_only)
    answer = client.any(incremental_alter_configs.API, request)
    return {
        r.resource_name: client.refusal(
            incremental_alter_configs.API, r.error_code, r.error_message, resource=r.resource_name
        )
        if r.error_code
        else None
        for r in answer.responses
    }


# --- deleting --------------------------------------------------------------------------------------------------


def deletion_request(client: ClusterClient, topics: Sequence[Topic]) -> tuple[DeleteTopicsRequest, int]:
    """Make the request that deletes them all, and say the least version of it.

    By their ids where brokers know them, so that a topic made anew meanwhile survives (ADM-30). The version that takes ids
    is served by brokers that have none too: both lists are filled, and the version says which one is sent.
    """
    by_id = all(t.topic_id != NO_UUID for t in topics) and client.serves(delete_topics.API, least=BY_ID_SINCE)
    named = [(None, t.topic_id) if by_id else (t.name, NO_UUID) for t in topics]
    wanted = [delete_topics.DeleteTopicsTopic(name=name, topic_id=topic_id) for name, topic_id in named]
    request = DeleteTopicsRequest(topics=wanted, topic_names=[t.name for t in topics], timeout_ms=client.request_ms)
    return request, BY_ID_SINCE if by_id else 0


class UnansweredError(KafkatoolError):
    """The answer about a topic never came: whether it was deleted is not known (ADM-56)."""

    def __init__(self, why: KafkatoolError, topic: str) -> None:
        super().__init__(f"{why}; whether topic {topic} was deleted is not known", now=why.now)


Deleted = dict[str, BrokerAnswerError | UnansweredError | None]
"""Topic -> why it was not deleted, or is not known to be; None: it was."""


def delete(client: ClusterClient, topics: Sequence[Topic]) -> Deleted:
    """Delete them by one request. Return what became of each: gone when the request had to be sent again is done.

    Those refused alone for their quota are asked for again, as long as that makes them fewer and the time lasts for what
    the controller wants waited before (ADM-55). Raises KafkatoolError only where none of it was sent.
    """
    outcome: Deleted = {}
    over = topics
    while over:
        try:
            answered, quiet_ms = _delete(client, over)
        except KafkatoolError as e:
            if client.repeated or isinstance(e, ProtocolError):
                return outcome | {t.name: UnansweredError(e, t.name) for t in over}
            if outcome:
                return outcome  # what is left was refused for its quota, and stays so
            raise
        outcome |= answered
        left = [t for t in over if _is_over_quota(outcome.get(t.name))]
        if len(left) == len(over) or client.left_ms <= max(1, quiet_ms):
            break
        over = left
    return outcome


def _is_over_quota(error: KafkatoolError | None) -> bool:
    return isinstance(error, BrokerAnswerError) and error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


def _delete(client: ClusterClient, topics: Sequence[Topic]) -> tuple[Deleted, int]:
    """Send one request. Return what became of each, and for how many ms the controller wants nothing more."""
    names = {t.topic_id: t.name for t in topics}
    request, least = deletion_request(client, topics)
    answer = client.controller(
        delete_topics.API, request, least=least, codes=lambda answer: [t.error_code for t in answer.topics]
    )
    outcome: Deleted = {}
    for result in answer.topics:
        name = names[result.topic_id] if result.topic_id in names and result.topic_id != NO_UUID else result.name or ""
        gone = result.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        done = result.error_code == ErrorCode.NONE or (gone and client.repeated)
        outcome[name] = (
            None if done else client.refusal(delete_topics.API, result.error_code, result.error_message, resource=name)
        )
    for name in (t.name for t in topics if t.name not in outcome):
        outcome[name] = UnansweredError(ProtocolError("the controller's answer does not tell of it"), name)
    return outcome, throttled_ms(answer)


def still_there(client: ClusterClient, topics: Iterable[Topic]) -> list[str]:
    """Return those that some broker which answers still tells of, by the same id."""
    wanted = {t.name: t.topic_id for t in topics}
    asked = [metadata.MetadataRequestTopic(topic=t) for t in wanted]
    request = metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    left = set()
    for broker_id in client.brokers:
        for topic in client.broker(broker_id, metadata.API, request, least=1).topics:
            if topic.error_code not in NOT_THERE and topic.topic_id == wanted[topic.topic]:
                left.add(topic.topic)
    return sorted(left)
