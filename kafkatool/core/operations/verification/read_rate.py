"""The rate at which each broker may be read, so that a comparison leaves clients their share (RPV-12X). No I/O."""

from collections.abc import Callable


class ReadRate:
    """Bytes per second, for each broker by itself: what was read is paid for before the next request.

    A request may bring ``burst_bytes``, what a second allows; so nothing is read in bursts longer than that, but for
    a single batch larger than it, which a broker sends whole.
    """

    def __init__(self, bytes_per_second: int, clock: Callable[[], float]) -> None:
        """Allow that rate, by a ``clock`` that gives seconds."""
        self.burst_bytes = bytes_per_second
        self._clock = clock
        self._free_at: dict[int, float] = {}

    def wait_s(self, broker_id: int) -> float:
        """Return how long the next request to that broker has to wait."""
        return max(0.0, self._free_at.get(broker_id, 0.0) - self._clock())

    def spend(self, broker_id: int, size_bytes: int) -> None:
        """Note that so much was just read from it."""
        free_at = max(self._free_at.get(broker_id, 0.0), self._clock())
        self._free_at[broker_id] = free_at + size_bytes / self.burst_bytes
