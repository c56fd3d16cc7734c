"""Transactions of a mixed cluster, taken apart: who coordinates, what is stored, which markers are written, what is held up.

A broker of either kind is held up by asking for more replicas in sync than there are: of ``__transaction_state``, so that
the coordinator decides and cannot store; of a topic, so that it stores Prepare and cannot have its markers written.
"""

import json
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import pytest

from kafkatool.broker.storage.batches.transaction_markers import read_marker
from kafkatool.broker.transactions.records import decode_key, decode_value
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Transaction
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.configs import change_configs
from kafkatool.core.protocol.messages import write_txn_markers as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import BatchHeader, iter_batches, iter_records
from tests.compat import real_kafka
from tests.compat.mixed import OURS, WAIT_S, Mixed, mixed_cluster
from tests.compat.told import await_told
from tests.integration.isolation import values_of
from tests.raw_transactions import RawProducer
from tests.steady import LASTING
from tests.waiting import eventually

THEIRS: Final = 1
"""The real broker that coordinates where ours does not."""
BESIDE: Final = 2
"""The real broker that coordinates nothing."""
ALL_BUT_POSSIBLE: Final = "4"
"""More replicas in sync than there are."""
OWN: Final = TopicPartition(TRANSACTION_TOPIC, 0)
PROBE: Final = 1 << 40
"""A producer id that is nobody's."""
NONE: Final = ErrorCode.NONE
LIMIT_MS: Final = 600_000
"""As long as coordination may take to move."""
TRIED: Final = (("2.8.2", "2.3"), ("1.1.1", "1.1"), ("2.0.1", "2.0"), ("2.4.1", "2.1"), ("2.7.2", "2.2"))
"""Of real brokers that coordinate, and the protocol that all are told."""
ALL_TRIED: Final = (*TRIED, ("2.1.1", "2.1"), ("2.2.2", "2.2"), ("2.3.1", "2.3"), ("2.5.1", "2.0"), ("2.6.3", "2.3"))
"""The same of each minor release, for what has to be shown of each."""
BOTH_WAYS: Final = pytest.mark.parametrize(
    ("before", "after"), [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours-theirs", "theirs-ours"]
)


@contextmanager
def coordinated_cluster(version: str, protocol: str, directory: Path) -> Iterator[Mixed]:
    """Give a mixed cluster in which no session ends by itself, with its topic of transactions."""
    real_kafka.require(version)
    with mixed_cluster(version, protocol, directory, LASTING) as cluster:
        cluster.create_transaction_topic(THEIRS, BESIDE)
        yield cluster


class Written(NamedTuple):
    """A marker in a log."""

    epoch: int
    committed: bool
    coordinator_epoch: int


def coordinate(mixed: Mixed, broker: int, *topics: str, coordinated: Collection[str] = (TRANSACTION_TOPIC,)) -> None:
    """Have that broker, ours or ``THEIRS``, lead the ``coordinated`` topics, one partition each, so that it coordinates.

    Of each of ``topics`` partition 0 is led by theirs, 1 by ours.
    """
    if broker == OURS:
        for one in coordinated:
            mixed.kt("elect", "--topic", one)
    elif any(mixed.leaders(one) == [OURS] for one in coordinated):
        mixed.stop(OURS)
        mixed.start(OURS, [*coordinated, *topics])
    places = [{"topic": place.topic, "partition": place.partition} for topic in topics for place in both_of(topic)]
    election = mixed.directory / "election.json"
    election.write_text(json.dumps({"partitions": places}))
    mixed.kt("elect", "--path-to-json-file", str(election))
    eventually(
        lambda: (
            all(mixed.leaders(one) == [broker] for one in coordinated)
            and all(mixed.leaders(topic) == [THEIRS, OURS] for topic in topics)
        ),
        "the leaders wanted",
        WAIT_S,
    )
    await_told(mixed.zk, mixed.bootstrap, [*coordinated, *topics])


# --- what is on disk -----------------------------------------------------------------------------------------------


def batches(mixed: Mixed, broker: int, place: TopicPartition) -> Iterator[tuple[BatchHeader, bytes]]:
    """Read the broker's log of the partition; a batch that is being written is left out."""
    data_directory = mixed.ours.data if broker == OURS else mixed.real.data_directory(broker)
    data = b"".join(s.read_bytes() for s in sorted((data_directory / str(place)).glob("*.log")))
    for position, header in iter_batches(data):
        batch = data[position : position + header.size_bytes]
        if len(batch) == header.size_bytes:
            yield header, batch


def records(mixed: Mixed, broker: int) -> Iterator[tuple[str, bytes | None]]:
    """Read the transactional ids and values in that broker's log, in order; no value is a tombstone."""
    for header, batch in batches(mixed, broker, OWN):
        for record in () if header.is_control else iter_records(batch):
            assert record.key is not None
            key = decode_key(record.key)
            assert key is not None
            yield key, record.value


def stored(mixed: Mixed, broker: int) -> dict[str, Transaction]:
    """Return what that broker's log has of each transactional id."""
    found: dict[str, Transaction] = {}
    for key, value in records(mixed, broker):
        found.pop(key, None)
        if value is not None:
            found[key] = decode_value(value)
    return found


def state_of(mixed: Mixed, broker: int, by: RawProducer) -> TransactionState | None:
    value = stored(mixed, broker).get(by.transactional_id)
    return None if value is None else value.state


def markers(mixed: Mixed, broker: int, place: TopicPartition, producer_id: int) -> list[Written]:
    """Return the producer's markers in that broker's log of the partition."""
    found = []
    for header, batch in batches(mixed, broker, place):
        if header.is_control and header.producer_id == producer_id and (marker := read_marker(batch)) is not None:
            found.append(Written(header.producer_epoch, marker.committed, marker.coordinator_epoch))
    return found


# --- markers by hand -----------------------------------------------------------------------------------------------


def write_marker(
    mixed: Mixed, broker: int, place: TopicPartition, who: tuple[int, int], coordinator_epoch: int, *, version: int = 0
) -> int:
    """Have that broker write a marker that aborts, as a coordinator of that epoch does; return its code."""
    topics = [wire.WriteTxnMarkersTopic(topic=place.topic, partitions=[place.partition])]
    marker = wire.TxnMarker(
        producer_id=who[0],
        producer_epoch=who[1],
        committed=False,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
    )
    port = mixed.ours.port if broker == OURS else mixed.real.ports[broker]
    security = mixed.access.brokers
    with Connection("127.0.0.1", port, client_id="test", timeout_ms=WAIT_S * 1000, security=security) as connection:
        answer = connection.send(wire.API, version, wire.WriteTxnMarkersRequest(markers=[marker]))
    (one,) = answer.markers
    assert one.producer_id == who[0]
    code: int = one.topics[0].partitions[0].error_code
    return code


# --- holding up ----------------------------------------------------------------------------------------------------


def hold_markers(mixed: Mixed, topic: str) -> None:
    """Have both leaders of the topic refuse every marker."""
    change_configs(mixed.zk, topic, {"min.insync.replicas": ALL_BUT_POSSIBLE})

    def refused() -> bool:
        leaders = zip((THEIRS, OURS), both_of(topic), strict=True)
        codes = {write_marker(mixed, leader, place, (PROBE, 0), 0) for leader, place in leaders}
        return codes == {ErrorCode.NOT_ENOUGH_REPLICAS}

    eventually(refused, f"markers in {topic} to be refused", WAIT_S)


def hold_records(mixed: Mixed, probe: RawProducer) -> None:
    """Have the coordinator's records refused, whoever coordinates; the impatient ``probe`` asks whether they are."""
    change_configs(mixed.zk, TRANSACTION_TOPIC, {"min.insync.replicas": ALL_BUT_POSSIBLE})
    eventually(lambda: probe.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE, "records to be refused", WAIT_S)


def let_go(mixed: Mixed, topic: str) -> None:
    change_configs(mixed.zk, topic, {"min.insync.replicas": "2"})


# --- producers -----------------------------------------------------------------------------------------------------


class Cast:
    """The producers of one test, each of an id of its own. A context manager: their connections end with it."""

    def __init__(self, mixed: Mixed, title: str) -> None:
        self._mixed = mixed
        self._title = title
        self._threads = ThreadPoolExecutor(16)
        self._made: list[RawProducer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for by in self._made:
            by.lose_patience()
        self._threads.shutdown()
        for by in self._made:
            by.client.close()

    def without_identity(self, name: str, *, timeout_ms: int = 600_000, patient: bool = True) -> RawProducer:
        id_ = f"{self._title}-{name}"
        made = RawProducer(self._mixed.bootstrap, id_, timeout_ms=timeout_ms, patient=patient, limit_ms=LIMIT_MS)
        self._made.append(made)
        return made

    def producer(self, name: str, *, timeout_ms: int = 600_000) -> RawProducer:
        made = self.without_identity(name, timeout_ms=timeout_ms)
        assert made.init() == NONE
        return made

    def impatient(self, by: RawProducer, epoch: int | None = None) -> RawProducer:
        """Return one that has its identity, or an older one, and asks each thing once."""
        made = self.without_identity(by.transactional_id.removeprefix(f"{self._title}-"), patient=False)
        made.producer_id, made.epoch = by.producer_id, by.epoch if epoch is None else epoch
        return made

    def check_none_lost(self) -> None:
        """Assert that every request so far had its answer: no broker was hurt."""
        assert {by.transactional_id: by.lost for by in self._made if by.lost} == {}

    def later(self, ask: Callable[[], int]) -> Future[int]:
        """Ask in a thread: an answer may be long in coming."""
        return self._threads.submit(ask)


def write(by: RawProducer, text: str, *places: TopicPartition) -> None:
    """Write a record to each of them that tells whose it is, and where."""
    for place in places:
        assert by.send(place, f"{text} of {by.transactional_id} in {place}") == NONE


def begin(by: RawProducer, *places: TopicPartition) -> None:
    """Begin a transaction with a record in each of them."""
    assert by.add(*places) == NONE
    write(by, "first", *places)


def read(mixed: Mixed, topic: str) -> list[str]:
    """Return in order of the alphabet what is committed in both partitions of the topic."""
    return sorted(values_of(mixed, topic, "read_committed", 2))


def both_of(topic: str) -> tuple[TopicPartition, TopicPartition]:
    """Return the partition led by theirs and the one led by ours."""
    return TopicPartition(topic, 0), TopicPartition(topic, 1)
