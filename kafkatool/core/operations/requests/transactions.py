"""Transactions by requests: listed, described, hanging ones found and aborted (KIP-664, TXN-92 to 94).

A transaction hangs if it is open in a partition and its coordinator does not know of it, so that nobody will end it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.rights import EVERY_TRANSACTIONAL_ID, name_of_none
from kafkatool.core.errors import (
    BrokerAnswerError,
    KafkatoolError,
    NotPermittedError,
    RefusedError,
    UnsupportedApiError,
)
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.topic_reading import missing, read_topics
from kafkatool.core.protocol.messages import (
    describe_producers,
    describe_transactions,
    find_coordinator,
    list_transactions,
    write_txn_markers,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode, answer_error
from kafkatool.core.protocol.messages.write_txn_markers import TxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersTopic

POLL_S: Final = 0.2
PARTITIONS_AT_ONCE: Final = 500  # of one DescribeProducers: a partition may have thousands of producers
OF_TRANSACTIONAL_ID: Final = 1  # kind of a coordinator's key
BY_KEYS: Final = 4  # version of FindCoordinator that asks for several
BY_DURATION: Final = 1  # version of ListTransactions

_COMES_LATER: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Listing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Description:
    """A transactional id; ``partitions`` are those that still want a marker, ``start_ms`` None: never begun."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer that a partition's log knows; None is what the log does not know, or no open transaction."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class Abort:
    """The end of a hanging transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    def request(self) -> WriteTxnMarkersRequest:
        topic = WriteTxnMarkersTopic(topic=self.partition.topic, partitions=[self.partition.partition])
        return WriteTxnMarkersRequest(
            markers=[
                TxnMarker(
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    committed=False,
                    topics=[topic],
                    coordinator_epoch=self.coordinator_epoch,
                )
            ]
        )


# --- coordinators ----------------------------------------------------------------------------------------------


def list_all(
    client: ClusterClient, *, producer_ids: Collection[int] = (), longer_than_ms: int = -1
) -> tuple[list[Listing], dict[int, KafkatoolError]]:
    """Ask every broker what it coordinates; return that by id, and the brokers that did not tell.

    ``longer_than_ms``: those alone that began longer ago, which brokers before 3.8 cannot tell.
    """
    found: list[Listing] = []
    silent: dict[int, KafkatoolError] = {}
    request = list_transactions.ListTransactionsRequest(producer_ids=sorted(producer_ids), duration_ms=longer_than_ms)
    least = BY_DURATION if longer_than_ms >= 0 else 0
    if (refused := may_not_describe_all(client)) is not None:
        client.unseen.note(refused, "transactional ids that may not be described are left out", only_maybe=True)
    for broker in sorted(client.brokers):
        try:
            answer = _patiently(
                client,
                lambda b=broker: client.broker(b, list_transactions.API, request, least=least),  # type: ignore[misc]
                lambda answer: answer.error_code,
                _COMES_LATER,
            )
            if answer.error_code:
                raise client.refusal(list_transactions.API, answer.error_code)
        except KafkatoolError as e:
            silent[broker] = e
        else:
            found += [Listing(t.transactional_id, broker, t.producer_id, t.state) for t in answer.transactions]
    return sorted(found, key=lambda listing: listing.transactional_id), silent


def may_not_describe_all(client: ClusterClient) -> NotPermittedError | None:
    """Ask of an id that nothing has: of all ids, brokers list those alone that we may describe. None: we may all.

    An id that an entry denies by its name stays out of this. Brokers too old to tell of ids are not asked.
    """
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[name_of_none()])
    try:
        answer = client.any(describe_transactions.API, request)
    except UnsupportedApiError:
        return None
    for told in answer.transactions:
        error = client.refusal(describe_transactions.API, told.error_code, resource=EVERY_TRANSACTIONAL_ID)
        if isinstance(error, NotPermittedError):
            return error
    return None


def describe(client: ClusterClient, transactional_id: str) -> Description:
    """Ask the id's coordinator. Raises BrokerAnswerError, BrokerUnreachableError, DeadlineError."""

    def ask() -> tuple[int, describe_transactions.DescribedTransaction]:
        coordinator = _find_coordinator(client, transactional_id)
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (told,) = client.broker(coordinator, describe_transactions.API, request).transactions
        return coordinator, told

    coordinator, told = _patiently(client, ask, lambda answer: answer[1].error_code, _COMES_LATER)
    if told.error_code:
        raise client.refusal(describe_transactions.API, told.error_code, resource=transactional_id)
    return Description(
        transactional_id,
        coordinator,
        told.producer_id,
        told.producer_epoch,
        told.state,
        told.timeout_ms,
        told.start_time_ms if told.start_time_ms >= 0 else None,
        tuple(sorted(TopicPartition(t.topic, p) for t in told.topics for p in t.partitions)),
    )


def _find_coordinator(client: ClusterClient, transactional_id: str) -> int:
    request = find_coordinator.FindCoordinatorRequest(
        key=transactional_id, key_type=OF_TRANSACTIONAL_ID, keys=[transactional_id]
    )

    def ask() -> tuple[int, int, str | None]:
        answer = client.any(find_coordinator.API, request, least=1)
        one = answer.coordinators[0] if answer.coordinators else answer
        return one.error_code, one.node_id, one.error_message

    code, node, message = _patiently(client, ask, lambda answer: answer[0], _COMES_LATER)
    if code:
        raise client.refusal(find_coordinator.API, code, message, resource=transactional_id)
    if node not in client.brokers:
        client.refresh()
    return node


# --- partitions ------------------------------------------------------------------------------------------------


def producers_of(
    client: ClusterClient, partitions: Iterable[TopicPartition], *, broker: int | None = None
) -> tuple[list[Producer], dict[TopicPartition, BrokerAnswerError]]:
    """Ask each partition's leader, or that broker, who writes to it; return that, and the partitions not told of.

    Raises BrokerUnreachableError, UnsupportedApiError, DeadlineError.
    """
    found: list[Producer] = []
    failed: dict[TopicPartition, BrokerAnswerError] = {}
    left = sorted(set(partitions))
    while left:
        again: list[TopicPartition] = []
        for asked, wanted in _by_broker(client, left, broker, failed).items():
            for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
                batch = wanted[start : start + PARTITIONS_AT_ONCE]
                answer = client.broker(asked, describe_producers.API, _about(batch))
                for topic in answer.topics:
                    for one in topic.partitions:
                        place = TopicPartition(topic.topic, one.partition)
                        if one.error_code in _MOVED and broker is None and client.left_ms > 1000 * POLL_S:
                            again.append(place)
                        elif one.error_code:
                            failed[place] = client.refusal(
                                describe_producers.API, one.error_code, one.error_message, resource=place.topic
                            )
                        else:
                            found += [_producer(place, active) for active in one.active_producers]
        if again:
            time.sleep(POLL_S)
        left = again
    return sorted(found, key=lambda p: (p.partition, p.producer_id)), failed


def _by_broker(
    client: ClusterClient,
    partitions: Sequence[TopicPartition],
    broker: int | None,
    failed: dict[TopicPartition, BrokerAnswerError],
) -> dict[int, list[TopicPartition]]:
    """Return whom to ask of what; what has no leader, or is not there, has failed."""
    if broker is not None:
        return {broker: list(partitions)}
    topics = read_topics(client, sorted({p.topic for p in partitions}))
    leaders = {TopicPartition(name, p.partition): p.leader_id for name, t in topics.items() for p in t.partitions}
    asked: dict[int, list[TopicPartition]] = {}
    refused: dict[str, BrokerAnswerError] = {}
    for partition in partitions:
        leader = leaders.get(partition)
        if leader is None:
            unknown = answer_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            failed[partition] = refused.setdefault(partition.topic, missing(client, partition.topic, unknown))
        elif leader not in client.brokers:
            failed[partition] = answer_error(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            asked.setdefault(leader, []).append(partition)
    return asked


def _about(partitions: Sequence[TopicPartition]) -> describe_producers.DescribeProducersRequest:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return describe_producers.DescribeProducersRequest(
        topics=[describe_producers.DescribeProducersTopic(topic=t, partitions=n) for t, n in topics.items()]
    )


def _producer(place: TopicPartition, told: describe_producers.ActiveProducer) -> Producer:
    return Producer(
        place,
        told.producer_id,
        told.producer_epoch,
        told.coordinator_epoch if told.coordinator_epoch >= 0 else None,
        told.last_sequence,
        told.last_timestamp,
        told.current_txn_start_offset if told.current_txn_start_offset >= 0 else None,
    )


# --- hanging ones ----------------------------------------------------------------------------------------------


def find_hanging(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    *,
    idle_ms: int,
    now_ms: int,
    broker: int | None = None,
) -> tuple[list[Producer], dict[TopicPartition, BrokerAnswerError]]:
    """Return the open transactions, idle for longer than that, that no coordinator will end; and what was not told of.

    Raises KafkatoolError: a coordinator could not be asked, or does not tell us all, so that nothing can be called
    hanging.
    """
    if (refused := may_not_describe_all(client)) is not None:
        raise refused  # what its coordinator keeps from us would seem to hang, and might be aborted
    known, failed = producers_of(client, partitions, broker=broker)
    open_ = [p for p in known if p.start_offset is not None and now_ms - p.last_timestamp_ms > idle_ms]
    if not open_:
        return [], failed
    listed, silent = list_all(client, producer_ids={p.producer_id for p in open_})
    if silent:
        broker_id, error = next(iter(silent.items()))
        raise RefusedError(f"broker {broker_id} does not tell what it coordinates: {error}")
    return hanging(open_, _under_way(client, listed)), failed


def hanging(open_: Iterable[Producer], under_way: Mapping[int, Collection[TopicPartition]]) -> list[Producer]:
    """Choose those that are not ``under_way``: by producer id, the partitions that its coordinator will end."""
    return [p for p in open_ if p.partition not in under_way.get(p.producer_id, ())]


def _under_way(client: ClusterClient, listed: Iterable[Listing]) -> dict[int, Collection[TopicPartition]]:
    found: dict[int, Collection[TopicPartition]] = {}
    for listing in listed:
        try:
            found[listing.producer_id] = describe(client, listing.transactional_id).partitions
        except BrokerAnswerError as e:
            if e.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return found


def abort_of(producers: Iterable[Producer], partition: TopicPartition, start_offset: int) -> Abort:
    """Return the end of the transaction that is open from that offset on. Raises RefusedError: none is."""
    for one in producers:
        if one.start_offset == start_offset:
            # Of a producer whose first transaction hangs no coordinator's epoch is known: 0 fences nobody.
            return Abort(partition, one.producer_id, one.producer_epoch, one.coordinator_epoch or 0)
    raise RefusedError(
        f"Could not find any open transactions starting at offset {start_offset} on partition {partition}"
    )


def leader_of(client: ClusterClient, partition: TopicPartition) -> int:
    """Return the leader. Raises BrokerAnswerError: there is none."""
    failed: dict[TopicPartition, BrokerAnswerError] = {}
    for broker in _by_broker(client, [partition], None, failed):
        return broker
    raise failed[partition]


def abort(client: ClusterClient, what: Abort) -> None:
    """Have the leader end the transaction. Raises BrokerAnswerError, BrokerUnreachableError, DeadlineError."""

    def ask() -> int:
        leader = leader_of(client, what.partition)
        answer = client.broker(leader, write_txn_markers.API, what.request())
        return next(
            (p.error_code for m in answer.markers for t in m.topics for p in t.partitions),
            int(ErrorCode.UNKNOWN_SERVER_ERROR),
        )

    code = _patiently(client, ask, lambda answer: answer, _MOVED)
    if code:
        raise client.refusal(write_txn_markers.API, code, resource=what.partition.topic)


def _patiently(
    client: ClusterClient, ask: Callable[[], _Answer], code_of: Callable[[_Answer], int], passing: Collection[int]
) -> _Answer:
    """Ask again, within the operation's time, while the answer is that it will be another one soon."""
    while True:
        answer = ask()
        if code_of(answer) not in passing or client.left_ms <= 1000 * POLL_S:
            return answer
        time.sleep(POLL_S)
