"""Requests about topics or partitions that wait for the controller's work to arrive in the metadata cache (BRK-113).

A waiting request occupies no thread: it is looked at again after each UpdateMetadata, and ended by a timer.
"""

from collections.abc import Callable, Hashable, Iterable, Set
from typing import Generic, TypeVar

from kafkatool.broker.metadata_cache import MetadataCache, MetadataSnapshot
from kafkatool.broker.runtime.purgatory import DelayedOperation, Purgatory
from kafkatool.broker.runtime.timer import Timer

Subject = TypeVar("Subject", bound=Hashable)
IsDone = Callable[[MetadataSnapshot, Subject], bool]
_METADATA = "metadata"


def is_led(snapshot: MetadataSnapshot, topic: str) -> bool:
    """Tell whether every partition of a new topic has a live leader."""
    partitions = snapshot.partitions.get(topic)
    return bool(partitions) and all(p.leader in snapshot.brokers for p in (partitions or {}).values())


def is_gone(snapshot: MetadataSnapshot, topic: str) -> bool:
    """Tell whether a deleted topic is no longer known."""
    return topic not in snapshot.partitions


class DelayedTopics(DelayedOperation, Generic[Subject]):
    """A request that waits until ``is_done`` holds for all its topics, or partitions."""

    def __init__(
        self,
        timeout_ms: float,
        topics: Set[Subject],
        is_done: IsDone[Subject],
        metadata_cache: MetadataCache,
        on_end: Callable[[set[Subject]], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._topics = topics
        self._is_done = is_done
        self._metadata_cache = metadata_cache
        self._on_end = on_end

    def _pending(self) -> set[Subject]:
        snapshot = self._metadata_cache.snapshot
        return {topic for topic in self._topics if not self._is_done(snapshot, topic)}

    def try_complete(self, key: Hashable | None = None) -> bool:
        return self.completed or (not self._pending() and self.complete())

    def on_complete(self) -> None:
        self._on_end(self._pending())


class TopicPurgatory(Purgatory):
    """The topic requests that wait, all under one key: every UpdateMetadata may end any of them."""

    def __init__(self, metadata_cache: MetadataCache, timer: Timer) -> None:
        super().__init__(timer)
        self._metadata_cache = metadata_cache
        metadata_cache.add_listener(lambda _removed: self.check(_METADATA))

    def wait(
        self,
        topics: Iterable[Subject],
        is_done: IsDone[Subject],
        timeout_ms: float,
        on_end: Callable[[set[Subject]], None],
    ) -> None:
        """Call ``on_end`` when ``is_done`` holds for all topics, or after ``timeout_ms`` (at once if not above 0).

        It is called once, with the topics still not done: none, unless time ran out.
        """
        if timeout_ms <= 0:  # also what is done already: nobody looks
            on_end(set(topics))
        else:
            self.watch(DelayedTopics(timeout_ms, set(topics), is_done, self._metadata_cache, on_end), (_METADATA,))
