"""A former coordinator that has not heard of its successor: two that both believe to coordinate an id (TXN-96)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kafkatool.broker.transactions import coordinator as coordinators
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import follower
from tests.broker.transactions.stage import HERE, OFFSETS, OWN, Mortal, Stage, stage
from tests.broker.transactions.test_coordinator import acknowledge, described, given

NONE, FENCED = ErrorCode.NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED
PLACES = (HERE, OFFSETS)
Outcome = Mapping[TopicPartition, int]


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(tmp_path, monkeypatch) as made:
        yield made


def hold_markers(on: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Outcome]]:
    """Have the present coordinator's markers held up on their way; what is returned delivers them, and tells what they
    were answered."""
    writes = on.coordinator._endings._marker_writes  # noqa: SLF001  # they are held up there, nothing else
    write, held = writes.write, list[tuple[Sequence[MarkerWrite], Callable[[Sequence[Codes]], None]]]()
    monkeypatch.setattr(writes, "write", lambda markers, done: held.append((markers, done)))

    def deliver() -> list[Outcome]:
        told: list[Outcome] = []
        for markers, done in held:

            def answered(outcomes: Sequence[Codes], done: Callable[[Sequence[Codes]], None] = done) -> None:
                told.extend(outcomes)
                done(outcomes)

            write(markers, answered)
        return told

    return deliver


def under_way(on: Stage) -> Identity:
    """Begin a transaction with a record in each place."""
    mine = given(on)
    assert on.add("id", mine, *PLACES) is NONE
    assert {on.produce("id", mine, place) for place in PLACES} == {NONE}
    return mine


@pytest.mark.spec("TXN-96", "TXN-12", "TXN-59")
@pytest.mark.parametrize("committed", [True, False])
def test_markers_of_the_former_one_that_come_after_its_successors_are_refused(
    on: Stage, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    mine = under_way(on)
    deliver = hold_markers(on, monkeypatch)
    assert on.end("id", mine, committed=committed) is NONE
    on.succeed(Mortal())
    complete = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    assert described(on).state is complete
    ended = list(on.ended_offsets)
    assert deliver() == [dict.fromkeys(PLACES, FENCED)]
    for place in PLACES:
        assert on.markers(place, mine.producer_id) == [(mine.epoch, committed)]
        assert on.coordinator_epochs(place, mine.producer_id) == [1], "the successor's"
        assert on.is_settled(place)
    assert on.ended_offsets == ended and described(on).state is complete


@pytest.mark.spec("TXN-96", "TXN-12", "TXN-61")
@pytest.mark.parametrize("committed", [True, False])
def test_markers_of_the_former_one_that_come_before_its_successors_say_the_same(
    on: Stage, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    mine = under_way(on)
    deliver = hold_markers(on, monkeypatch)
    assert on.end("id", mine, committed=committed) is NONE
    former = on.coordinator
    told: list[list[Outcome]] = []
    on_loaded = type(former)._on_loaded  # noqa: SLF001  # between the load and the markers that follow from it

    def deliver_first(self: object, entries: object) -> None:
        told.append(deliver())
        on_loaded(self, entries)  # type: ignore[arg-type]

    monkeypatch.setattr(type(former), "_on_loaded", deliver_first)
    on.succeed(Mortal())
    assert told == [[dict.fromkeys(PLACES, NONE)]]
    for place in PLACES:
        assert on.markers(place, mine.producer_id) == [(mine.epoch, committed)] * 2
        assert on.coordinator_epochs(place, mine.producer_id) == [0, 1]
        assert on.is_settled(place)
    assert {one.committed for one in on.ended_offsets} == {committed}


@pytest.mark.spec("TXN-96", "TXN-40", "TXN-21")
@pytest.mark.parametrize("committed", [True, False])
def test_records_of_the_former_one_are_not_acknowledged_and_nothing_follows_from_them(
    on: Stage, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    monkeypatch.setattr(coordinators, "PATIENCE_MS", 600_000)
    mine = under_way(on)
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal())
    acknowledge(on)
    told: list[ErrorCode] = []
    on.coordinator.end("id", mine, committed=committed, done=told.append)
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), told.append)  # parked behind it
    end = on.world.partition(OWN).log.log_end_offset
    (refused,) = on.world.fetch(end, follower(2), OWN, epoch=2)  # which follows the successor
    assert refused.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    on.settle()
    assert told == [] and described(on).state is TransactionState.ONGOING
    on.world.manager.delayed.expire_all()  # request.timeout.ms is over
    on.settle()
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and described(on).state is TransactionState.ONGOING
    on.world.follow(OWN, epoch=2)  # it hears of it
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.settle()
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
    assert not any(on.markers(place, mine.producer_id) for place in PLACES)
