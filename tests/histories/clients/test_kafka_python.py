"""kafka-python's recorder: what each end of each call is written down as, over all its errors, and on a real broker."""

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest
from confluent_kafka import KafkaException

from kafkatool import EmbeddedCluster
from tests.histories.clients import kafka_python
from tests.histories.clients.client import KAFKA_PYTHON, Cell, Runs
from tests.histories.clients.kafka_python import KafkaPython
from tests.histories.clients.played import stand_in
from tests.histories.clients.values import PARTITIONS, topic_of
from tests.histories.history import FAIL, INFO, OK
from tests.waiting import eventually

X, Y = 0, 1
CELL = Cell("assign", "idempotent", client=KAFKA_PYTHON)
ERRORS: list[Any] = [
    each
    for _, each in inspect.getmembers(kafka.errors, inspect.isclass)
    if issubclass(each, kafka.errors.KafkaError) and not issubclass(each, kafka.errors.LogTruncationError)
]


class Played:
    """Both clients in one; ``sends``: how its next sends end at once, or later on; ``polls``: how its next polls do."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.sends: Iterator[Any] = iter(())
        self.polls: Iterator[Any] = iter(())
        self.closed = False

    def send(self, *_: object, **__: object) -> Any:
        at_once, later = next(self.sends)
        if at_once is not None:
            raise at_once

        def get(_: float) -> Any:
            if isinstance(later, Exception):
                raise later
            return SimpleNamespace(offset=later)

        return SimpleNamespace(get=get)

    def poll(self, *_: object) -> Any:
        polled = next(self.polls)
        if isinstance(polled, Exception):
            raise polled
        return polled

    def close(self, *_: object, **__: object) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    """Give the producer and the consumer that are made, one after the other."""
    return stand_in(monkeypatch, kafka_python, ("KafkaProducer", "KafkaConsumer"), Played)


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_send_fails_if_it_is_refused_at_once_and_is_unknown_after_any_other_error(made: list[Played]) -> None:
    assert len(ERRORS) > 100
    for error in ERRORS:
        client = KafkaPython("", CELL, 1)
        made[-2].sends = iter([(error(), None), (None, error()), (None, 7), (None, -1)])
        assert client.send([(X, 1), (X, 2), (Y, 3), (Y, 4)]) == [(None, FAIL), (None, INFO), (7, OK), (None, OK)], error
        assert client.broken is not error.retriable


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_poll_that_raises_says_so_as_a_worker_knows_it(made: list[Played]) -> None:
    client = KafkaPython("", CELL, 1)
    made[1].polls = iter(error() for error in ERRORS)
    for _ in ERRORS:
        with pytest.raises(KafkaException):
            client.poll()
    assert not client.positions


@pytest.mark.spec("HIS-13")
@pytest.mark.parametrize("guarantee", ["plain", "idempotent"])
def test_its_consumer_commits_nothing_and_keeps_fetch_sessions(made: list[Played], guarantee: str) -> None:
    client = KafkaPython("", CELL._replace(guarantee=guarantee, acks="1" if guarantee == "plain" else "all"), 1)
    producing, consuming = made[0].settings, made[1].settings
    assert producing["enable_idempotence"] is (guarantee == "idempotent")
    assert producing["acks"] == ("all" if guarantee == "idempotent" else 1)
    assert consuming["enable_auto_commit"] is False and "group_id" not in consuming
    assert consuming["isolation_level"] == CELL.isolation
    assert consuming.get("enable_incremental_fetch_sessions", True)
    assert (client.group, client.member, client.generation, client.events, client.began) == (None, None, None, [], {})
    client.close()
    assert all(each.closed for each in made)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.spec("HIS-11", "HIS-13")
def test_a_process_sends_polls_and_is_assigned_on_a_broker(kafka_broker: EmbeddedCluster) -> None:
    x = 20_000  # beyond all of test_facts.py
    kafka_broker.create_topic(topic_of(x), partitions=PARTITIONS)
    y = x + 1
    client = KafkaPython(kafka_broker.bootstrap, CELL, 1, patient=True)

    def got(key: int, count: int) -> list[tuple[int, int | None]]:
        runs: Runs = {}

        def there() -> bool:
            for each, pairs in client.poll().items():
                runs.setdefault(each, []).extend(pairs)
            return len(runs.get(key, [])) >= count

        eventually(there, f"{count} values of key {key}", 120)
        return runs[key]

    try:
        client.assign([x, y], from_start=True)
        sent = client.send([(x, 1), (y, 2), (x, 3)])
        assert sent == [(0, OK), (0, OK), (1, OK)]
        assert got(x, 2) == [(0, 1), (1, 3)]
        client.send([(x, 4)])
        client.assign([x])  # goes on where it is
        assert got(x, 1) == [(2, 4)]
        client.assign([x, y], from_start=True)
        assert got(x, 3) == [(0, 1), (1, 3), (2, 4)]
        assert client.positions[x] == 3
    finally:
        client.close()
