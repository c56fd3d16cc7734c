"""The fetches that wait: each under its partitions, or, with a session, under that alone.

A fetch of a session of thousands of partitions is parked and woken for the price of one.
"""

from collections.abc import Hashable

from kafkatool.broker.replication.leading.fetch_session import FetchSession
from kafkatool.broker.replication.leading.fetch_sessions import FetchSessions
from kafkatool.broker.runtime.purgatory import DelayedOperations
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.model.values import TopicPartition


class ParkedFetches(DelayedOperations):
    """Sessions hear of every change here, whether or not a fetch of theirs is parked."""

    def __init__(self, timer: Timer, sessions: FetchSessions) -> None:
        super().__init__(timer)
        self._sessions = sessions
        sessions.on_closed = self._answer_soon

    def _answer_soon(self, session: FetchSession) -> None:
        """Its session is closed: no change would wake the fetch any more."""
        for operation in list(self._watched.get(session, ())):
            self._timer.add(0, operation._expire)

    def check(self, key: Hashable, *, followers: bool = True) -> None:
        """Something changed in partition ``key``. A raised high watermark answers no ``followers``: they read beyond."""
        assert isinstance(key, TopicPartition)
        for session in self._sessions.watching(key):
            session.mark_changed(key)
            if followers or not session.privileged:
                self._try_all(session, key)
        super().check(key)

    def abandon(self, key: Hashable) -> None:
        """Partition ``key`` is gone."""
        assert isinstance(key, TopicPartition)
        for session in self._sessions.watching(key):
            session.mark_changed(key)
            for operation in list(self._watched.get(session, ())):
                operation.abandon(key)
        super().abandon(key)
