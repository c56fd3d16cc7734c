"""aiokafka's recorder: what each end of each call is written down as, over all its errors, and on a real broker."""

import asyncio
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import aiokafka.errors
import pytest
from aiokafka import TopicPartition
from confluent_kafka import KafkaException

from kafkatool import EmbeddedCluster
from tests.histories.clients import aiokafka as recorder
from tests.histories.clients.aiokafka import AioKafka
from tests.histories.clients.client import AIOKAFKA, SESSION_MS, Cell, Runs
from tests.histories.clients.played import stand_in
from tests.histories.clients.values import PARTITIONS, TEXT, encode, record_key, topic_of
from tests.histories.history import FAIL, INFO, OK
from tests.waiting import eventually

X, Y = 0, 1
CELL = Cell("assign", "idempotent", client=AIOKAFKA)
IN_GROUP = CELL._replace(via="subscribe")
ERRORS: list[Any] = [
    each
    for _, each in inspect.getmembers(aiokafka.errors, inspect.isclass)
    if issubclass(each, aiokafka.errors.KafkaError)
]


class Played:
    """Both clients in one. ``ends``: how its next calls end, whichever they are; an error is raised."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.ends: Iterator[Any] = iter(())
        self.asked: list[tuple[Any, ...]] = []
        self.listener: Any = None
        self.membership = self._coordinator = SimpleNamespace(generation=-1, member_id="")
        self._sender = SimpleNamespace(close=lambda: self._end("stop sending"))

    async def _end(self, *asked: Any) -> Any:
        self.asked.append(asked)
        end = next(self.ends, None)
        if isinstance(end, BaseException):
            raise end
        return await end if inspect.isawaitable(end) else end

    async def start(self) -> None:
        await self._end("start")

    async def stop(self) -> None:
        await self._end("stop")

    async def send(self, topic: str, **record: Any) -> Any:
        later = await self._end("send", topic, record)
        future = asyncio.get_running_loop().create_future()
        if isinstance(later, BaseException):
            future.set_exception(later)
        elif later is not None:
            future.set_result(SimpleNamespace(offset=later))
        return future

    async def getmany(self, **how: Any) -> Any:
        return await self._end("getmany", how) or {}

    async def commit(self, offsets: Any) -> None:
        await self._end("commit", offsets)

    async def begin_transaction(self) -> None:
        await self._end("begin")

    async def commit_transaction(self) -> None:
        await self._end("commit transaction")

    async def abort_transaction(self) -> None:
        await self._end("abort transaction")

    def assign(self, partitions: Any) -> None:
        self.asked.append(("assign", partitions))

    def subscribe(self, topics: Any, *, listener: Any) -> None:
        self.asked.append(("subscribe", topics))
        self.listener = listener

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.asked.append(("seek", partition, offset))
        if offset < 0:
            raise aiokafka.errors.IllegalStateError("not assigned")


async def later(error: BaseException) -> BaseException:
    """Give an error that an answer ends with which comes later on."""
    return error


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    """Give the producer and the consumer that are made, one after the other."""
    return stand_in(monkeypatch, recorder, ("AIOKafkaProducer", "AIOKafkaConsumer"), Played)


def in_group(made: list[Played]) -> tuple[AioKafka, Played]:
    client = AioKafka("", IN_GROUP, 1, group="g", clock=lambda: 7)
    client.subscribe([X])
    made[-1].membership.generation, made[-1].membership.member_id = 4, "anna"
    return client, made[-1]


def of(key: int) -> TopicPartition:
    return TopicPartition(topic_of(key), key % PARTITIONS)


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_send_fails_if_it_is_refused_at_once_and_is_unknown_after_any_other_error(made: list[Played]) -> None:
    assert len(ERRORS) > 80
    for error in ERRORS:
        client = AioKafka("", CELL, 1)
        made[-2].ends = iter([error(), later(error()), 7, -1])
        assert client.send([(X, 1), (X, 2), (Y, 3), (Y, 4)]) == [(None, FAIL), (None, INFO), (7, OK), (None, OK)], error
        assert client.broken is not error.retriable
        made[-2].ends = iter([AssertionError("Unrecognized partition"), TypeError()])
        assert client.send([(X, 5), (Y, 6)]) == [(None, FAIL)] * 2, "it does not know the topic yet"


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_send_that_is_not_answered_in_time_is_unknown(made: list[Played], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.histories.clients.client.DELIVERY_S", 1.1)
    client = AioKafka("", CELL, 1)
    made[0].ends = iter([None])
    assert client.send([(X, 1)]) == [(None, INFO)]


@pytest.mark.spec("HIS-13")
def test_a_value_has_its_line_and_a_tombstone_its_text_in_a_header(made: list[Played]) -> None:
    client = AioKafka("", CELL._replace(cleanup="compact"), 9)
    client.line = 3
    made[0].ends = iter([0, 1])
    client.send([(X, 17), (X, -18)])
    sent = [record for what, _, record in made[0].asked[1:]]
    value, tombstone = encode(17, X, 9, 3), encode(-18, X, 9, 3)
    assert sent[0] == {"partition": 0, "key": record_key(17), "value": value}
    assert sent[1] == {"partition": 0, "key": record_key(-18), "headers": [(TEXT, tombstone)]}
    records = [
        SimpleNamespace(offset=5, value=value, headers=()),
        SimpleNamespace(offset=7, value=None, headers=((TEXT, tombstone),)),
        SimpleNamespace(offset=8, value=value[:-1] + b"x", headers=()),
        SimpleNamespace(offset=9, value=None, headers=()),
    ]
    made[1].ends = iter([{of(X): records}])
    assert client.poll() == {X: [(5, 17), (7, -18), (8, None), (9, None)]}
    assert client.positions == {X: 10}


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_poll_that_raises_says_so_as_a_worker_knows_it(made: list[Played]) -> None:
    client = AioKafka("", CELL, 1)
    made[1].ends = iter(error() for error in ERRORS)
    for _ in ERRORS:
        with pytest.raises(KafkaException):
            client.poll()
    assert not client.positions


@pytest.mark.spec("HIS-13")
def test_a_poll_waits_no_longer_for_a_group_than_a_while(made: list[Played], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_LATER_S", 0.05)
    client, consumer = in_group(made)
    consumer.ends = iter([asyncio.Event().wait()])
    assert client.poll() == {}


@pytest.mark.spec("HIS-13")
def test_a_process_that_is_assigned_keys_goes_on_where_it_is_in_each(made: list[Played]) -> None:
    client = AioKafka("", CELL, 1)
    client.positions = {X: 4, 9: 9}
    client.assign([X, Y])
    assert made[1].asked[1:] == [("assign", [of(X), of(Y)]), ("seek", of(X), 4), ("seek", of(Y), 0)]
    assert client.positions == {X: 4}
    client.assign([X], from_start=True)
    assert made[1].asked[-1] == ("seek", of(X), 0)
    client.seek_back({X: 2, Y: -1})  # of Y it says that it is not assigned it any more
    assert client.positions == {X: 2}


@pytest.mark.spec("HIS-13")
def test_what_a_member_is_told_comes_before_the_records_of_the_poll_after_it(made: list[Played]) -> None:
    client, consumer = in_group(made)
    assert (client.member, client.generation) == ("anna", 4)
    client.positions = {X: 3, Y: 5}
    consumer.listener.on_partitions_revoked(set())  # before its first generation it has none
    consumer.listener.on_partitions_assigned({of(X), TopicPartition(topic_of(X), PARTITIONS)})
    assert client.events == []
    assert client.positions == {X: 3, Y: 5}, "until the poll"
    consumer.ends = iter([{of(X): [SimpleNamespace(offset=0, value=encode(1, X, 2), headers=())]}])
    assert client.poll() == {X: [(0, 1)]}
    assert client.events == [{"what": "assigned", "keys": [X], "generation": 4, "time": 7}]
    assert client.positions == {X: 1, Y: 5}
    consumer.listener.on_partitions_revoked({of(X)})
    consumer.membership.generation = -1
    consumer.listener.on_partitions_revoked({of(X)})
    client.poll()
    assert [(each["what"], each["generation"]) for each in client.events[1:]] == [("revoked", 4), ("lost", None)]
    assert client.positions == {Y: 5}


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_commit_is_of_the_generation_that_its_polls_were_told_of_or_is_not_asked_for(made: list[Played]) -> None:
    client, consumer = in_group(made)
    assert client.commit({X: 3}) == OK
    assert consumer.asked[-1] == ("commit", {of(X): 3})
    for error in ERRORS:
        consumer.ends = iter([error()])
        assert client.commit({X: 3}) == INFO, error
    asked = len(consumer.asked)
    consumer.listener.on_partitions_revoked({of(X)})
    assert client.commit({X: 4}) == FAIL, "the key may be another's"
    client.poll()
    consumer.membership.generation = -1
    assert client.commit({X: 4}) == FAIL
    assert [what for what, *_ in consumer.asked[asked:]] == ["getmany"]


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_commit_is_given_up_when_the_group_shares_anew(made: list[Played]) -> None:
    client, consumer = in_group(made)

    async def share_anew() -> None:
        consumer.listener.on_partitions_revoked({of(X)})
        await asyncio.Event().wait()

    consumer.ends = iter([share_anew()])
    assert client.commit({X: 3}) == INFO
    assert client.commit({X: 3}) == FAIL


@pytest.mark.spec("HIS-9", "HIS-13")
def test_a_transactions_end_is_unknown_once_it_was_asked_for_and_not_answered(
    made: list[Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = AioKafka("", CELL._replace(guarantee="transactional"), 1, transactional_id="t", clock=lambda: 7)
    producer = made[0]
    client.begin()
    assert client.commit_transaction() == (OK, True, 7)
    assert client.abort_transaction() == (FAIL, True, None)
    for error in ERRORS:
        producer.ends = iter([error()] * 3)
        with pytest.raises(KafkaException):
            client.begin()
        assert client.commit_transaction() == (INFO, False, 7), error
        assert client.abort_transaction() == (FAIL, False, None), error
    producer.ends = iter([asyncio.CancelledError() for _ in range(3)])
    with pytest.raises(KafkaException):
        client.begin()
    assert client.commit_transaction() == (INFO, False, 7), "a task of its own was ended"
    assert client.abort_transaction() == (FAIL, False, None)
    producer.ends = iter([AssertionError("Invalid state transition")] * 2)
    assert client.commit_transaction() == (FAIL, False, None), "a producer that had given up asks nobody"
    assert client.abort_transaction() == (FAIL, False, None)
    monkeypatch.setattr(recorder, "_END_S", 0.05)
    producer.ends = iter([asyncio.Event().wait() for _ in range(2)])
    assert client.commit_transaction() == (INFO, False, 7)
    assert client.abort_transaction() == (FAIL, False, None)


@pytest.mark.spec("HIS-13")
@pytest.mark.parametrize("guarantee", ["plain", "idempotent", "transactional"])
def test_its_clients_commit_nothing_by_themselves_and_drop_what_waits_when_they_leave(
    made: list[Played], guarantee: str
) -> None:
    cell = CELL._replace(guarantee=guarantee, acks="1" if guarantee == "plain" else "all")
    client = AioKafka("", cell, 1, transactional_id="t" if cell.transactional else None)
    producing, consuming = made[0].settings, made[1].settings
    assert producing["enable_idempotence"] is (guarantee != "plain")
    assert producing.get("transactional_id") == ("t" if guarantee == "transactional" else None)
    assert producing["acks"] == (1 if guarantee == "plain" else "all")
    assert consuming["enable_auto_commit"] is False and consuming["group_id"] is None
    assert (consuming["isolation_level"], consuming["session_timeout_ms"]) == (CELL.isolation, SESSION_MS)
    assert (client.group, client.member, client.generation, client.events, client.began) == (None, None, None, [], {})
    client.close()
    assert [what for what, *_ in made[0].asked] == ["start", "stop sending", "stop"]
    assert made[1].asked == [("start",), ("stop",)]
    for ended in (asyncio.CancelledError(), TimeoutError(), AssertionError(), aiokafka.errors.ProducerFenced()):
        client = AioKafka("", cell, 1, transactional_id="t" if cell.transactional else None)
        made[-2].ends = made[-1].ends = iter([ended] * 3)
        client.close()
        assert made[-1].asked[-1] == ("stop",)


@pytest.mark.spec("HIS-13")
def test_clients_that_do_not_start_are_ended(made: list[Played], monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Played) -> None:
        raise aiokafka.errors.KafkaConnectionError

    monkeypatch.setattr(Played, "start", fail)
    with pytest.raises(KafkaException):
        AioKafka("", CELL, 1)
    assert all(("stop",) in each.asked for each in made)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("HIS-11", "HIS-13")
def test_processes_send_poll_share_and_commit_on_a_broker(kafka_broker: EmbeddedCluster) -> None:
    x = 30_000  # beyond all of test_facts.py and of kafka-python's
    y = x + 1
    kafka_broker.create_topic(topic_of(x), partitions=PARTITIONS)
    writer = AioKafka(
        kafka_broker.bootstrap,
        CELL._replace(guarantee="transactional"),
        1,
        transactional_id="aiokafka-writes",
        patient=True,
    )
    readers = [AioKafka(kafka_broker.bootstrap, IN_GROUP, number, group="aiokafka", patient=True) for number in (2, 3)]
    present = list(readers)

    def got(who: AioKafka, key: int, count: int) -> list[tuple[int, int | None]]:
        runs: Runs = {}

        def there() -> bool:
            for each in present:
                for found, pairs in each.poll().items():
                    if each is who:
                        runs.setdefault(found, []).extend(pairs)
            return len(runs.get(key, [])) >= count

        eventually(there, f"{count} values of key {key}")
        return runs[key]

    def shared() -> bool:
        for each in present:
            each.poll()
        last = [next((e for e in reversed(each.events)), None) for each in present]
        return (
            all(event is not None and event["what"] == "assigned" and len(event["keys"]) == 1 for event in last)
            and len({event["generation"] for event in last if event}) == 1
        )

    try:
        for reader in readers:
            reader.subscribe([x])
        eventually(shared, "both to have a key")
        writer.assign([x, y], from_start=True)
        writer.begin()
        assert writer.send([(x, 1), (x, 2), (y, 3)]) == [(0, OK), (1, OK), (0, OK)]
        assert writer.abort_transaction() == (FAIL, True, None)
        writer.begin()
        assert writer.send([(x, 4), (y, 5)]) == [(3, OK), (2, OK)], "behind a marker"
        assert writer.commit_transaction().type == OK
        own = next(each for each in readers if each.events[-1]["keys"] == [x])
        other = next(each for each in readers if each is not own)
        assert got(own, x, 1) == [(3, 4)]
        assert own.commit({x: 4}) == OK
        assert other.commit({x: 1}) == INFO, "aiokafka refuses what is not its own"
        own.close()
        present.remove(own)
        writer.begin()
        assert [outcome for _, outcome in writer.send([(x, 6)])] == [OK]
        assert writer.commit_transaction().type == OK
        assert got(other, x, 1)[0][1] == 6, "it goes on where the other one committed"
        present.append(writer)
        assert [value for _, value in got(writer, x, 2)] == [4, 6]
    finally:
        for each in {*present, writer}:
            each.close()
