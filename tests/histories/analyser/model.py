"""Right histories, made at random: a list per key, clients that take turns, transactions that hold together.

And the same with one thing changed, which a checker has to find.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.histories.history import RECORD_KEYS, RECORDS

Entry = dict[str, Any]


@dataclass
class Group:
    """A coordinator that is right: a key has one owner in a generation, and only the current one commits.

    Of a transforming group every member makes an output of each record, in the transaction that commits its offset.
    """

    name: str
    keys: range
    transforms: bool
    generation: int = 0
    members: dict[int, "Member"] = field(default_factory=dict)  # by process
    owners: dict[int, int] = field(default_factory=dict)  # key -> process
    committed: dict[int, int] = field(default_factory=dict)

    def answer(self) -> dict[int, int | None]:
        """Tell what is committed."""
        return {key: self.committed.get(key) for key in self.keys}

    def rebalance(self, chance: random.Random) -> None:
        self.generation += 1
        self.owners = {key: chance.choice(sorted(self.members)) for key in self.keys}

    def tell(self, process: int, time: int, chance: random.Random) -> list[dict[str, Any]]:
        """Tell a member what it does not know; at times what it lost in one operation, what it got in the next."""
        member = self.members[process]
        events: list[tuple[str, list[int], int]] = []
        if member.generation == self.generation:
            return []
        if member.positions:
            events.append(("revoked", sorted(member.positions), member.generation))
            member.positions, member.upto = {}, {}
            if chance.random() < 0.5:
                return [_event(*events[0], time + 1)]
        member.generation = self.generation
        member.positions = {k: self.committed.get(k, 0) for k, owner in self.owners.items() if owner == process}
        events.append(("assigned", sorted(member.positions), member.generation))
        return [_event(*event, time + 1 + at) for at, event in enumerate(events)]


@dataclass
class Member:
    """What one member knows: its generation, where it reads on, and what it may commit."""

    generation: int = 0
    positions: dict[int, int] = field(default_factory=dict)
    upto: dict[int, int] = field(default_factory=dict)


def _event(what: str, keys: list[int], generation: int, time: int) -> dict[str, Any]:
    return {"what": what, "keys": keys, "generation": generation, "time": time}


@dataclass
class Model:
    """A correct Kafka of a few keys and the clients that use it; steps of operations interleave.

    Transactions are atomic here, markers take offsets, aborted values are never polled, and a consumer goes on where it
    was. ``entries`` is the history so far.
    """

    chance: random.Random
    keys: int = 3
    workers: int = 5
    transactions: bool = True
    mixed: bool = True  # operations that send and poll
    with_groups: bool = False  # two members that commit what they polled, two that transform, to the last key
    entries: list[Entry] = field(default_factory=list)
    logs: list[list[int | None]] = field(default_factory=list)  # values; None is a marker, or was aborted
    positions: dict[int, list[int]] = field(default_factory=dict)
    next_value: int = 1

    def run(self, operations: int) -> list[Entry]:
        """Play operations, some at the same time; then read everything."""
        self.logs = [[] for _ in range(self.keys)]
        transforming = Group("t", range(self.keys - 1), transforms=True)
        self.groups = [Group("g", range(self.keys), transforms=False), transforming] if self.with_groups else []
        under_way: list[tuple[int, Callable[[], None]]] = []
        self.processes = list(range(self.workers + 2 * len(self.groups)))
        free = list(self.processes)
        while operations or under_way:
            if operations and free and (not under_way or self.chance.random() < 0.5):
                operations -= 1
                worker = free.pop(self.chance.randrange(len(free)))
                begin = self._begin if worker < self.workers else self._begin_of_group
                under_way.append((worker, begin(worker)))
            else:
                worker, end = under_way.pop(self.chance.randrange(len(under_way)))
                end()
                free.append(worker)
        self._read_all()
        return self.entries

    def _write(self, process: int, kind: str, f: str, value: Any, **more: Any) -> None:
        index = len(self.entries)
        self.entries.append(
            {"index": index, "time": index * 1000, "process": process, "type": kind, "f": f, "value": value, **more}
        )

    def _begin(self, worker: int) -> Callable[[], None]:
        """Invoke an operation; it takes effect now or at its end, and is told at its end."""
        process = self.processes[worker]
        f = self.chance.choice(["txn"] * self.transactions + ["mixed"] * self.mixed + ["send", "poll"])
        asked: list[list[Any]] = []
        for _ in range(self.chance.randint(1, 4)):
            if f == "poll" or (f != "send" and self.chance.random() < 0.5):
                asked.append(["poll"])
            else:
                asked.append(["send", self.chance.randrange(self.keys), self.next_value])
                self.next_value += 1
        self._write(process, "invoke", f, asked)
        if f == "txn":
            return lambda: self._end_transaction(worker, asked)
        told = [self._do(process, part) for part in asked] if self.chance.random() < 0.5 else None

        def end() -> None:
            done = told if told is not None else [self._do(process, part) for part in asked]
            sends = [part for part in done if part[0] == "send"]
            if sends and self.chance.random() < 0.1:
                for part in sends:
                    part[2], part[3] = [None, part[2][1]], "info"
                self._end(worker, "info", f, done)
            else:
                self._write(process, "ok", f, done)

        return end

    def _end(self, worker: int, kind: str, f: str, done: list[Any], **more: Any) -> None:
        self._write(self.processes[worker], kind, f, done, **more)
        if kind == "info":
            self.processes[worker] += len(self.processes)

    def _end_transaction(self, worker: int, asked: list[list[Any]]) -> None:
        process = self.processes[worker]
        before = list(self.positions.get(process, [0] * self.keys))
        outcome = self.chance.choice(["ok"] * 7 + ["fail"] * 2 + ["info"])
        taken_back = outcome == "fail" or (outcome == "info" and self.chance.random() < 0.5)
        done, written = [], set()
        own: list[tuple[int, int]] = []
        for part in asked:
            if part[0] == "send":
                _, key, value = part
                own.append((key, len(self.logs[key])))
                self.logs[key].append(None)
                written.add(key)
                done.append(["send", key, [len(self.logs[key]) - 1, value], outcome])
            else:
                done.append(self._do(process, part, dict(reversed(own))))
        for key in written:
            self.logs[key].append(None)  # the marker
        if not taken_back:
            values = [part[2] for part in asked if part[0] == "send"]
            for (key, offset), value in zip(own, values, strict=True):
                self.logs[key][offset] = value
        if outcome == "fail":
            self.positions[process] = before
        ended = {} if outcome == "fail" else {"ended_at": (len(self.entries) - 1) * 1000}
        self._end(worker, outcome, "txn", done, **ended)

    def _begin_of_group(self, worker: int) -> Callable[[], None]:
        """Invoke an operation of a member, to which a rebalance may be told first."""
        process, group = self.processes[worker], self.groups[(worker - self.workers) % 2]
        drawn = self.chance.random()
        if drawn < 0.1:
            self._write(process, "invoke", "committed", None)
            told = group.answer() if drawn < 0.05 else None
            return lambda: self._write(process, "ok", "committed", told or group.answer(), group=group.name)
        if drawn < 0.15 and process in group.members:
            del group.members[process]
            self._write(process, "invoke", "crash", None)
            self.processes[worker] += len(self.processes)
            return lambda: self._write(process, "ok", "crash", None)
        if process not in group.members:
            group.members[process] = Member()
            group.rebalance(self.chance)
        elif drawn < 0.25:
            group.rebalance(self.chance)
        events = group.tell(process, len(self.entries) * 1000, self.chance)
        member = group.members[process]
        more = {"group": group.name, "member": f"m{process}", "generation": member.generation, "rebalance": events}
        if group.transforms:
            return self._begin_transform(worker, group, more)
        parts: list[list[Any]] = [["poll"], ["offsets", None], ["poll"], ["offsets", None]]
        del parts[self.chance.choice([1, 2, 2, 4]) :]
        self._write(process, "invoke", "poll", parts)
        done = self._poll_and_commit(group, member, parts) if self.chance.random() < 0.5 else None
        return lambda: self._write(process, "ok", "poll", done or self._poll_and_commit(group, member, parts), **more)

    def _poll_and_commit(self, group: Group, member: Member, parts: list[list[Any]]) -> list[list[Any]]:
        done: list[list[Any]] = []
        for part in parts:
            if part[0] == "poll":
                polled: dict[int, list[list[int]]] = {}
                for key in member.positions:
                    if pairs := self._next_of(key, member.positions[key], self.chance.randint(0, 3)):
                        polled[key] = pairs
                        member.positions[key] = member.upto[key] = pairs[-1][0] + 1
                done.append(["poll", polled])
            elif not member.upto:
                done.append(["offsets", {}, "ok"])  # nothing is asked for it
            else:
                outcome = self.chance.choice(["ok"] * 8 + ["info"])
                if member.generation != group.generation:
                    outcome = "fail"
                if outcome == "ok" or (outcome == "info" and self.chance.random() < 0.5):
                    group.committed.update(member.upto)
                done.append(["offsets", dict(member.upto), outcome])
        return done

    def _next_of(self, key: int, position: int, most: int) -> list[list[int]]:
        """Return the next values of a key, with their offsets."""
        log = self.logs[key]
        return [[o, v] for o in range(position, len(log)) if (v := log[o]) is not None][:most]

    def _begin_transform(self, worker: int, group: Group, more: dict[str, Any]) -> Callable[[], None]:
        """Consume, transform and produce in one transaction; where there is nothing to consume, poll nothing."""
        process = self.processes[worker]
        member, to = group.members[process], self.keys - 1
        ready = {k: pairs for k, at in member.positions.items() if (pairs := self._next_of(k, at, 2))}
        if not ready:
            self._write(process, "invoke", "poll", [["poll"]])
            return lambda: self._write(process, "ok", "poll", [["poll", {}]], **more)
        key = self.chance.choice(sorted(ready))
        values = [self.next_value + n for n in range(len(ready[key]))]
        self.next_value += len(values)
        self._write(process, "invoke", "txn", [["poll"], *(["send", to, value] for value in values), ["offsets", None]])

        def end() -> None:
            outcome = self.chance.choice(["ok"] * 7 + ["fail"] * 2 + ["info"])
            if member.generation != group.generation:
                outcome = "fail"
            done: list[list[Any]] = [["poll", {key: ready[key]}]]
            happens = outcome == "ok" or (outcome == "info" and self.chance.random() < 0.5)
            for value, (offset, _) in zip(values, ready[key], strict=True):
                self.logs[to].append(value if happens else None)
                done.append(["send", to, [len(self.logs[to]) - 1, value], outcome, [key, offset]])
            self.logs[to].append(None)  # the marker
            upto = ready[key][-1][0] + 1
            done.append(["offsets", {key: upto}, outcome])
            if happens:
                group.committed[key] = upto
            if outcome == "ok":
                member.positions[key] = upto
            elif outcome == "info":
                del group.members[process]
            ended = {} if outcome == "fail" else {"ended_at": (len(self.entries) - 1) * 1000}
            self._end(worker, outcome, "txn", done, **ended, **more)

        return end

    def _do(self, process: int, part: list[Any], below: dict[int, int] | None = None) -> list[Any]:
        """Do a part of an operation; what a transaction wrote itself bounds what it can poll."""
        if part[0] == "send":
            _, key, value = part
            self.logs[key].append(value)
            return ["send", key, [len(self.logs[key]) - 1, value], "ok"]
        positions = self.positions.setdefault(process, [0] * self.keys)
        polled: dict[int, list[list[int]]] = {}
        for key in self.chance.sample(range(self.keys), self.chance.randint(1, self.keys)):
            end = (below or {}).get(key, len(self.logs[key]))
            upto = min(end, positions[key] + self.chance.randint(1, 6))
            pairs = [[o, v] for o in range(positions[key], upto) if (v := self.logs[key][o]) is not None]
            positions[key] = upto
            if pairs:
                polled[key] = pairs
        return ["poll", polled]

    def _read_all(self) -> None:
        process = 10_000
        everything = {key: [[o, v] for o, v in enumerate(log) if v is not None] for key, log in enumerate(self.logs)}
        ends = {key: [0, len(log)] for key, log in enumerate(self.logs)}
        for group in self.groups:
            self._write(process, "invoke", "committed", None)
            self._write(process, "ok", "committed", group.answer(), group=group.name)
        self._write(process, "invoke", "poll", [["poll"]])
        self._write(process, "ok", "poll", [["poll", {k: pairs for k, pairs in everything.items() if pairs}]])
        for f, value in (("ends", ends), ("final", {key: end for key, (_, end) in ends.items()})):
            self._write(process, "invoke", f, value)
            self._write(process, "ok", f, value)


def encode(entries: list[Entry], **options: Any) -> list[bytes]:
    """Return the lines of a file."""
    header = {"history": 1, "seed": 0, "source": "ours", "version": "", "brokers": 3, "client": "", "options": options}
    return [orjson.dumps(entry, option=orjson.OPT_NON_STR_KEYS) + b"\n" for entry in (header, *entries)]


def revalue(entries: list[Entry], chance: random.Random) -> None:
    """Give the values three record keys, and make a tombstone of one in five."""
    other: dict[int, int] = {}

    def of(value: int) -> int:
        sign = -1 if chance.random() < 0.2 else 1
        return other.setdefault(value, sign * (value * RECORD_KEYS + value % 3))

    for entry in entries:
        for part in entry["value"] if entry["f"] in RECORDS else ():
            if part[0] == "send" and entry["type"] == "invoke":
                part[2] = of(part[2])
            elif part[0] == "send":
                part[2][1] = of(part[2][1])
            elif part[0] == "poll" and entry["type"] != "invoke":
                for pair in (pair for pairs in part[1].values() for pair in pairs):
                    pair[1] = of(pair[1])


def compact(entries: list[Entry]) -> None:
    """Let the last reader find a compacted log: of each record key the newest value, or its tombstone."""
    for pairs in _final(entries).values():
        newest = {abs(value) % RECORD_KEYS: value for _, value in pairs}
        pairs[:] = [pair for pair in pairs if newest[abs(pair[1]) % RECORD_KEYS] == pair[1]]


# --- one change each: the anomalies of which at least one must be found ---------------------------------------------


def _reads(entries: list[Entry], least: int) -> list[tuple[Entry, int, list[list[int]]]]:
    """Return the runs of ok polls before the last phase that have so many values, and no rebalance."""
    return [
        (entry, key, pairs)
        for entry in entries
        if entry["type"] == "ok" and entry["process"] < 10_000 and entry["f"] in ("poll", "mixed", "txn")
        if not entry.get("rebalance")  # which excuses what it polls
        for part in entry["value"]
        if part[0] == "poll"
        for key, pairs in part[1].items()
        if len(pairs) >= least
    ]


def _final(entries: list[Entry]) -> dict[int, list[list[int]]]:
    (last,) = [
        each for each in entries if (each["process"], each["f"]) == (10_000, "poll") and each["type"] != "invoke"
    ]
    runs: dict[int, list[list[int]]] = last["value"][0][1]
    return runs


def _everywhere(entries: list[Entry], key: int, value: int, change: Callable[[list[list[int]], int], object]) -> None:
    for entry in entries:
        if entry["type"] != "invoke" and entry["f"] in ("poll", "mixed", "txn"):
            for part in entry["value"]:
                if part[0] == "poll":
                    pairs = part[1].get(key, [])
                    if (at := next((n for n, (_, v) in enumerate(pairs) if v == value), None)) is not None:
                        change(pairs, at)


def _acknowledged(entries: list[Entry]) -> list[tuple[int, int, int]]:
    return [
        (part[1], part[2][1], part[2][0])
        for entry in entries
        if entry["type"] == "ok" and entry["f"] in ("send", "mixed", "txn")
        for part in entry["value"]
        if part[0] == "send"
    ]


def drop(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let nobody ever read an acknowledged value."""
    if not (sent := _acknowledged(entries)):
        return None
    key, value, _ = chance.choice(sent)
    _everywhere(entries, key, value, lambda pairs, at: pairs.pop(at))
    return {"lost-write", "unseen"}


def skip(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Leave a value out of the middle of a poll."""
    if not (found := _reads(entries, 3)):
        return None
    _, _, pairs = chance.choice(found)
    del pairs[chance.randrange(1, len(pairs) - 1)]
    return {"int-poll-skip"}


def swap(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Give two neighbours of a poll in the other order."""
    if not (found := _reads(entries, 2)):
        return None
    _, _, pairs = chance.choice(found)
    at = chance.randrange(len(pairs) - 1)
    pairs[at], pairs[at + 1] = pairs[at + 1], pairs[at]
    return {"int-nonmonotonic-poll"}


def copy(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let a value lie at the end of its key, too."""
    runs = {key: pairs for key, pairs in _final(entries).items() if pairs}
    if not runs:
        return None
    pairs = runs[chance.choice(sorted(runs))]
    pairs.append([pairs[-1][0] + 50, chance.choice(pairs)[1]])
    return {"duplicate"}


def garble(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Deliver what nobody sent."""
    runs = {key: pairs for key, pairs in _final(entries).items() if pairs}
    if not runs:
        return None
    chance.choice(runs[chance.choice(sorted(runs))])[1] = 1_000_000
    return {"phantom"}


def move(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let two acknowledged values have one offset."""
    sent = [each for each in _acknowledged(entries) if each[2] is not None]
    pairs = [(a, b) for a in sent for b in sent if a[0] == b[0] and a[1] < b[1]]
    if not pairs:
        return None
    (_, _, offset), (key, value, _) = chance.choice(pairs)
    for entry in entries:
        if entry["type"] == "ok" and entry["f"] in ("send", "mixed", "txn"):
            for part in entry["value"]:
                if part[0] == "send" and part[1] == key and part[2][1] == value:
                    part[2][0] = offset
    return {"inconsistent-offsets"}


def abort(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Take back a transaction of which somebody read."""
    seen = {v for _, _, pairs in _reads(entries, 1) for _, v in pairs}
    found = [
        entry
        for entry in entries
        if entry["type"] == "ok" and entry["f"] == "txn"
        if any(part[0] == "send" and part[2][1] in seen for part in entry["value"])
    ]
    if not found:
        return None
    chance.choice(found)["type"] = "fail"
    return {"G1a"}


def tear(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let one of a transaction's values be read by nobody."""
    found = [
        sends
        for entry in entries
        if entry["type"] == "ok" and entry["f"] == "txn"
        if len(sends := [part for part in entry["value"] if part[0] == "send"]) > 1
    ]
    if not found:
        return None
    _, key, (_, value), *_ = chance.choice(chance.choice(found))
    _everywhere(entries, key, value, lambda pairs, at: pairs.pop(at))
    return {"torn-transaction"}


def rewind(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let a consumer get again what it got last."""
    last: dict[tuple[int, int], list[int]] = {}
    found = []
    for entry, key, pairs in _reads(entries, 1):
        of = (entry["process"], key)
        if of in last and "group" not in entry:
            found.append((pairs, last[of]))
        last[of] = pairs[-1]
    if not found:
        return None
    pairs, again = chance.choice(found)
    pairs.insert(0, list(again))
    return {"nonmonotonic-poll", "int-nonmonotonic-poll"}


CHANGES = (drop, skip, swap, copy, garble, move, abort, tear, rewind)


# --- and of groups --------------------------------------------------------------------------------------------------


def forget(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let a coordinator tell less than it had acknowledged."""
    low: dict[tuple[str, int], int] = {}
    invoked: dict[int, dict[tuple[str, int], int]] = {}  # process -> what had been acknowledged when it asked
    found = []
    for entry in entries:
        if entry["type"] == "invoke":
            invoked[entry["process"]] = dict(low)
        elif entry["f"] == "committed":
            before = invoked[entry["process"]]
            found += [
                (entry["value"], k, before[entry["group"], k]) for k in entry["value"] if (entry["group"], k) in before
            ]
        else:
            for part in entry["value"] if entry["f"] in ("poll", "txn") and entry["type"] == "ok" else ():
                if part[0] == "offsets" and part[2] == "ok" and "group" in entry:
                    for key, to in part[1].items():
                        low[entry["group"], key] = max(to, low.get((entry["group"], key), 0))
    if not found:
        return None
    told, key, offset = chance.choice(found)
    told[key] = chance.choice([None, offset - 1])
    return {"commit-lost"}


def share(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let a member be assigned what another owns in that generation."""
    events = [
        (entry, event)
        for entry in entries
        for event in entry.get("rebalance", ())
        if event["what"] == "assigned" and event["keys"]
    ]
    pairs = [
        (event, other)
        for entry, event in events
        for another, other in events
        if event["generation"] == other["generation"] and entry["member"] < another["member"]
        if entry["group"] == another["group"]
    ]
    if not pairs:
        return None
    one, other = chance.choice(pairs)
    one["keys"] = sorted({*one["keys"], *other["keys"]})
    return {"owner-overlap"}


def repeat(entries: list[Entry], chance: random.Random) -> set[str] | None:
    """Let one source have two outputs."""
    outputs = [
        part
        for entry in entries
        if entry["type"] == "ok" and entry["f"] == "txn" and "group" in entry
        for part in entry["value"]
        if part[0] == "send"
    ]
    if len(outputs) < 2:
        return None
    one, other = chance.sample(outputs, 2)
    one[4] = list(other[4])
    return {"eos-duplicate"}


CHANGES_OF_GROUPS = (forget, share, repeat)
