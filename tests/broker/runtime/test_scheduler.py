"""The scheduler: what is due runs, however busy its workers are."""

import threading

from kafkatool.broker.runtime.scheduler import Scheduler
from tests.waiting import eventually


def test_what_is_due_runs_though_it_is_cancelled_while_it_queues_behind_other_work() -> None:
    scheduler = Scheduler(1, "busy")
    free, ran = threading.Event(), threading.Event()
    try:
        scheduler.submit(free.wait)
        task = scheduler.once("deadline", ran.set, delay_ms=0)
        eventually(lambda: not task.pending, "it to be due")
        task.cancel()
        free.set()
        assert ran.wait(30)
    finally:
        free.set()
        scheduler.shutdown()


def test_what_is_cancelled_before_it_is_due_does_not_run() -> None:
    scheduler = Scheduler(1, "quiet")
    ran: list[str] = []
    last = threading.Event()
    try:
        scheduler.once("cancelled", lambda: ran.append("cancelled"), delay_ms=60_000).cancel()
        scheduler.submit(last.set)
        assert last.wait(30)
        assert ran == []
    finally:
        scheduler.shutdown()


def test_more_workers_run_what_waits_and_fewer_end_when_told() -> None:
    scheduler = Scheduler(1, "changed")
    free, second = threading.Event(), threading.Event()

    def workers() -> int:
        return sum(
            thread.name.startswith("changed-") and "timer" not in thread.name for thread in threading.enumerate()
        )

    try:
        scheduler.submit(free.wait)
        scheduler.set_limit(2)
        scheduler.submit(second.set)
        assert second.wait(30)
        assert workers() == 2
        scheduler.set_limit(1)
        eventually(lambda: workers() == 1, "one to end")
        free.set()
        done = threading.Event()
        scheduler.submit(done.set)
        assert done.wait(30)
        assert workers() == 1
    finally:
        free.set()
        scheduler.shutdown()
