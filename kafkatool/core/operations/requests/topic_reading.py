"""Topics as brokers tell them: who wants no more of them starts without what describes and changes them."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.rights import EVERY_TOPIC
from kafkatool.core.errors import NotPermittedError, RefusedError
from kafkatool.core.model import topic_names
from kafkatool.core.model.values import Assignment, TopicPartition
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode

NOT_THERE: Final = frozenset(
    {
        *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION),
        *(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID),
    }
)
_BY_NUMBER: Final = attrgetter("partition")
_Refused = TypeVar("_Refused", bound=RefusedError)


class Topic(NamedTuple):
    """A topic as the brokers tell it, when its metadata was read."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: Sequence[metadata.MetadataResponsePartition]

    @property
    def assignment(self) -> Assignment:
        return {p.partition: tuple(p.replica_nodes) for p in self.partitions}


def read_topics(client: ClusterClient, names: Sequence[str] | None = None, *, ids: bool = False) -> dict[str, Topic]:
    """Read topics by name, sorted; those that do not exist are left out. ``ids``: they must be told (ADM-29).

    One that may not be described is left out too, and noted.
    """
    answer = client.metadata(names, least=10 if ids else 1)
    for topic in answer.topics:
        error = client.refusal(metadata.API, topic.error_code, resource=topic.topic)
        if isinstance(error, NotPermittedError):
            client.unseen.note(error, "what there is of it is not known")
    found = [t for t in answer.topics if t.error_code not in NOT_THERE]
    return {
        t.topic: Topic(t.topic, t.topic_id, t.is_internal, sorted(t.partitions, key=_BY_NUMBER))
        for t in sorted(found, key=lambda t: t.topic)
    }


def replicas_in(
    topics: Mapping[str, Topic], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of those partitions that exist."""
    assigned = {name: topic.assignment for name, topic in topics.items()}
    return {p: r for p in partitions if (r := assigned.get(p.topic, {}).get(p.partition)) is not None}


def read_meant(client: ClusterClient, pattern: str) -> dict[str, Topic]:
    """Read the topics that are to be changed (``topic_names.meant``).

    Raises NotPermittedError where there is none, and one of that name may be there unseen.
    """
    existing = read_topics(client, topic_names.names_in(pattern))
    found = {name: existing[name] for name in topic_names.meant(existing, pattern)}
    if not found and (refused := _hidden(client, pattern)):
        raise refused
    return found


def missing(client: ClusterClient, topic: str, otherwise: _Refused) -> _Refused | NotPermittedError:
    """Return why a topic that was asked for was not told: it may not be described, or it is as ``otherwise`` says."""
    return _hidden(client, topic) or otherwise


def _hidden(client: ClusterClient, topic: str) -> NotPermittedError | None:
    """Take out that a topic may not be described, if it was told so."""
    refused = client.unseen.take(f"topic {topic}")
    if refused is not None:
        client.unseen.take(EVERY_TOPIC)  # it says less
    return refused
