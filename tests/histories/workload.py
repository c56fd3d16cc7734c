"""What the clients of a run do: a function of the seed and of what was answered so far."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException

from tests.histories.clients.aiokafka import AioKafka
from tests.histories.clients.client import AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA, Cell, Client, Ended, Runs
from tests.histories.clients.kafka_python import KafkaPython
from tests.histories.clients.librdkafka import Librdkafka
from tests.histories.history import FAIL, INFO, OK, Process

ACTIVE: Final = 8
VALUES_A_KEY: Final = 256  # then another takes its place
VALUES_A_COMPACTED_KEY: Final = 1024
_MEMBERS, _TRANSFORMERS = 6, 12  # workers in a row whose members, and whose transformers, are a group
COMMIT, ABORT, LEAVE = "commit", "abort", "leave"  # how a transaction is meant to end; LEAVE: by its time-out
OUTPUTS: Final = (1_000_000, 1_000_001)  # keys that consume-transform-produce writes to, and nobody else
_CLIENTS: Final[Mapping[str, Callable[..., Client]]] = {
    LIBRDKAFKA: Librdkafka,
    KAFKA_PYTHON: KafkaPython,
    AIOKAFKA: AioKafka,
}
_SOURCES_A_TRANSACTION: Final = 6
_SOME_BYTES: Final = 2000  # some twenty values
_TOMBSTONES: Final = 0.1  # of the values of compacted keys
_ABORTED, _LEFT = 0.1, 0.02  # of transactions


class Keys:
    """The keys of a run, of which a few are active; full ones retire."""

    def __init__(self, *, compacted: bool = False) -> None:
        self._lock = threading.Lock()
        self._limit = VALUES_A_COMPACTED_KEY if compacted else VALUES_A_KEY
        self._active = list(range(ACTIVE))
        self._counts = dict.fromkeys(self._active, 0)
        self._next_value = 1

    def all(self) -> list[int]:
        with self._lock:
            return sorted(self._counts)

    def active(self) -> list[int]:
        with self._lock:
            return list(self._active)

    def count(self, key: int) -> int:
        """Return how many values the key was given so far."""
        with self._lock:
            return self._counts.get(key, 0)

    @property
    def limit(self) -> int:
        """Return how many values make a key full."""
        return self._limit

    def draw(self, *places: int) -> list[tuple[int, int]]:
        """Return of each place the active key in it, and the next value for it: of all that an operation sends at once."""
        with self._lock:
            return [(self._count(place), self._take()) for place in places]

    def _count(self, place: int) -> int:
        key = self._active[place]
        self._counts[key] += 1
        if self._counts[key] == self._limit:
            new = len(self._counts)
            self._active[place], self._counts[new] = new, 0
        return key

    def values(self, count: int) -> list[int]:
        """Return so many values for keys of one's own."""
        with self._lock:
            return [self._take() for _ in range(count)]

    def _take(self) -> int:
        self._next_value += 1
        return self._next_value - 1


def draw_place(chance: random.Random) -> int:
    """Draw the place of an active key, each twice as likely as the one before."""
    return chance.choices(range(ACTIVE), [1 << n for n in range(ACTIVE)])[0]


def group_of(number: int, *, transforming: bool) -> str:
    """Return the group of the worker with that number. Those of one group are of several processes.

    A group in which many subscribe anew, each for itself, is never done with sharing: so there are several, of few.
    """
    return f"transformers-{number // _TRANSFORMERS}" if transforming else f"members-{number // _MEMBERS}"


def transforms(number: int, cell: Cell) -> bool:
    """Tell whether the worker with that number consumes, transforms and produces."""
    return cell.transforms and number % 3 == 2


def groups_of(workers: int, cell: Cell) -> list[str]:
    """Return the groups of so many workers."""
    found = {
        group_of(number, transforming=own)
        for number in range(workers)
        if (own := transforms(number, cell)) or cell.via == "subscribe"
    }
    return sorted(found)


class Drawn(Protocol):
    """What workers take keys and values from: a run's Keys, or those in another process."""

    def draw(self, *places: int) -> list[tuple[int, int]]: ...
    def values(self, count: int) -> list[int]: ...
    def active(self) -> list[int]: ...


class Writer(Protocol):
    """Where workers write what they do: a HistoryWriter, or one in another process."""

    def write(self, process: Process, kind: str, f: str, value: Any = None, **more: Any) -> int: ...
    def now(self) -> int: ...


class Worker:
    """One thread's processes, one after the other: each ends with an operation whose outcome is unknown, or a crash."""

    def __init__(
        self,
        number: int,
        workers: int,
        seed: int,
        bootstrap: str,
        cell: Cell,
        keys: Drawn,
        writer: Writer,
        facts: Callable[[str, Sequence[int]], dict[int, Any]],
        connect: Callable[..., Client] | None = None,
    ) -> None:
        self._chance = random.Random(f"{seed}-{number}")
        self._process, self._workers = number, workers
        self._bootstrap, self._cell, self._keys, self._writer, self._facts = bootstrap, cell, keys, writer, facts
        self._connect = connect or _CLIENTS[cell.client]
        self._unpolled: dict[
            int, int
        ] = {}  # of each key: the newest value that was sent and not polled here, newest last
        self._used: dict[int, None] = {}  # the keys that this process sent to or polled of, newest last
        self._transforms = transforms(number, cell)
        self._subscribes = cell.via == "subscribe" or self._transforms
        self._outputs: Sequence[int] = OUTPUTS
        self._transactional_id = f"{seed}-{number}"
        self._client: Client | None = None

    def run(self, stop: threading.Event) -> None:
        """Operate until told to stop."""
        while not stop.is_set():
            if self._client is None:
                self._open()
            else:
                self._operate(self._client)
        self._crash()

    # --- processes

    def _open(self) -> None:
        group = group_of(self._process % self._workers, transforming=self._transforms) if self._subscribes else None
        try:
            self._client = self._connect(
                self._bootstrap,
                self._cell,
                self._process,
                group=group,
                transactional_id=self._transactional_id if self._cell.transactional else None,
                records_a_poll=self._records_a_poll(),
                bytes_a_fetch=self._bytes_a_fetch(),
                clock=self._writer.now,
            )
        except KafkaException:
            return  # its coordinator cannot be reached just now: another attempt follows
        self._take_keys(self._client, self._keys.active(), from_start=True)

    def _records_a_poll(self) -> int:
        if self._transforms:
            return _SOURCES_A_TRANSACTION
        return 2 if self._subscribes and self._chance.random() < 1 / 3 else 100

    def _bytes_a_fetch(self) -> int:
        """Draw how much a fetch waits for. All who are assigned a key read all of it: most wait for some values at once."""
        return _SOME_BYTES if not self._subscribes and self._chance.random() < 2 / 3 else 1

    def _over(self) -> None:
        """Go on as another process; now and then one that fences the one before."""
        if self._client is not None:
            self._client.close()
        self._client = None
        self._used.clear()
        self._process += self._workers
        if self._chance.random() > 0.1:
            self._transactional_id = f"{self._transactional_id.partition('/')[0]}/{self._process}"

    def _crash(self) -> None:
        if self._client is not None:
            self._write("invoke", "crash")
            self._write(INFO, "crash")
            self._over()

    def _write(self, kind: str, f: str, value: Any = None, **more: Any) -> None:
        client = self._client
        assert client is not None
        who: dict[str, Any] = {} if client.group is None else {"group": client.group}
        if client.group is not None and kind != "invoke":
            who["member"] = client.member
            if client.events:
                who["rebalance"], client.events = client.events, []
        line = self._writer.write(self._process, kind, f, value, **who, **more)
        if kind == "invoke":
            client.line = line

    # --- operations

    def _operate(self, client: Client) -> None:
        drawn = self._chance.random()
        if drawn < 1 / 64:
            self._take_keys(client, self._choose_keys(), from_start=self._chance.random() < 0.1)
        elif drawn < 1 / 64 + 1 / 200:
            self._ask(client)
        elif drawn < 1 / 64 + 1 / 200 + 1 / 600:
            self._crash()
        elif self._transforms:
            self._transform(client, client.poll())
        else:
            self._send_and_poll(client)

    def _choose_keys(self) -> list[int]:
        """Choose of the keys just used; now and then those come too that were sent what was not polled.

        Who has used none yet has the active ones to choose from. So has who transforms: it sends to no key that anybody
        takes, and would never come to a new one.
        """
        used = list(self._used)[-ACTIVE:]
        if self._transforms or not used:
            used = self._keys.active()
        chosen = set(self._chance.sample(used, self._chance.randint(min(2, len(used)), len(used))))
        if self._chance.random() < 1 / 3:
            chosen.update(list(self._unpolled)[-ACTIVE:])
        return sorted(chosen)

    def _take_keys(self, client: Client, keys: list[int], *, from_start: bool) -> None:
        f = "subscribe" if self._subscribes else "assign"
        more = {"from": "start"} if from_start and not self._subscribes else {}
        self._write("invoke", f, keys)
        if self._subscribes:
            client.subscribe(keys)
        else:
            client.assign(keys, from_start=from_start)
        self._write(OK, f, keys, **more)

    def _ask(self, client: Client) -> None:
        f = self._chance.choice(["ends", "committed"]) if client.group else "ends"
        keys = self._keys.active()
        self._write("invoke", f)
        try:
            told = self._facts(f if f == "ends" else str(client.group), keys)
        except (KafkaException, RuntimeError):
            self._write(FAIL, f)
        else:
            self._write(OK, f, told, **({"isolation": "read_uncommitted"} if f == "ends" else {}))

    def _send_and_poll(self, client: Client) -> None:
        asked: list[list[Any]] = []
        sends: list[tuple[int, bool]] = []  # of each the place of its key, and whether it is a tombstone
        for _ in range(self._chance.randint(1, 4)):
            if self._chance.random() < 0.5:
                asked.append(["poll"])
                if self._subscribes and not self._cell.transactional:
                    asked.append(["offsets", None])
            else:
                place = draw_place(self._chance)
                sends.append((place, self._cell.compacted and self._chance.random() < _TOMBSTONES))
                asked.append(["send"])
        drawn = self._keys.draw(*(place for place, _ in sends)) if sends else []
        waiting = [part for part in asked if part[0] == "send"]
        for part, (key, value), (_, is_tombstone) in zip(waiting, drawn, sends, strict=True):
            part += [key, -value if is_tombstone else value]
        kinds = {part[0] for part in asked}
        if self._cell.transactional:
            if self._subscribes and "poll" in kinds:
                asked.append(["offsets", None])
            self._transact(client, asked, self._draw_end())
        else:
            self._do(client, asked)

    def _draw_end(self) -> str:
        drawn = self._chance.random()
        return LEAVE if drawn < _LEFT else ABORT if drawn < _LEFT + _ABORTED else COMMIT

    def _note(self, done: "_Parts", *, happened: bool) -> None:
        """Note what was sent and what was polled; outputs are nobody's keys to take."""
        for part in done.told:
            if part[0] == "send" and part[1] not in self._outputs:
                self._use(part[1])
                if part[3] == OK and happened:
                    self._unpolled.pop(part[1], None)
                    self._unpolled[part[1]] = part[2][1]
            elif part[0] == "poll":
                for key, pairs in part[1].items():
                    self._use(key)
                    if key in self._unpolled and any(value == self._unpolled[key] for _, value in pairs):
                        del self._unpolled[key]

    def _use(self, key: int) -> None:
        self._used.pop(key, None)
        self._used[key] = None

    def _do(self, client: Client, asked: list[list[Any]]) -> None:
        """Do an operation that is no transaction."""
        kinds = {part[0] for part in asked}
        f = "mixed" if len(kinds & {"send", "poll"}) == 2 else "send" if "send" in kinds else "poll"
        self._write("invoke", f, asked)
        done = _Parts(client, asked)
        done.play()
        self._note(done, happened=True)
        over = done.type == INFO or client.broken
        self._write(done.type, f, done.told, **done.sent_in, **({"end": True} if over else {}))
        if over:
            self._over()

    def _transact(self, client: Client, asked: list[list[Any]], end: str, polled: Runs | None = None) -> None:
        """Do a transaction and end it so, or take it back if a part of it fails; ``polled``: what it consumes, if known."""
        self._write("invoke", "txn", asked)
        done = _Parts(client, asked, transactional=True, polled=polled)
        try:
            client.begin()
        except KafkaException:
            done.give_up()
            ended = Ended(FAIL, False, None)
        else:
            done.play()
            if end == LEAVE:
                ended = Ended(FAIL, False, None)  # left open until its time is up
            elif done.failed or end == ABORT:
                ended = client.abort_transaction()
            else:
                ended = client.commit_transaction()
        self._tell(client, done, ended)

    def _tell(self, client: Client, done: "_Parts", ended: Ended) -> None:
        self._note(done, happened=ended.type == OK)
        more: dict[str, Any] = {**done.sent_in}
        if ended.asked_at is not None:
            more["ended_at"] = ended.asked_at
        if not ended.goes_on:
            more["end"] = True
        self._write(ended.type, "txn", done.told, **more)
        if not ended.goes_on:
            self._over()
        elif ended.type == FAIL:
            client.seek_back(done.firsts)

    def _transform(self, client: Client, runs: Runs) -> None:
        """Consume, transform, produce: each value polled becomes another, and the offsets go with them."""
        sources = [(key, offset) for key, pairs in runs.items() for offset, _ in pairs]
        values = self._keys.values(len(sources)) if sources else ()
        outputs = [
            (self._chance.choice(self._outputs), value, list(source))
            for value, source in zip(values, sources, strict=True)
        ]
        asked: list[list[Any]] = [["poll"], *(["send", *output] for output in outputs), ["offsets", None]]
        self._transact(client, asked, self._draw_end(), runs)


class _Parts:
    """The micro-operations of one operation as they are done; what was not come to certainly did not happen."""

    def __init__(
        self, client: Client, asked: list[list[Any]], *, transactional: bool = False, polled: Runs | None = None
    ) -> None:
        self.told: list[list[Any]] = []
        self.failed = False
        self.firsts: dict[int, int] = {}  # of each key polled: where it began, since it was assigned
        self.sent_in: dict[str, int | None] = {}  # the generation of the newest commit that was taken, if it is known
        self._client, self._asked, self._transactional, self._polled = client, asked, transactional, polled
        self._to_commit: dict[int, int] = {}

    @property
    def type(self) -> str:
        """What an operation without a transaction is: unknown as soon as one of its sends, or a poll, is."""
        if self.failed or any(part[0] == "send" and part[3] == INFO for part in self.told):
            return INFO
        sends = [part for part in self.told if part[0] == "send"]
        return FAIL if sends and all(part[3] == FAIL for part in sends) and len(sends) == len(self.told) else OK

    def play(self) -> None:
        place = 0
        while place < len(self._asked) and not self.failed:
            count = 1
            match self._asked[place][0]:
                case "send":
                    while place + count < len(self._asked) and self._asked[place + count][0] == "send":
                        count += 1
                    self._send(self._asked[place : place + count])
                case "poll":
                    self._poll()
                case "offsets":
                    self._commit()
            place += count
        self.give_up()

    def give_up(self) -> None:
        """Tell what was not come to as what it is: it did not happen."""
        for part in self._asked[len(self.told) :]:
            match part[0]:
                case "send":
                    self.told.append(["send", part[1], [None, part[2]], FAIL, *part[3:]])
                case "poll":
                    self.told.append(["poll", {}])
                case "offsets":
                    self.told.append(["offsets", {}, FAIL])

    def _send(self, parts: list[list[Any]]) -> None:
        outcomes = self._client.send([(part[1], part[2]) for part in parts])
        for part, (offset, outcome) in zip(parts, outcomes, strict=True):
            self.told.append(["send", part[1], [offset, part[2]], outcome, *part[3:]])
        self.failed |= self._transactional and any(outcome != OK for _, outcome in outcomes)

    def _poll(self) -> None:
        heard = len(self._client.events)
        try:
            runs = self._client.poll() if self._polled is None else self._polled
        except KafkaException:
            runs, self.failed = {}, True
        for event in self._client.events[heard:]:  # of one call librdkafka delivers only what came afterwards
            event["part"] = len(self.told)
            for key in event["keys"]:  # where it was before is of no use: its group may have gone on meanwhile
                self.firsts.pop(key, None)
        self.told.append(["poll", runs])
        for key, pairs in runs.items():
            self.firsts.setdefault(key, pairs[0][0])
            self._to_commit[key] = pairs[-1][0] + 1

    def _commit(self) -> None:
        began = self._client.began  # below that it commits nothing, should its consumer go back by itself
        offsets = {
            key: to for key, to in self._to_commit.items() if key in self._client.positions and to >= began.get(key, 0)
        }
        self._to_commit = {}
        outcome = OK
        generation = self._client.generation if offsets else None
        if offsets and self._transactional:
            try:
                self._client.send_offsets(offsets)
            except KafkaException:
                outcome, self.failed = INFO, True
        elif offsets:
            outcome = self._client.commit(offsets)
        if offsets and outcome == OK:
            is_known = generation is not None and self._client.generation == generation  # else the request's may be any
            self.sent_in = {"generation": generation} if is_known else {}
        self.told.append(["offsets", offsets, outcome])
