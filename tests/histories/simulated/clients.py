"""The processes of the simulation: idempotent producers with several batches under way, consumers assigned to all keys."""

import heapq
from collections.abc import Callable, Generator, Iterable, Mapping
from random import Random
from typing import Any, Final

from kafkatool.broker.replication.partition.partition_reads import EARLIEST, LATEST, PartitionRead, Reader, find_offset
from kafkatool.broker.replication.partition.partition_reads import read_partition as read_of
from kafkatool.broker.storage.batches.transaction_markers import read_marker
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import AbortedTransaction, FetchRequestPartition
from kafkatool.core.protocol.messages.list_offsets import ListOffsetsRequestPartition
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    TRANSACTIONAL,
    Record,
    encode_batch,
    iter_batches,
    iter_records,
)
from tests.broker.replication.world import Clock
from tests.histories.clients.values import TEXT, decode, encode, record_key
from tests.histories.history import FAIL, INFO, OK
from tests.histories.simulated.brokers import KEYS, PATIENCE_MS, READ, Broker, Produced, held_up_ms
from tests.histories.simulated.controller import Rule
from tests.histories.simulated.coordination import Coordination
from tests.histories.simulated.producing import Numbering, Producer, Sending
from tests.histories.writer import HistoryWriter

FETCHED_BYTES: Final = 2000
_PAUSES: Final = 0.001  # of steps
_PAUSE_MS: Final = (50, 150, 500)
_TOMBSTONES: Final = 11  # each so many values one
_APART_MS: Final = (0, 0, 0, 10, 40)  # from one send to the next of an operation
_AGAIN_MS: Final = 20.0  # after a coordinator's answer that says to come again
Waits = Generator[None, None, Any]


class Box:
    """Where a coordinator's answer comes to, if one comes. ``is_late``: it was given up, and may be served yet."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.is_late = False

    def put(self, answer: Any) -> None:
        self.answer = answer


Question = Callable[[Coordination, Box], object]


class Values:
    """Values and producer ids, each given once. Of ``compacted`` ones each has a record key, and some are tombstones.

    ``may_be_renumbered``: copies of a value under another number are told for what they are by batches that stay.
    """

    def __init__(self, *, compacted: bool = False, may_be_renumbered: bool = False) -> None:
        self.compacted, self.may_be_renumbered = compacted, may_be_renumbered
        self._value = self._producer_id = 0

    def next(self) -> int:
        self._value += 1
        return -self._value if self.compacted and self._value % _TOMBSTONES == 0 else self._value

    def producer_id(self) -> int:
        self._producer_id += 1
        return self._producer_id


class Process:
    """One process: an operation at a time, each a generator that yields while it waits.

    ``questions``: the part of its operations that ask for facts.
    """

    questions = 0.03

    def __init__(
        self,
        number: int,
        chance: Random,
        brokers: Mapping[int, Broker],
        controller: Rule,
        clock: Clock,
        writer: HistoryWriter,
        values: Values,
    ) -> None:
        self.number, self.over, self.done = number, False, 0
        self.is_busy, self.is_wanted = False, True
        self._chance, self._brokers, self._controller = chance, brokers, controller
        self._clock, self._writer, self._values = clock, writer, values
        self._paused_until = 0.0
        self.is_doubted = False  # taken for dead: another begins in its place while it goes on
        self._positions = dict.fromkeys(KEYS, 0)
        self._leaders: dict[int, tuple[int, int]] = {}  # as last heard: broker and epoch
        self._newest = dict.fromkeys(READ, -1)  # epoch heard of: what an older one is told of is not taken
        self._producer = Producer(
            brokers, clock, chance, self._leader, self._leaders.clear, self._batch, self._produced
        )
        self._producer.renumbers = values.may_be_renumbered
        self._producer.begin(Numbering(values.producer_id(), 0))
        self._doing = self._life()

    def succeed(self, former: "Process") -> None:
        """Take over from a process that is over, or taken for dead."""

    def step(self) -> None:
        """Go on until it waits again; now and then it stands still for a while."""
        if self._clock() < self._paused_until:
            return
        if self.is_wanted and self._chance.random() < _PAUSES:
            self._paused_until = self._clock() + self._chance.choice(_PAUSE_MS)
        self._go_on()

    def _go_on(self) -> None:
        next(self._doing)

    def _life(self) -> Waits:
        self._begin()
        while True:
            if self.is_wanted and not self.over:
                self.is_busy = True
                yield from self._ask() if self._chance.random() < self.questions else self._operate()
                self.is_busy = False
                self.done += 1
            yield

    def _begin(self) -> None:
        self._write("invoke", "assign", list(KEYS))
        self._write(OK, "assign", list(KEYS), **{"from": "start"})

    def _write(self, kind: str, f: str, value: Any = None, **more: Any) -> None:
        self._writer.write(self.number, kind, f, value, **more)

    def _to(self, broker: int, request: Callable[[], object]) -> None:
        """Send a request, which may be held up on its way."""
        self._brokers[broker].send(request, held_up_ms(self._chance))

    def _ask_coordinator(self, number: int, question: Question, patience_ms: float = PATIENCE_MS) -> Waits:
        """Ask the leader of a coordinators' partition. The box is empty: there is none, or no answer came in time."""
        box = Box()
        state, _ = self._controller.state(number)
        broker = self._brokers[state.leader or 1]
        if state.leader is None or not broker.alive:
            yield from self._wait(_AGAIN_MS)
            return box
        life = broker.life
        self._to(broker.id, lambda: question(broker.coordination, box))
        until = self._clock() + patience_ms
        while box.answer is None or not self._is_heard(broker.id):
            if not broker.alive or broker.life != life:
                box.answer = None
                return box
            if self._clock() >= until:
                box.answer, box.is_late = None, True
                return box
            yield
        return box

    def _wait(self, ms: float) -> Waits:
        until = self._clock() + ms
        while self._clock() < until:
            yield

    # --- operations -----------------------------------------------------------------------------------------------

    def _operate(self) -> Waits:
        asked: list[list[Any]] = []
        key = self._chance.choice(KEYS)  # mostly to one key, one after the other: that is where order can break
        for _ in range(self._chance.randint(1, 3)):
            if self._chance.random() < 0.4:
                asked += self._polls()
            else:
                asked.append(["send", key if self._chance.random() < 0.8 else self._chance.choice(KEYS), 0])
                asked[-1][2] = self._values.next()
        kinds = {part[0] for part in asked if part[0] != "offsets"}
        f = "mixed" if len(kinds) == 2 else kinds.pop()
        self._write("invoke", f, asked)
        told: list[list[Any]] = []
        while len(told) < len(asked) and not self.over:
            if asked[len(told)][0] == "poll":
                yield
                told.append(["poll", self._poll()])
                continue
            if asked[len(told)][0] == "offsets":
                told.append((yield from self._commit()))
                continue
            count = 1
            while len(told) + count < len(asked) and asked[len(told) + count][0] == "send":
                count += 1
            together = asked[len(told) : len(told) + count]
            told += yield from self._send(together)
        for part in asked[len(told) :]:
            told.append(not_come_to(part))
        kind = INFO if self.over or any(part[0] == "send" and part[3] == INFO for part in told) else OK
        self.over |= kind == INFO
        self._write(kind, f, told, **({"end": True} if self.over else {}))

    def _polls(self) -> list[list[Any]]:
        """Return the parts of an operation of which one is a poll."""
        return [["poll"]]

    def _commit(self) -> Waits:
        """Commit what was polled, if there is a group to commit for."""
        raise NotImplementedError

    def _send(self, parts: list[list[Any]], patience_ms: float = PATIENCE_MS) -> Waits:
        """Send side by side, in their order; what is refused or not answered goes again."""
        under_way: list[Sending] = []
        deadline = self._clock() + patience_ms
        for _, key, value, *_ in parts:
            under_way.append(self._producer.put(key, value))
            until = min(self._clock() + self._chance.choice(_APART_MS), deadline)
            while self._clock() < until:
                self._producer.step()
                yield
        while any(one.outcome is None for one in under_way) and self._clock() < deadline:
            self._producer.step()
            yield
        return [
            ["send", one.key, [one.offset, one.value], one.outcome or INFO, *part[3:]]
            for one, part in zip(under_way, parts, strict=True)
        ]

    def _produced(self, key: int, data: bytes) -> Produced:
        return Produced(key, data)

    def _batch(self, key: int, value: int, numbering: Numbering, sequence: int, attributes: int = 0) -> bytes:
        record = self._record(value, encode(value, key, self.number))
        return bytes(
            encode_batch(
                [record],
                producer_id=numbering.producer_id,
                producer_epoch=numbering.epoch,
                base_sequence=sequence,
                attributes=attributes,
            )
        )

    def _record(self, value: int, text: bytes) -> Record:
        if not self._values.compacted:
            return Record(0, 1000, None, text, ())
        key = record_key(value)
        return Record(0, 1000, key, text) if value > 0 else Record(0, 1000, key, None, ((TEXT, text),))

    def _poll(self) -> dict[int, list[tuple[int, int | None]]]:
        runs: dict[int, list[tuple[int, int | None]]] = {}
        for key in self._chance.sample(KEYS, 2):
            pairs = self._fetched(key)
            if pairs:
                runs[key] = pairs
        return runs

    def _fetched(self, key: int) -> list[tuple[int, int | None]]:
        """Read on, and move the position behind what was read."""
        leader, epoch = self._leader(key)
        if not self._is_heard(leader):
            self._leaders.pop(key, None)
            return []
        read = fetch(self._brokers[leader], key, self._positions[key], epoch)
        if read.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_anew(key)
        elif read.error is not ErrorCode.NONE:
            self._leaders.pop(key, None)
        if read.error is not ErrorCode.NONE:
            return []
        pairs, self._positions[key] = records_of(read.records, read.aborted, self._positions[key])
        return pairs

    def _begin_anew(self, key: int) -> None:
        """Go to the start of a key, as ``auto.offset.reset`` has its consumer do."""
        leader, epoch = self._leader(key)
        self._positions[key] = start_of(self._brokers[leader], key, epoch) or 0

    def _ask(self) -> Waits:
        self._write("invoke", "ends")
        yield
        told: dict[int, tuple[int, int]] = {}
        for key in KEYS:
            state, _ = self._controller.state(key)
            leader, epoch = state.leader or 0, state.leader_epoch  # who is behind may tell an end that has gone on
            self._leaders[key], self._newest[key] = (leader, epoch), epoch
            start = start_of(self._brokers[leader], key, epoch) if self._is_heard(leader) else None
            end = None if start is None else end_of(self._brokers[leader], key, epoch)
            if start is None or end is None:
                self._write(FAIL, "ends", isolation="read_uncommitted")
                return
            told[key] = start, end
        self._write(OK, "ends", told, isolation="read_uncommitted")

    # --- what it knows --------------------------------------------------------------------------------------------

    def _leader(self, key: int) -> tuple[int, int]:
        if key not in self._leaders:
            leader, epoch = self._controller.told(key, self._chance)
            is_old = epoch < self._newest[key]
            self._newest[key] = max(epoch, self._newest[key])
            self._leaders[key] = 0 if is_old else leader, epoch
        return self._leaders[key]

    def _is_heard(self, broker: int) -> bool:
        return broker != 0 and self._brokers[broker].alive and not self._brokers[broker].frozen


def not_come_to(part: list[Any]) -> list[Any]:
    match part[0]:
        case "poll":
            return ["poll", {}]
        case "offsets":
            return ["offsets", {}, FAIL]
    return ["send", part[1], [None, part[2]], FAIL, *part[3:]]


def fetch(broker: Broker, key: int, offset: int, epoch: int = -1) -> PartitionRead:
    """Read as a consumer what is committed, from what that broker takes for its own."""
    wanted = wanted_of(key, epoch, offset)
    return read_of(broker.partitions[key], wanted, Reader(-1, committed=True), FETCHED_BYTES, min_one_batch=True)


def wanted_of(key: int, epoch: int, offset: int) -> FetchRequestPartition:
    return FetchRequestPartition(
        partition=key, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=FETCHED_BYTES
    )


def end_of(broker: Broker, key: int, epoch: int = -1) -> int | None:
    """Ask for the end of a key; None: not told."""
    return _edge_of(broker, key, epoch, LATEST)


def start_of(broker: Broker, key: int, epoch: int = -1) -> int | None:
    """Ask for the start of a key; None: not told."""
    return _edge_of(broker, key, epoch, EARLIEST)


def _edge_of(broker: Broker, key: int, epoch: int, edge: int) -> int | None:
    if key not in broker.partitions:
        return None
    wanted = ListOffsetsRequestPartition(partition=key, current_leader_epoch=epoch, timestamp=edge)
    found = find_offset(broker.partitions[key], wanted, Reader(-1), 5)
    return None if found.error else found.offset


def records_of(
    records: FileRegion | bytes | bytearray | memoryview, aborted_ones: Iterable[AbortedTransaction] | None, offset: int
) -> tuple[list[tuple[int, int | None]], int]:
    """Take offsets and values out of what was read, from ``offset`` on, and where to read on.

    What aborted transactions wrote is left out as Kafka's consumer does it. None is what no process can have sent.
    """
    data = bytes(records.read() if isinstance(records, FileRegion) else records)
    pairs: list[tuple[int, int | None]] = []
    aborted = [(one.first_offset, one.producer_id) for one in aborted_ones or ()]
    heapq.heapify(aborted)
    skipped: set[int] = set()
    for position, header in iter_batches(data):
        batch = data[position : position + header.size_bytes]
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(heapq.heappop(aborted)[1])
        if header.attributes & CONTROL:
            marker = read_marker(batch)
            if marker is not None and not marker.committed:
                skipped.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in skipped):
            try:
                pairs += [(r.offset, decode(_text_of(r))) for r in iter_records(batch) if r.offset >= offset]
            except (CorruptRecordsError, ValueError):
                pairs.append((max(header.base_offset, offset), None))
        offset = max(offset, header.last_offset + 1)
    return pairs, offset


def _text_of(record: Record) -> bytes | None:
    return dict(record.headers).get(TEXT) if record.value is None else record.value
