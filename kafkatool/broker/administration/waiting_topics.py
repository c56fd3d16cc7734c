"""Topic requests that wait for the controller's work to arrive in the metadata cache (BRK-113).

A waiting request occupies no thread: it is looked at again after each UpdateMetadata, and ended by a timer.
"""

import threading
from collections.abc import Callable, Iterable

from kafkatool.broker.metadata_cache import MetadataCache, MetadataSnapshot
from kafkatool.broker.runtime.timer import Timer, TimerTask

IsDone = Callable[[MetadataSnapshot, str], bool]


def is_led(snapshot: MetadataSnapshot, topic: str) -> bool:
    """Whether every partition of a new topic has a live leader."""
    partitions = snapshot.partitions.get(topic)
    return bool(partitions) and all(p.leader in snapshot.brokers for p in (partitions or {}).values())


def is_gone(snapshot: MetadataSnapshot, topic: str) -> bool:
    """Whether a deleted topic is no longer known."""
    return topic not in snapshot.partitions


class _Wait:
    def __init__(self, topics: Iterable[str], is_done: IsDone, on_end: Callable[[set[str]], None]) -> None:
        self.topics = set(topics)
        self.is_done = is_done
        self.on_end = on_end
        self.expiry: TimerTask | None = None


class WaitingTopics:
    """Thread-safe. ``on_end`` is called once, with the topics still not done: empty, unless time ran out."""

    def __init__(self, metadata_cache: MetadataCache, timer: Timer) -> None:
        self._metadata_cache = metadata_cache
        self._timer = timer
        self._lock = threading.Lock()
        self._waits: set[_Wait] = set()
        metadata_cache.add_listener(lambda _removed: self._look())

    def wait(
        self, topics: Iterable[str], is_done: IsDone, timeout_ms: float, on_end: Callable[[set[str]], None]
    ) -> None:
        """Call ``on_end`` when ``is_done`` holds for all topics, or after ``timeout_ms`` (at once if not above 0)."""
        wait = _Wait(topics, is_done, on_end)
        if timeout_ms <= 0:
            on_end(wait.topics)
            return
        with self._lock:
            self._waits.add(wait)
        wait.expiry = self._timer.add(timeout_ms, lambda: self._end(wait))
        self._look()

    def close(self) -> None:
        """End all waits now, as if their time had run out."""
        with self._lock:
            waits = list(self._waits)
        for wait in waits:
            self._end(wait)

    def _look(self) -> None:
        if not self._waits:
            return
        snapshot = self._metadata_cache.snapshot
        with self._lock:
            waits = list(self._waits)
        for wait in waits:
            if all(wait.is_done(snapshot, topic) for topic in wait.topics):
                self._end(wait)

    def _end(self, wait: _Wait) -> None:
        with self._lock:
            if wait not in self._waits:
                return
            self._waits.remove(wait)
        if wait.expiry is not None:
            wait.expiry.cancel()
        snapshot = self._metadata_cache.snapshot
        wait.on_end({topic for topic in wait.topics if not wait.is_done(snapshot, topic)})
