"""The producer of one simulated process, by librdkafka's rules: what goes again, when, in which order, under which number.

Batches of a key go in their order, several at a time, over one connection to its leader. After one that is to go again, and
to another leader, nothing of the key goes before all that is under way has been answered or given up. A connection is given
up, with all that is under way on it, once something on it has not been answered in time; it may be served yet. What was
refused for a while, or is not known, goes again, later each time. Who is told that a later batch is written knows the same
of those before it, without their offsets. A batch that was refused because one before it is missing (that was refused, for
a while) has all that is not answered numbered anew, in an epoch one higher, once nothing is under way any more; who writes
in transactions takes this one back instead. Where the oldest is refused in this way the client can vouch for nothing any
more, and ends.

Source: librdkafka 2.15, rdkafka_request.c (rd_kafka_handle_Produce_error, rd_kafka_handle_idempotent_Produce_success),
rdkafka_broker.c (rd_kafka_toppar_producer_serve, rd_kafka_broker_timeout_scan, RD_KAFKA_OP_PARTITION_JOIN),
rdkafka_partition.c (rd_kafka_retry_msgq), rdkafka_idempotence.c (rd_kafka_idemp_drain_epoch_bump). A batch has one record.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, NamedTuple

from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import Clock
from tests.histories.history import FAIL, INFO, OK
from tests.histories.simulated.brokers import READ, Broker, Produced, held_up_ms

ANSWER_MS: Final = (90.0, 90.0, 400.0)
"""So long each request waits for its answer (socket.timeout.ms): less time than ZooKeeper keeps a session, or more."""
_BACKOFF_MS: Final = 4.0
_LONGEST_BACKOFF_MS: Final = 42.0
"""Of what goes again: as in life, a session being 24 times as long there."""
_JITTER: Final = 0.2
_IN_FLIGHT: Final = 5  # of a connection
_REFRESHES: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Codes for which it asks who leads before it sends again; certainly nothing was written."""
_RETRIES: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Codes for which it sends again, and counts how often."""


class Numbering(NamedTuple):
    """Under which id and epoch batches go."""

    producer_id: int
    epoch: int


@dataclass(eq=False)
class Sending:
    """A value on its way. ``outcome``: None as long as it may go again."""

    key: int
    value: int
    sequence: int
    data: bytes
    tries: int = 0
    """After which something may have been written, or the broker was asked in vain."""
    due: float = 0.0
    sent: Produced | None = None
    """As it is under way."""
    sent_at: float = 0.0
    outcome: str | None = None
    offset: int | None = None


@dataclass(eq=False)
class _Connection:
    """To one life of a broker; what is sent over it arrives in that order, and is served one by one (BRK-13)."""

    broker: Broker
    life: int
    under_way: list[Sending] = field(default_factory=list)
    _free_at: float = 0.0
    _arrived: deque[Produced] = field(default_factory=deque)

    @property
    def is_lost(self) -> bool:
        return not self.broker.alive or self.broker.life != self.life

    def send(self, sent: Produced, now: float, held_up_ms: float) -> None:
        """Send it behind all others."""
        sent.answered = self._serve_next
        self._free_at = max(self._free_at, now + held_up_ms)
        self.broker.send(partial(self._arrive, sent), self._free_at - now)

    def _arrive(self, sent: Produced) -> None:
        self._arrived.append(sent)
        if len(self._arrived) == 1:
            self.broker.produce(sent)

    def _serve_next(self) -> None:
        self._arrived.popleft()
        if self._arrived:
            self.broker.send(partial(self.broker.produce, self._arrived[0]))


class Producer:
    """Sends for one process. ``leader_of`` knows whom to ask, until it is told to ``forget`` what it knows of all keys.

    ``encode``: makes the batch of a value, numbered so. ``renumbers``: it goes on under an epoch one higher where a batch is
    missing before another; else what is not answered then has no known outcome. ``is_fatal``: nothing goes on.
    """

    def __init__(
        self,
        brokers: Mapping[int, Broker],
        clock: Clock,
        chance: Random,
        leader_of: Callable[[int], tuple[int, int]],
        forget: Callable[[], object],
        encode: Callable[[int, int, Numbering, int], bytes],
        produced: Callable[[int, bytes], Produced],
    ) -> None:
        self._brokers, self._clock, self._chance = brokers, clock, chance
        self._leader_of, self._forget = leader_of, forget
        self._encode, self._produced = encode, produced
        self._answer_ms = chance.choice(ANSWER_MS)
        self.renumbers = True
        self.begin(Numbering(-1, -1))

    def begin(self, numbering: Numbering) -> None:
        """Number from 0 on, by that id and epoch. What is under way is nobody's any more."""
        self.numbering = numbering
        self.is_fatal = self._drains = False
        self._next = dict.fromkeys(READ, 0)
        self._next_acknowledged = dict.fromkeys(READ, 0)
        self._next_answered = dict.fromkeys(READ, 0)  # well or not, in their order
        self._waiting: list[Sending] = []  # for an outcome, in their order
        self._connections: dict[int, _Connection] = {}
        self._failed: set[int] = set()  # keys of which something has failed, and something else is under way still

    def put(self, key: int, value: int) -> Sending:
        """Have a value sent behind all others of its key, if anything goes on."""
        sequence = self._next[key]
        self._next[key] += 1
        one = Sending(key, value, sequence, self._encode(key, value, self.numbering, sequence))
        if self.is_fatal:
            one.outcome = FAIL
        else:
            self._waiting.append(one)
        return one

    def step(self) -> None:
        """Hear what has come, give up what is silent, send what is due."""
        for number, connection in list(self._connections.items()):
            self._hear(connection)
            if connection.is_lost or self._is_silent(connection):
                del self._connections[number]
                self._forget()
                for one in connection.under_way:
                    self._note_answered(one)
                    self._again(one, counts=True)
        self._waiting = [one for one in self._waiting if one.outcome is None]
        if self._drains and not any(connection.under_way for connection in self._connections.values()):
            self._number_anew()
        if not self._drains:
            self._send_due()

    # --- answers --------------------------------------------------------------------------------------------------

    def _hear(self, connection: _Connection) -> None:
        """Take the answers in the order in which was asked."""
        while (
            not self.is_fatal
            and connection.under_way
            and (sent := connection.under_way[0].sent) is not None
            and sent.code is not None
            and not connection.broker.frozen
            and not connection.is_lost
        ):
            self._take(connection.under_way.pop(0), sent.code, sent.offset)

    def _is_silent(self, connection: _Connection) -> bool:
        return bool(connection.under_way) and self._clock() - connection.under_way[0].sent_at > self._answer_ms

    def _take(self, one: Sending, code: ErrorCode, offset: int) -> None:
        is_next = self._note_answered(one)
        match code:
            case ErrorCode.NONE:
                one.offset = offset
                for other in self._waiting:
                    if other.key == one.key and other.sequence <= one.sequence:
                        other.outcome = OK
                self._next_acknowledged[one.key] = one.sequence + 1
            case ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if one.sequence > self._next_acknowledged[one.key]:
                self._drain(one)
            case ErrorCode.UNKNOWN_PRODUCER_ID if is_next and not one.tries:
                self._drain(one)
            case _ if code in _REFRESHES:
                self._forget()
                self._again(one, counts=False)
            case _ if code in _RETRIES:
                self._again(one, counts=True)
            case _:
                self._end()

    def _note_answered(self, one: Sending) -> bool:
        """Tell whether all before it have been answered, or given up, too."""
        is_next = one.sequence == self._next_answered[one.key]
        self._next_answered[one.key] += is_next
        return is_next

    def _again(self, one: Sending, *, counts: bool) -> None:
        one.sent = None
        one.tries += counts
        self._failed.add(one.key)
        backoff_ms = _BACKOFF_MS * 2 ** max(one.tries - 1, 0) * (1 - _JITTER + 2 * _JITTER * self._chance.random())
        one.due = self._clock() + min(backoff_ms, _LONGEST_BACKOFF_MS)

    def _drain(self, one: Sending) -> None:
        """Go on in another epoch once nothing is under way, or end."""
        if self.renumbers:
            self._drains = True
            self._again(one, counts=False)
        else:
            self._end()

    def _end(self) -> None:
        """Vouch for nothing that is not answered."""
        self.is_fatal = True
        for one in self._waiting:
            one.outcome = one.outcome or INFO

    def _number_anew(self) -> None:
        self._drains = False
        self.numbering = self.numbering._replace(epoch=self.numbering.epoch + 1)
        self._next = dict.fromkeys(READ, 0)
        self._next_acknowledged = dict.fromkeys(READ, 0)
        self._next_answered = dict.fromkeys(READ, 0)
        for one in self._waiting:
            one.sequence = self._next[one.key]
            self._next[one.key] += 1
            one.data = self._encode(one.key, one.value, self.numbering, one.sequence)

    # --- requests -------------------------------------------------------------------------------------------------

    def _send_due(self) -> None:
        over = {one.key: connection for connection in self._connections.values() for one in connection.under_way}
        self._failed &= over.keys()
        held_back = set(self._failed)
        for one in self._waiting:
            if one.sent is None and one.key not in held_back:
                if connection := self._connection_for(one, over):
                    over[one.key] = connection
                    self._send(one, connection)
                else:
                    held_back.add(one.key)

    def _connection_for(self, one: Sending, over: Mapping[int, _Connection]) -> _Connection | None:
        """Return that to its leader, if it is due and may go: over another one nothing of its key is under way."""
        if self._clock() < one.due:
            return None
        leader, _ = self._leader_of(one.key)
        if not leader or not self._brokers[leader].alive:
            self._forget()
            return None
        broker = self._brokers[leader]
        connection = self._connections.setdefault(leader, _Connection(broker, broker.life))
        is_free = not connection.is_lost and len(connection.under_way) < _IN_FLIGHT
        return connection if is_free and over.get(one.key, connection) is connection else None

    def _send(self, one: Sending, connection: _Connection) -> None:
        one.sent, one.sent_at = self._produced(one.key, one.data), self._clock()
        connection.under_way.append(one)
        connection.send(one.sent, one.sent_at, held_up_ms(self._chance))
