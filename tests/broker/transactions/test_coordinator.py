"""The coordinator's answers: which, in which order of checks, and at which moment."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.transactions.coordinator import DescribedTransaction
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import follower
from tests.broker.transactions.stage import DATA, HERE, HOUR_MS, OFFSETS, OWN, THERE, Mortal, Point, Stage, stage

NOBODY = Identity(-1, -1)


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(tmp_path, monkeypatch) as made:
        yield made


def given(on: Stage, id_: str = "id") -> Identity:
    code, identity = on.init(id_)
    assert code is ErrorCode.NONE
    return identity


def described(on: Stage, id_: str = "id") -> DescribedTransaction:
    found = on.coordinator.describe(id_)
    assert isinstance(found, DescribedTransaction)
    return found


def acknowledge(on: Stage) -> None:
    """Let the follower of the coordinator's own partition have all of it."""
    end = on.world.partition(OWN).log.log_end_offset
    on.world.fetch(end, follower(2), OWN)
    on.settle()


@pytest.mark.spec("TXN-24")
def test_an_identity_is_refused_for_what_is_wrong_with_the_request(on: Stage) -> None:
    longest = on.world.config.transaction_max_timeout_ms
    answers: list[ErrorCode] = []
    for id_, timeout_ms in (("", 1), ("", 0), ("id", 0), ("id", -1), ("id", longest + 1), ("id", longest)):
        on.coordinator.give_identity(id_, timeout_ms, None, lambda code, given: answers.append(code))
    refused = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert answers == [*[ErrorCode.INVALID_REQUEST] * 2, *[refused] * 3, ErrorCode.NONE]


@pytest.mark.spec("TXN-31", "TXN-39", "TXN-93")
def test_an_empty_id_is_no_id_and_a_strange_one_is_unknown(on: Stage) -> None:
    mine = given(on)
    assert (on.add("", mine, HERE), on.end("", mine, committed=True)) == (ErrorCode.INVALID_REQUEST,) * 2
    assert on.coordinator.describe("") is ErrorCode.INVALID_REQUEST
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (on.add("other", mine, HERE), on.end("other", mine, committed=True)) == (unknown,) * 2
    assert on.coordinator.describe("other") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.spec("TXN-8", "TXN-16", "TXN-24", "TXN-31", "TXN-34", "TXN-39", "TXN-94")
def test_who_stops_or_has_lost_the_partition_says_so_first(on: Stage) -> None:
    mine = given(on)
    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    assert all_say(on, mine) == {ErrorCode.NOT_COORDINATOR}
    assert wrong_in_itself(on, mine) == WRONG
    on.coordinator.shutdown()
    assert all_say(on, mine) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert wrong_in_itself(on, mine) == WRONG, "before that it stops, too"
    assert on.coordinator.list() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ())


WRONG = [*[ErrorCode.INVALID_REQUEST] * 5, *[ErrorCode.INVALID_TRANSACTION_TIMEOUT] * 3]


def wrong_in_itself(on: Stage, mine: Identity) -> list[object]:
    """Return the codes of requests with an empty id, and of such with a timeout that is none, which need no coordinator."""
    codes: list[object] = [on.add("", mine, HERE), on.end("", mine, committed=True), on.coordinator.describe("")]
    codes += on.coordinator.verify("", mine, frozenset({HERE})).values()
    longest = on.world.config.transaction_max_timeout_ms
    for id_, timeout_ms in (("", 0), ("id", 0), ("id", -1), ("id", longest + 1)):
        on.coordinator.give_identity(id_, timeout_ms, None, lambda code, given: codes.append(code))
    return codes


def all_say(on: Stage, mine: Identity) -> set[object]:
    """Return the codes of every request about the id "id": its own, and an identity that no longer is."""
    asked = [
        (on.init("id")[0], on.add("id", who, HERE), on.end("id", who, committed=True), on.coordinator.describe("id"))
        for who in (mine, NOBODY)
    ]
    verified = [on.coordinator.verify("id", who, frozenset({HERE}))[HERE] for who in (mine, NOBODY)]
    return {code for codes in asked for code in codes} | set(verified)


def replicated(on: Stage) -> None:
    """Have the coordinator's partition replicated by a second broker, which fetches when the test says so."""
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal())


@pytest.mark.spec("TXN-10", "TXN-8", "TXN-9", "TXN-94", "TXN-24", "TXN-34", "TXN-39")
def test_nothing_is_served_before_what_was_loaded_is_replicated(on: Stage) -> None:
    mine = given(on)
    replicated(on)
    acknowledge(on)
    on.coordinator.add_partitions("id", mine, frozenset(DATA), lambda _: None)
    on.world.lead(OWN, epoch=2, isr=(1, 2), replicas=(1, 2), version=2)
    on.succeed_here(Mortal())
    assert all_say(on, mine) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert wrong_in_itself(on, mine) == WRONG, "before that it loads"
    assert on.coordinator.list() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
    acknowledge(on)
    assert described(on).state is TransactionState.ONGOING
    on.world.lead(OWN, epoch=3, isr=(1, 2), replicas=(1, 2), version=3)
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), lambda _: None)
    on.succeed_here(Mortal())
    on.coordinator.shutdown()
    assert all_say(on, mine) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}, "who stops says so while it loads, too"


@pytest.mark.spec("TXN-10", "TXN-12")
@pytest.mark.parametrize("committed", [True, False])
def test_no_marker_leaves_before_the_decision_that_was_loaded_is_replicated(on: Stage, committed: bool) -> None:
    mine = given(on)
    assert on.add("id", mine, *DATA) is ErrorCode.NONE
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal(1, Point.AFTER))
    acknowledge(on)
    assert on.end("id", mine, committed=committed) is None, "it has died over the record"
    on.world.lead(OWN, epoch=2, isr=(1, 2), replicas=(1, 2), version=2)
    on.succeed_here(Mortal())
    assert not any(on.markers(place, mine.producer_id) for place in DATA)
    assert on.coordinator.describe("id") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    acknowledge(on)
    assert all(on.markers(place, mine.producer_id) == [(mine.epoch, committed)] for place in DATA)
    assert all(on.coordinator_epochs(place, mine.producer_id) == [2] for place in DATA)


@pytest.mark.spec("TXN-12")
@pytest.mark.parametrize("committed", [True, False])
def test_after_a_load_all_partitions_get_the_new_coordinators_marker_and_the_last_epoch_is_unknown(
    on: Stage, committed: bool
) -> None:
    mine = given(on)
    assert on.add("id", mine, *DATA) is ErrorCode.NONE
    on.succeed(before_complete := Mortal(4))
    assert on.end("id", mine, committed=committed) is None
    assert before_complete.did[-1] == f"append to {OWN}", before_complete.did
    first = [on.coordinator_epochs(place, mine.producer_id) for place in DATA]
    on.succeed(Mortal())
    second = [on.coordinator_epochs(place, mine.producer_id) for place in DATA]
    assert second == [[*before, before[0] + 1] for before in first], "also those that had theirs"
    code, renewed = on.init("id", mine)
    assert (code, renewed) == (ErrorCode.NONE, Identity(mine.producer_id, mine.epoch + 1))
    assert on.init("id", mine) == (ErrorCode.NONE, renewed), "a repeat, while the last epoch is known"
    on.succeed(Mortal())
    assert on.init("id", mine)[0] is ErrorCode.PRODUCER_FENCED


@pytest.mark.spec("TXN-26", "TXN-33", "TXN-40", "TXN-18", "TXN-19", "TXN-41")
def test_an_answer_goes_out_when_its_record_is_replicated_and_not_before(on: Stage) -> None:
    replicated(on)
    acknowledge(on)
    codes: list[ErrorCode] = []
    identities: list[Identity] = []

    def note(code: ErrorCode, identity: Identity) -> None:
        codes.append(code)
        identities.append(identity)

    on.coordinator.give_identity("id", 60_000, None, note)
    assert codes == [] and on.coordinator.describe("id") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    acknowledge(on)
    assert codes == [ErrorCode.NONE]
    (mine,) = identities
    on.coordinator.add_partitions("id", mine, frozenset(DATA), codes.append)
    assert len(codes) == 1 and described(on).state is TransactionState.EMPTY
    acknowledge(on)
    assert codes[1:] == [ErrorCode.NONE] and described(on).partitions == frozenset(DATA)
    on.coordinator.end("id", mine, committed=True, done=codes.append)
    on.settle()
    assert len(codes) == 2 and not any(on.markers(place, mine.producer_id) for place in DATA)
    assert described(on).state is TransactionState.ONGOING
    acknowledge(on)
    assert codes[2:] == [ErrorCode.NONE]
    assert all(on.markers(place, mine.producer_id) == [(mine.epoch, True)] for place in DATA)
    assert all(on.is_settled(place) for place in DATA)


@pytest.mark.spec("TXN-51", "TXN-27", "TXN-58")
def test_a_fence_holds_before_its_record_is_replicated_and_its_markers_have_the_raised_epoch(on: Stage) -> None:
    mine = given(on)
    assert on.add("id", mine, *DATA) is ErrorCode.NONE
    assert {on.produce("id", mine, place) for place in DATA} == {ErrorCode.NONE}
    replicated(on)
    acknowledge(on)
    codes: list[ErrorCode] = []
    on.coordinator.give_identity("id", 60_000, None, lambda code, _: codes.append(code))
    fenced = ErrorCode.PRODUCER_FENCED
    assert (on.add("id", mine, HERE), on.end("id", mine, committed=True)) == (fenced, fenced)
    assert codes == []
    acknowledge(on)
    assert codes == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert all(on.markers(place, mine.producer_id) == [(mine.epoch + 1, False)] for place in DATA)
    refused = {on.produce("id", mine, place, 1) for place in DATA}
    assert refused == {ErrorCode.INVALID_PRODUCER_EPOCH}, "known in each by the marker"


@pytest.mark.spec("TXN-27")
def test_the_repeat_of_who_fenced_raises_the_epoch_once_more_and_one_by_its_own_identity_is_fenced(on: Stage) -> None:
    mine = given(on)
    assert on.add("id", mine, HERE) is ErrorCode.NONE
    assert on.init("id")[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert on.init("id") == (ErrorCode.NONE, Identity(mine.producer_id, mine.epoch + 2))
    own = given(on, "own")
    assert on.add("own", own, HERE) is ErrorCode.NONE
    assert on.init("own", own)[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert on.init("own", own) == (ErrorCode.PRODUCER_FENCED, NOBODY)


@pytest.mark.spec("TXN-13", "TXN-14", "TXN-20")
@pytest.mark.parametrize("how", ["followed", "stopped"])
def test_what_is_in_flight_when_the_partition_goes_is_answered_with_16(on: Stage, how: str) -> None:
    mine = given(on)
    ending, open_ = given(on, "ending"), given(on, "open")
    assert on.add("ending", ending, *DATA) is on.add("open", open_, *DATA) is ErrorCode.NONE
    replicated(on)
    acknowledge(on)
    codes: list[ErrorCode] = []
    on.coordinator.end("ending", ending, committed=True, done=codes.append)
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), codes.append)
    on.coordinator.end("id", mine, committed=True, done=codes.append)  # parked behind it
    on.world.follow(OWN, epoch=5)  # the coordinator has not been told yet
    on.coordinator.end("id", mine, committed=True, done=codes.append)
    log = on.world.partition(OWN).log
    end = log.log_end_offset
    if how == "followed":
        on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    else:
        on.world.manager.partitions.remove(OWN)
        on.coordinator.on_partitions_stopped([OWN])
    assert codes == [ErrorCode.NOT_COORDINATOR] * 4, "before the control request is answered"
    on.passed_ms += 60_001
    on.coordinator.time_out()
    on.settle()
    assert len(codes) == 4 and log.log_end_offset == end
    assert not any(on.markers(place, who.producer_id) for who in (mine, ending, open_) for place in DATA)


@pytest.mark.spec("TXN-57", "TXN-13")
@pytest.mark.parametrize("how", ["followed", "stopped"])
def test_a_marker_that_waits_is_dropped_when_the_partition_is_lost(on: Stage, how: str) -> None:
    mine, gone = given(on), TopicPartition("gone", 0)
    assert on.add("id", mine, gone) is ErrorCode.NONE
    on.coordinator.end("id", mine, committed=True, done=lambda _: None)
    (look_for,) = on.take_jobs()
    look_for()  # in vain

    def waiting() -> list[tuple[TopicPartition, ...]]:
        pauses = on.coordinator._endings._pauses.values()  # noqa: SLF001  # nothing else shows what is kept
        return [markers.partitions for pause in pauses for markers in pause.waiting]

    assert waiting() == [(gone,)]
    if how == "followed":
        on.world.follow(OWN, epoch=5)
        on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    else:
        on.world.manager.partitions.remove(OWN)
        on.coordinator.on_partitions_stopped([OWN])
    assert waiting() == []
    on.world.lead(gone)
    on.world.know(gone, brokers={1: 9001, 2: 9002})
    on.settle()
    assert on.markers(gone, mine.producer_id) == []


@pytest.mark.spec("TXN-57")
def test_an_answer_to_a_marker_that_comes_after_the_partition_was_lost_changes_nothing(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = given(on)
    assert on.add("id", mine, HERE) is ErrorCode.NONE
    writes = on.coordinator._endings._marker_writes  # noqa: SLF001  # its answers are held back, nothing else
    write = writes.write
    answers: list[Callable[[], None]] = []

    def held_back(markers: Sequence[MarkerWrite], done: Callable[[Sequence[Codes]], None]) -> None:
        write(markers, lambda outcomes: answers.append(lambda: done(outcomes)))

    monkeypatch.setattr(writes, "write", held_back)
    on.coordinator.end("id", mine, committed=True, done=lambda _: None)
    on.settle()
    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.world.lead(OWN, epoch=6)
    on.coordinator.on_leadership_change([on.world.partition(OWN)], [])
    on.settle()
    end = on.world.partition(OWN).log.log_end_offset
    former, present = answers
    former()
    on.settle()
    assert described(on).state is TransactionState.PREPARE_COMMIT and described(on).partitions == {HERE}
    assert on.world.partition(OWN).log.log_end_offset == end
    present()
    on.settle()
    assert described(on).state is TransactionState.COMPLETE_COMMIT


@pytest.mark.spec("TXN-20", "TXN-21")
def test_a_record_that_was_refused_though_the_partition_stays_leaves_the_id_as_it_was(on: Stage) -> None:
    mine = given(on)
    codes: list[ErrorCode] = []
    real = on.world.partition(OWN)
    on.world.follow(OWN, epoch=5)
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), codes.append)
    assert codes == [ErrorCode.NOT_COORDINATOR]
    on.world.lead(OWN, epoch=6)  # back, before the coordinator has heard of anything
    assert on.world.partition(OWN) is real
    on.settle()
    assert on.add("id", mine, HERE) is ErrorCode.NONE


@pytest.mark.spec("TXN-22", "TXN-18")
def test_a_request_waits_for_the_one_before_it_and_for_the_markers(on: Stage) -> None:
    mine = given(on)
    replicated(on)
    acknowledge(on)
    codes: list[ErrorCode] = []
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), codes.append)
    on.coordinator.add_partitions("id", mine, frozenset({THERE}), codes.append)
    assert codes == []
    acknowledge(on)  # the first; the second is decided anew, and stored
    assert codes == [ErrorCode.NONE]
    acknowledge(on)
    assert codes == [ErrorCode.NONE] * 2 and described(on).partitions == {HERE, THERE}


@pytest.mark.spec("TXN-41", "TXN-61")
def test_a_partition_that_was_never_written_to_gets_its_marker_too(on: Stage) -> None:
    mine = given(on)
    assert on.add("id", mine, HERE, OFFSETS) is ErrorCode.NONE
    assert on.produce("id", mine, HERE) is ErrorCode.NONE
    assert on.end("id", mine, committed=True) is ErrorCode.NONE
    assert [on.markers(place, mine.producer_id) for place in DATA] == [[(0, True)], [], [(0, True)]]
    assert all(on.is_settled(place) for place in DATA)


@pytest.mark.spec("TXN-43", "TXN-93")
def test_an_ended_transaction_is_described_with_its_start_and_no_partition(on: Stage) -> None:
    mine = given(on)
    on.passed_ms += 5000
    assert (on.add("id", mine, *DATA), on.end("id", mine, committed=False)) == (ErrorCode.NONE, ErrorCode.NONE)
    found = described(on)
    assert (found.state, found.value.start_ms, found.partitions) == (TransactionState.COMPLETE_ABORT, 5000, frozenset())
    assert found.value.timeout_ms == 60_000 and found.value.identity == mine


@pytest.mark.spec("TXN-44", "TXN-46", "TXN-48")
def test_the_scan_gives_up_what_is_past_its_time_and_nothing_else(on: Stage) -> None:
    old = given(on, "old")
    assert on.add("old", old, HERE) is ErrorCode.NONE
    on.passed_ms += 30_000
    young = given(on, "young")
    assert on.add("young", young, THERE) is ErrorCode.NONE
    on.passed_ms += 30_001
    on.coordinator.time_out()
    on.settle()
    states = {id_: value.state for id_, value in on.coordinator.list()[1]}
    assert states == {"old": TransactionState.COMPLETE_ABORT, "young": TransactionState.ONGOING}
    assert on.end("old", old, committed=True) is on.add("old", old, HERE) is ErrorCode.PRODUCER_FENCED
    assert on.produce("old", old, HERE) is ErrorCode.INVALID_PRODUCER_EPOCH
    code, again = on.init("old")  # a producer of the id goes on
    assert (code, again.epoch) == (ErrorCode.NONE, old.epoch + 2)


@pytest.mark.spec("TXN-34", "TXN-72", "TXN-75", "TXN-106")
def test_a_batch_opens_a_transaction_only_in_a_partition_that_was_added(on: Stage) -> None:
    mine = given(on)
    assert on.produce("id", mine, HERE) is ErrorCode.INVALID_TXN_STATE
    assert on.add("id", mine, HERE) is ErrorCode.NONE
    assert on.produce("id", mine, THERE) is ErrorCode.INVALID_TXN_STATE
    assert on.produce("id", mine, HERE) is ErrorCode.NONE
    assert on.end("id", mine, committed=True) is ErrorCode.NONE
    assert on.produce("id", mine, HERE, 1) is ErrorCode.INVALID_TXN_STATE  # late
    assert on.produce("id", mine, HERE) is ErrorCode.INVALID_TXN_STATE  # a repeat, after the end
    assert on.produce("other", mine, HERE, 1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    stranger = Identity(mine.producer_id, mine.epoch + 1)
    assert on.produce("id", stranger, HERE) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert all(on.is_settled(place) for place in DATA)


@pytest.mark.spec("TXN-93", "TXN-94")
def test_an_id_that_is_being_forgotten_is_not_listed(on: Stage) -> None:
    given(on)
    replicated(on)
    acknowledge(on)
    assert [id_ for id_, _ in on.coordinator.list()[1]] == ["id"]
    for _ in range(4):  # the clock is trusted when it has gone evenly for an hour
        on.passed_ms += HOUR_MS
        on.coordinator.expire()
    assert on.coordinator.list() == (ErrorCode.NONE, []), "its tombstone is not replicated yet"
    assert on.coordinator.describe("id") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    acknowledge(on)
    assert on.coordinator.list() == (ErrorCode.NONE, [])


@pytest.mark.spec("TXN-55", "TXN-93")
def test_a_partition_that_the_metadata_do_not_name_is_asked_for_and_waited_for(on: Stage) -> None:
    mine = given(on)
    gone = TopicPartition("gone", 0)
    assert on.add("id", mine, HERE, gone) is ErrorCode.NONE
    on.coordinator.end("id", mine, committed=True, done=lambda _: None)
    for _ in range(5):
        for job in on.take_jobs():
            job()
    assert described(on).state is TransactionState.PREPARE_COMMIT and described(on).partitions == {gone}
    on.deleted.add(gone)
    on.settle()
    assert described(on).state is TransactionState.COMPLETE_COMMIT


@pytest.mark.spec("TXN-30")
def test_without_a_block_of_producer_ids_the_client_is_told_to_come_again_and_nothing_is_stored(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> int:
        raise ZooKeeperError("away")

    end = on.world.partition(OWN).log.log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(on.coordinator, "_next_producer_id", away)
        assert on.init("id") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)
    assert on.world.partition(OWN).log.log_end_offset == end
    assert on.coordinator.describe("id") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert on.coordinator.list() == (ErrorCode.NONE, [])
    assert given(on).epoch == 0, "once ZooKeeper is back"


@pytest.mark.spec("TXN-7", "TXN-14")
def test_a_new_epoch_under_the_same_leader_loads_nothing_and_changes_no_coordinator_epoch(on: Stage) -> None:
    mine = given(on)
    before = described(on)
    assert (on.add("id", mine, HERE), on.produce("id", mine, HERE)) == (ErrorCode.NONE, ErrorCode.NONE)
    on.world.lead(OWN, epoch=7, version=1)
    on.coordinator.on_leadership_change([on.world.partition(OWN)], [])
    assert on.take_jobs() == [], "no load"
    assert described(on).value.producer_id == before.value.producer_id, "served all the time"
    assert on.end("id", mine, committed=True) is ErrorCode.NONE
    (producer,) = on.world.partition(HERE).log.active_producers()
    assert producer.coordinator_epoch == 0, "that of the load"


@pytest.mark.spec("BRK-32")
def test_only_partitions_of_its_own_topic_are_loaded_and_unloaded(on: Stage) -> None:
    given(on)
    others = [SimpleNamespace(tp=TopicPartition(t, OWN.partition), leader_epoch=99) for t in (OFFSETS.topic, "t")]
    on.coordinator.on_leadership_change(others, others)  # type: ignore[arg-type]
    on.coordinator.on_partitions_stopped([one.tp for one in others])
    assert on.take_jobs() == [] and described(on).state is TransactionState.EMPTY


@pytest.mark.spec("TXN-7")
def test_news_of_an_older_epoch_neither_loads_nor_unloads(on: Stage) -> None:
    given(on)
    on.succeed(Mortal())  # epoch 1
    on.succeed(Mortal())  # epoch 2
    stale = on.world.partition(OWN)
    followed = SimpleNamespace(tp=OWN, leader_epoch=1)
    on.coordinator.on_leadership_change([], [followed])  # type: ignore[list-item]
    assert described(on).state is TransactionState.EMPTY
    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [stale])
    assert len(on.take_jobs()) == 1, "the memory of what it had"
    on.coordinator.on_leadership_change([SimpleNamespace(tp=OWN, leader_epoch=4)], [])  # type: ignore[list-item]
    assert on.take_jobs() == [] and on.init("id")[0] is ErrorCode.NOT_COORDINATOR
    on.world.lead(OWN, epoch=6)
    on.coordinator.on_leadership_change([on.world.partition(OWN)], [])
    assert on.coordinator.describe("id") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "when the call returns"
    (load,) = on.take_jobs()  # in the background
    load()
    on.settle()
    assert described(on).state is TransactionState.EMPTY


@pytest.mark.spec("TXN-14")
@pytest.mark.parametrize("back", [False, True], ids=["lost", "lost and loaded again"])
def test_what_was_decided_before_the_partition_was_lost_is_not_written_after(
    on: Stage, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    mine = given(on)
    writer: Any = on.coordinator._writer  # noqa: SLF001  # its append is held up, nothing else
    append = writer.append

    def held_up(*args: Any, **options: Any) -> None:
        monkeypatch.setattr(writer, "append", append)
        on.world.follow(OWN, epoch=5)
        on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
        if back:
            on.world.lead(OWN, epoch=6)
            on.coordinator.on_leadership_change([on.world.partition(OWN)], [])
            on.settle()
            assert described(on).state is TransactionState.EMPTY
        append(*args, **options)

    monkeypatch.setattr(writer, "append", held_up)
    end = on.world.partition(OWN).log.log_end_offset
    assert on.add("id", mine, HERE) is ErrorCode.NOT_COORDINATOR
    assert on.world.partition(OWN).log.log_end_offset == end
    if back:
        assert described(on).state is TransactionState.EMPTY, "as it was loaded"
        assert on.add("id", mine, HERE) is ErrorCode.NONE, "the client's repeat"


@pytest.mark.spec("TXN-13", "TXN-14")
@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])
def test_what_becomes_of_a_record_after_the_partition_was_lost_and_loaded_again_changes_nothing(
    on: Stage, monkeypatch: pytest.MonkeyPatch, outcome: ErrorCode
) -> None:
    mine = given(on)
    writer: Any = on.coordinator._writer  # noqa: SLF001  # its answer is held up, nothing else
    append = writer.append
    acknowledge_it: list[Callable[[], None]] = []

    def held_up(number: int, records: Any, *, still: Any, done: Callable[[Any], None]) -> None:
        monkeypatch.setattr(writer, "append", append)
        append(
            number,
            records,
            still=still,
            done=lambda result: acknowledge_it.append(lambda: done(result._replace(error=outcome))),
        )

    monkeypatch.setattr(writer, "append", held_up)
    codes: list[ErrorCode] = []
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), codes.append)
    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.world.lead(OWN, epoch=6)
    on.coordinator.on_leadership_change([on.world.partition(OWN)], [])
    on.settle()
    assert on.end("id", mine, committed=True) is ErrorCode.NONE, "the log has it"
    before = described(on)
    acknowledge_it.pop()()
    on.settle()
    assert codes == [ErrorCode.NOT_COORDINATOR] and described(on) == before
