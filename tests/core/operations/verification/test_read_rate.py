"""The rate at which each broker is read, on a clock of the test's own."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification import replica_reader
from kafkatool.core.operations.verification.comparison import Layout
from kafkatool.core.operations.verification.read_rate import ReadRate
from kafkatool.core.protocol.messages import fetch
from tests.core.operations.verification.answering import answering


@pytest.mark.spec("RPV-12X")
def test_what_was_read_is_paid_for_before_the_next_request_to_that_broker() -> None:
    now = [100.0]
    rate = ReadRate(1000, lambda: now[0])
    assert rate.wait_s(1) == 0
    rate.spend(1, 500)
    assert (rate.wait_s(1), rate.wait_s(2)) == (0.5, 0)
    now[0] += 0.25
    assert rate.wait_s(1) == 0.25
    now[0] += 60  # what was not used is not saved up
    rate.spend(1, 3000)
    assert rate.wait_s(1) == 3


@pytest.mark.spec("RPV-12X")
def test_a_fetch_asks_for_a_seconds_bytes_at_most_and_waits_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    waited: list[float] = []

    def ask(api: Any, request: fetch.FetchRequest, **_: Any) -> fetch.FetchResponse:
        asked.append(request.max_bytes)
        found = fetch.FetchResponsePartition(
            partition=0, error_code=1, records=b"x" * 61
        )  # what is in it is not looked at
        return fetch.FetchResponse(topics=[fetch.FetchResponseTopic(topic="t", partitions=[found])])

    event = SimpleNamespace(wait=waited.append)
    monkeypatch.setattr(replica_reader, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(replica_reader, "threading", SimpleNamespace(Event=lambda: event))
    layout = Layout({1: ("h", 1)}, {}, {}, {})
    reader = replica_reader.BrokerReader(
        layout, answering(ask), fetch_size_bytes=1 << 20, max_wait_ms=10, max_bytes_per_second=1000
    )
    reader.fetch(1, {TopicPartition("t", 0): 0}, wait=True)
    reader.fetch(1, {TopicPartition("t", 0): 0}, wait=True)
    assert asked == [1000, 1000]
    assert waited == [0, pytest.approx(0.061)]
