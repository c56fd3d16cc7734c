"""Signals of a server in the foreground, and of a command that waits."""

import faulthandler
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkatool.commands.shared.termination import StopSignals, interruptions_kept, terminated_like_interrupted
from tests.waiting import eventually


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    made = StopSignals()
    try:
        yield made
    finally:
        os.close(signal.set_wakeup_fd(-1))
        os.close(made.fileno())
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.spec("BRK-126", "BRK-128")
def test_each_signal_is_told_in_order_and_none_raises(signals: StopSignals) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert [signals.wait() for _ in range(3)] == [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]


@pytest.mark.spec("BRK-126", "BRK-128")
def test_the_first_reaction_is_to_the_first_signal_and_the_second_to_the_next(signals: StopSignals) -> None:
    told: list[tuple[str, signal.Signals]] = []
    os.kill(os.getpid(), signal.SIGTERM)  # before anybody listens
    signals.listen(lambda number: told.append(("stop", number)), lambda number: told.append(("hurry", number)))
    eventually(lambda: told == [("stop", signal.SIGTERM)], "the first reaction")
    os.kill(os.getpid(), signal.SIGINT)
    eventually(lambda: told == [("stop", signal.SIGTERM), ("hurry", signal.SIGINT)], "the second reaction")


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_signal_that_does_not_wake_the_main_thread_is_told(signals: StopSignals) -> None:
    """Another thread gets it: as when the main thread is about to wait, no wait of the main thread is interrupted."""
    told: list[signal.Signals] = []
    stopping = threading.Event()
    main = threading.get_ident()

    def listen() -> None:
        told.append(signals.wait())
        stopping.set()

    def is_waiting() -> bool:
        with tempfile.TemporaryFile("w+") as dump:
            faulthandler.dump_traceback(dump)
            dump.seek(0)
            stacks = [stack.splitlines() for stack in dump.read().split("\n\n")]
        (calls,) = (lines[1:] for lines in stacks if lines[0].startswith(f"Thread 0x{main:016x} "))
        names = [line.rsplit(" in ", 1)[-1] for line in calls]
        return names[:3] == ["wait", "wait", "test_a_signal_that_does_not_wake_the_main_thread_is_told"]

    def be_signalled() -> None:
        eventually(is_waiting, "the main thread to wait")
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    threads = [threading.Thread(target=work, daemon=True) for work in (listen, be_signalled)]
    for thread in threads:
        thread.start()
    assert stopping.wait(60) and told == [signal.SIGTERM]
    for thread in threads:
        thread.join()


def interrupted_before_it_waits(condition: threading.Condition, number: signal.Signals) -> threading.Condition:
    """Have the signal come when the lock is given up and the wait has not begun."""
    give_up = condition._release_save  # type: ignore[attr-defined]  # noqa: SLF001

    def given_up() -> object:
        state = give_up()
        signal.raise_signal(number)
        return state

    condition._release_save = given_up  # type: ignore[attr-defined]  # noqa: SLF001
    return condition


@pytest.mark.spec("RSN-23X")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("lock", [threading.Lock, threading.RLock])
def test_an_interruption_between_the_steps_of_a_wait_is_one_all_the_same(
    number: signal.Signals, lock: Callable[[], threading.Lock]
) -> None:
    condition = interrupted_before_it_waits(threading.Condition(lock()), number)
    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted(), condition:
        condition.wait(60)


@pytest.mark.spec("RSN-23X")
def test_an_error_that_no_signal_has_caused_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^of its own$"), interruptions_kept():
        try:
            raise OSError
        except OSError:
            raise RuntimeError("of its own")  # noqa: B904  # with a context, which is no signal
