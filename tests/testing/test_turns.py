"""Whose turn it is on shared clusters: users side by side, who breaks them alone, and nobody is passed over for ever."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkatool.core.errors import RefusedError
from kafkatool.testing import turns
from kafkatool.testing.turns import Turns


@contextmanager
def waiting(what: Callable[[], None]) -> Iterator[Future[None]]:
    """Give a call that waits on a thread of its own."""
    tried, never = threading.Event(), threading.Event()

    def sleep(seconds: float) -> None:
        tried.set()
        never.wait(seconds)

    with ThreadPoolExecutor() as thread, pytest.MonkeyPatch.context() as patched:
        patched.setattr("kafkatool.testing.turns.time.sleep", sleep)
        call = thread.submit(what)
        assert tried.wait(60), "it was refused at first"
        yield call


@pytest.fixture
def workers(tmp_path: Path) -> list[Turns]:
    return [Turns(tmp_path) for _ in range(3)]


def test_who_breaks_waits_for_those_who_use_and_those_who_come_wait_for_it(workers: list[Turns]) -> None:
    one, other, third = workers
    one.begin()
    other.begin()
    with waiting(other.have_alone) as breaking:
        assert not breaking.done()
        with waiting(third.begin) as coming:
            one.end()
            breaking.result(60)
            assert not coming.done() and not third.uses
            other.have_alone()  # again: it has them
            other.end()
            coming.result(60)
    assert third.uses and not other.uses


def test_two_who_use_may_both_break(workers: list[Turns]) -> None:
    """Each waits without a share of its own: else each would wait for the other."""
    for worker in workers:
        worker.begin()
    order = []

    def break_(worker: Turns) -> None:
        worker.have_alone()
        order.append(worker)
        worker.end()

    with ThreadPoolExecutor() as threads:
        for call in [threads.submit(break_, worker) for worker in workers]:
            call.result(60)
    assert set(order) == set(workers)


def test_who_waits_in_vain_is_told_of_a_cluster_of_its_own(
    workers: list[Turns], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_PATIENCE_S", 0)
    one, other, third = workers
    one.begin()
    with pytest.raises(RefusedError, match="let tests that break it take kafka_cluster_factory"):
        other.have_alone()
    third.begin()  # the gate is open again
    third.end()
    one.have_alone()
    with pytest.raises(RefusedError, match="waited 0 s in vain for other workers' tests"):
        third.begin()
    one.end()
    one.end()
    third.begin()
