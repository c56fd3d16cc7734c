"""The incremental fetch sessions of a broker: opens, finds and closes them (BRK-105, 106; KIP-227).

Source: Kafka 1.1.1 server/FetchSession.scala.
"""

import random
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from kafkatool.broker.replication.leading.fetch_session import FetchEntries, FetchResults, FetchSession
from kafkatool.broker.replication.partition.partition_reads import Reader
from kafkatool.broker.replication.partition.session_epochs import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION
from kafkatool.broker.security.principal import ANONYMOUS, Principal
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchRequest

MOST_PARTITIONS: Final = 1_000_000  # a few hundred megabytes; without a session a fetch is served as well
_EVICTION_MS = 120_000  # a session not used for that long is closed when another is opened


class FetchPlan(NamedTuple):
    """The meaning of a fetch request. With ``error`` there is nothing to read, only the session's error to tell."""

    entries: FetchEntries
    session: FetchSession | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    @property
    def session_id(self) -> int:
        """Return the id to tell the client."""
        return NO_SESSION if self.session is None else self.session.id

    def to_tell(self, results: FetchResults, reader: Reader) -> FetchResults:
        """Return the part of the results that the client does not know yet."""
        if self.session is None:
            return results
        return self.session.tell(results, reader, everything=not self.incremental)


class FetchSessions:
    """The sessions of one broker, at most ``slots``. Thread-safe."""

    def __init__(self, slots: int, clock_ms: Callable[[], float], *, most_partitions: int = MOST_PARTITIONS) -> None:
        """Take ``most_partitions``: what all sessions of consumers, or all of followers, may hold together."""
        self.on_closed: Callable[[FetchSession], object] = lambda _: None
        """Told of each session that was closed; must not wait for anything."""
        self.on_full: Callable[[], object] = lambda: None
        """Told when a fetch goes without a session, or loses it, for the partitions there are; must not wait."""
        self._slots = slots
        self._most_partitions = most_partitions
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._watching: dict[TopicPartition, tuple[FetchSession, ...]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def watched(self) -> Collection[TopicPartition]:
        """Return the partitions that any session wants."""
        return self._watching.keys()

    def watching(self, partition: TopicPartition) -> tuple[FetchSession, ...]:
        """Return the sessions that want that partition."""
        return self._watching.get(partition, ())

    def plan(self, request: FetchRequest, owner: Principal = ANONYMOUS) -> FetchPlan:
        """Find, open, change or close the session a request is about; another's is as if there were none (SEC-87)."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            return self._full(request, owner)
        with self._lock:
            session = self._sessions.get(request.session_id)
            if session is None or session.owner != owner:
                return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if session.epoch != request.session_epoch:
                return FetchPlan([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.next_request(self._clock_ms())
            self._sessions[session.id] = self._sessions.pop(session.id)
        if request.topics or request.forgotten_topics:
            self._update(session, request)
            if request.session_id not in self._sessions:
                return FetchPlan([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)  # the client begins anew
        if not len(session):
            with self._lock:
                self._close(session.id)
            return FetchPlan([])
        return FetchPlan(session.take(), session, incremental=True)

    def _full(self, request: FetchRequest, owner: Principal) -> FetchPlan:
        if request.session_id != NO_SESSION:
            with self._lock:
                former = self._sessions.get(request.session_id)
                if former is not None and former.owner == owner:
                    self._close(former.id)
        wanted = {TopicPartition(t.topic, p.partition): p for t in request.topics for p in t.partitions}
        entries = list(wanted.items())  # each once, as in Kafka
        if request.session_epoch == FINAL_EPOCH or not entries:
            return FetchPlan(entries)
        session = self._open(len(entries), owner, privileged=request.replica_id >= 0)
        if session is None:
            return FetchPlan(entries)
        self._update(session, request)
        return FetchPlan(session.take(), session)

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        added, gone = session.update(request)
        if not added and not gone:
            return
        with self._lock:
            if self._sessions.get(session.id) is session:  # else another took its slot meanwhile
                for topic_partition in added:
                    self._watching[topic_partition] = (*self.watching(topic_partition), session)
            self._unwatch(session, gone)
            if added and not self._have_room(0, session.privileged):
                self._close(session.id)
                self.on_full()

    def _unwatch(self, session: FetchSession, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in partitions:
            left = tuple(other for other in self.watching(topic_partition) if other is not session)
            if left:
                self._watching[topic_partition] = left
            else:
                self._watching.pop(topic_partition, None)

    def _open(self, size: int, owner: Principal, *, privileged: bool) -> FetchSession | None:
        with self._lock:
            now_ms = self._clock_ms()
            self._close_stale(now_ms)
            if not self._have_room(size, privileged):
                self.on_full()
                return None
            if len(self._sessions) >= self._slots and not self._evict_for(privileged):
                return None
            session_id = random.randrange(1, MAX_EPOCH)
            while session_id in self._sessions:
                session_id = random.randrange(1, MAX_EPOCH)
            session = FetchSession(session_id, now_ms, privileged=privileged, owner=owner)
            self._sessions[session_id] = session
            return session

    def _have_room(self, size: int, privileged: bool) -> bool:
        """Tell whether the sessions of consumers, or those of followers, may hold so many partitions more."""
        held = sum(len(session) for session in self._sessions.values() if session.privileged == privileged)
        return held + size <= self._most_partitions

    def _close_stale(self, now_ms: float) -> None:
        """Close sessions out of use. Kafka waits until their slot is needed; here each costs a little at every change."""
        for session in list(self._sessions.values()):
            if now_ms - session.last_fetch.time_ms <= _EVICTION_MS:
                return
            self._close(session.id)

    def _evict_for(self, privileged: bool) -> bool:
        """Free the slot of the consumer that was idle longest, for a follower."""
        consumer = next((s for s in self._sessions.values() if not s.privileged), None)
        if consumer is None or not privileged:
            return False
        self._close(consumer.id)
        return True

    def _close(self, session_id: int) -> None:
        """Close a session, if there is one. Under the lock."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unwatch(session, session.partitions)
            self.on_closed(session)
