"""The coordinator dies at each of its writes and sends, its successor finishes what the log says (TXN-95, 104).

Each life of a transaction is played once whole, which counts its steps; then once for each step, the coordinator dying
before it, in its middle, or after it with nobody knowing; and with the successor dying too, at each of its own. The
client does as clients do: it repeats what was not answered.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kafkatool.broker.transactions.coordinator import DescribedTransaction
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.transactions.stage import DATA, HERE, HOUR_MS, OFFSETS, THERE, Mortal, Point, Stage, stage

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED


class Life:
    """A client of a stage. It repeats a request that the coordinator died over, to its successor."""

    def __init__(self, stage: Stage, name: str, deaths: Sequence[Mortal]) -> None:
        self.stage = stage
        self.name = name
        self._deaths = list(deaths)
        self.me = Identity(-1, -1)
        stage.ended_offsets.clear()
        stage.succeed(self._next())

    def _next(self) -> Mortal:
        return self._deaths.pop(0) if self._deaths else Mortal()

    def succeed(self) -> bool:
        """Tell whether the coordinator has died; then its successor is there."""
        if not self.stage.mortal.dead:
            return False
        while self.stage.mortal.dead:
            self.stage.succeed(self._next())
        return True

    def until_answered(self, ask: Callable[[], ErrorCode | None]) -> ErrorCode:
        while True:
            code = ask()
            died = self.succeed()
            if code is not None:
                return code
            assert died, "no answer, and nobody died"

    def init(self, expected: Identity | None = None) -> ErrorCode:
        given: list[Identity] = []

        def ask() -> ErrorCode | None:
            code, identity = self.stage.init(self.name, expected)
            given.append(identity)
            return code

        code = self.until_answered(ask)
        if code is NONE:
            self.me = given[-1]
        return code

    def begin(self) -> None:
        """Have a transaction with records in two partitions, and offsets."""
        assert self.init() is NONE
        for places in ((HERE,), (THERE, OFFSETS)):
            assert self.add(self.me, *places) is NONE
            for place in places:
                assert self.stage.produce(self.name, self.me, place) is NONE

    def add(self, who: Identity, *places: TopicPartition) -> ErrorCode:
        return self.until_answered(lambda: self.stage.add(self.name, who, *places))

    def end(self, *, committed: bool, who: Identity | None = None) -> ErrorCode:
        return self.until_answered(lambda: self.stage.end(self.name, who or self.me, committed=committed))

    def time_out(self) -> None:
        """Let time pass until the transaction is given up by whoever coordinates then."""
        self.stage.passed_ms += 60_001
        while True:
            self.stage.coordinator.time_out()
            self.stage.settle()
            if not self.succeed():
                return


def commit(life: Life) -> None:
    life.begin()
    assert life.end(committed=True) is NONE
    check(life, TransactionState.COMPLETE_COMMIT, life.me.epoch)
    assert life.end(committed=True) is NONE  # a repeat
    assert life.end(committed=False) is ErrorCode.INVALID_TXN_STATE


def abort(life: Life) -> None:
    life.begin()
    assert life.end(committed=False) is NONE
    check(life, TransactionState.COMPLETE_ABORT, life.me.epoch)
    assert life.end(committed=False) is NONE
    assert life.end(committed=True) is ErrorCode.INVALID_TXN_STATE


def fence(life: Life) -> None:
    """Be replaced in the middle by a producer that asks until it has an identity."""
    life.begin()
    before = life.me
    while (code := life.init()) is not NONE:
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert life.me.epoch > before.epoch + 1  # that one fences only
    assert life.end(committed=True, who=before) is FENCED
    check(life, TransactionState.EMPTY, before.epoch + 1)


def time_out(life: Life) -> None:
    life.begin()
    before = life.me
    life.time_out()
    assert life.end(committed=True) is FENCED
    check(life, TransactionState.COMPLETE_ABORT, before.epoch + 1)


def renew(life: Life) -> None:
    """Ask for the next epoch by the present one, as a client does after an error of its own."""
    assert life.init() is NONE
    before = life.me
    code = life.init(before)
    # Its answer may be lost for good with the coordinator: a record has no place for the epoch before.
    assert code in (NONE, FENCED)
    if code is FENCED:
        assert life.init() is NONE
    assert life.me.producer_id == before.producer_id and life.me.epoch > before.epoch
    assert life.add(before, HERE) is FENCED


def expire(life: Life) -> None:
    """Be forgotten after a time, and begin anew."""
    commit(life)
    before = life.me
    for _ in range(4):  # the clock is trusted when it has gone evenly for an hour
        life.stage.passed_ms += HOUR_MS
        while True:
            life.stage.coordinator.expire()
            life.stage.settle()
            if not life.succeed():
                break
    assert life.stage.coordinator.describe(life.name) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert life.add(before, HERE) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert life.init() is NONE and life.me.producer_id != before.producer_id


def check(life: Life, state: TransactionState, epoch: int) -> None:
    """Hold what is to be seen against the outcome: the same marker everywhere, nothing open, offsets in force or not."""
    stage, committed = life.stage, state is TransactionState.COMPLETE_COMMIT
    described = stage.coordinator.describe(life.name)
    assert isinstance(described, DescribedTransaction)
    assert (described.state, described.partitions) == (state, frozenset())
    for place in DATA:
        assert set(stage.markers(place, life.me.producer_id)) == {(epoch, committed)}, place
        assert stage.is_settled(place), place
    assert {(end.partition, end.committed) for end in stage.ended_offsets} == {(OFFSETS.partition, committed)}


LIVES = (commit, abort, fence, time_out, renew, expire)


def play(stage: Stage, live: Callable[[Life], None], *deaths: Mortal) -> list[str]:
    """Play one life; return what its first coordinator did."""
    first = deaths[0] if deaths else Mortal()
    try:
        live(Life(stage, "-".join(["life", *(f"{d.dies_at}{d.point.name}" for d in deaths)]), [first, *deaths[1:]]))
    except AssertionError as e:
        for death in deaths:
            e.add_note(f"a coordinator died {death.point.value} step {death.dies_at} of {death.did}")
        raise
    return first.did


def points(steps: Sequence[str]) -> list[tuple[int, Point]]:
    """Return where a coordinator can die that does these steps."""
    several = Point.BEFORE, Point.HALF, Point.AFTER
    return [
        (n, p) for n, step in enumerate(steps, 1) for p in (several if "," in step else (Point.BEFORE, Point.AFTER))
    ]


@pytest.mark.spec("TXN-95", "TXN-104", "TXN-40", "TXN-42", "TXN-33", "TXN-12", "TXN-56", "TXN-57", "TXN-61")
@pytest.mark.parametrize("live", LIVES, ids=lambda live: live.__name__)
def test_whoever_comes_next_finishes_what_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: Callable[[Life], None]
) -> None:
    with stage(tmp_path, monkeypatch) as made:
        for number, point in points(play(made, live)):
            died = Mortal(number, point)
            play(made, live, died)
            assert died.dead


@pytest.mark.spec("TXN-95", "TXN-104", "TXN-42")
def test_also_when_the_next_one_dies_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, monkeypatch) as made:
        steps = play(made, commit)
        for first in range(1, len(steps) + 1):
            for second in range(1, len(steps) + 1):
                play(made, commit, Mortal(first, Point.AFTER), Mortal(second, Point.AFTER))
