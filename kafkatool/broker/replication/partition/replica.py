"""The leader's record of a replica on another broker: positions only; the log is over there (BRK-35 to 40).

There is no object for the local replica: its log end offset is the log's own, which nothing here can set, and its
high watermark is the partition's.
"""

from dataclasses import dataclass

from kafkatool.broker.storage.log.log_offset import LogOffset

NEVER = float("-inf")
UNKNOWN = LogOffset(-1)


@dataclass(slots=True, eq=False)
class LastSessionFetch:
    """The time of a follower's last fetch in its session: whatever it did not list there, it fetched as before.

    One object for all partitions of the session, so that a quiet partition costs nothing (see ``note_session_fetch``).
    """

    time_ms: float


@dataclass(slots=True, eq=False)
class RemoteReplica:
    """A follower as its fetches show it. Times are in ms of the partition's clock. Guarded by the partition's lock.

    ``end`` is the follower's log end offset: where its last fetch asked to read. ``caught_up_ms`` is the last time
    it was known to have all that the leader had at that moment.
    """

    broker_id: int
    end: LogOffset = UNKNOWN
    log_start_offset: int = -1
    caught_up_ms: float = NEVER
    last_fetch_ms: float = NEVER
    leader_end_at_last_fetch: int = -1
    session_fetch: LastSessionFetch | None = None

    def record_fetch(
        self,
        start: LogOffset,
        leader_end: int,
        log_start_offset: int,
        now_ms: float,
        session_fetch: LastSessionFetch | None = None,
    ) -> None:
        """Note a fetch at ``start`` while the leader's log ended at ``leader_end``, read before the log was (BRK-39).

        Having reached the end that the leader had at the *previous* fetch counts as caught up at that time: so small
        frequent appends, one fetch ahead of the follower all the time, do not throw it out (BRK-52).
        """
        if start.offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif start.offset >= self.leader_end_at_last_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.end = start
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = now_ms
        self.session_fetch = session_fetch

    def note_session_fetch(self) -> None:
        """Note, before the leader appends, that the follower at its end was there at every fetch until now."""
        if self.session_fetch is not None and self.session_fetch.time_ms > self.last_fetch_ms:
            self.last_fetch_ms = self.session_fetch.time_ms
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)

    def begin_term(self, leader_end: int, now_ms: float, *, in_sync: bool) -> None:
        """Count from now, as in sync or as never seen: a leadership decision came (BRK-45, step 5)."""
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = now_ms
        self.caught_up_ms = now_ms if in_sync else NEVER

    def forget_presence(self) -> None:
        """Count as never seen: its broker is gone, and what its last session fetched tells nothing of now."""
        self.caught_up_ms = NEVER
        self.session_fetch = None

    def forget_positions(self) -> None:
        """Forget what is of another term: this broker has just become leader (BRK-45, step 6)."""
        self.end = UNKNOWN
        self.log_start_offset = -1
        self.leader_end_at_last_fetch = -1
        self.last_fetch_ms = NEVER
        self.session_fetch = None
