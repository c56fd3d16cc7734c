"""What moves, as the controller tells it: every partition with replicas to add or to remove, whoever began it (ADM-19)."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.error_codes import ErrorCode

NAMED_AT_MOST: Final = 1000
"""How many are asked about by name. The controller looks up each partition that is named; asked for all, it looks at those
alone that move, which after a plan of 10,000 are soon none. What others move comes along then, and is dropped here."""


class Moving(NamedTuple):
    """The replicas of a partition on the move: those of origin and target together, and what becomes of them."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas at the end."""
        return tuple(b for b in self.replicas if b not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Return the replicas before; after a move replaced another on KRaft, dropped ones count to them (ADM-37)."""
        return tuple(b for b in self.replicas if b not in self.adding)

    def is_to(self, replicas: tuple[int, ...] | None) -> bool:
        """Tell whether it ends at those replicas, in whatever order; None: they are not known."""
        return replicas is not None and sorted(self.target) == sorted(replicas)


def read_moves(
    client: ClusterClient, partitions: Collection[TopicPartition] | None = None, *, needed: bool = False
) -> dict[TopicPartition, Moving]:
    """Read what moves of those partitions, of all when None.

    Brokers older than 2.4 do not tell: then nothing, unless it is ``needed``. Raises BrokerAnswerError,
    UnsupportedApiError.
    """
    if not needed and not client.serves(listing.API):
        return {}
    topics = None
    if partitions is not None and len(partitions) <= NAMED_AT_MOST:
        named: dict[str, list[int]] = {}
        for topic, partition in sorted(set(partitions)):
            named.setdefault(topic, []).append(partition)
        topics = [listing.ListReassignmentsTopic(topic=t, partitions=p) for t, p in named.items()]
    request = listing.ListPartitionReassignmentsRequest(timeout_ms=client.request_ms, topics=topics)
    answer = client.controller(
        listing.API, request, codes=lambda answer: [answer.error_code] if answer.error_code else []
    )
    if answer.error_code != ErrorCode.NONE:
        raise client.refusal(listing.API, answer.error_code, answer.error_message)
    told = {
        TopicPartition(t.topic, p.partition): Moving(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for t in answer.topics
        for p in t.partitions
    }
    if not told or partitions is None:
        return told
    wanted = frozenset(partitions)
    return {p: moving for p, moving in told.items() if p in wanted}


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
