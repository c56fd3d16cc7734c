"""What clients saw of a run, read from its file and checked for form.

One JSON object a line, the header first. Every operation has two lines, its invocation and its completion; facts that no
record tells (committed offsets, ends of logs) are operations, too. docs/histories.md has the format.
"""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

VERSION: Final = 1
NEVER: Final = 1 << 62  # the line, and the time, of what did not happen
OK, INFO, FAIL = "ok", "info", "fail"
RECORDS: Final = frozenset({"send", "poll", "mixed", "txn"})  # what an operation is called that sends or polls
FACTS: Final = frozenset({"committed", "ends", "final", "delete", "batches"})
ASSIGNING: Final = frozenset({"assign", "subscribe"})
RECORD_KEYS: Final = 16  # of a compacted topic: the record key of a value is its amount modulo this
_KINDS: Final = RECORDS | FACTS | ASSIGNING | {"commit", "crash", "fault"}

Process: TypeAlias = int | str


class MalformedHistoryError(Exception):
    """No run can have written this file."""


class Send(NamedTuple):
    """``offset`` None: acknowledged without a place, or not at all. ``source``: key and offset it was made from."""

    key: int
    value: int
    offset: int | None
    outcome: str
    source: tuple[int, int] | None = None


class Poll(NamedTuple):
    """Offsets and values of each key, in the order delivered; None is a record that no run can have sent."""

    runs: dict[int, tuple[tuple[int, ...], tuple[int | None, ...]]]


class Commit(NamedTuple):
    """The next offset to read of each key."""

    offsets: dict[int, int]
    outcome: str


Part: TypeAlias = Send | Poll | Commit


class Rebalance(NamedTuple):
    """What a group told a member: ``what`` is assigned, revoked or lost.

    ``part``: the micro-operation during which it was told; what this one and those behind it polled came afterwards.
    """

    what: str
    keys: tuple[int, ...]
    generation: int | None
    time: int
    part: int = 0


class Operation:
    """One operation of one process, from the line that asks to the line that tells."""

    __slots__ = (
        "commits", "completed", "ended_at", "f", "from_start", "generation", "group", "invoked", "isolation", "member",
        "parts", "polls", "process", "rebalance", "sends", "time", "time_invoked", "transactional", "type", "unowned",
        "value",
    )  # fmt: skip

    def __init__(self, asked: Mapping[str, Any], told: Mapping[str, Any], parts: list[Part], value: Any) -> None:
        self.invoked: int = asked["index"]
        self.completed: int = told["index"]
        self.process: Process = asked["process"]
        self.f: str = asked["f"]
        self.type: str = told["type"]
        self.time_invoked: int = asked["time"]
        self.time: int = told["time"]
        self.parts = parts
        self.value = value
        get = told.get
        self.ended_at: int | None = get("ended_at")
        self.group: str | None = get("group")
        self.member: str | None = get("member")
        self.generation: int | None = get("generation")
        self.isolation: str | None = get("isolation")
        self.from_start: bool = get("from") == "start"
        self.transactional = self.f == "txn"
        # Most operations lack most of these, and there are millions.
        self.rebalance: Sequence[Rebalance] = [_rebalance(event) for event in get("rebalance") or ()] or ()
        self.sends: Sequence[Send] = [part for part in parts if type(part) is Send] or ()
        self.polls: Sequence[Poll] = [part for part in parts if type(part) is Poll] or ()
        self.unowned = False
        """Whether its member may have had no key any more, which nobody had told it."""
        self.commits: Sequence[Commit] = self._commits()

    @property
    def moved(self) -> Collection[int]:
        """Return the keys that changed hands meanwhile, by what its group told."""
        return {key for event in self.rebalance for key in event.keys} if self.rebalance else ()

    def disown(self) -> None:
        """Note that its member may have had no key any more: what it committed may lie beyond what their owner did."""
        self.unowned = True
        self.commits = self._commits()

    def _commits(self) -> Sequence[Commit]:
        return [Commit(part.offsets, self.outcome(part)) for part in self.parts if type(part) is Commit] or ()

    def outcome(self, part: Send | Commit) -> str:
        """Return what became of a part: those of a transaction come out as it does. No commit of no owner is certain."""
        outcome = self.type if self.transactional else part.outcome
        return INFO if self.unowned and outcome == OK and type(part) is Commit else outcome


class History(NamedTuple):
    """``operations`` in the order of their completions; ``times`` of all lines, which never go back."""

    header: Mapping[str, Any]
    operations: list[Operation]
    times: list[int]
    faults: list[Mapping[str, Any]]

    @property
    def options(self) -> Mapping[str, Any]:
        options: Mapping[str, Any] = self.header["options"]
        return options

    def fault_spans(self, named: Callable[[Mapping[str, Any]], Iterable[object]]) -> list[tuple[int | None, int]]:
        """Return from when until when faults were under way; ``named`` tells by which names a line's begin and end.

        None: nobody told when it began; NEVER: nor that it ended.
        """
        begun: dict[object, int] = {}
        spans: list[tuple[int | None, int]] = []
        for line in self.faults:
            at = self.times[line["index"]]
            for name in named(line["value"]):
                if line["value"]["begins"]:
                    begun.setdefault(name, at)
                else:
                    spans.append((begun.pop(name, None), at))
        return [*spans, *((at, NEVER) for at in begun.values())]


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep the garbage collector from walking millions of tuples that are all wanted."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read_file(path: Path) -> History:
    with path.open("rb") as lines:
        return read(lines)


def read(lines: Iterable[bytes]) -> History:
    """Read a history; a last line that was torn when its writer died is dropped. Raises MalformedHistoryError."""
    with collector_off():
        reader = _Reader()
        numbered = iter(lines)
        header = _header(next(numbered, b""))
        for line in numbered:
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                if not line.endswith(b"\n"):
                    break
                raise reader.malformed("is no JSON") from None
            reader.take(entry)
        operations = reader.finished()
        if header["options"].get("client", header.get("client")) == "confluent-kafka":
            _distrust_early_assignments(operations)
        return History(header, operations, reader.times, reader.faults)


def _distrust_early_assignments(operations: Iterable[Operation]) -> None:
    """Take the generation, and the keys, from each assignment that another one of its process follows without a loss.

    Where a topic appears while an assignment waits to be told, librdkafka joins again by itself and lets nobody know of a
    loss (rd_kafka_cgrp_revoke_all_rejoin). What it is asked for during the first callback is then its generation by now;
    and until the second it commits, in its new generation, for keys that may be another member's in that one.
    """
    last: dict[Process, tuple[Operation, int, list[Operation]]] = {}  # the event, and what has committed since
    for operation in operations:
        if operation.commits and operation.process in last:
            last[operation.process][2].append(operation)
        for place, event in enumerate(operation.rebalance):
            former = last.pop(operation.process, None)
            if event.what == "assigned":
                last[operation.process] = operation, place, [operation] if operation.commits else []
                if former is not None:
                    _distrust(*former)


def _distrust(operation: Operation, place: int, since: Iterable[Operation]) -> None:
    told = list(operation.rebalance)
    told[place] = told[place]._replace(generation=None)
    operation.rebalance = told
    for each in since:
        each.disown()


def _header(line: bytes) -> Mapping[str, Any]:
    try:
        header = orjson.loads(line)
    except orjson.JSONDecodeError:
        header = None
    if not isinstance(header, dict) or header.get("history") != VERSION or not isinstance(header.get("options"), dict):
        raise MalformedHistoryError(f"the first line is no header of a history of version {VERSION}")
    return header


class _Reader:
    """Takes lines apart as they come; nothing of them is kept but what the analysis reads."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.times: list[int] = []
        self.faults: list[Mapping[str, Any]] = []
        self._waiting: dict[Process, Mapping[str, Any]] = {}
        self._over: set[Process] = set()
        self._values: set[int] = set()

    def malformed(self, why: str) -> MalformedHistoryError:
        return MalformedHistoryError(f"line {len(self.times)} {why}")

    def take(self, entry: Mapping[str, Any]) -> None:
        try:
            index, at, process, kind, f = entry["index"], entry["time"], entry["process"], entry["type"], entry["f"]
        except (KeyError, TypeError):
            raise self.malformed("lacks index, time, process, type or f") from None
        if index != len(self.times):
            raise self.malformed(f"calls itself {index}")
        if self.times and at < self.times[-1]:
            raise self.malformed("goes back in time")
        if f not in _KINDS:
            raise self.malformed(f"has the unknown f {f!r}")
        if f == "fault":
            self.faults.append(entry)
        elif process in self._over:
            raise self.malformed(f"is of process {process}, which has ended")
        elif kind == "invoke":
            self._invoke(process, entry)
        elif kind in (OK, INFO, FAIL):
            self._complete(process, entry)
        else:
            raise self.malformed(f"has the unknown type {kind!r}")
        self.times.append(at)

    def _invoke(self, process: Process, entry: Mapping[str, Any]) -> None:
        if process in self._waiting:
            raise self.malformed(f"overlaps another operation of process {process}")
        self._waiting[process] = entry
        if entry["f"] in RECORDS:
            for part in entry["value"]:
                if part[0] == "send":
                    if part[2] in self._values:
                        raise self.malformed(f"sends {part[2]} a second time")
                    self._values.add(part[2])

    def _complete(self, process: Process, entry: Mapping[str, Any]) -> None:
        asked = self._waiting.pop(process, None)
        if asked is None or asked["f"] != entry["f"]:
            raise self.malformed("completes what was not invoked")
        if entry["type"] == INFO or entry["f"] == "crash" or entry.get("end"):
            self._over.add(process)
        self._add(asked, entry)

    def _add(self, asked: Mapping[str, Any], told: Mapping[str, Any]) -> None:
        f = asked["f"]
        if f in RECORDS or f == "commit":
            before, after = asked["value"], told["value"]
            if len(before) != len(after) or not all(map(_filled_in, before, after)):
                raise self.malformed("changes what was invoked")
            self.operations.append(Operation(asked, told, [_PARTS[part[0]](part) for part in after], None))
        else:
            value = told.get("value", asked.get("value"))
            if f in FACTS:
                value = {int(key): fact for key, fact in (value or {}).items()}
            self.operations.append(Operation(asked, told, [], value))

    def finished(self) -> list[Operation]:
        """Return the operations; one that was never completed may have happened at any time since."""
        for asked in sorted(self._waiting.values(), key=lambda entry: entry["index"]):
            value: Any = asked.get("value")
            if asked["f"] in RECORDS or asked["f"] == "commit":
                value = [_unknown(part) for part in value]
            self._add(asked, {**asked, "index": NEVER, "time": NEVER, "type": INFO, "value": value})
        return self.operations


def _filled_in(asked: list[Any], told: list[Any]) -> bool:
    """Tell whether a micro-operation is the one that was invoked, with what was learned."""
    if asked[0] != told[0]:
        return False
    match asked[0]:
        case "send":
            return bool(asked[1] == told[1] and asked[2] == told[2][1])
        case "offsets":
            return asked[1] is None or bool(asked[1] == told[1])
    return bool(asked[0] == "poll")


def _unknown(asked: list[Any]) -> list[Any]:
    match asked[0]:
        case "send":
            return ["send", asked[1], [None, asked[2]], INFO, *asked[3:]]
        case "offsets":
            return ["offsets", asked[1] or {}, INFO]
    return ["poll", {}]


def _send(part: list[Any]) -> Send:
    return Send(part[1], part[2][1], part[2][0], part[3], tuple(part[4]) if len(part) > 4 else None)


def _poll(part: list[Any]) -> Poll:
    runs: dict[int, tuple[tuple[int, ...], tuple[int | None, ...]]] = {}
    for key, pairs in part[1].items():
        if pairs:
            offsets, values = zip(*pairs, strict=True)
            runs[int(key)] = (offsets, values)
    return Poll(runs)


def _commit(part: list[Any]) -> Commit:
    return Commit({int(key): offset for key, offset in part[1].items()}, part[2])


def _rebalance(event: Mapping[str, Any]) -> Rebalance:
    return Rebalance(event["what"], tuple(event["keys"]), event["generation"], event["time"], event.get("part", 0))


_PARTS: Final[Mapping[str, Callable[[list[Any]], Part]]] = {"send": _send, "poll": _poll, "offsets": _commit}
