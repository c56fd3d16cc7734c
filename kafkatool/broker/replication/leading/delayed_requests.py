"""The requests that wait on this broker, by kind: produces, fetches, deletions of records.

A fetch waits under its partitions, or, with a session, under that alone: a fetch of a session of thousands of
partitions is watched and tried for the price of one.
"""

from collections.abc import Hashable

from kafkatool.broker.replication.leading.fetch_session import FetchSession
from kafkatool.broker.replication.leading.fetch_sessions import FetchSessions
from kafkatool.broker.runtime.purgatory import Purgatory, guarded
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.model.values import TopicPartition

LIVE_BROKERS = "live brokers"
"""Key of ``deletions`` beside the partitions: a replica on a broker that is gone is not waited for."""


class FetchPurgatory(Purgatory):
    """The fetches that wait. Sessions hear of every change here, whether or not a fetch of theirs waits."""

    def __init__(self, timer: Timer, sessions: FetchSessions) -> None:
        super().__init__(timer)
        self._sessions = sessions
        sessions.on_closed = self._answer_soon

    def _answer_soon(self, session: FetchSession) -> None:
        """End the waits of a closed session, from which no change would end them, on another thread: a lock is held."""
        for operation in list(self._watched.get(session, ())):
            self._timer.add(0, operation.expire)

    def check(self, key: Hashable, *, followers: bool = True) -> None:
        """Try what waits for partition ``key``.

        A raised high watermark answers no ``followers``: they read beyond.
        """
        assert isinstance(key, TopicPartition)
        for session in self._sessions.watching(key):
            session.mark_changed(key)
            if followers or not session.privileged:
                self._try_all(session, key)
        super().check(key)

    def end_waits_without(self, key: TopicPartition) -> None:
        """Answer the followers whose session lacks that partition: they wait here for others, and may ask for it next.

        Kafka's wait until their time is out, so that the first record of a new topic takes half a second.
        """
        having = self._sessions.watching(key)
        for session in [s for s in self._waiting_sessions() if s.privileged and s not in having]:
            for operation in list(self._watched.get(session, ())):
                guarded(operation.complete)

    def _waiting_sessions(self) -> list[FetchSession]:
        with self._lock:
            return [key for key in self._watched if isinstance(key, FetchSession)]

    def abandon(self, key: Hashable) -> None:
        """Have nothing wait for partition ``key`` any longer: it is gone."""
        assert isinstance(key, TopicPartition)
        for session in self._sessions.watching(key):
            session.mark_changed(key)
            for operation in list(self._watched.get(session, ())):
                operation.abandon(key)
        super().abandon(key)


class DelayedRequests:
    """One purgatory for each kind of request. Thread-safe; call nothing here while holding a partition's lock."""

    def __init__(self, timer: Timer, sessions: FetchSessions) -> None:
        self.produces = Purgatory(timer)
        self.fetches = FetchPurgatory(timer, sessions)
        self.deletions = Purgatory(timer)
        self._kinds = (self.produces, self.fetches, self.deletions)

    def check(self, partition: TopicPartition) -> None:
        """Try all that waits for something of a partition that has changed."""
        for purgatory in self._kinds:
            purgatory.check(partition)

    def abandon(self, partition: TopicPartition) -> None:
        """Have no request wait for a partition that is stopped here."""
        for purgatory in self._kinds:
            purgatory.abandon(partition)

    def expire_all(self) -> None:
        """End every wait: the broker is stopping (BRK-127)."""
        for purgatory in self._kinds:
            purgatory.expire_all()
