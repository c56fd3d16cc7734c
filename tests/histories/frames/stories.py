"""Two short stories of librdkafka clients, written down as a history: a group that shares and leaves, and transactions.

Each waits for what it is about, however often clients have to try: a story whose broker dies takes longer, and no turn is
left out.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException

from tests.histories.clients.client import Cell, Client
from tests.histories.clients.librdkafka import Librdkafka
from tests.histories.clients.values import PARTITIONS, topic_of
from tests.histories.frames.record import Record
from tests.histories.history import FAIL, OK
from tests.histories.workload import ABORT, COMMIT, Keys, Worker
from tests.histories.writer import HistoryWriter
from tests.waiting import eventually

_PROCESSES: Final = 100  # of one actor: the next one's are above
_HEARTBEAT_MS: Final = 200  # so often a member hears what became of its group
_STANDS_STILL_S: Final = 30  # librdkafka asks for committed offsets only once where the coordinator has just moved
_POLL: Final[list[list[Any]]] = [["poll"], ["offsets", None]]


class Tale:
    """What the actors of one story have in common: keys of its own, and what became of their values so far."""

    def __init__(self, number: int, bootstrap: str, cell: Cell, writer: HistoryWriter, record: Record) -> None:
        first = number * 2 * PARTITIONS
        self.sources = list(range(first, first + PARTITIONS))
        self.outputs = list(range(first + PARTITIONS, first + 2 * PARTITIONS))
        self.name = f"tale-{number}"
        self.bootstrap, self.cell, self.writer, self.record = bootstrap, cell, writer, record
        self.values = Keys()  # numbers them
        self.acknowledged: set[int] = set()
        self.read: set[int | None] = set()
        self.numbers = itertools.count()
        self.present: list[Actor] = []
        self.transaction_timeout_ms = 10_000  # so long, at worst, one that is left open keeps the last reading waiting
        self.turns = 0
        self.still = 0  # how often a client got nowhere until it was replaced, or its connections were ended

    @property
    def moves(self) -> int:
        """A number that grows as long as anything happens."""
        return self.turns + self.writer.count

    @property
    def topics(self) -> tuple[str, str]:
        return topic_of(self.sources[0]), topic_of(self.outputs[0])

    @contextlib.contextmanager
    def actor(self, name: str, cell: Cell | None = None, group: str | None = None) -> "Iterator[Actor]":
        """Have an actor who leaves at the end."""
        actor = Actor(self, name, cell or self.cell, group)
        self.present.append(actor)
        try:
            yield actor
        finally:
            self.present.remove(actor)
            actor.leave()

    def is_read(self) -> bool:
        """Tell whether all that was acknowledged was polled."""
        return self.acknowledged <= self.read

    def until(self, done: Callable[[], bool], title: str, *turns: Callable[[], object]) -> None:
        """Have these turns taken until that is so; members who get nowhere for long are replaced, as people would do."""
        over = time.monotonic() + _STANDS_STILL_S

        def taken() -> bool:
            nonlocal over
            for turn in turns:
                turn()
                self.turns += 1
            if (is_done := done()) or time.monotonic() < over:
                return is_done
            over = time.monotonic() + _STANDS_STILL_S
            for actor in self.present:
                if actor.is_member:
                    self.still += 1
                    actor.leave()
            return False

        eventually(taken, f"{self.name}: {title}")


class Actor(Worker):
    """A worker that does what a story says: one process after the other, by one client id."""

    def __init__(self, tale: Tale, name: str, cell: Cell, group: str | None) -> None:
        number = next(tale.numbers) * _PROCESSES
        super().__init__(number, 1, number, tale.bootstrap, cell, tale.values, tale.writer, _no_facts)
        self._tale, self._name, self._group = tale, name, group
        self._subscribes = group is not None
        self._outputs = tale.outputs
        self._transactional_id = f"{tale.name}-{name}"
        self.polled: set[int | None] = set()

    @property
    def is_member(self) -> bool:
        return self._group is not None

    @property
    def client(self) -> Client:
        """What its present process has."""
        eventually(self._is_open, f"{self._tale.name}: {self._name} to have its coordinator")
        assert self._client is not None
        return self._client

    def send(self) -> None:
        """Send a value to each source; more, if it is not known of as many that they arrived."""
        tale = self._tale
        wanted = len(tale.acknowledged) + len(tale.sources)
        tale.until(lambda: len(tale.acknowledged) >= wanted, "values to be acknowledged", self._send_once)

    def _send_once(self) -> None:
        client = self.client
        self._do(client, [["send", key, *self._keys.values(1)] for key in self._tale.sources])

    def send_more(self) -> None:
        """The same, when all before is read."""
        if self._tale.is_read():
            self.send()

    def poll(self) -> None:
        """Poll and commit."""
        self._do(self.client, _POLL)

    def transform(self) -> None:
        """Consume, transform and produce, if there is something."""
        client = self.client
        if runs := client.poll():
            self._transform(client, runs)

    def write(self, key: int, end: str) -> None:
        """Send a value in a transaction that is ended so."""
        self._transact(self.client, [["send", key, *self._keys.values(1)]], end)

    def is_alive(self) -> bool:
        """Tell whether a heartbeat was heard of it."""
        return self._tale.record.asked["Heartbeat", self._name] > 0

    def leave(self) -> None:
        """Close what its process has, which crashes for the history; asked for more it goes on as another."""
        self._crash()

    def _is_open(self) -> bool:
        if self._client is None:
            self._open()
        return self._client is not None

    def _open(self) -> None:
        with contextlib.suppress(KafkaException):  # its coordinator cannot be reached just now: another attempt follows
            self._client = Librdkafka(
                self._bootstrap,
                self._cell,
                self._process,
                group=self._group,
                transactional_id=self._transactional_id if self._cell.transactional else None,
                transaction_timeout_ms=self._tale.transaction_timeout_ms,
                clock=self._writer.now,
                client_id=self._name,
                heartbeat_ms=_HEARTBEAT_MS,
                generation_of=self._tale.record.generation_of,
            )
            if self._group is not None:
                self._take_keys(self._client, self._tale.sources, from_start=True)

    def _write(self, kind: str, f: str, value: Any = None, **more: Any) -> None:
        super()._write(kind, f, value, **more)
        for part in value if kind != "invoke" and f in ("send", "poll", "txn") else ():
            if part[0] == "poll" and kind != FAIL:  # of a transaction that may have been committed nothing comes again
                self.polled.update(polled for pairs in part[1].values() for _, polled in pairs)
                self._tale.read.update(self.polled)
            elif part[0] == "send" and part[3] == OK and f == "send":
                self._tale.acknowledged.add(part[2][1])


def _no_facts(what: str, keys: Sequence[int]) -> dict[int, Any]:
    raise AssertionError("nobody asks for facts in a story")


def group(tale: Tale) -> None:
    """Anna reads what the writer sends; Bert comes and has a share; he leaves, and all is hers again."""
    with tale.actor("writer") as writer, tale.actor("anna", group=tale.name) as anna:
        writer.send()
        tale.until(tale.is_read, "anna to read all", anna.poll)
        with tale.actor("bert", group=tale.name) as bert:
            tale.until(lambda: bool(bert.polled), "bert to have a share", writer.send_more, anna.poll, bert.poll)
            tale.until(tale.is_read, "both to read all", anna.poll, bert.poll)
        writer.send()
        tale.until(tale.is_read, "anna to read all by herself", anna.poll)


def transaction(tale: Tale) -> None:
    """Tom makes of each value another, both in one transaction; one of his he takes back, and goes on."""
    with tale.actor("writer", Cell("assign", "idempotent")) as writer, tale.actor("tom", group=tale.name) as tom:
        writer.send()
        tale.until(tale.is_read, "tom to transform all", tom.transform)
        tom.write(tale.outputs[0], ABORT)
        tom.write(tale.outputs[1], COMMIT)
        writer.send()
        tale.until(lambda: tale.is_read() and tom.is_alive(), "tom to transform the rest", tom.transform)


ACTORS: Final = ("writer", "anna", "bert", "tom")
STORIES: Final[Mapping[str, tuple[Callable[[Tale], None], Cell]]] = {
    "group": (group, Cell("subscribe", "idempotent")),
    "transaction": (transaction, Cell("subscribe", "transactional")),
}
