"""A transaction coordinator on real logs, which can die at any of its writes and sends, and have a successor.

One broker leads everything on disk; to the coordinator one of the data partitions is led by another broker, so that its
markers go the way of requests. A coordinator that has died writes and sends nothing more, and answers nobody.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from kafkatool.broker.coordination.clock import CoordinatorClock
from kafkatool.broker.replication.leading.delayed_produce import AppendResults
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.storage.batches.transaction_markers import Marker, read_marker
from kafkatool.broker.transactions import endings
from kafkatool.broker.transactions.coordinator import TransactionCoordinator
from kafkatool.broker.transactions.late_markers import Sender
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite, MarkerWrites, OffsetsEnd
from kafkatool.broker.transactions.owned import Entry
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import write_txn_markers as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import CONTROL, TRANSACTIONAL, iter_batches, read_header
from tests.broker.replication.world import World, world
from tests.broker.storage.batch_builders import batch

HERE, THERE, OFFSETS = TopicPartition("here", 0), TopicPartition("there", 0), TopicPartition(OFFSETS_TOPIC, 0)
OWN = TopicPartition(TRANSACTION_TOPIC, 0)
DATA = (HERE, THERE, OFFSETS)
HOUR_MS = 3_600_000
Item = TypeVar("Item")
HoldUp = Callable[[Sequence[MarkerWrite], Callable[[], object]], bool]
"""Given markers on their way to the other broker, and what delivers them; tells whether they are held up, and given up."""


class Point(Enum):
    """When a coordinator dies, seen from one of its writes or sends."""

    BEFORE = "before"
    HALF = "in the middle of"  # the first of several partitions
    AFTER = "right after"  # nobody has heard of it


@dataclass(slots=True)
class Mortal:
    """Counts a coordinator's writes and sends; it dies at the one of that number."""

    dies_at: int | None = None
    point: Point = Point.BEFORE
    dead: bool = False
    count: int = 0
    did: list[str] = field(default_factory=list)

    def do(self, what: str, act: Callable[[bool, bool], None]) -> None:
        """Have ``act(half, heard)`` done, unless it has died."""
        if self.dead:
            return
        self.count += 1
        self.did.append(what)
        if self.count != self.dies_at:
            act(False, True)
            return
        self.dead = True
        if self.point is not Point.BEFORE:
            act(self.point is Point.HALF, False)


class _MortalAppends:
    """The appends of a broker, made by a coordinator that may die."""

    def __init__(self, appends: Any, mortal: Mortal, entries: Callable[[], Iterable[Entry]]) -> None:
        self._appends = appends
        self._mortal = mortal
        self._entries = entries

    def append(
        self, entries: Mapping[TopicPartition, Any], *, on_done: Callable[[AppendResults], None], **options: Any
    ) -> None:
        def act(half: bool, heard: bool) -> None:
            assert not any(entry.lock.locked() for entry in self._entries()), "no lock is held over an append"
            written = dict(list(entries.items())[:1]) if half else entries
            self._appends.append(written, on_done=on_done if heard else lambda _: None, **options)

        self._mortal.do(f"append to {', '.join(map(str, entries))}", act)

    def await_replicated(self, *args: Any) -> None:
        if not self._mortal.dead:
            self._appends.await_replicated(*args)


class _MortalManager:
    """A replica manager as its coordinator uses it."""

    def __init__(self, world: World, mortal: Mortal, entries: Callable[[], Iterable[Entry]]) -> None:
        self.appends = _MortalAppends(world.manager.appends, mortal, entries)
        self.partitions = world.manager.partitions
        self.verified_appends = world.manager.verified_appends


class _HeldUpError(Exception):
    """A request is on its way, and its sender has given it up."""


class _OtherBroker:
    """The broker that leads THERE, at the other end of a connection."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self._markers = stage.remote_markers
        self._mortal = stage.mortal

    def newest(self, api: Api) -> int:
        return api.max_version

    def send(self, api: Api, version: int, request: wire.WriteTxnMarkersRequest) -> wire.WriteTxnMarkersResponse:
        """Write the markers. TimeoutError: the coordinator has died, so there is nobody to answer. _HeldUpError."""
        writes = [
            MarkerWrite(
                Identity(m.producer_id, m.producer_epoch),
                Marker(m.committed, m.coordinator_epoch),
                [TopicPartition(t.topic, p) for t in m.topics for p in t.partitions],
            )
            for m in request.markers
        ]
        answers: list[wire.WriteTxnMarkersResponse] = []
        sender = self._stage.sender()
        late = lambda: self._markers.write(writes, lambda _: None, sender)  # noqa: E731
        if not self._mortal.dead and self._stage.hold_up(writes, late):
            self._stage.connections += 1
            raise _HeldUpError

        def answer(outcomes: Sequence[Codes]) -> None:
            answers.append(
                wire.WriteTxnMarkersResponse(
                    markers=[
                        wire.WriteTxnMarkersResponseMarker(
                            producer_id=write.identity.producer_id,
                            topics=[
                                wire.WriteTxnMarkersResponseTopic(
                                    topic=tp.topic,
                                    partitions=[
                                        wire.WriteTxnMarkersResponsePartition(partition=tp.partition, error_code=code)
                                    ],
                                )
                                for tp, code in codes.items()
                            ],
                        )
                        for write, codes in zip(writes, outcomes, strict=True)
                    ]
                )
            )

        def act(half: bool, heard: bool) -> None:
            assert self._markers.write(writes, answer if heard else lambda _: None, sender), "taken for late"

        self._mortal.do("WriteTxnMarkers to another broker", act)
        if not answers:
            raise TimeoutError
        return answers[0]


def _loopback(stage: "Stage") -> type:
    class Loopback(Generic[Item]):
        """``Channels`` without sockets and threads: what is put is exchanged at once."""

        def __init__(self, *args: Any) -> None:
            self._take, self._exchange, self._failed = args[-3:]

        def put(self, broker_id: int, item: Any) -> None:
            now, rest = self._take([item])
            assert rest == []
            try:
                self._exchange(broker_id, _OtherBroker(stage), now)
            except TimeoutError:
                assert stage.mortal.dead
            except _HeldUpError:
                self._failed(broker_id, now)

        def drop(self, unwanted: Callable[[Any], bool]) -> list[Any]:
            return []

        def close(self) -> None: ...

    return Loopback


class Stage:
    """The coordinator that is alive, its clients' requests, and what the logs say."""

    def __init__(self, world: World, timer: Timer, logs: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(endings, "Channels", _loopback(self))
        patch.setattr(world.scheduler, "once", lambda name, fn, *, delay_ms: world.scheduler.jobs.append(fn))
        self.world = world
        self._logs = logs
        self._timer = timer
        self.passed_ms = self.stepped_ms = 0.0  # what clocks show: both of them, the wall's beside that
        self.mortal = Mortal()
        self.deleted: set[TopicPartition] = set()
        self.ended_offsets: list[OffsetsEnd] = []
        self.hear_of_ends: list[Callable[[OffsetsEnd], None]] = [self.ended_offsets.append]
        self.connections = 0  # to the other broker, one after the other
        self.hold_up: HoldUp = lambda *_: False
        self.remote_markers = MarkerWrites(world.config, world.manager, self._end_offsets)
        self._ids = count(1000)
        self._epoch = -1
        for place in DATA:
            world.lead(place)
        world.know(OWN, HERE, OFFSETS, brokers={1: 9001, 2: 9002})
        world.know(THERE, leader=2, brokers={1: 9001, 2: 9002})
        self.succeed(Mortal())

    def succeed(self, mortal: Mortal) -> None:
        """Give the partition of the id to a new coordinator, which may die in its turn."""
        self._epoch += 1
        self.world.lead(OWN, epoch=self._epoch)
        self.succeed_here(mortal)

    def succeed_here(self, mortal: Mortal) -> None:
        """Have a new coordinator, of the partition as it is led now."""
        self.world.scheduler.jobs.clear()  # the dead one's
        self.mortal = mortal
        manager: Any = _MortalManager(self.world, mortal, self._entries)
        self.coordinator = TransactionCoordinator(
            self.world.config,
            1,
            manager,
            self.world.cache,
            self.world.scheduler,
            self._timer,
            MarkerWrites(self.world.config, manager, self._end_offsets),
            next_producer_id=lambda: next(self._ids),
            count_partitions=lambda: 1,
            find_deleted=lambda asked: self.deleted & set(asked),
            clock=CoordinatorClock(lambda: self.passed_ms, lambda: self.passed_ms + self.stepped_ms),
        )
        self.coordinator.on_leadership_change([self.world.partition(OWN)], [])
        self.settle()

    def sender(self) -> Sender:
        """Return by what the present coordinator sends its markers to the other broker."""
        return Sender(f"coordinator {self._epoch}", self.connections)

    def _end_offsets(self, end: OffsetsEnd) -> None:
        for hear in self.hear_of_ends:
            hear(end)

    def _entries(self) -> Iterable[Entry]:
        return self.coordinator.owned.all()

    def settle(self) -> None:
        """Do what is scheduled, as long as the coordinator is alive."""
        while self.world.scheduler.jobs and not self.mortal.dead:
            self.world.scheduler.jobs.pop(0)()

    def take_jobs(self) -> list[Callable[[], object]]:
        """Return what is scheduled now, to be done by the test."""
        jobs, self.world.scheduler.jobs[:] = list(self.world.scheduler.jobs), []
        return jobs

    # --- requests: the code, or None where nobody answers ---------------------------------------------------------

    def init(self, id_: str, expected: Identity | None = None) -> tuple[ErrorCode | None, Identity]:
        answers: list[tuple[ErrorCode, Identity]] = []
        self.coordinator.give_identity(id_, 60_000, expected, lambda code, given: answers.append((code, given)))
        self.settle()
        return (None, Identity(-1, -1)) if self.mortal.dead or not answers else answers[0]

    def add(self, id_: str, identity: Identity, *partitions: TopicPartition) -> ErrorCode | None:
        return self._ask(lambda done: self.coordinator.add_partitions(id_, identity, frozenset(partitions), done))

    def end(self, id_: str, identity: Identity, *, committed: bool) -> ErrorCode | None:
        return self._ask(lambda done: self.coordinator.end(id_, identity, committed=committed, done=done))

    def _ask(self, ask: Callable[[Callable[[ErrorCode], None]], None]) -> ErrorCode | None:
        answers: list[ErrorCode] = []
        ask(answers.append)
        self.settle()
        return None if self.mortal.dead or not answers else answers[0]

    def produce(self, id_: str, identity: Identity, place: TopicPartition, sequence: int = 0) -> ErrorCode:
        """Write one record of the transaction, as a leader does that has asked the coordinator."""
        records = batch(attributes=TRANSACTIONAL, producer=(*identity, sequence))
        header = read_header(records)
        assert header is not None
        results: list[AppendResults] = []
        self.world.manager.verified_appends.append(
            {place: records},
            {place: header},
            id_,
            acks=-1,
            timeout_ms=60_000,
            allow_internal_topics=True,
            on_done=results.append,
        )
        return results[0][place].error

    # --- what the logs say ----------------------------------------------------------------------------------------

    def markers(self, place: TopicPartition, producer_id: int) -> list[tuple[int, bool]]:
        """Return epoch and outcome of each marker of a producer."""
        return [(epoch, marker.committed) for epoch, marker in self._markers(place, producer_id)]

    def coordinator_epochs(self, place: TopicPartition, producer_id: int) -> list[int]:
        """Return the epoch of the coordinator that sent it, of each marker of a producer."""
        return [marker.coordinator_epoch for _, marker in self._markers(place, producer_id)]

    def _markers(self, place: TopicPartition, producer_id: int) -> list[tuple[int, Marker]]:
        data = b"".join(file.read_bytes() for file in sorted((self._logs / str(place)).glob("*.log")))
        found = []
        for position, header in iter_batches(data):
            if header.attributes & CONTROL and header.producer_id == producer_id:
                marker = read_marker(memoryview(data)[position : position + header.size_bytes])
                assert marker is not None
                found.append((header.producer_epoch, marker))
        return found

    def is_settled(self, place: TopicPartition) -> bool:
        """Tell whether no transaction is open there, and a reader sees all."""
        log = self.world.partition(place).log
        return not log.open_transactions() and log.last_stable_offset == log.log_end_offset


@contextmanager
def stage(directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Give a stage with a coordinator that does not die."""
    timer = Timer("test-transactions")
    try:
        with world(directory, transactional_id_expiration_ms=str(HOUR_MS)) as running:
            yield Stage(running, timer, directory / "logs", patch)
    finally:
        timer.close()
