"""Incremental fetch sessions: the client says what changed, the answer holds only what changed (BRK-105, 106; KIP-227).

Source: Kafka 1.1.1 server/FetchSession.scala.
"""

import random
import threading
from collections.abc import Callable
from typing import NamedTuple

from kafkatool.broker.replication.fetches import FetchEntries, FetchResults
from kafkatool.broker.replication.partition_reads import PartitionRead
from kafkatool.core.model import TopicPartition
from kafkatool.core.protocol.error_codes import ErrorCode
from kafkatool.core.protocol.fetch import FetchRequest, FetchRequestPartition

NO_SESSION = 0
FINAL_EPOCH = -1  # no session; a named one is closed
INITIAL_EPOCH = 0  # a full fetch, which may open one
_MAX_EPOCH = 2**31 - 1
_EVICTION_MS = 120_000  # a session not used for that long may be taken for another


class _Told:
    """One partition of a session: its part of the request, and what the client was told last."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchRequestPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_news(self, read: PartitionRead) -> bool:
        """Whether the client must hear of it; noted as told."""
        news = bool(
            read.size_bytes
            or read.error
            or read.high_watermark != self.high_watermark
            or read.log_start_offset != self.log_start_offset
        )
        # After an error -1 is noted: once it is over the partition is news again.
        self.high_watermark, self.log_start_offset = read.high_watermark, read.log_start_offset
        return news


class _Session:
    """Used by one request at a time: its connection waits for each answer. A lock guards against clients that do not."""

    def __init__(self, session_id: int, *, privileged: bool) -> None:
        self.id = session_id
        self.privileged = privileged  # a follower's: not taken for a consumer's
        self.epoch = INITIAL_EPOCH + 1
        self.last_used_ms = 0.0
        self.lock = threading.Lock()
        self.partitions: dict[TopicPartition, _Told] = {}

    def update(self, request: FetchRequest) -> None:
        for topic in request.topics:
            for wanted in topic.partitions:
                told = self.partitions.get(TopicPartition(topic.topic, wanted.partition))
                if told is None:
                    self.partitions[TopicPartition(topic.topic, wanted.partition)] = _Told(wanted)
                else:
                    told.wanted = wanted
        for gone in request.forgotten_topics:
            for partition in gone.partitions:
                self.partitions.pop(TopicPartition(gone.topic, partition), None)


class FetchPlan(NamedTuple):
    """What a fetch request means. With ``error`` there is nothing to read, only the session's error to tell."""

    entries: FetchEntries
    session: _Session | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    @property
    def session_id(self) -> int:
        """To be told to the client."""
        return self.session.id if self.session else NO_SESSION

    def to_tell(self, results: FetchResults) -> FetchResults:
        """The part of the results that the client does not know yet."""
        session = self.session
        if session is None:
            return results
        with session.lock:
            news: FetchResults = []
            for topic_partition, read in results:
                told = session.partitions.get(topic_partition)
                if told is None:
                    continue  # forgotten by a later request; not this one's to tell
                if told.is_news(read):
                    news.append((topic_partition, read))
                    if read.size_bytes:  # to the end of the order: the others come first next time
                        session.partitions[topic_partition] = session.partitions.pop(topic_partition)
            return news if self.incremental else results


class FetchSessions:
    """The sessions of one broker, at most ``slots``. Thread-safe."""

    def __init__(self, slots: int, clock_ms: Callable[[], float]) -> None:
        self._slots = slots
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._sessions: dict[int, _Session] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest) -> FetchPlan:
        """Find, open, change or close the session a request is about."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if request.session_id != NO_SESSION:
                with self._lock:
                    self._sessions.pop(request.session_id, None)
            entries = _entries(request)
            if request.session_epoch == FINAL_EPOCH or not entries:
                return FetchPlan(entries)
            session = self._open(privileged=request.replica_id >= 0)
            if session is not None:
                session.update(request)
            return FetchPlan(entries, session)
        with self._lock:
            session = self._sessions.get(request.session_id)
            if session is None:
                return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if session.epoch != request.session_epoch:
                return FetchPlan([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.last_used_ms = self._clock_ms()
            self._sessions[session.id] = self._sessions.pop(session.id)
        with session.lock:
            session.update(request)
            session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
            entries = [(tp, told.wanted) for tp, told in session.partitions.items()]
        if not entries:
            with self._lock:
                self._sessions.pop(session.id, None)
            return FetchPlan(entries)
        return FetchPlan(entries, session, incremental=True)

    def _open(self, *, privileged: bool) -> _Session | None:
        with self._lock:
            now_ms = self._clock_ms()
            if len(self._sessions) >= self._slots and not self._evict(now_ms, privileged):
                return None
            session_id = random.randrange(1, _MAX_EPOCH)
            while session_id in self._sessions:
                session_id = random.randrange(1, _MAX_EPOCH)
            session = self._sessions[session_id] = _Session(session_id, privileged=privileged)
            session.last_used_ms = now_ms
            return session

    def _evict(self, now_ms: float, privileged: bool) -> bool:
        """Take the slot of one that is stale, or, for a follower, of the consumer that was idle longest."""
        for session in self._sessions.values():
            if now_ms - session.last_used_ms > _EVICTION_MS or (privileged and not session.privileged):
                del self._sessions[session.id]
                return True
        return False


def _entries(request: FetchRequest) -> FetchEntries:
    return [(TopicPartition(t.topic, p.partition), p) for t in request.topics for p in t.partitions]
