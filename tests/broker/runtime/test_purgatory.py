"""Parked operations: completed exactly once, never missed, never left behind."""

import threading
import time
from collections.abc import Callable, Hashable, Iterator

import pytest

from kafkatool.broker.replication.leading.delayed_produce import AppendResult, DelayedProduce
from kafkatool.broker.runtime.purgatory import DelayedOperation, Purgatory
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class Waiting(DelayedOperation):
    def __init__(self, delay_ms: float = 60_000) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.completions = 0
        self.expired = False
        self.ended = threading.Event()

    def try_complete(self, key: Hashable | None = None) -> bool:
        return self.completed or (self.ready and self.complete())

    def on_expire(self) -> None:
        self.expired = True

    def on_complete(self) -> None:
        self.completions += 1
        self.ended.set()


@pytest.fixture
def operations() -> Iterator[Purgatory]:
    timer = Timer("test")
    yield Purgatory(timer)
    timer.close()


@pytest.mark.spec("BRK-81")
def test_an_operation_whose_condition_holds_is_completed_at_once(operations: Purgatory) -> None:
    operation = Waiting()
    operation.ready = True
    assert operations.watch(operation, ["a"])
    assert operation.completions == 1
    assert len(operations) == 0


@pytest.mark.spec("BRK-81")
def test_it_waits_under_all_its_keys_and_leaves_all_of_them(operations: Purgatory) -> None:
    operation = Waiting()
    assert not operations.watch(operation, ["a", "b", "c"])
    operations.check("b")
    assert operation.completions == 0
    operation.ready = True
    operations.check("b")
    assert operation.completions == 1
    assert len(operations) == 0, "a completed operation stayed in a watch list"


@pytest.mark.spec("BRK-81")
def test_it_can_be_found_when_it_is_tried_so_that_no_change_is_missed(operations: Purgatory) -> None:
    class ChangesMeanwhile(Waiting):
        def try_complete(self, key: Hashable | None = None) -> bool:
            if key is None:
                self.ready = True  # right after this try began, on another thread
                operations.check("a")
                return False
            return super().try_complete(key)

    operation = ChangesMeanwhile()
    operations.watch(operation, ["a"])
    assert operation.completions == 1


@pytest.mark.spec("BRK-81")
def test_it_is_tried_under_all_its_keys_and_only_then_is_its_time_begun(
    operations: Purgatory, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    class Noted(Waiting):
        def try_complete(self, key: Hashable | None = None) -> bool:
            steps.append(f"tried {key}")
            if key is None:
                for other in "abc":
                    operations.check(other)  # each of its keys leads to it already
            return super().try_complete(key)

    add = Timer.add

    def noted(timer: Timer, delay_ms: float, task: Callable[[], None]) -> object:
        steps.append("timer")
        return add(timer, delay_ms, task)

    monkeypatch.setattr(Timer, "add", noted)
    operations.watch(Noted(), ["a", "b", "c"])
    assert steps == ["tried None", "tried a", "tried b", "tried c", "timer"]
    steps.clear()
    at_once = Noted()
    at_once.ready = True
    operations.watch(at_once, ["a"])
    assert "timer" not in steps, "completed at once"


@pytest.mark.spec("BRK-81")
def test_time_runs_out_once_and_a_late_check_changes_nothing(operations: Purgatory) -> None:
    operation = Waiting(delay_ms=10)
    operations.watch(operation, ["a"])
    assert operation.ended.wait(60)
    operation.ready = True
    operations.check("a")
    assert (operation.expired, operation.completions, len(operations)) == (True, 1, 0)


@pytest.mark.spec("BRK-81")
def test_an_expiry_that_blocks_holds_up_no_other_task_of_the_timer() -> None:
    gate, holds = threading.Event(), threading.Event()

    class Blocking(Waiting):
        def on_expire(self) -> None:
            holds.set()
            assert gate.wait(60)

    scheduler = Scheduler(2, "test")
    timer = Timer("test", scheduler.submit)
    operations = Purgatory(timer)
    blocking, later, ran = Blocking(delay_ms=0), Waiting(delay_ms=0), threading.Event()
    operations.watch(blocking, ["a"])
    assert holds.wait(60)
    timer.add(0, ran.set)
    operations.watch(later, ["a"])
    assert ran.wait(60) and later.ended.wait(60)
    assert blocking.completions == 0
    gate.set()
    assert blocking.ended.wait(60)
    timer.close()
    scheduler.shutdown()


@pytest.mark.spec("BRK-81", "BRK-127")
def test_all_can_be_expired_at_a_stop(operations: Purgatory) -> None:
    waiting = [Waiting() for _ in range(3)]
    for operation in waiting:
        operations.watch(operation, ["a", operation])
    operations.expire_all()
    assert [(o.expired, o.completions) for o in waiting] == [(True, 1)] * 3


class Broken(Waiting):
    def try_complete(self, key: Hashable | None = None) -> bool:
        if self.ready:
            raise ValueError(key)
        return self.completed

    def on_complete(self) -> None:
        raise ValueError


@pytest.mark.spec("BRK-81")
def test_one_that_fails_keeps_neither_the_others_nor_who_has_changed_something(
    operations: Purgatory, caplog: pytest.LogCaptureFixture
) -> None:
    """A follower would be left without its fetcher, an ISR change without its outcome."""
    for act in (operations.check, operations.abandon, lambda _: operations.expire_all()):
        waiting = [Broken(), Waiting(), Broken(), Waiting()]
        for operation in waiting:
            operations.watch(operation, ["a"])
            operation.ready = True
        act("a")
        assert [operation.completions for operation in waiting] == [0, 1, 0, 1]
        for operation in waiting:
            operations.forget(operation)
    assert caplog.text.count("an operation that waited could not go on") == 6


@pytest.mark.spec("BRK-81")
def test_many_threads_that_check_at_once_complete_it_once(operations: Purgatory) -> None:
    deadline = time.monotonic() + 1
    rounds = 0
    while rounds < 200 and time.monotonic() < deadline:
        rounds += 1
        operation = Waiting()
        operations.watch(operation, ["a"])
        operation.ready = True
        threads = [threading.Thread(target=operations.check, args=("a",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert operation.completions == 1
    assert len(operations) == 0


class _SlowResults(dict[TopicPartition, AppendResult]):
    """Runs ``meanwhile`` as another thread could, just before a result is written."""

    meanwhile: Callable[[], object] | None = None

    def __setitem__(self, key: TopicPartition, value: AppendResult) -> None:
        if self.meanwhile is not None:
            self.meanwhile()
        super().__setitem__(key, value)


@pytest.mark.spec("BRK-89")
def test_a_produce_that_fails_is_not_acknowledged_by_a_thread_that_looks_at_the_same_moment() -> None:
    tp = TopicPartition("t", 0)
    results = _SlowResults({tp: AppendResult(base_offset=3, next_offset=4)})
    answers: list[ErrorCode] = []
    produce = DelayedProduce(
        1000, lambda _: ErrorCode.NOT_LEADER_FOR_PARTITION, results, lambda r: answers.append(r[tp].error)
    )
    results.meanwhile = lambda: produce.try_complete(TopicPartition("u", 0))
    assert produce.try_complete()
    assert answers == [ErrorCode.NOT_LEADER_FOR_PARTITION]
