"""The thread that works when it is woken: once for wakes that come together, and again after an expected error."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafkatool.broker.runtime import woken_thread
from kafkatool.broker.runtime.woken_thread import WokenThread
from tests.waiting import eventually


def unexpected(error: Exception) -> None:
    raise error


@contextmanager
def started(thread: WokenThread) -> Iterator[WokenThread]:
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


def test_wakes_that_come_while_it_works_are_one_piece_of_work_more() -> None:
    entered, may_go_on = threading.Semaphore(0), threading.Semaphore(0)
    done: list[None] = []

    def work() -> None:
        entered.release()
        assert may_go_on.acquire(timeout=60)
        done.append(None)

    with started(WokenThread(work, name="w", expected=OSError, on_error=unexpected)) as thread:
        thread.wake()
        assert entered.acquire(timeout=60)
        for _ in range(3):
            thread.wake()
        may_go_on.release(2)
        assert entered.acquire(timeout=60)
        eventually(lambda: len(done) == 2, "the second piece of work")
    assert len(done) == 2 and not entered.acquire(blocking=False)


def test_after_an_expected_error_it_tries_again_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(woken_thread, "_RETRY_S", 0)
    errors: list[Exception] = []
    tried: list[None] = []

    def work() -> None:
        tried.append(None)
        if len(tried) < 3:
            raise OSError("away")

    with started(WokenThread(work, name="w", expected=OSError, on_error=errors.append)) as thread:
        thread.wake()
        eventually(lambda: len(tried) == 3, "the third try")
    assert [str(e) for e in errors] == ["away", "away"]


def test_one_that_never_started_can_be_stopped() -> None:
    WokenThread(lambda: None, name="w", expected=OSError, on_error=unexpected).stop()
