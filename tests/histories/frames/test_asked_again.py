"""A fault of librdkafka's, played on our brokers and on Kafka: why a process of the workload begins by number.

An answer to ListOffsets that came when its question was no longer wanted has the client ask once more, half a second later,
though it reads by then; it goes back to where that answer says (docs/known-faults.md).
"""

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.histories.clients.client import Cell
from tests.histories.clients.librdkafka import Librdkafka
from tests.histories.clients.values import PARTITIONS, encode, partition_of, topic_of
from tests.histories.frames.rules import Hold, Rule
from tests.histories.frames.stage import Stage, stage_with_a_key
from tests.histories.history import OK

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_KEY = 0
_OFFSETS = list(range(5))
_HELD_S = 0.3
_LOOKED_S = 3.0
_ATTEMPTS = 10  # one is of no use where the client stands still for half a second
_PATIENCE_S = 60
_TRIED = 0x021000FF  # librdkafka 2.16.0


@pytest.fixture(params=["ours", pytest.param("2.8.2", marks=pytest.mark.slowest)])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Three brokers, and a key of five values."""
    values = [encode(value, _KEY, 0) for value in _OFFSETS]
    with stage_with_a_key(
        *(request.param, tmp_path, topic_of(_KEY), values), partitions=PARTITIONS, partition=partition_of(_KEY)
    ) as stage:
        yield stage


def _assign(consumer: Consumer, offset: int) -> None:
    consumer.assign([TopicPartition(topic_of(_KEY), partition_of(_KEY), offset)])


def _read(stage: Stage, name: str) -> list[int]:
    """Assign the key twice, the first question for its start still under way; seek to 1; return what is read then."""
    settings = {"bootstrap.servers": stage.bootstrap, "group.id": name, "client.id": name, "fetch.wait.max.ms": 100}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        held = stage.doors.rules.add(Rule("ListOffsets", Hold(_HELD_S), client=name))
        _assign(consumer, OFFSET_BEGINNING)
        assert held.met.wait(_PATIENCE_S)
        _assign(consumer, OFFSET_BEGINNING)
        deadline = time.monotonic() + _PATIENCE_S
        while not consumer.consume(len(_OFFSETS), 0.05):
            assert time.monotonic() < deadline, "nothing is read"
        consumer.seek(TopicPartition(topic_of(_KEY), partition_of(_KEY), 1))
        found: list[int] = []
        until = time.monotonic() + _LOOKED_S
        while time.monotonic() < until and len(found) < 2 * len(_OFFSETS) - 1:
            for message in consumer.consume(len(_OFFSETS), 0.05):
                assert message.error() is None, message.error()
                found.append(message.offset() or 0)
        return found
    finally:
        stage.doors.rules.clear()
        consumer.close()


@pytest.mark.spec("HIS-13")
def test_librdkafka_goes_back_to_a_start_that_it_asks_for_once_more(stage: Stage) -> None:
    if confluent_kafka.libversion()[1] > _TRIED:
        pytest.skip("tried with librdkafka 2.16.0; a later one may be mended")
    for attempt in range(_ATTEMPTS):
        if (found := _read(stage, name := f"reader-{attempt}")) == _OFFSETS[1:] + _OFFSETS:
            break
    assert found == _OFFSETS[1:] + _OFFSETS
    assert stage.doors.record is not None
    assert stage.doors.record.count(name)["ListOffsets", name] >= 3  # the two assigned, and the one after the seek


@pytest.mark.spec("HIS-13", "HIS-11")
def test_a_process_of_the_workload_asks_for_no_start(stage: Stage) -> None:
    client = Librdkafka(stage.bootstrap, Cell("assign", "plain"), 1, client_id="process")
    try:
        client.assign([_KEY], from_start=True)
        client.assign([_KEY], from_start=True)
        deadline = time.monotonic() + _PATIENCE_S
        runs: list[tuple[int, int | None]] = []
        while len(runs) < len(_OFFSETS) and time.monotonic() < deadline:
            runs += client.poll().get(_KEY, [])
    finally:
        client.close()
    assert [offset for offset, _ in runs] == _OFFSETS
    assert stage.doors.record is not None
    assert ("ListOffsets", "process") not in stage.doors.record.count("process")


@pytest.mark.spec("HIS-13", "HIS-11")
@pytest.mark.parametrize("committed", [None, 3])
def test_a_member_of_the_workload_asks_for_no_start_and_begins_where_its_group_is(
    stage: Stage, committed: int | None
) -> None:
    cell, name = Cell("subscribe", "plain"), f"member-{committed}"
    if committed is not None:
        before = Librdkafka(stage.bootstrap, cell, 1, group=name)
        assert before.commit({_KEY: committed}) == OK
        before.close()
    client = Librdkafka(stage.bootstrap, cell, 2, group=name, client_id=name)
    try:
        client.subscribe([_KEY])
        deadline = time.monotonic() + _PATIENCE_S
        runs: list[tuple[int, int | None]] = []
        while len(runs) < len(_OFFSETS[committed:]) and time.monotonic() < deadline:
            runs += client.poll().get(_KEY, [])
    finally:
        client.close()
    assert [offset for offset, _ in runs] == _OFFSETS[committed:]
    assert [event["what"] for event in client.events][:1] == ["assigned"]
    assert stage.doors.record is not None
    assert ("ListOffsets", name) not in stage.doors.record.count(name)
