"""Walks at random: producers, coordinators that die, batches and identities that come late; what holds after every step.

A seed decides everything. The slow test walks as many as the environment's ``WALKS`` says (TXN-110).
"""

import os
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from kafkatool.broker.replication.leading.verified_appends import Answer, Question
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import CONTROL, TRANSACTIONAL, iter_batches, iter_records, read_header
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import everything
from tests.broker.transactions.stage import HERE, THERE, Mortal, Point, Stage, stage

NONE: Final = ErrorCode.NONE
PLACES: Final = (HERE, THERE)
IDS: Final = ("a", "b")
STEPS: Final = 50
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
    added: set[TopicPartition] = field(default_factory=set)
    sequences: defaultdict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))


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
        self._stable: defaultdict[TopicPartition, int] = defaultdict(int)
        self.acknowledged: set[tuple[TopicPartition, bytes]] = set()
        self.decided: dict[int, bool] = {}
        verified = on.world.manager.verified_appends
        install = verified.ask_by
        patch.setattr(verified, "ask_by", lambda ask: install(self._late(ask)))
        on.succeed(Mortal())

    def _late(self, ask: Any) -> Any:
        """Have some answers of the coordinator come later than others."""

        def asking(question: Question, timeout_ms: float, done: Callable[[Answer], None]) -> None:
            def told(answer: Answer) -> None:
                if self._chance.random() < 0.3:
                    self._delayed.append(lambda: done(answer))
                else:
                    done(answer)

            ask(question, timeout_ms, told)

        return asking

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing, and look at what must hold."""
        steps = [self._open, *[self._add] * 2, *[self._send] * 3, *[self._end] * 2]
        self._chance.choice(
            [*steps, *[self._send_late] * 2, self._come_late, self._die, self._deliver, self._pass_time]
        )()
        self._succeed()
        for place in PLACES:
            stable = self._on.world.partition(place).log.last_stable_offset
            assert stable >= self._stable[place], f"the stable offset of {place} moved back"
            self._stable[place] = stable

    def _succeed(self) -> None:
        while self._on.mortal.dead:
            self._on.succeed(Mortal())

    def _ask(self, ask: Callable[[], ErrorCode | None]) -> ErrorCode:
        """Repeat until somebody answers: the coordinator may have died over it."""
        for _ in range(5):
            code = ask()
            self._succeed()
            if code is not None and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return code
        return ErrorCode.CONCURRENT_TRANSACTIONS

    def _open(self) -> None:
        id_ = self._chance.choice(IDS)
        given: list[Identity] = []

        def ask() -> ErrorCode | None:
            code, identity = self._on.init(id_)
            given.append(identity)
            return code

        if self._ask(ask) is NONE:
            assert given[-1] not in self._handed_out, f"{given[-1]} was handed out before"
            self._handed_out.add(given[-1])
            self._producers.append(Producer(id_, given[-1]))

    def _any(self) -> Producer | None:
        return self._chance.choice(self._producers) if self._producers else None

    def _add(self) -> None:
        one = self._any()
        if one is None:
            return
        place = self._chance.choice(PLACES)
        code = self._ask(lambda: self._on.add(one.id, one.identity, place))
        if code is NONE:
            if one.number < 0:
                one.number = next(self._numbers)
            one.added.add(place)
        elif code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self._producers.remove(one)

    def _send(self) -> None:
        one = self._any()
        if one is None or not one.added:
            return
        place = self._chance.choice(sorted(one.added))
        sequence = one.sequences[place]
        sent = Batch(one.id, one.identity, place, sequence, b"%d/%d" % (one.number, len(self._sent)))
        one.sequences[place] += 1
        self._sent.append(sent)
        if self._chance.random() < 0.15:
            self._give_up(one)  # it is held up on its way: ``_send_late`` delivers it
            return

        if self._produce(sent) is not NONE:  # refused, or not answered in time
            self._give_up(one)

    def _give_up(self, one: Producer) -> None:
        """Abort, and go on with the next epoch, as clients do that know InitProducerId 3 (KIP-360)."""
        code = self._ask(lambda: self._on.end(one.id, one.identity, committed=False))
        self._producers.remove(one)
        if code is not NONE:
            return
        self.decided[one.number] = False
        given: list[Identity] = []

        def ask() -> ErrorCode | None:
            code, identity = self._on.init(one.id, one.identity)
            given.append(identity)
            return code

        if self._ask(ask) is NONE:
            self._handed_out.add(given[-1])
            self._producers.append(Producer(one.id, given[-1]))

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
            id_, old = self._chance.choice(IDS), self._chance.choice(sorted(self._handed_out))
            code, identity = self._on.init(id_, old)
            if code is NONE and identity in self._handed_out:
                assert identity.epoch == old.epoch + 1, "the answer to the epoch before, once more"
            elif code is NONE:
                self._handed_out.add(identity)

    def _end(self) -> None:
        one = self._any()
        if one is None or one.number < 0:
            return
        committed = self._chance.random() < 0.6
        code = self._ask(lambda: self._on.end(one.id, one.identity, committed=committed))
        if code is NONE:
            self.decided[one.number] = committed
            one.number, one.added = -1, set()
        elif code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self._producers.remove(one)

    def _die(self) -> None:
        """Let the coordinator die at one of its next writes and sends."""
        self._on.succeed(Mortal(self._chance.randint(1, 6), self._chance.choice(list(Point))))

    def _deliver(self) -> None:
        if self._delayed:
            self._delayed.pop(self._chance.randrange(len(self._delayed)))()

    def _pass_time(self) -> None:
        self._on.passed_ms += self._chance.choice([_TIMEOUT_MS // 2, _TIMEOUT_MS + 1])
        self._on.coordinator.time_out()
        self._on.settle()

    # --- what holds -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let everything arrive and every transaction end; judge what the logs say."""
        self._on.succeed(Mortal())
        for _ in range(2):
            while self._delayed:
                self._deliver()
            self._on.passed_ms += _TIMEOUT_MS + 1
            self._on.coordinator.time_out()
            self._on.settle()
        outcomes: defaultdict[int, set[bool]] = defaultdict(set)
        for place in PLACES:
            assert self._on.is_settled(place), f"a transaction hangs in {place}"
            found = self._outcomes(place)
            names = [name for name, _ in found]
            assert len(names) == len(set(names)), f"a record is twice in {place}"
            assert {name for p, name in self.acknowledged if p == place} <= set(names), f"{place} has lost one"
            for name, committed in found:
                outcomes[int(name.partition(b"/")[0])].add(committed)
        torn = {number for number, seen in outcomes.items() if len(seen) > 1}
        assert not torn, f"transactions {torn} are torn"
        wrong = {number for number, seen in outcomes.items() if self.decided.get(number, *seen) not in seen}
        assert not wrong, f"transactions {wrong} did not end as was answered"

    def _outcomes(self, place: TopicPartition) -> list[tuple[bytes, bool]]:
        """Return each record, and whether it was committed."""
        data = memoryview(everything(self._on.world.partition(place).log))
        open_: defaultdict[int, list[bytes]] = defaultdict(list)
        found: list[tuple[bytes, bool]] = []
        for position, header in iter_batches(data):
            (record,) = iter_records(data[position : position + header.size_bytes])
            if header.attributes & CONTROL:
                committed = bytes(record.key or b"")[-1] == 1
                found += [(name, committed) for name in open_.pop(header.producer_id, [])]
            else:
                open_[header.producer_id].append(bytes(record.value or b""))
        assert not open_
        return found


def _intact(on: Stage) -> None:
    """Leave everything as it is."""


def _unverified(on: Stage) -> None:
    on.world.manager.verified_appends.enabled = False


def walk(seed: int, directory: Path, patch: pytest.MonkeyPatch, spoil: Callable[[Stage], None] = _intact) -> None:
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


@pytest.mark.spec("TXN-110", "TXN-95", "TXN-106")
@pytest.mark.parametrize("seed", range(20))
def test_every_transaction_ends_one_way_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    walk(seed, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(3600)
@pytest.mark.spec("TXN-110")
def test_many_walks(tmp_path: Path) -> None:
    first = random.randrange(1 << 32)
    for seed in range(first, first + int(os.environ.get("WALKS", "1000"))):
        with pytest.MonkeyPatch.context() as patch:
            walk(seed, tmp_path / str(seed), patch)


@pytest.mark.spec("TXN-110", "TXN-72", "TXN-75")
@pytest.mark.parametrize("guard", ["nobody asks the coordinator", "a leave is never void"])
def test_without_a_guard_the_walks_find_what_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    spoil = _unverified
    if guard == "a leave is never void":
        check = ProducerState.check_leave

        def lenient(self: ProducerState, header: Any, verification: Any) -> None:
            try:
                check(self, header, verification)
            except Exception as e:
                if getattr(e, "code", None) is not ErrorCode.INVALID_TXN_STATE or verification is None:
                    raise

        monkeypatch.setattr(ProducerState, "check_leave", lenient)
        spoil = _intact
    with pytest.raises(AssertionError, match=r"seed \d+: .*(hangs|torn|did not end)"):
        for seed in range(200):
            with pytest.MonkeyPatch.context() as patch:
                walk(seed, tmp_path / str(seed), patch, spoil)
