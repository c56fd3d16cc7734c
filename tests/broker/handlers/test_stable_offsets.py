"""OffsetFetch while a transaction may be about to change an offset (KIP-447), and what outlives a load."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.groups.coordinator import OffsetToCommit
from kafkatool.broker.groups.records import OffsetKey, OffsetValue, encode_key, encode_offset
from kafkatool.broker.groups.writer import TransactionalProducer
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import offset_fetch as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, Record, encode_batch
from tests.broker.groups.test_coordinator import OFFSETS_PARTITION, A, B, Stage
from tests.broker.handlers.served import Client, broker_of, handler_context

C = A._replace(partition=2)
UNSTABLE = ("", -1, -1, 88)
NOTHING = ("", -1, -1, 0)
SERVED = {9: load_handlers()[9]}
Answer = dict[tuple[str, int], tuple[str | None, int, int, int]]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    with broker_of(SERVED, handler_context(groups=stage.coordinator)) as made:
        yield made


def fetch(
    client: Client, *partitions: TopicPartition, version: int = 7, stable: bool = True, everything: bool = False
) -> Answer:
    topics = [wire.OffsetFetchRequestTopic(topic=p.topic, partitions=[p.partition]) for p in partitions]
    request = wire.OffsetFetchRequest(group_id="g", topics=None if everything else topics, require_stable=stable)
    answer = client.call(wire.API, version, request)
    assert answer.error_code == 0
    return {
        (t.topic, p.partition): (p.metadata, p.committed_offset, p.committed_leader_epoch, p.error_code)
        for t in answer.topics
        for p in t.partitions
    }


def write(stage: Stage, partition: TopicPartition, offset: int | None, producer: int | None = None) -> None:
    """Write a commit as a former coordinator did, in a transaction or not; None: a tombstone."""
    value = None if offset is None else encode_offset(OffsetValue(offset, 4, "m", 1, None), with_epoch=True)
    record = Record(0, 0, encode_key(OffsetKey("g", *partition)), value, ())
    options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    batch = encode_batch([record], **({} if producer is None else options))  # type: ignore[arg-type]
    stage.replica.log.append_as_leader(batch, 0, origin_client=False, verification=UNVERIFIED)


def end(stage: Stage, producer: int, *, committed: bool) -> None:
    log = stage.replica.log
    at = log.log_end_offset
    log.append_as_leader(encode_marker(producer, 0, Marker(committed, 0), 1), 0, origin_client=False)
    stage.coordinator.end_transaction(0, producer, committed=committed, log_offset=at)


@pytest.mark.spec("TXN-87", "TXN-88", "TXN-86", "GRP-56")
def test_what_a_transaction_may_change_is_unstable_also_over_an_older_offset(stage: Stage, client: Client) -> None:
    write(stage, A, 3)
    write(stage, A, 5, producer=7)
    write(stage, B, 6, producer=7)
    write(stage, C, 9)
    stage.lead()
    a, b, c = (tuple(A), tuple(B), tuple(C))
    assert fetch(client, A, B, C) == {a: UNSTABLE, b: UNSTABLE, c: ("m", 9, 4, 0)}
    stage.coordinator.on_partitions_deleted([C])
    assert fetch(client, A, B, stable=False) == {a: ("m", 3, 4, 0), b: NOTHING}
    assert fetch(client, A, B, version=6, stable=False) == {a: ("m", 3, 4, 0), b: NOTHING}, "6 cannot ask for it"
    assert fetch(client, everything=True) == {a: UNSTABLE}, "the one with nothing but a pending commit is left out"
    assert fetch(client, everything=True, stable=False) == {a: ("m", 3, 4, 0)}
    end(stage, 7, committed=True)
    assert fetch(client, A, B) == {a: ("m", 5, 4, 0), b: ("m", 6, 4, 0)}
    assert fetch(client, everything=True) == {a: ("m", 5, 4, 0), b: ("m", 6, 4, 0)}


@pytest.mark.spec("TXN-87")
def test_what_a_commit_on_its_way_may_change_is_unstable_too(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member may be gone: who takes over would begin below it, and commit below it, when it has come in force.

    As Kafka 2.8.2. Found by the simulation (seed 10 of 100,000 operations).
    """
    stage.lead()
    assert stage.commit({A: 1, B: 1}) == {A: 0, B: 0}
    append, waiting = stage.replica.append, list[Callable[[], None]]()

    def slow(entries: Any, *, on_done: Callable[[Any], None], **options: Any) -> None:
        append(entries, on_done=lambda results: waiting.append(lambda: on_done(results)), **options)

    monkeypatch.setattr(stage.replica, "append", slow)
    told: list[Any] = []
    wanted = {A: OffsetToCommit(OffsetValue(9, None, "m", 1, None), False)}
    stage.coordinator.commit("g", "", None, -1, wanted, told.append)
    assert not told
    a, b = tuple(A), tuple(B)
    assert fetch(client, A, B) == {a: UNSTABLE, b: ("m", 1, -1, 0)} == fetch(client, everything=True)
    assert fetch(client, A, B, stable=False) == {a: ("m", 1, -1, 0), b: ("m", 1, -1, 0)}
    (acknowledge,) = waiting
    acknowledge()
    assert told == [{A: 0}] and fetch(client, A) == {a: ("m", 9, -1, 0)}


@pytest.mark.spec("TXN-87")
def test_what_is_being_written_in_a_transaction_is_unstable_already(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(stage, A, 3)
    stage.lead()
    stored: list[Callable[[ErrorCode], None]] = []

    def store(_entries: Any, _headers: Any, _id: str, *, on_done: Callable[[Any], None], **_: Any) -> None:
        stored.append(lambda code: on_done({OFFSETS_PARTITION: SimpleNamespace(error=code, base_offset=1)}))

    monkeypatch.setattr(stage.replica, "verified_appends", SimpleNamespace(append=store), raising=False)
    for code, then in ((ErrorCode.NOT_ENOUGH_REPLICAS, ("m", 3, 4, 0)), (ErrorCode.NONE, UNSTABLE)):
        told: list[Any] = []
        wanted = {A: OffsetToCommit(OffsetValue(5, 4, "m", 1, None), False)}
        stage.coordinator.commit_in_transaction(
            "g", TransactionalProducer("id", 7, 0), "", None, -1, wanted, told.append
        )
        assert fetch(client, A) == {tuple(A): UNSTABLE} and told == []
        assert fetch(client, A, stable=False) == {tuple(A): ("m", 3, 4, 0)}
        stored.pop()(code)
        assert len(told) == 1 and fetch(client, A) == {tuple(A): then}


@pytest.mark.spec("TXN-87", "TXN-88", "TXN-83")
def test_of_an_aborted_transaction_nothing_is_left(stage: Stage, client: Client) -> None:
    write(stage, A, 3)
    write(stage, A, 5, producer=7)
    stage.lead()
    end(stage, 7, committed=False)
    assert fetch(client, A) == {tuple(A): ("m", 3, 4, 0)}
    stage.restart()
    with broker_of(SERVED, handler_context(groups=stage.coordinator)) as again:
        assert fetch(again, A) == {tuple(A): ("m", 3, 4, 0)}


@pytest.mark.spec("TXN-88")
@pytest.mark.parametrize("how", ["in the log", "by the deletion of the topic", "by the deletion of the group"])
def test_a_tombstone_drops_pending_commits_and_the_marker_ends_nothing(stage: Stage, client: Client, how: str) -> None:
    write(stage, A, 5, producer=7)
    if how == "in the log":
        write(stage, A, None)
    stage.lead()
    if how != "in the log":
        assert fetch(client, A) == {tuple(A): UNSTABLE}
        if "topic" in how:
            stage.coordinator.on_partitions_deleted([A])
        else:
            told: list[ErrorCode] = []
            stage.coordinator.delete("g", told.append)
            assert told == [ErrorCode.NONE]
    assert fetch(client, A) == {tuple(A): NOTHING}
    end(stage, 7, committed=True)
    assert fetch(client, A) == {tuple(A): NOTHING}
    stage.restart()
    with broker_of(SERVED, handler_context(groups=stage.coordinator)) as again:
        assert fetch(again, A) == {tuple(A): NOTHING}
