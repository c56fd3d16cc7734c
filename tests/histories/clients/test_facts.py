"""Facts of a real log and a real group, on a cluster of one broker: what is told of them is so."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafkatool import EmbeddedCluster
from tests.histories.analyser.notation import HEADER
from tests.histories.clients import facts
from tests.histories.clients.client import Cell, Runs
from tests.histories.clients.librdkafka import Librdkafka
from tests.histories.clients.values import PARTITIONS, partition_of, topic_of
from tests.histories.final import read_everything
from tests.histories.history import OK, History, read_file
from tests.histories.writer import HistoryWriter
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_PATIENCE_S: Final = 120
_A_WORKER: Final = 100  # so many topics are enough for each
_NUMBERS: Final = itertools.count(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) * _A_WORKER)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for answers as long as a busy machine may stand still."""
    monkeypatch.setattr(facts, "_TIMEOUT_S", float(_PATIENCE_S))


@pytest.fixture
def new_topic(kafka_broker: EmbeddedCluster) -> Callable[[], int]:
    """Make topics that no test had before; each call returns the first of its keys."""

    def make() -> int:
        key = next(_NUMBERS) * PARTITIONS
        kafka_broker.create_topic(topic_of(key), partitions=PARTITIONS)
        return key

    return make


def send(client: Librdkafka, *sends: tuple[int, int]) -> list[int]:
    """Send these, and return their offsets; all arrive."""
    outcomes = client.send(sends)
    assert {outcome for _, outcome in outcomes} == {OK}
    return [offset for offset, _ in outcomes if offset is not None]


def read_all(bootstrap: str, keys: list[int], groups: list[str], file: Path) -> History:
    with HistoryWriter(file, HEADER) as writer:
        read_everything(bootstrap, Cell("assign", "transactional"), writer, keys, groups)
    return read_file(file)


@pytest.mark.spec("HIS-12", "HIS-13", "HIS-43")
def test_ends_commits_and_batches_are_those_of_the_log(
    kafka_broker: EmbeddedCluster, new_topic: Callable[[], int], tmp_path: Path
) -> None:
    """Of a transaction that is still open, too: what is asked is asked as read_uncommitted."""
    x = new_topic()
    y, bootstrap = x + 1, kafka_broker.bootstrap
    plain = Librdkafka(bootstrap, Cell("assign", "plain"), 1, group="asked", patient=True)
    idempotent = Librdkafka(bootstrap, Cell("assign", "idempotent"), 2, patient=True)
    writer = Librdkafka(
        bootstrap,
        Cell("assign", "transactional"),
        3,
        transactional_id=topic_of(x),
        transaction_timeout_ms=300_000,  # none ends by itself
        patient=True,
    )
    try:
        assert send(plain, (x, 1)) == [0]
        assert send(idempotent, (x, 2)) == [1] and send(idempotent, (x, 3)) == [2]
        writer.begin()
        assert send(writer, (x, 4)) == [3]
        assert writer.commit_transaction().type == OK
        writer.begin()
        assert send(writer, (x, 5)) == [5]
        writer.abort_transaction()
        writer.begin()
        assert send(writer, (x, 6)) == [7]
        ends = facts.ask_ends(bootstrap, [x, y])
        assert ends == {x: (0, 8), y: (0, 0)}
        batches = facts.read_batches(bootstrap, [x, y], ends)
        assert [batch[:2] for batch in batches[x]] == [(offset, offset) for offset in range(8)]
        ids = [batch[2] for batch in batches[x]]
        assert ids[0] == -1 and ids[1] == ids[2] and len(set(ids[3:])) == 1 and len(set(ids)) == 3
        assert [batch[4] for batch in batches[x][:4]] == [-1, 0, 1, 0]  # sequences
        assert [batch[5:] for batch in batches[x]] == [
            *[(False, False)] * 3, (True, False), (True, True), (True, False), (True, True), (True, False),
        ]  # fmt: skip
        assert batches[y] == []
        assert facts.ask_committed(bootstrap, "asked", [x, y]) == {x: None, y: None}
        assert plain.commit({x: 4}) == OK
        assert facts.ask_committed(bootstrap, "asked", [x, y]) == {x: 4, y: None}
        with pytest.raises(RuntimeError, match=f"key {x} cannot be read from 8 to 9"):
            facts.read_batches(bootstrap, [x], {x: (0, 9)})  # what is not all there is no answer
        writer.abort_transaction()
    finally:
        for client in (plain, idempotent, writer):
            client.close()
    told = read_all(bootstrap, [x, y], ["asked"], tmp_path / "h")
    found = {one.f: one for one in told.operations if one.f not in ("assign", "poll")}
    assert found["final"].value == {x: 9, y: 0}  # a marker ends the log, and nobody polled it
    assert (found["ends"].value, found["ends"].isolation) == ({x: [0, 9], y: [0, 0]}, "read_uncommitted")
    assert (found["committed"].value, found["committed"].group) == ({x: 4, y: None}, "asked")
    assert [batch[:2] for batch in found["batches"].value[x]] == [[offset, offset] for offset in range(9)]
    runs = [pair for one in told.operations for poll in one.polls for pair in zip(*poll.runs.get(x, ((), ())))]  # noqa: B905
    assert runs == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert {one.group for one in told.operations if one.f == "poll"} == {None}


@pytest.mark.spec("HIS-12")
def test_batches_tell_which_of_two_producers_of_one_id_wrote_them(
    kafka_broker: EmbeddedCluster, new_topic: Callable[[], int]
) -> None:
    """The second one has the first one's producer id, and its epoch is one higher."""
    x, bootstrap = new_topic(), kafka_broker.bootstrap
    for value in (1, 2):
        writer = Librdkafka(
            bootstrap, Cell("assign", "transactional"), value, transactional_id=topic_of(x), patient=True
        )
        try:
            writer.begin()
            assert send(writer, (x, value)) == [2 * value - 2]
            assert writer.commit_transaction().type == OK
        finally:
            writer.close()
    batches = facts.read_batches(bootstrap, [x], facts.ask_ends(bootstrap, [x]))[x]
    assert len({batch[2] for batch in batches}) == 1
    assert [batch[3] for batch in batches] == [0, 0, 1, 1]  # a value and a marker each


@pytest.mark.spec("HIS-12")
def test_where_records_were_deleted_a_log_starts_behind_them(
    kafka_broker: EmbeddedCluster, new_topic: Callable[[], int], tmp_path: Path
) -> None:
    x, bootstrap = new_topic(), kafka_broker.bootstrap
    client = Librdkafka(bootstrap, Cell("assign", "plain"), 1, patient=True)
    try:
        send(client, *((x, value) for value in range(1, 6)))
    finally:
        client.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic_of(x), partition_of(x), 3)]).values()
    assert deleted.result(_PATIENCE_S).low_watermark == 3
    assert facts.ask_ends(bootstrap, [x]) == {x: (3, 5)}
    told = read_all(bootstrap, [x], [], tmp_path / "h")
    assert [one.value for one in told.operations if one.f == "final"] == [{x: 5}]
    (begun,) = [one for one in told.operations if one.f == "assign"]
    assert begun.from_start


@pytest.mark.spec("HIS-13")
def test_each_question_is_asked_by_a_client_made_for_it(
    kafka_broker: EmbeddedCluster, new_topic: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lived through an election goes on asking with the old epoch."""
    x, made = new_topic(), list[str]()

    def noted(name: str) -> None:
        of = getattr(facts, name)

        def make(settings: dict[str, object]) -> object:
            made.append(name)
            return of(settings)

        monkeypatch.setattr(facts, name, make)

    noted("AdminClient")
    noted("Consumer")
    for asked in (1, 2):
        ends = facts.ask_ends(kafka_broker.bootstrap, [x])
        assert made.count("AdminClient") == 3 * asked - 1  # for starts, and for ends
        facts.ask_committed(kafka_broker.bootstrap, "nobody", [x])
        assert made.count("Consumer") == asked
        facts.read_batches(kafka_broker.bootstrap, [x], ends)
        assert made.count("AdminClient") == 3 * asked


@pytest.mark.spec("HIS-11", "HIS-13")
def test_members_of_a_group_hear_of_each_rebalance_in_its_order_and_generation(
    kafka_broker: EmbeddedCluster, new_topic: Callable[[], int]
) -> None:
    x, other = new_topic(), new_topic()
    y, strange = x + 1, other + 1  # who asks for a key is given those of its topic
    cell, group = Cell("subscribe", "plain"), f"members-{x}"
    anna, bert = (Librdkafka(kafka_broker.bootstrap, cell, number, group=group, patient=True) for number in (1, 2))
    got: list[Runs] = []

    def anna_hears(count: int) -> None:
        def heard() -> bool:
            got.append(anna.poll())
            if bert_polls:
                bert.poll()
            return len(anna.events) >= count and (not bert_polls or bool(bert.events))

        eventually(heard, f"{count} events", _PATIENCE_S)

    bert_polls = False
    try:
        assert anna.generation is None and anna.member is None
        anna.subscribe([x, other])
        anna_hears(1)
        first = anna.generation
        assert first is not None and anna.member
        assert [anna.events[0][what] for what in ("what", "generation")] == ["assigned", first]
        assert sorted(anna.events[0]["keys"]) == [x, y, other, strange]
        assert anna.commit({x: 0}) == OK
        bert.subscribe([y])
        bert_polls = True
        anna_hears(3)
        shared = anna.generation
        assert shared is not None and shared > first
        assert [event["what"] for event in anna.events] == ["assigned", "revoked", "assigned"]
        assert sorted(anna.events[1]["keys"]) == [x, y, other, strange]
        assert [event["generation"] for event in (anna.events[2], bert.events[0])] == [shared, shared]
        assert sorted(anna.events[2]["keys"] + bert.events[0]["keys"]) == [x, y, other, strange]
        assert {other, strange} < set(anna.events[2]["keys"])  # bert asks for the other topic only
        bert_polls = False
        bert.close()
        assert bert.events[-1]["what"] == "revoked"
        anna_hears(5)
        last = anna.events[-1]
        assert (last["what"], sorted(last["keys"])) == ("assigned", [x, y, other, strange])
        assert last["generation"] > shared
        times = [event["time"] for event in anna.events]
        assert times == sorted(times)
    finally:
        anna.close()
        if bert_polls:
            bert.close()
