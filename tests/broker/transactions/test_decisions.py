"""What becomes of each request in each state: the tables of the requirements."""

from dataclasses import replace

import pytest

from kafkatool.broker.transactions import decisions
from kafkatool.broker.transactions.decisions import LAST_EPOCH, Move, Outcome, Say, Wait, WantId
from kafkatool.broker.transactions.states import LEGAL, TransactionState
from kafkatool.broker.transactions.transaction import Identity, IllegalMoveError, Transaction
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

S = TransactionState
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
NOW = 1_000_000
KNOWN = Transaction(
    producer_id=7, epoch=5, timeout_ms=60_000, update_ms=500, state=S.ONGOING, partitions=frozenset({A}), start_ms=400
)
MINE = Identity(7, 5)


def known(state: TransactionState, **changes: object) -> Transaction:
    partitions = frozenset({A}) if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else frozenset()
    return replace(KNOWN, state=state, partitions=partitions, **changes)  # type: ignore[arg-type]


def give(
    of: Transaction | None, expected: Identity | None = None, *, busy: bool = False, fresh_id: int | None = None
) -> Outcome:
    return decisions.give_identity(of, busy, NOW, timeout_ms=9, expected=expected, fresh_id=fresh_id)


def moved(outcome: Outcome) -> Transaction:
    assert isinstance(outcome, Move), outcome
    return outcome.to


@pytest.mark.spec("TXN-17")
@pytest.mark.parametrize("to", list(S), ids=lambda s: s.label)
@pytest.mark.parametrize("state", list(S), ids=lambda s: s.label)
def test_only_the_moves_of_the_table_are_made(state: TransactionState, to: TransactionState) -> None:
    idle = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    legal = {
        S.EMPTY: idle,
        S.ONGOING: idle | {S.ONGOING},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: idle,
        S.PREPARE_EPOCH_FENCE: {S.ONGOING},
    }
    assert {state: set(sources) for state, sources in LEGAL.items()} == legal
    if state in legal[to]:
        assert known(state).moved(to).state is to
    else:
        with pytest.raises(IllegalMoveError):
            known(state).moved(to)


@pytest.mark.spec("TXN-18", "TXN-24", "TXN-25", "TXN-26")
def test_an_unknown_id_gets_a_fresh_producer_whatever_identity_it_tells() -> None:
    for expected in (None, MINE):
        assert give(None, expected) == WantId()
        fresh = moved(give(None, expected, fresh_id=9))
        assert (fresh.producer_id, fresh.epoch, fresh.state, fresh.timeout_ms) == (9, 0, S.EMPTY, 9)
        assert (fresh.start_ms, fresh.update_ms, fresh.last_epoch) == (-1, NOW, -1)


@pytest.mark.spec("TXN-25", "TXN-26")
@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT], ids=lambda s: s.label)
def test_without_a_transaction_the_epoch_is_raised(state: TransactionState) -> None:
    raised = moved(give(known(state)))
    assert (raised.identity, raised.last_epoch, raised.state, raised.timeout_ms) == (Identity(7, 6), -1, S.EMPTY, 9)
    assert (raised.start_ms, raised.partitions) == (-1, frozenset())
    raised = moved(give(known(state), MINE))
    assert (raised.identity, raised.last_epoch) == (Identity(7, 6), 5)
    repeated = known(state, epoch=6, last_epoch=5)
    assert give(repeated, MINE) == Say(ErrorCode.NONE, repeated), "the answer was lost"
    for stranger in (Identity(7, 4), Identity(7, 7), Identity(8, 6), Identity(8, 5)):
        assert give(repeated, stranger) == Say(ErrorCode.PRODUCER_FENCED)


@pytest.mark.spec("TXN-18", "TXN-25", "TXN-28")
def test_an_exhausted_epoch_gives_way_to_a_new_producer_id() -> None:
    assert moved(give(known(S.EMPTY, epoch=LAST_EPOCH - 1))).epoch == LAST_EPOCH == 32_766
    for state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        for epoch in (LAST_EPOCH, LAST_EPOCH + 1):
            exhausted = known(state, epoch=epoch)
            assert give(exhausted) == WantId()
            fresh = moved(give(exhausted, fresh_id=9))
            assert (fresh.identity, fresh.state, fresh.last_producer_id) == (Identity(9, 0), S.EMPTY, 7)
            assert fresh.last_epoch == -1
        assert give(known(state, epoch=LAST_EPOCH), Identity(7, LAST_EPOCH)) == WantId()
        fresh = moved(give(known(state, epoch=LAST_EPOCH), Identity(7, LAST_EPOCH), fresh_id=9))
        assert (fresh.identity, fresh.last_producer_id, fresh.last_epoch) == (Identity(9, 0), 7, LAST_EPOCH)
    assert give(fresh, Identity(7, LAST_EPOCH)) == Say(ErrorCode.NONE, fresh), "its repeat, under the old id"
    for stranger in (Identity(8, LAST_EPOCH), Identity(7, LAST_EPOCH - 1), Identity(7, LAST_EPOCH + 1)):
        assert give(fresh, stranger) == Say(ErrorCode.PRODUCER_FENCED)
    not_exhausted = replace(fresh, last_epoch=LAST_EPOCH - 1)
    assert give(not_exhausted, Identity(7, LAST_EPOCH - 1)) == Say(ErrorCode.PRODUCER_FENCED)


@pytest.mark.spec("TXN-25", "TXN-27", "TXN-28", "TXN-51")
def test_an_open_transaction_is_fenced_by_whoever_may_and_aborted_once() -> None:
    for expected in (None, MINE):
        outcome = give(KNOWN, expected)
        assert isinstance(outcome, Move) and outcome.code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert (outcome.to.state, outcome.to.identity, outcome.to.last_epoch) == (S.PREPARE_ABORT, Identity(7, 6), -1)
        assert outcome.to.partitions == {A}
        raised = outcome.at_once
        assert raised is not None and (raised.state, raised.epoch) == (S.PREPARE_EPOCH_FENCE, 6)
        again = decisions.fence(raised, NOW)
        assert again.to.epoch == 6, "a fence that could not be stored does not raise again"
    assert give(replace(KNOWN, last_epoch=4), Identity(7, 4)) == Say(ErrorCode.PRODUCER_FENCED), "a late repeat"
    for stranger in (Identity(7, 3), Identity(7, 6), Identity(8, 5)):
        assert give(KNOWN, stranger) == Say(ErrorCode.PRODUCER_FENCED), "fenced itself, it aborts nobody's"


@pytest.mark.spec("TXN-28")
def test_the_highest_epoch_of_all_only_fences() -> None:
    raised = decisions.fence(replace(KNOWN, epoch=LAST_EPOCH), NOW).at_once
    assert raised is not None and raised.epoch == 32_767
    assert decisions.fence(raised, NOW).to.epoch == 32_767
    done = decisions.complete(decisions.fence(raised, NOW).to, NOW)
    assert give(done) == WantId(), "nobody is given it"


@pytest.mark.spec("TXN-22", "TXN-24")
def test_what_is_ending_or_on_its_way_is_waited_for_whatever_the_identity() -> None:
    for expected in (None, MINE, Identity(9, 9)):
        assert give(known(S.PREPARE_COMMIT), expected) == Wait()
        assert give(known(S.PREPARE_ABORT), expected) == Wait()
        assert give(known(S.EMPTY), expected, busy=True) == Wait()


def add(of: Transaction | None, *partitions: TopicPartition, identity: Identity = MINE, busy: bool = False) -> Outcome:
    return decisions.add(of, busy, NOW, identity=identity, partitions=frozenset(partitions))


@pytest.mark.spec("TXN-31", "TXN-32", "TXN-39")
@pytest.mark.parametrize("state", sorted(set(S) - {S.DEAD}), ids=lambda s: s.label)
def test_a_stranger_adds_and_ends_nothing(state: TransactionState) -> None:
    strangers = {
        **dict.fromkeys((Identity(8, 5), Identity(8, 4), Identity(8, 6)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        Identity(7, 4): ErrorCode.PRODUCER_FENCED,
        Identity(7, 6): ErrorCode.PRODUCER_FENCED,
    }
    for identity, code in strangers.items():
        for busy in (False, True):
            assert add(known(state), A, identity=identity, busy=busy) == Say(code)
            for committed in (True, False):
                ended = decisions.end(known(state), busy, NOW, identity=identity, committed=committed)
                assert ended == Say(code)
    assert add(None, A) == Say(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert decisions.end(None, False, NOW, identity=MINE, committed=True) == Say(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.spec("TXN-31", "TXN-32", "TXN-33")
def test_additions_begin_a_transaction_or_join_it() -> None:
    for state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        begun = moved(add(replace(known(state), partitions=frozenset({A})), B))
        assert (begun.state, begun.partitions, begun.start_ms, begun.update_ms) == (S.ONGOING, {B}, NOW, NOW)
    joined = moved(add(KNOWN, B))
    assert (joined.partitions, joined.start_ms, joined.update_ms) == ({A, B}, 400, NOW)
    assert add(KNOWN, A) == Say(ErrorCode.NONE), "a repeat writes nothing"
    for state in (S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE):
        assert add(known(state), A) == Wait()
    assert add(KNOWN, A, busy=True) == Wait()


@pytest.mark.spec("TXN-37")
def test_ten_thousand_partitions_are_one_transaction() -> None:
    many = frozenset(TopicPartition("t", n) for n in range(10_000))
    assert len(moved(add(KNOWN, *many)).partitions) == 10_001


@pytest.mark.spec("TXN-39")
@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT),
        (S.PREPARE_COMMIT, Wait(), Wait()),
        (S.PREPARE_ABORT, Wait(), Wait()),
        (S.COMPLETE_COMMIT, Say(ErrorCode.NONE), Say(ErrorCode.INVALID_TXN_STATE)),
        (S.COMPLETE_ABORT, Say(ErrorCode.INVALID_TXN_STATE), Say(ErrorCode.NONE)),
        (S.EMPTY, Say(ErrorCode.INVALID_TXN_STATE), Say(ErrorCode.INVALID_TXN_STATE)),
    ],
    ids=lambda v: v.label if isinstance(v, TransactionState) else "",
)
def test_the_table_of_ends(state: TransactionState, commit: object, abort: object) -> None:
    for committed, expected in ((True, commit), (False, abort)):
        outcome = decisions.end(known(state), False, NOW, identity=MINE, committed=committed)
        if isinstance(expected, TransactionState):
            to = moved(outcome)
            assert (to.state, to.identity, to.partitions, to.start_ms) == (expected, MINE, {A}, 400)
        else:
            assert outcome == expected
        assert decisions.end(known(state), True, NOW, identity=MINE, committed=committed) == Wait()


@pytest.mark.spec("TXN-34", "TXN-72")
def test_a_leader_is_told_what_is_in_the_transaction_under_way() -> None:
    def verify(of: Transaction | None, identity: Identity = MINE, *, ending: bool = False) -> list[ErrorCode]:
        codes = decisions.verify(of, ending, identity=identity, partitions=frozenset({A, B}))
        return [codes[A], codes[B]]

    assert verify(KNOWN) == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
    for state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        assert verify(known(state)) == [ErrorCode.INVALID_TXN_STATE] * 2
    assert verify(known(S.PREPARE_COMMIT)) == verify(KNOWN, ending=True) == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    for state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):  # who asks is looked at first
        assert verify(known(state), Identity(7, 4)) == [ErrorCode.PRODUCER_FENCED] * 2
        for other in (Identity(8, 5), Identity(8, 4)):  # and of that the id before the epoch
            assert verify(known(state), other) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert verify(KNOWN, Identity(7, 4)) == [ErrorCode.PRODUCER_FENCED] * 2
    assert verify(KNOWN, Identity(8, 5)) == verify(None) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


@pytest.mark.spec("TXN-43")
def test_a_complete_transaction_has_no_partitions_and_keeps_its_start() -> None:
    for state, done in ((S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)):
        complete = decisions.complete(known(state), NOW)
        assert (complete.state, complete.partitions, complete.start_ms, complete.update_ms) == (
            done,
            frozenset(),
            400,
            NOW,
        )


@pytest.mark.spec("TXN-44", "TXN-46")
def test_what_is_open_for_longer_than_its_timeout_is_fenced() -> None:
    due = KNOWN.start_ms + KNOWN.timeout_ms
    assert decisions.time_out(KNOWN, False, due) is None, "not before"
    move = decisions.time_out(KNOWN, False, due + 1)
    assert move is not None and (move.to.state, move.to.epoch) == (S.PREPARE_ABORT, 6)
    assert move.at_once is not None
    again = decisions.time_out(move.at_once, False, due + 2)
    assert again is not None and again.to.epoch == 6
    assert decisions.time_out(KNOWN, True, due + 1) is None
    for state in set(S) - {S.ONGOING, S.PREPARE_EPOCH_FENCE}:
        assert decisions.time_out(known(state), False, due + 1) is None


@pytest.mark.spec("TXN-47")
def test_only_what_is_idle_expires() -> None:
    for state in S:
        idle = state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        assert decisions.has_expired(known(state), False, 500) is idle
        assert not decisions.has_expired(known(state), False, 499)
        assert not decisions.has_expired(known(state), True, 500)


@pytest.mark.spec("TXN-45")
def test_what_a_former_coordinator_began_in_the_future_began_now() -> None:
    assert decisions.loaded(replace(KNOWN, start_ms=NOW + 5), NOW).start_ms == NOW
    assert decisions.loaded(KNOWN, NOW) == KNOWN
