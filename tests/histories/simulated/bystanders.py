"""Processes beside those whose operations are counted: one watches ends, one reads in fetch sessions, one deletes."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkatool.broker.replication.partition.partition_reads import READ_COMMITTED
from kafkatool.broker.replication.partition.session_epochs import INITIAL_EPOCH, NO_SESSION, epoch_after
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
    ForgottenTopic,
)
from tests.histories.history import INFO, OK
from tests.histories.simulated.brokers import KEYS, PATIENCE_MS, partition_of
from tests.histories.simulated.clients import (
    FETCHED_BYTES,
    Box,
    Process,
    Waits,
    end_of,
    records_of,
    start_of,
    wanted_of,
)

_WATCHES_MS: Final = 8.0
_READS_MS: Final = 30.0
_ALL_BYTES: Final = FETCHED_BYTES * len(KEYS)
_LEFT: Final = 12  # offsets at a key's end, at most: what is deleted is never judged


class Watcher(Process):
    """Asks for ends alone, again and again: what one leader has told the next one may not take back."""

    questions = 1.0

    def _ask(self) -> Waits:
        yield from super()._ask()
        yield from self._wait(_WATCHES_MS)


@dataclass
class _FetchSession:
    """What a consumer knows of its session with a broker. ``life``: of that; a session ends with it."""

    life: int
    id: int = NO_SESSION
    epoch: int = INITIAL_EPOCH
    sent: dict[int, FetchRequestPartition] = field(default_factory=dict)


class SessionReader(Process):
    """Polls all keys in fetch sessions, one with each broker: what has not changed is not asked for again (KIP-227)."""

    questions = 0.0

    def _begin(self) -> None:
        super()._begin()
        self._sessions: dict[int, _FetchSession] = {}

    def _operate(self) -> Waits:
        self._write("invoke", "poll", [["poll"]])
        yield
        self._write(OK, "poll", [["poll", self._poll()]])
        yield from self._wait(_READS_MS)

    def _poll(self) -> dict[int, list[tuple[int, int | None]]]:
        wanted: dict[int, dict[int, FetchRequestPartition]] = {}
        for key in KEYS:
            leader, epoch = self._leader(key)
            if self._is_heard(leader):
                wanted.setdefault(leader, {})[key] = wanted_of(key, epoch, self._positions[key])
            else:
                self._leaders.pop(key, None)
        runs: dict[int, list[tuple[int, int | None]]] = {}
        for leader, partitions in wanted.items():
            for told in self._fetch_in_session(leader, partitions):
                key = told.partition
                if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._begin_anew(key)
                elif told.error_code:
                    self._leaders.pop(key, None)
                else:
                    aborted = told.aborted_transactions
                    pairs, self._positions[key] = records_of(told.records or b"", aborted, self._positions[key])
                    if pairs:
                        runs[key] = pairs
        return runs

    def _fetch_in_session(
        self, number: int, wanted: Mapping[int, FetchRequestPartition]
    ) -> Iterable[FetchResponsePartition]:
        """Tell a broker what is wanted now otherwise than before, and return what it tells."""
        broker, session = self._brokers[number], self._sessions.get(number)
        if session is None or session.life != broker.life:
            session = self._sessions[number] = _FetchSession(broker.life)
        topic = partition_of(KEYS[0]).topic
        listed = [one for key, one in wanted.items() if session.sent.get(key) != one]
        forgotten = [key for key in session.sent if key not in wanted]
        answer = broker.fetch(
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=_ALL_BYTES,
                isolation_level=READ_COMMITTED,
                session_id=session.id,
                session_epoch=session.epoch,
                topics=[FetchRequestTopic(topic=topic, partitions=listed)] if listed else [],
                forgotten_topics=[ForgottenTopic(topic=topic, partitions=forgotten)] if forgotten else [],
            )
        )
        if answer.error_code or answer.session_id == NO_SESSION:
            del self._sessions[number]
        else:
            session.id, session.epoch, session.sent = answer.session_id, epoch_after(session.epoch), dict(wanted)
        return [told for topic_told in answer.topics for told in topic_told.partitions]


class Deleter(Process):
    """Deletes the older records of keys, when it is told to; who gets no answer is over, as it may be done later."""

    questions = 0.0

    def __init__(self, *told: Any) -> None:
        super().__init__(*told)
        self.wanted: deque[int] = deque()
        """Of which keys, still to be done."""

    def _begin(self) -> None:
        """It is assigned nothing."""

    def _operate(self) -> Waits:
        if not self.wanted:
            return
        key = self.wanted.popleft()
        self._leaders.pop(key, None)
        leader, epoch = self._leader(key)
        broker = self._brokers[leader or 1]
        start, end = start_of(broker, key, epoch), end_of(broker, key, epoch)
        if not self._is_heard(leader) or start is None or end is None:
            return
        offset = max(start, end - self._chance.randint(1, _LEFT))
        self._write("invoke", "delete", {key: offset})
        box, life = Box(), broker.life
        self._to(leader, lambda: broker.delete_records(key, offset, box.put))
        until = self._clock() + PATIENCE_MS
        while self._clock() < until and broker.alive and broker.life == life:
            yield
            if box.answer is not None and self._is_heard(leader):
                break
        kind = {ErrorCode.NONE: OK}.get(box.answer, INFO)
        self.over = kind == INFO
        self._write(kind, "delete", {key: offset}, **({"end": True} if self.over else {}))
        yield
