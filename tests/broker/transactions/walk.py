"""A walk at random: producers, a group's offsets, coordinators that die, requests that are lost, late or twice.

A seed decides everything. After each step it is looked at what must hold then, at the end what became of each transaction.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from kafkatool.broker.replication.leading.verified_appends import Answer, Question
from kafkatool.broker.transactions.coordinator import DescribedTransaction
from kafkatool.broker.transactions.marker_writes import MarkerWrite
from kafkatool.broker.transactions.states import OPEN
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, read_header
from tests.broker.storage.batch_builders import batch
from tests.broker.transactions.stage import DATA, HERE, OFFSETS, THERE, Mortal, Point, Stage, stage
from tests.broker.transactions.walked_logs import WalkedGroup, check_moves, outcomes

NONE: Final = ErrorCode.NONE
PLACES: Final = (HERE, THERE)
IDS: Final = ("a", "b")
STEPS: Final = 80
_TIMEOUT_MS: Final = 60_000  # of the stage's producers


@dataclass(frozen=True, slots=True)
class Batch:
    """A record on its way; ``name`` is its transaction's number and its own."""

    id: str
    identity: Identity
    place: TopicPartition
    sequence: int
    name: bytes


@dataclass(slots=True)
class Producer:
    """A producer as clients are: it repeats what is not answered, and begins anew after what cannot be repeated."""

    id: str
    identity: Identity
    number: int = -1  # of the transaction under way; -1: none
    ending: bool | None = None  # how it has asked to end it, without an answer: it does nothing but ask again
    added: set[TopicPartition] = field(default_factory=set)
    sequences: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, slots=True)
class HeldUp:
    """A request that its sender has given up, and that is still on its way. ``number``: of the transaction it ends."""

    send: Callable[[], object]
    id: str = ""
    identity: Identity | None = None
    number: int = -1


class Walk:
    """One walk over a stage. ``decided``: the transactions whose end was answered, by their numbers."""

    def __init__(self, on: Stage, seed: int, patch: pytest.MonkeyPatch) -> None:
        self._on = on
        self._chance = random.Random(seed)
        self._numbers = count()
        self._producers: list[Producer] = []
        self._sent: list[Batch] = []
        self._handed_out: set[Identity] = set()
        self._delayed: list[Callable[[], object]] = []
        self._held_up: list[HeldUp] = []
        self._markers: list[tuple[Identity, Callable[[], object]]] = []  # held up
        self._stable: defaultdict[TopicPartition, int] = defaultdict(int)
        self._group = WalkedGroup(on)
        self.acknowledged: set[tuple[TopicPartition, bytes]] = set()
        self.decided: dict[int, bool] = {}
        verified = on.world.manager.verified_appends
        install = verified.ask_by
        patch.setattr(verified, "ask_by", lambda ask: install(self._late(ask)))
        on.hold_up = self._hold_up
        on.succeed(Mortal())

    def _late(self, ask: Any) -> Any:
        """Have some answers of the coordinator come later than others."""

        def asking(question: Question, timeout_ms: float, done: Callable[[Answer], None]) -> None:
            def told(answer: Answer) -> None:
                if self._chance.random() < 0.2:
                    self._delayed.append(lambda: done(answer))
                else:
                    done(answer)

            ask(question, timeout_ms, told)

        return asking

    def _hold_up(self, markers: Sequence[MarkerWrite], deliver: Callable[[], object]) -> bool:
        """Have some markers come after their repeat, and after what follows."""
        if held := self._chance.random() < 0.3:
            self._markers += [(one.identity, deliver) for one in markers]
        return held

    def _deliver_markers(self, of: Identity) -> None:
        """Have those of a producer come that were held up, while it has a transaction open where they come to."""
        for late in [late for late in self._markers if late[0] == of]:
            self._markers.remove(late)
            late[1]()

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing, and look at what must hold."""
        often = [*[self._add] * 3, *[self._send] * 4, *[self._commit_offsets] * 3, *[self._end] * 3]
        late = [*[self._send_late] * 2, self._come_late, *[self._arrive] * 2, *[self._deliver] * 2]
        self._chance.choice([self._open, *often, *late, self._die, self._move_group, self._pass_time])()
        self._succeed()
        for place in DATA:
            stable = self._on.world.partition(place).log.last_stable_offset
            assert stable >= self._stable[place], f"the stable offset of {place} moved back"
            self._stable[place] = stable
        check_moves(self._on)
        self._group.check()

    def _succeed(self) -> None:
        while self._on.mortal.dead:
            self._on.succeed(Mortal())

    def _ask(self, ask: Callable[[], ErrorCode | None], **of: Any) -> ErrorCode:
        """Repeat until somebody answers: a request or its answer may be lost, or the coordinator die over it.

        What is not answered in time may also come after its repeat, and after what follows: ``_arrive``.
        """
        for _ in range(5):
            fate = self._chance.random()
            if fate < 0.05:
                self._held_up.append(HeldUp(ask, **of))
            if fate < 0.1:
                continue
            code = ask()
            self._succeed()
            assert code is not ErrorCode.UNKNOWN_SERVER_ERROR, "an illegal move"
            if code is not None and code is not ErrorCode.CONCURRENT_TRANSACTIONS and fate > 0.15:
                return code
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _open(self) -> None:
        self._begin_anew(self._chance.choice(IDS))

    def _begin_anew(self, id_: str, expected: Identity | None = None) -> None:
        given: list[Identity] = []

        def ask() -> ErrorCode | None:
            code, identity = self._init(id_, expected)
            given.append(identity)
            return code

        if self._ask(ask) is NONE:
            self._producers.append(Producer(id_, given[-1]))

    def _init(self, id_: str, expected: Identity | None) -> tuple[ErrorCode | None, Identity]:
        """Ask for an identity. It is nobody's yet, unless one that asked before did not hear of it."""
        before = self._on.coordinator.describe(id_)
        code, identity = self._on.init(id_, expected)
        is_owned = isinstance(before, DescribedTransaction) and before.state in OPEN
        if isinstance(before, DescribedTransaction) and is_owned and expected not in (None, before.value.identity):
            after = self._on.coordinator.describe(id_)
            assert after == before and code is ErrorCode.PRODUCER_FENCED, (
                "a replaced producer ended another's transaction"
            )
        if code is NONE and identity in self._handed_out:
            assert expected is not None, f"{identity} was handed out before"
            assert identity.epoch == expected.epoch + 1, "the answer to the epoch before, once more"
        elif code is NONE:
            self._handed_out.add(identity)
        return code, identity

    def _any(self) -> Producer | None:
        if not self._producers:
            self._open()
        return self._chance.choice(self._producers) if self._producers else None

    def _any_free(self) -> Producer | None:
        one = self._any()
        return one if one is not None and one.ending is None else None

    def _add(self) -> None:
        one = self._any_free()
        if one is None:
            return
        places, id_, identity = self._chance.sample(DATA, self._chance.randint(1, 2)), one.id, one.identity
        code = self._ask(lambda: self._on.add(id_, identity, *places))
        if code is NONE:
            if one.number < 0:
                one.number = next(self._numbers)
            one.added.update(places)
        elif code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self._producers.remove(one)

    def _send(self) -> None:
        one = self._any_free()
        if one is None or one.added <= {OFFSETS}:
            return
        place = self._chance.choice(sorted(one.added - {OFFSETS}))
        sequence = one.sequences[place]
        sent = Batch(one.id, one.identity, place, sequence, b"%d/%d" % (one.number, len(self._sent)))
        one.sequences[place] += 1
        self._sent.append(sent)
        if self._chance.random() < 0.15:
            self._give_up(one)  # it is held up on its way: ``_send_late`` delivers it
            return

        if self._produce(sent) is not NONE:  # refused, or not answered in time
            self._give_up(one)
        elif place == THERE and self._chance.random() < 0.5:
            self._deliver_markers(one.identity)

    def _commit_offsets(self) -> None:
        """Have the group's offset in the transaction; what is held up comes as other requests do."""
        one = self._any_free()
        if one is None or OFFSETS not in one.added:
            return
        name = b"%d/offset" % one.number
        id_, identity = one.id, one.identity

        def commit() -> ErrorCode | None:
            return self._group.commit(id_, identity, name, self.acknowledged)

        if self._chance.random() < 0.15:
            self._held_up.append(HeldUp(commit, id_, identity, one.number))
            self._give_up(one)
        elif commit() is not NONE:
            self._give_up(one)

    def _give_up(self, one: Producer) -> None:
        """Abort, and go on with the next epoch, as clients do that know InitProducerId 3 (KIP-360)."""
        code = self._ask_end(one, committed=False)
        self._producers.remove(one)
        if code is not NONE:
            return
        self.decided[one.number] = False
        self._begin_anew(one.id, one.identity)

    def _ask_end(self, one: Producer, *, committed: bool) -> ErrorCode:
        id_, identity = one.id, one.identity
        return self._ask(
            lambda: self._on.end(id_, identity, committed=committed), id=id_, identity=identity, number=one.number
        )

    def _produce(self, sent: Batch) -> ErrorCode | None:
        """Send it. None: there is no answer yet."""
        records = batch(value=sent.name, attributes=TRANSACTIONAL, producer=(*sent.identity, sent.sequence))
        header = read_header(records)
        assert header is not None
        answers: list[ErrorCode] = []

        def done(results: Any) -> None:
            answers.append(results[sent.place].error)
            if answers[0] is NONE:
                self.acknowledged.add((sent.place, sent.name))

        self._on.world.manager.verified_appends.append(
            {sent.place: records}, {sent.place: header}, sent.id, acks=-1, timeout_ms=60_000, on_done=done
        )
        return answers[0] if answers else None

    def _send_late(self) -> None:
        """Deliver something once more, whatever has become of its transaction since."""
        if self._sent:
            self._produce(self._chance.choice(self._sent))

    def _come_late(self) -> None:
        """Deliver a producer's request for another epoch that was held up, or of one that is replaced."""
        if self._handed_out:
            self._init(self._chance.choice(IDS), self._chance.choice(sorted(self._handed_out)))

    def _arrive(self) -> None:
        """Have a request arrive that was held up, in any order.

        One of the end of a transaction, or of its offsets, does not come in a later one of the same identity: nothing
        tells it from that one's own (TXN-84).
        """
        if not self._held_up:
            return
        late = self._held_up.pop(self._chance.randrange(len(self._held_up)))
        if late.identity is None or self._is_over(late) or self._is_under_way(late):
            late.send()

    def _is_over(self, late: HeldUp) -> bool:
        described = self._on.coordinator.describe(late.id)
        return isinstance(described, DescribedTransaction) and described.value.identity != late.identity

    def _is_under_way(self, late: HeldUp) -> bool:
        return any((one.identity, one.number) == (late.identity, late.number) for one in self._producers)

    def _end(self) -> None:
        one = self._any()
        if one is None or one.number < 0:
            return
        committed = self._chance.random() < 0.6 if one.ending is None else one.ending
        one.ending = committed
        code = self._ask_end(one, committed=committed)
        if code is NONE:
            self.decided[one.number] = committed
            one.number, one.ending, one.added = -1, None, set()
        elif code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self._producers.remove(one)

    def _die(self) -> None:
        """Let the coordinator die at one of its next writes and sends."""
        self._on.succeed(Mortal(self._chance.randint(1, 6), self._chance.choice(list(Point))))

    def _move_group(self) -> None:
        self._group.move()

    def _deliver(self) -> None:
        if self._delayed:
            self._delayed.pop(self._chance.randrange(len(self._delayed)))()

    def _pass_time(self) -> None:
        self._on.passed_ms += self._chance.choice([_TIMEOUT_MS // 3, _TIMEOUT_MS // 3, _TIMEOUT_MS + 1])
        self._on.coordinator.time_out()
        self._on.settle()

    # --- what holds -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let everything arrive and every transaction end; judge what the logs say."""
        self._on.succeed(Mortal())
        while self._held_up:
            self._arrive()
        while self._markers:
            self._deliver_markers(self._markers[0][0])
        for _ in range(2):
            while self._delayed:
                self._deliver()
            self._on.passed_ms += _TIMEOUT_MS + 1
            self._on.coordinator.time_out()
            self._on.settle()
        check_moves(self._on)
        self._group.check(settled=True)
        ends: defaultdict[int, set[bool]] = defaultdict(set)
        for place in DATA:
            assert self._on.is_settled(place), f"a transaction hangs in {place}"
            found = outcomes(self._on, place)
            names = [name for name, _ in found]
            assert place == OFFSETS or len(set(names)) == len(names), f"doubled in {place}"
            lost = {name for p, name in self.acknowledged if p == place} - set(names)
            assert not lost, f"{lost} of {place} lost"
            for name, committed in found:
                ends[int(name.partition(b"/")[0])].add(committed)
        torn = {number for number, seen in ends.items() if len(seen) > 1}
        assert not torn, f"transactions {torn} are torn"
        wrong = {number for number, seen in ends.items() if self.decided.get(number, *seen) not in seen}
        assert not wrong, f"transactions {wrong} did not end as was answered"


def intact(on: Stage) -> None:
    """Leave everything as it is."""


def walk(seed: int, directory: Path, patch: pytest.MonkeyPatch, spoil: Callable[[Stage], None] = intact) -> None:
    """Walk once. Raises AssertionError, with the seed in it."""
    with stage(directory, patch) as on:
        spoil(on)
        made = Walk(on, seed, patch)
        try:
            for _ in range(STEPS):
                made.step()
            made.finish()
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e
