"""Producers that were replaced, or are past their time, and go on: nothing they ask for changes anything (TXN-107)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.transactions import decisions
from kafkatool.broker.transactions.records import encode_key, encode_value
from kafkatool.broker.transactions.transaction import Identity, Transaction
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.transactions.stage import DATA, HERE, OFFSETS, OWN, THERE, Mortal, Stage, stage
from tests.broker.transactions.test_coordinator import described, given
from tests.broker.transactions.test_upkeep import failing, write

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
OLD, UNKNOWN = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(tmp_path, monkeypatch) as made:
        yield made


def asked_by(on: Stage, zombie: Identity) -> set[object]:
    """Return the codes of all that a producer asks its coordinator; to be asked by a leader is among it."""
    return {
        on.add("id", zombie, HERE),
        on.add("id", zombie, OFFSETS),
        on.end("id", zombie, committed=True),
        on.end("id", zombie, committed=False),
        on.coordinator.verify("id", zombie, frozenset({THERE}))[THERE],
    }


def ends(on: Stage) -> list[int]:
    return [on.world.partition(place).log.log_end_offset for place in (*DATA, OWN)]


@pytest.mark.spec("TXN-107", "TXN-25", "TXN-26", "TXN-58", "TXN-72")
@pytest.mark.parametrize("how", ["replaced", "past its time"])
def test_nothing_changes_by_what_a_zombie_asks_for_and_its_records_are_aborted(on: Stage, how: str) -> None:
    zombie = given(on)
    assert on.add("id", zombie, HERE) is on.produce("id", zombie, HERE) is NONE
    owner = None
    if how == "replaced":
        assert on.init("id")[0] is ErrorCode.CONCURRENT_TRANSACTIONS
        owner = given(on)
        assert on.add("id", owner, *DATA) is on.produce("id", owner, HERE) is on.produce("id", owner, THERE) is NONE
    else:
        on.passed_ms += 60_001
        on.coordinator.time_out()
        on.settle()
    before, there = described(on), ends(on)
    assert asked_by(on, zombie) == {FENCED}
    assert on.init("id", zombie)[0] is FENCED
    told = [on.produce("id", zombie, place, sequence) for place in DATA for sequence in (0, 1)]
    assert told == [OLD] * 6, "also where nobody has written, or no marker came"
    assert (described(on), ends(on)) == (before, there)
    aborted = (zombie.epoch + 1, False)
    if owner is None:
        assert [on.markers(place, zombie.producer_id) for place in DATA] == [[aborted], [], []]
    else:
        assert on.end("id", owner, committed=True) is NONE
        committed = (owner.epoch, True)
        assert [on.markers(place, zombie.producer_id) for place in DATA] == [
            [aborted, committed],
            [committed],
            [committed],
        ]
    assert all(on.is_settled(place) for place in DATA)


@pytest.mark.spec("TXN-107", "TXN-46", "TXN-28")
def test_what_a_zombie_writes_before_its_fence_could_be_stored_is_aborted_with_the_rest(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = given(on)
    assert on.add("id", zombie, HERE) is on.produce("id", zombie, HERE) is NONE
    on.passed_ms += 60_001
    with monkeypatch.context() as patch:
        failing(on, patch, ErrorCode.NOT_ENOUGH_REPLICAS)
        on.coordinator.time_out()
    before = described(on)
    assert asked_by(on, zombie) == {FENCED}
    assert on.init("id", zombie)[0] is FENCED
    assert on.produce("id", zombie, THERE) is OLD
    assert on.produce("id", zombie, HERE, 1) is NONE, "open there until the marker comes"
    assert described(on) == before
    on.coordinator.time_out()
    on.settle()
    assert on.markers(HERE, zombie.producer_id) == [(zombie.epoch + 1, False)]
    assert on.produce("id", zombie, HERE, 2) is OLD and on.is_settled(HERE)


@pytest.mark.spec("TXN-107", "TXN-28", "TXN-25")
def test_all_that_were_replaced_are_refused_also_those_of_an_id_whose_epochs_are_used_up(on: Stage) -> None:
    last = decisions.LAST_EPOCH
    stored = Transaction(producer_id=7, epoch=last - 3, timeout_ms=60_000, update_ms=0)
    write(on, (encode_key("id"), encode_value(stored)))
    on.succeed(Mortal())
    replaced = [given(on) for _ in range(5)]
    owner, fresh = replaced.pop(), replaced[-1].producer_id
    assert replaced == [*(Identity(7, epoch) for epoch in (last - 2, last - 1, last)), Identity(fresh, 0)]
    assert owner == Identity(fresh, 1)
    assert on.add("id", owner, HERE) is on.produce("id", owner, HERE) is NONE
    before, there = described(on), ends(on)
    for zombie in (stored.identity, *replaced):
        of_another_id = zombie.producer_id == 7
        assert asked_by(on, zombie) == {UNKNOWN if of_another_id else FENCED}, zombie
        assert on.init("id", zombie)[0] is FENCED, zombie
        assert on.produce("id", zombie, HERE) is (UNKNOWN if of_another_id else OLD), zombie
    assert (described(on), ends(on)) == (before, there)
    assert on.end("id", owner, committed=True) is NONE
    assert on.markers(HERE, fresh) == [(1, True)] and on.markers(HERE, 7) == []


@pytest.mark.slow
@pytest.mark.spec("TXN-107", "TXN-28", "TXN-25", "TXN-26")
def test_each_of_as_many_producers_as_an_id_has_epochs_is_replaced_by_the_next(on: Stage) -> None:
    first = given(on)
    fences = set(range(1000, decisions.LAST_EPOCH + 1, 1000))  # epochs that nobody gets: a transaction is open
    before, replaced = first, 0
    while True:
        if before.epoch + 1 in fences:
            assert on.add("id", before, HERE) is on.produce("id", before, HERE) is NONE
            assert on.init("id")[0] is ErrorCode.CONCURRENT_TRANSACTIONS
        owner = given(on)
        replaced += 1
        if owner.producer_id != first.producer_id:
            break
        assert owner == Identity(first.producer_id, before.epoch + (2 if before.epoch + 1 in fences else 1))
        assert on.add("id", before, HERE) is FENCED, before
        before = owner
    assert before.epoch == decisions.LAST_EPOCH and replaced == decisions.LAST_EPOCH + 1 - len(fences)
    assert owner.epoch == 0
    assert asked_by(on, before) == {UNKNOWN} and on.init("id", first)[0] is FENCED
    assert on.markers(HERE, first.producer_id) == [(epoch, False) for epoch in sorted(fences)]
    assert on.add("id", owner, HERE) is on.produce("id", owner, HERE) is on.end("id", owner, committed=True) is NONE
    assert on.markers(HERE, owner.producer_id) == [(0, True)] and on.is_settled(HERE)
