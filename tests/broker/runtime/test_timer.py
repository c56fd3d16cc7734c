"""The timer and the scheduler."""

import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import Timer
from tests.broker.runtime.timers import standing_still
from tests.waiting import eventually


@pytest.fixture
def timer() -> Iterator[Timer]:
    made = Timer("test-timer")
    yield made
    made.close()


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(2, "test")
    yield made
    made.shutdown()


def test_callbacks_run_in_the_order_of_their_times_not_before_them(timer: Timer) -> None:
    ran: SimpleQueue[tuple[str, float]] = SimpleQueue()
    started = time.monotonic()
    with standing_still():
        for name, delay_ms in (("third", 60), ("first", 5), ("second", 30)):
            timer.add(delay_ms, lambda n=name: ran.put((n, time.monotonic() - started)))  # type: ignore[misc]
    times = dict(ran.get(timeout=60) for _ in range(3))
    assert list(times) == ["first", "second", "third"]
    assert times["first"] >= 0.005 and times["third"] >= 0.06


def test_a_cancelled_callback_does_not_run_and_many_of_them_take_no_room(timer: Timer) -> None:
    ran: SimpleQueue[int] = SimpleQueue()
    with standing_still():
        timer.add(20, lambda: ran.put(-1)).cancel()
    for i in range(5000):
        timer.add(60_000, lambda i=i: ran.put(i)).cancel()  # type: ignore[misc]
    assert len(timer) < 2500
    timer.add(40, lambda: ran.put(-2))
    assert ran.get(timeout=60) == -2


def test_nobody_wakes_up_for_what_was_cancelled(timer: Timer) -> None:
    for _ in range(100):
        timer.add(60_000, lambda: None).cancel()
    waited_for = timer.add(60_001, lambda: None)
    timer.add(0, lambda: None)  # the thread looks what is next
    eventually(lambda: len(timer) == 1, "the cancelled ones to be dropped")
    assert waited_for.pending


def test_a_failing_callback_does_not_stop_the_clock(timer: Timer, caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()
    timer.add(0, lambda: 1 // 0)  # type: ignore[arg-type]
    timer.add(1, ran.set)
    assert ran.wait(60)
    assert "a task of timer test-timer failed" in caplog.text


def test_after_close_nothing_runs(timer: Timer) -> None:
    ran: SimpleQueue[int] = SimpleQueue()
    with standing_still():
        timer.add(20, lambda: ran.put(1))
        timer.close()
    timer.add(0, lambda: ran.put(2))
    with pytest.raises(Empty):
        ran.get(timeout=0.05)


def test_a_periodic_task_goes_on_after_a_failure_until_cancelled(scheduler: Scheduler) -> None:
    runs: SimpleQueue[None] = SimpleQueue()

    def fail() -> None:
        runs.put(None)
        raise RuntimeError("on purpose")

    task = scheduler.schedule("failing", fail, period_ms=1)
    for _ in range(3):
        runs.get(timeout=60)
    task.cancel()


def test_tasks_that_block_do_not_hold_up_others_while_threads_last(scheduler: Scheduler) -> None:
    gate, ran = threading.Event(), threading.Event()
    scheduler.submit(lambda: gate.wait(60))
    scheduler.submit(ran.set)
    assert ran.wait(60)
    gate.set()


def test_shutdown_waits_for_what_runs_and_drops_the_rest() -> None:
    scheduler = Scheduler(1)
    gate, begun, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(60)
        done.set()

    scheduler.submit(work)
    scheduler.schedule("later", done.clear, delay_ms=60_000)
    assert begun.wait(60)
    stopper = threading.Thread(target=scheduler.shutdown)
    stopper.start()
    gate.set()
    stopper.join(60)
    assert done.is_set()
    scheduler.submit(done.clear)
    scheduler.shutdown()
    assert done.is_set()
