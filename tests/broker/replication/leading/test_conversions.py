"""The thread on which records are converted: turns, memory, an end that comes in time."""

import gc
import threading
from collections.abc import Iterator

import pytest

from kafkatool.broker.replication.leading.conversions import Conversions, Converted
from kafkatool.broker.runtime.timer import monotonic_ms
from tests.waiting import eventually

LONG_MS = 600_000


@pytest.fixture
def conversions() -> Iterator[Conversions]:
    made = Conversions(100)
    yield made
    made.shutdown()


@pytest.mark.spec("ADM-97")
def test_one_at_a_time_in_the_order_they_came(conversions: Conversions) -> None:
    done: list[tuple[int, str]] = []
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        assert go_on.wait(60)
        done.append((0, threading.current_thread().name))

    conversions.submit(first)
    assert begun.wait(60)
    for number in range(1, 4):
        conversions.submit(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
    assert not done
    go_on.set()
    eventually(lambda: len(done) == 4, "all to be done")
    assert done == [(number, "record-conversion") for number in range(4)]


@pytest.mark.spec("ADM-97")
def test_while_as_much_is_held_as_may_be_fetches_wait_and_produces_do_not(conversions: Conversions) -> None:
    held = [conversions.hold(Converted(60)), conversions.hold(Converted(60))]
    done: list[str] = []
    conversions.submit(
        lambda: done.append("fetch"), until_ms=monotonic_ms() + LONG_MS, otherwise=lambda: done.append("too late")
    )
    conversions.submit(lambda: done.append("produce"))
    eventually(lambda: done == ["produce"], "the produce to be done")
    held.pop()
    gc.collect()
    eventually(lambda: done == ["produce", "fetch"], "the fetch to be done")


@pytest.mark.spec("ADM-97")
def test_who_waited_as_long_as_it_said_is_answered_otherwise(conversions: Conversions) -> None:
    held = conversions.hold(Converted(100))
    done: list[str] = []
    conversions.submit(lambda: done.append("fetch"), until_ms=monotonic_ms(), otherwise=lambda: done.append("empty"))
    eventually(lambda: done == ["empty"], "the answer")
    assert len(held) == 100


def test_a_job_that_fails_ends_neither_the_thread_nor_those_behind_it(
    conversions: Conversions, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []
    conversions.submit(lambda: done.append(1 // 0))
    conversions.submit(lambda: done.append(1))
    eventually(lambda: done == [1], "the second to be done")
    assert "ZeroDivisionError" in caplog.text


def test_no_thread_for_who_converts_nothing() -> None:
    made = Conversions(100, "never-started")
    made.shutdown()
    assert all(thread.name != "never-started" for thread in threading.enumerate())
