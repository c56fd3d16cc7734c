"""Long loops pause for other threads, short ones do not."""

import pytest

from kafkatool.broker.runtime import yielding
from kafkatool.broker.runtime.yielding import yielding_gil


class FakeTime:
    """An item takes 0.4 ms."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses = 0

    def perf_counter(self) -> float:
        self.now_s += 0.0004
        return self.now_s

    def sleep(self, _: float) -> None:
        self.pauses += 1


def test_a_pause_follows_each_millisecond_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime()
    monkeypatch.setattr(yielding, "time", clock)
    assert list(yielding_gil(range(2))) == [0, 1]
    assert clock.pauses == 0
    assert list(yielding_gil(range(1000))) == list(range(1000))
    assert 200 <= clock.pauses <= 350
