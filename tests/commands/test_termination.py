"""Signals of a server in the foreground."""

import os
import signal
from collections.abc import Iterator

import pytest

from kafkatool.commands.termination import StopSignals


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield StopSignals()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.spec("BRK-126", "BRK-128")
def test_a_signal_before_the_start_lets_it_begin_nothing(signals: StopSignals) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    began = False
    with pytest.raises(KeyboardInterrupt), signals.interrupting():
        began = True
    assert not began and signals.wait() is signal.SIGTERM


@pytest.mark.spec("BRK-126", "BRK-128")
def test_only_the_first_signal_interrupts_and_each_is_told(signals: StopSignals) -> None:
    undone = False
    with pytest.raises(KeyboardInterrupt), signals.interrupting():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            undone = True
    os.kill(os.getpid(), signal.SIGTERM)
    assert undone and [signals.wait() for _ in range(3)] == [signal.SIGINT, signal.SIGTERM, signal.SIGTERM]
