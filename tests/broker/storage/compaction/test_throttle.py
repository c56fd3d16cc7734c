import threading

import pytest

from kafkatool.broker.storage.compaction.throttle import CleanerThrottle


class Waits(threading.Event):
    """Passes at once, and tells how long it was to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked_s.append(timeout or 0)
        return self.is_set()


@pytest.mark.spec("BRK-167")
def test_large_batches_keep_to_the_rate_too() -> None:
    waits = Waits()
    throttle = CleanerThrottle(1_000_000, waits)
    for _ in range(3):
        assert not throttle(5_000_000)
    assert waits.asked_s == [pytest.approx(5, abs=0.2)] * 3


@pytest.mark.spec("BRK-167")
def test_a_stop_ends_the_round() -> None:
    waits = Waits()
    throttle = CleanerThrottle(1_000_000, waits)
    assert not throttle(1)
    waits.set()
    assert throttle(1) and throttle(5_000_000)
