"""A producer's first transaction with a request that a proxy keeps, and its next two, in which that is delivered (TXN-105).

The client gets no answer, repeats, over another connection, and goes on; so each request is one that it has really sent.
What must come of it is told by ``Case.expected``, by what was asked, when it comes, and whether the broker that it
comes to has anything to say by then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kafkatool.core.client.addresses import parse_addresses
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.transactions import Description, describe
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import Program
from tests.histories.frames.rules import Armed, Late, Rule
from tests.histories.frames.stage import Stage
from tests.raw_transactions import COMES_LATER, RawProducer
from tests.waiting import awaited, eventually

LIMIT_S: Final = 120.0
TIMEOUT_MS: Final = 600_000
"""Of transactions: none is aborted because a machine is slow."""
BEFORE, DURING, AFTER = "before", "during", "after"
WHEN: Final = (BEFORE, DURING, AFTER)
INPUT: Final = TopicPartition("in", 0)
_NOT_YET: Final = COMES_LATER | {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NETWORK_EXCEPTION}
_FIRST_OFFSET, _SECOND_OFFSET = 1, 5


class _Asked(NamedTuple):
    """A kind of request: its API, and the step of a transaction in which a client makes it."""

    api: str
    step: str


KINDS: Final[Mapping[str, _Asked]] = {
    "commit": _Asked("EndTxn", "commit"),
    "abort": _Asked("EndTxn", "abort"),
    "addition": _Asked("AddPartitionsToTxn", "send"),
    "addition-of-offsets": _Asked("AddOffsetsToTxn", "offsets"),
    "offsets": _Asked("TxnOffsetCommit", "offsets"),
    "batch": _Asked("Produce", "send"),
    "identity": _Asked("InitProducerId", "init"),
}


_Step = tuple[object, ...] | Callable[[], None]


class Producers(Protocol):
    """Transactional producers by their names; ``step`` is as in clients/README.md, "" says that it went well."""

    def step(self, *words: object) -> str: ...


class RawProducers:
    """Producers that never raise their epoch, as steps. A context manager."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._open = ExitStack()
        self._producers: dict[str, RawProducer] = {}
        self._added: dict[str, set[TopicPartition]] = {}

    def __enter__(self) -> "RawProducers":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def step(self, *words: object) -> str:
        name, verb, *rest = map(str, words)
        if verb == "init":
            id_, timeout_ms = rest
            by = RawProducer(self._bootstrap, id_, timeout_ms=int(timeout_ms))
            self._producers[name] = self._open.enter_context(by)
        code = self._do(name, self._producers[name], verb, rest)
        return "" if code == ErrorCode.NONE else f"{verb}: {code}"

    def _do(self, name: str, by: RawProducer, verb: str, rest: Sequence[str]) -> int:
        match verb, *rest:
            case "init", *_:
                return by.init()
            case "begin", *_:
                self._added[name] = set()
                return ErrorCode.NONE
            case "send", topic, partition, number, prefix:
                place = TopicPartition(topic, int(partition))
                if place not in self._added[name] and (code := by.add(place)):
                    return code
                self._added[name].add(place)
                return by.send(place, f"{prefix}-{number}")
            case "offsets", group, topic, partition, offset:
                at = int(partition)
                return by.add_offsets(group) or by.commit_offsets(group, topic, {at: ""}, int(offset))[at]
        return by.end(committed=verb == "commit")


@contextmanager
def producers_of(program: Program | None, bootstrap: str, log: Path) -> Iterator[Producers]:
    """Give those of a client's program, or raw ones."""
    if program is None:
        with RawProducers(bootstrap) as raw:
            yield raw
    else:
        with ClientProcess(program, log, "transactions", bootstrap) as process:
            yield process


@dataclass(frozen=True)
class Expected:
    """``told``: a step after the late request fails. ``seen``: the records that read_committed gives."""

    told: bool
    seen: tuple[str, ...]
    offset: int


class Case:
    """One producer, and its request of that kind that comes late. Its group has the same name."""

    def __init__(self, by: Producers, stage: Stage, id_: str, place: TopicPartition, what: str, when: str) -> None:
        self.id = self.group = id_
        self.place, self.what, self.when = place, what, when
        self._by, self._stage = by, stage
        self._kept: Armed | None = None
        self._told = ""

    def __str__(self) -> str:
        return f"{self.what} {self.when} the next one, {self.id}"

    def first(self, *, silent: bool = False) -> None:
        """Have the first transaction, with an offset. ``silent``: the client waits in vain, instead of being cut off."""
        api, at = KINDS[self.what]
        end = "abort" if self.what == "abort" else "commit"
        offsets = ("offsets", self.group, *INPUT, _FIRST_OFFSET)
        for verb, *rest in (("init", self.id, TIMEOUT_MS), ("begin",), self._send("first"), offsets, (end,)):
            if verb == at:
                body = {} if api == "Produce" else {"transactional_id": self.id}
                self._kept = self._stage.doors.rules.add(Rule(api, Late(silent=silent), body=body))
            told = self._by.step(self.id, verb, *rest)
            assert told == "", (str(self), verb, told)
        assert self._kept is not None
        assert self._kept.met.is_set(), f"{self}: there was no such request"

    def go_on(self, describe: Callable[[str], Description], *, obeyed: bool) -> None:
        """Have the next two transactions, and the request delivered; who is told of a failure does not go on."""
        during: list[_Step] = [lambda: self._deliver(describe, obeyed)] if self.when == DURING else []
        if self.when == BEFORE:
            self._deliver(describe, obeyed)
        second: list[_Step] = [("begin",), self._send("second"), *during, self._send("third")]
        end = "abort" if self.what == "commit" else "commit"
        if not self._go(*second, ("offsets", self.group, *INPUT, _SECOND_OFFSET), (end,)):
            return
        if self.when == AFTER:
            self._deliver(describe, obeyed)
        self._go(("begin",), self._send("fourth"), ("commit",))

    def check(self, read: Sequence[str], asks: RawProducer, *, obeyed: bool) -> None:
        """Hold what the client was told and what is read against what must be."""
        expected = self.expected(obeyed=obeyed)
        found = tuple(value.split(".")[1] for value in read if value.startswith(f"{self.id}."))
        assert (self._told != "", found) == (expected.told, expected.seen), (str(self), self._told)

        def offset() -> int | None:
            code, found = asks.fetch_offset(self.group, INPUT)
            return None if code in _NOT_YET else found

        assert awaited(offset, f"a stable offset of {self}", LIMIT_S) == expected.offset, str(self)

    def expected(self, *, obeyed: bool) -> Expected:
        """Return what must come of it. What an EndTxn does in the next transaction is told in docs/known-faults.md."""
        seen = [] if self.what == "abort" else ["first"]
        offset = -1 if self.what == "abort" else _FIRST_OFFSET
        fences = obeyed and self.what == "identity"  # it names none, so it is a newcomer's
        if fences and self.when == BEFORE:
            return Expected(True, tuple(seen), offset)
        if self.when == DURING and obeyed and self.what in ("identity", "commit", "abort"):
            return Expected(True, (*seen, *["second"] * (self.what == "commit")), offset)
        if self.what != "commit":
            seen += ["second", "third"]
            offset = _SECOND_OFFSET
        return Expected(fences, (*seen, *["fourth"] * (not fences)), offset)

    def _send(self, which: str) -> tuple[object, ...]:
        return ("send", *self.place, 0, f"{self.id}.{which}.")

    def _go(self, *steps: _Step) -> bool:
        """Take the steps; False: the client was told that one has failed."""
        for step in steps:
            if callable(step):
                step()
            elif told := self._by.step(self.id, *step):
                self._told = f"{step[0]}: {told}"
                return False
        return True

    def _deliver(self, describe: Callable[[str], Description], obeyed: bool) -> None:
        assert self._kept is not None
        self._kept.released.set()
        assert self._kept.done.wait(LIMIT_S), f"{self}: it is neither answered nor dropped"
        ends = obeyed and self.when == DURING and self.what in ("commit", "abort")
        if ends:  # what follows is to come after its markers
            complete = f"Complete{self.what.title()}"
            eventually(lambda: describe(self.id).state == complete, f"{self}: {complete}", LIMIT_S)


@contextmanager
def describing(bootstrap: str) -> Iterator[Callable[[str], Description]]:
    """Give what describes a transactional id, as its coordinator knows it once it has it."""
    settings = ClientSettings(client_id="describes", whole_timeout_ms=int(LIMIT_S * 1000))
    with ClusterClient(parse_addresses(bootstrap), settings) as client:

        def ask(id_: str) -> Description:
            client.begin_anew()
            client.refresh()
            return describe(client, id_)

        yield ask
