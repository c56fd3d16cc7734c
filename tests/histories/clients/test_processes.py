"""Processes of the workload, with played clients: what their operations come out as, when they end, and who follows them."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError

from tests.histories.analyser.notation import HEADER
from tests.histories.clients.client import Cell
from tests.histories.clients.played import CODES, Library, raised, record
from tests.histories.clients.values import encode, partition_of, topic_of
from tests.histories.history import FAIL, INFO, OK, Operation, read_file
from tests.histories.workload import ABORT, COMMIT, LEAVE, Keys, Worker
from tests.histories.writer import HistoryWriter

X, Y = 0, 1
_WORKERS = 5
_TIMED_OUT = -185
_REFUSED = {"fatal": {"fatal": True}, "to be aborted": {"txn_requires_abort": True}, "neither": {}}


class Hands(Worker):
    """A worker that does what it is told to."""

    def __init__(self, library: Library, file: Path, cell: Cell, number: int = 0) -> None:
        self.library, self.file, self._file = library, file, HistoryWriter(file, HEADER)
        self.troubles: Iterator[Exception] = iter(())
        super().__init__(number, _WORKERS, 1, "", cell, Keys(), self._file, self._told)
        self.open()

    def _told(self, what: str, keys: Sequence[int]) -> dict[int, Any]:
        self.asked = (what, list(keys))
        if (trouble := next(self.troubles, None)) is not None:
            raise trouble
        return dict.fromkeys(keys, (0, 3) if what == "ends" else 2)

    def anew(self) -> None:
        """Write into an empty file from here on: all of it is read for each operation."""
        self._file.close()
        self._file = self._writer = HistoryWriter(self.file, HEADER)

    def open(self) -> None:
        self._open()
        self.producer, self.consumer = self.library.producers[-1], self.library.consumers[-1]
        self.library.calls.clear()

    def do(self, *asked: list[Any]) -> Operation:
        assert self._client is not None
        self._do(self._client, list(asked))
        return self.operations[-1]

    def transact(self, *asked: list[Any], end: str = COMMIT) -> Operation:
        assert self._client is not None
        self._transact(self._client, list(asked), end)
        return self.operations[-1]

    def transform(self) -> Operation:
        assert self._client is not None
        self._transform(self._client, self._client.poll())
        return self.operations[-1]

    def send_and_poll(self) -> Operation:
        assert self._client is not None
        self._send_and_poll(self._client)
        return self.operations[-1]

    def ask(self) -> Operation:
        assert self._client is not None
        self._ask(self._client)
        return self.operations[-1]

    def take(self, keys: list[int], *, from_start: bool) -> None:
        assert self._client is not None
        self._take_keys(self._client, keys, from_start=from_start)

    def crash(self) -> None:
        self._crash()

    @property
    def operations(self) -> list[Operation]:
        """Return what was written; that no process does anything when it is over, the reader sees to."""
        return read_file(self.file).operations

    @property
    def is_over(self) -> bool:
        return self._client is None


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    return Library(monkeypatch)


@pytest.fixture
def assigned(library: Library, tmp_path: Path) -> Hands:
    return Hands(library, tmp_path / "h", Cell("assign", "idempotent"))


@pytest.fixture
def subscribed(library: Library, tmp_path: Path) -> Hands:
    return Hands(library, tmp_path / "subscribed", Cell("subscribe", "idempotent"))


@pytest.fixture
def transactional(library: Library, tmp_path: Path) -> Hands:
    return Hands(library, tmp_path / "h", Cell("subscribe", "transactional"))


def records(key: int, *offsets: int) -> list[Any]:
    return [record(key, offset, encode(100 + offset, key, 0)) for offset in offsets]


def last_line(hands: Hands) -> dict[str, Any]:
    line: dict[str, Any] = orjson.loads(hands.file.read_bytes().splitlines()[-1])
    return line


# --- what an operation comes out as


@pytest.mark.spec("HIS-8", "HIS-10")
def test_one_send_that_is_unknown_makes_the_operation_so_and_ends_the_process(assigned: Hands) -> None:
    for code in CODES:
        assigned.anew()
        assigned.producer.deliveries = iter([4, KafkaError(code), 6])
        value = 3 * code
        told = assigned.do(["send", X, value], ["send", Y, value + 1], ["send", X, value + 2])
        assert [(send.offset, send.outcome) for send in told.sends] == [(4, OK), (None, INFO), (6, OK)]
        assert (told.type, assigned.is_over) == (INFO, True), code
        assigned.open()


@pytest.mark.spec("HIS-7", "HIS-8")
def test_a_poll_that_raises_is_unknown_and_what_was_learned_before_stays(assigned: Hands) -> None:
    for number, code in enumerate(CODES):
        assigned.anew()
        assigned.consumer.batches = [records(X, 5, 6)]
        assigned.producer.deliveries = iter([4])
        assigned.library.end("consume", None, raised(code))
        told = assigned.do(["send", X, 2 * number], ["poll"], ["poll"], ["send", Y, 2 * number + 1])
        assert [(send.offset, send.outcome) for send in told.sends] == [(4, OK), (None, FAIL)]  # not come to
        assert [poll.runs for poll in told.polls] == [{X: ((5, 6), (105, 106))}, {}]
        assert (told.type, assigned.is_over) == (INFO, True), code
        assigned.open()


@pytest.mark.spec("HIS-8")
def test_a_poll_that_delivers_nothing_is_ok(assigned: Hands) -> None:
    told = assigned.do(["poll"])
    assert (told.type, told.f, [poll.runs for poll in told.polls]) == (OK, "poll", [{}])
    assert not assigned.is_over


@pytest.mark.spec("HIS-8")
def test_a_commit_that_fails_beside_a_good_poll_is_unknown_and_leaves_the_operation_ok(subscribed: Hands) -> None:
    for code in CODES:
        subscribed.anew()
        subscribed.consumer.batches = [records(X, 5)]
        subscribed.library.end("commit", raised(code))
        told = subscribed.do(["poll"], ["offsets", None])
        assert (told.type, told.f, told.commits) == (OK, "poll", [({X: 6}, INFO)]), code
        assert told.generation is None and not subscribed.is_over
    subscribed.consumer.generation = 3
    subscribed.consumer.batches = [records(X, 6)]
    told = subscribed.do(["poll"], ["offsets", None])
    assert (told.commits, told.generation) == ([({X: 7}, OK)], 3)  # that which it was sent in


@pytest.mark.spec("HIS-8", "HIS-10")
def test_an_operation_fails_if_nothing_of_it_was_sent_and_ends_a_process_that_can_send_no_more(
    assigned: Hands,
) -> None:
    assigned.library.end("produce", BufferError("full"))
    assert assigned.do(["send", X, 1]).type == FAIL
    assert not assigned.is_over
    assigned.library.end("produce", BufferError("full"))
    assigned.producer.deliveries = iter([4])
    beside = assigned.do(["send", X, 2], ["send", X, 3])
    assert (beside.type, [send.outcome for send in beside.sends]) == (OK, [FAIL, OK])
    assigned.library.end("produce", raised(_TIMED_OUT))
    assert assigned.do(["send", X, 4], ["poll"]).type == OK  # the poll is
    assert assigned.is_over


@pytest.mark.spec("HIS-6")
def test_an_operation_is_called_by_what_it_holds(subscribed: Hands, tmp_path: Path) -> None:
    subscribed.producer.deliveries = iter(range(9))
    assert subscribed.do(["send", X, 1]).f == "send"
    assert subscribed.do(["poll"]).f == "poll"
    assert subscribed.do(["poll"], ["offsets", None]).f == "poll"
    assert subscribed.do(["poll"], ["offsets", None], ["send", X, 2]).f == "mixed"
    other = Hands(subscribed.library, tmp_path / "other", Cell("subscribe", "transactional"))
    other.producer.deliveries = iter(range(9))
    assert other.transact(["send", X, 3]).f == other.transact(["poll"]).f == "txn"


@pytest.mark.spec("HIS-6")
def test_who_subscribes_names_its_group_in_each_operation_and_its_member_where_it_has_one(
    subscribed: Hands, tmp_path: Path
) -> None:
    subscribed.do(["poll"])
    assert subscribed.operations[-1].member is None
    subscribed.consumer.member = "m"
    subscribed.do(["poll"])
    subscribed.ask()
    subscribed.crash()
    assert [(one.f, one.group) for one in subscribed.operations if one.f == "subscribe"] == [("subscribe", "members-0")]
    assert {one.group for one in subscribed.operations} == {"members-0"}
    assert [one.member for one in subscribed.operations] == [None, None, "m", "m", "m"]
    assigned = Hands(subscribed.library, tmp_path / "assigned", Cell("assign", "plain"))
    assigned.do(["poll"])
    assert {(one.group, one.member) for one in assigned.operations} == {(None, None)}


@pytest.mark.spec("HIS-8", "HIS-12")
def test_a_question_that_gets_no_answer_fails_and_its_process_goes_on(assigned: Hands, subscribed: Hands) -> None:
    for hands in (assigned, subscribed):
        hands.troubles = iter([RuntimeError("no offsets"), *map(raised, CODES)])
        for _ in range(1 + len(CODES)):
            hands.anew()
            assert hands.ask().type == FAIL
        assert not hands.is_over


@pytest.mark.spec("HIS-12")
def test_ends_are_told_with_their_isolation_and_committed_offsets_with_their_group(subscribed: Hands) -> None:
    found = {}
    for _ in range(50):
        told = subscribed.ask()
        found[told.f] = (told.type, told.isolation, told.group, told.value[X], subscribed.asked[0])
    assert found == {
        "ends": (OK, "read_uncommitted", "members-0", [0, 3], "ends"),
        "committed": (OK, None, "members-0", 2, "members-0"),
    }


@pytest.mark.spec("HIS-13")
def test_what_is_sent_says_in_which_line_it_was_asked_for(assigned: Hands, tmp_path: Path) -> None:
    transacting = Hands(assigned.library, tmp_path / "transacting", Cell("assign", "transactional"))
    for value in range(3):
        for hands, do in ((assigned, assigned.do), (transacting, transacting.transact)):
            hands.producer.deliveries = iter([2 * value, 2 * value + 1])
            told = do(["send", X, 2 * value], ["poll"], ["send", Y, 2 * value + 1])
            sent = [data for _, _, data, _, _ in hands.producer.sent[-2:]]
            assert sent == [encode(2 * value, X, 0, told.invoked), encode(2 * value + 1, Y, 0, told.invoked)]


# --- what becomes of a transaction


@pytest.mark.spec("HIS-9")
def test_a_transaction_whose_commit_is_answered_is_ok_whatever_its_parts_say(transactional: Hands) -> None:
    transactional.producer.deliveries = iter([4])
    told = transactional.transact(["send", X, 1], ["poll"])
    assert (told.type, transactional.is_over) == (OK, False)
    assert told.ended_at is not None and told.time_invoked <= told.ended_at <= told.time
    assert transactional.library.calls[-1] == "commit_transaction"


@pytest.mark.spec("HIS-9", "HIS-10")
@pytest.mark.parametrize("flags", _REFUSED.values(), ids=_REFUSED)
def test_a_transaction_with_a_part_that_fails_is_taken_back_and_fails(
    transactional: Hands, flags: dict[str, bool]
) -> None:
    """The process goes on where the abort is answered, and else ends; the commit is never asked for."""
    value = 0
    for answered in (True, False):
        for part in ("send", "poll", "offsets"):
            value += 1
            transactional.library.calls.clear()
            transactional.consumer.batches = [records(X, 5)]
            transactional.producer.deliveries = iter([KafkaError(_TIMED_OUT) if part == "send" else 4])
            transactional.library.end("consume", raised(_TIMED_OUT) if part == "poll" else None)
            if part == "offsets":
                transactional.library.end("send_offsets_to_transaction", raised(_TIMED_OUT, **flags))
            if not answered:
                transactional.library.end("abort_transaction", raised(_TIMED_OUT, **flags))
            told = transactional.transact(["poll"], ["send", X, value], ["offsets", None])
            assert (told.type, told.ended_at) == (FAIL, None), part
            assert "commit_transaction" not in transactional.library.calls
            assert transactional.is_over is not answered
            if not answered:
                assert last_line(transactional)["end"] is True
                transactional.open()


@pytest.mark.spec("HIS-9", "HIS-10")
def test_a_transaction_that_does_not_begin_fails_and_ends_the_process(transactional: Hands) -> None:
    for number, code in enumerate(CODES):
        transactional.anew()
        transactional.library.end("begin_transaction", raised(code))
        told = transactional.transact(["send", X, number], ["poll"], ["offsets", None])
        assert (told.type, told.ended_at, transactional.is_over) == (FAIL, None, True), code
        assert not transactional.producer.sent
        transactional.open()


@pytest.mark.spec("HIS-9")
def test_a_commit_that_is_refused_as_abortable_and_then_taken_back_fails_and_the_process_goes_on(
    transactional: Hands,
) -> None:
    transactional.library.end("commit_transaction", raised(_TIMED_OUT, txn_requires_abort=True))
    told = transactional.transact(["poll"])
    assert (told.type, transactional.is_over) == (FAIL, False)
    assert told.ended_at is not None


@pytest.mark.spec("HIS-9", "HIS-10")
@pytest.mark.parametrize("flags", [{}, {"fatal": True}, {"retriable": True}], ids=["neither", "fatal", "no answer"])
def test_a_commit_with_any_other_end_is_unknown_and_nothing_follows_it_in_its_process(
    transactional: Hands, flags: dict[str, bool]
) -> None:
    transactional.library.always("commit_transaction", raised(_TIMED_OUT, **flags))
    transactional.consumer.batches = [records(X, 5)]
    told = transactional.transact(["poll"])
    assert (told.type, transactional.is_over) == (INFO, True)
    assert told.ended_at is not None
    assert told.polls[0].runs == {X: ((5,), (105,))}
    assert not {"abort_transaction", "seek"} & set(transactional.library.calls)


@pytest.mark.spec("HIS-9", "HIS-10")
def test_a_transaction_that_is_left_open_fails_and_its_process_ends_without_a_word(transactional: Hands) -> None:
    transactional.producer.deliveries = iter([4])
    told = transactional.transact(["send", X, 1], end=LEAVE)
    assert (told.type, told.ended_at, transactional.is_over) == (FAIL, None, True)
    assert last_line(transactional)["end"] is True
    ends = {"commit_transaction", "abort_transaction"}
    assert not ends & set(transactional.library.calls)


@pytest.mark.spec("HIS-9")
def test_after_a_transaction_that_failed_each_key_is_read_from_where_it_was_before(transactional: Hands) -> None:
    transactional.consumer.batches = [records(X, 5, 6) + records(Y, 3), records(X, 7)]
    told = transactional.transact(["poll"], ["poll"], end=ABORT)
    assert told.type == FAIL
    assert sorted(transactional.consumer.seeks) == [_at(X, 5), _at(Y, 3)]
    transactional.consumer.seeks.clear()
    transactional.consumer.batches = [records(X, 5)]
    assert transactional.transact(["poll"]).type == OK
    assert transactional.consumer.seeks == []


@pytest.mark.spec("HIS-9", "HIS-11")
def test_a_key_that_changed_hands_amid_a_transaction_that_failed_is_read_from_where_it_was_resumed(
    transactional: Hands,
) -> None:
    """What was polled of it before belongs to another position: another member may have committed beyond, meanwhile."""
    transactional.consumer.told = {partition_of(X): 9}

    def moves_on() -> list[Any]:
        transactional.consumer.tell("revoke", X, Y)
        transactional.consumer.tell("assign", X, Y)
        return records(X, 9)

    transactional.consumer.batches = [records(X, 5) + records(Y, 3), moves_on]
    told = transactional.transact(["poll"], ["poll"], end=ABORT)
    assert [(event.what, event.part) for event in told.rebalance] == [("revoked", 1), ("assigned", 1)]
    assert transactional.consumer.seeks == [_at(X, 9)]


# --- who follows a process


@pytest.mark.spec("HIS-10")
def test_who_follows_a_process_has_a_number_clients_and_a_transactional_id_of_its_own_but_one_in_ten(
    library: Library, tmp_path: Path
) -> None:
    """One in ten keeps the transactional id, so that the one before is fenced."""
    hands = Hands(library, tmp_path / "h", Cell("assign", "transactional"), number=3)
    for _ in range(600):
        hands.crash()
        assert hands.is_over and library.calls[-1] == "close"
        hands.open()
    hands.crash()
    crashes = [one.process for one in hands.operations if one.f == "crash"]
    assert crashes == [3 + _WORKERS * number for number in range(601)]
    assert {one.type for one in hands.operations if one.f == "crash"} == {INFO}
    assert len(library.producers) == len(library.consumers) == 601
    ids = [producer.settings["transactional.id"] for producer in library.producers]
    kept = sum(before == after for before, after in itertools.pairwise(ids))
    assert 600 / 20 < kept < 600 / 6
    assert len(set(ids)) == 601 - kept  # none comes again later
    others = {Hands(library, tmp_path / "other", Cell("assign", "transactional"), number=n) for n in (0, 1)}
    assert not {each.producer.settings["transactional.id"] for each in others} & set(ids)


@pytest.mark.spec("HIS-10")
def test_a_process_whose_producer_cannot_begin_is_tried_again_under_its_number(
    library: Library, tmp_path: Path
) -> None:
    hands = Hands(library, tmp_path / "h", Cell("assign", "transactional"))
    hands.crash()
    library.end("init_transactions", raised(_TIMED_OUT))
    hands.open()
    assert hands.is_over
    hands.open()
    assert hands.transact(["poll"]).process == _WORKERS


@pytest.mark.spec("HIS-11")
def test_an_assign_says_whether_it_goes_to_the_start_and_a_subscribe_never(assigned: Hands, subscribed: Hands) -> None:
    assigned.take([X, Y], from_start=False)
    assigned.take([Y], from_start=True)
    subscribed.take([X], from_start=True)
    of_assigned = [(one.f, one.value, one.from_start) for one in assigned.operations]
    assert of_assigned == [("assign", list(range(8)), True), ("assign", [X, Y], False), ("assign", [Y], True)]
    assert [(one.f, one.value, one.from_start) for one in subscribed.operations] == [
        ("subscribe", list(range(8)), False),
        ("subscribe", [X], False),
    ]


# --- what groups tell


@pytest.mark.spec("HIS-11")
def test_what_a_group_tells_between_operations_goes_to_the_next_one_and_all_in_order(subscribed: Hands) -> None:
    consumer = subscribed.consumer
    consumer.generation = 2
    consumer.tell("assign", X)
    consumer.tell("revoke", X)

    def during() -> list[Any]:
        consumer.generation = 3
        consumer.tell("assign", Y, X)
        return []

    consumer.batches = [[], during]
    told = subscribed.do(["poll"], ["poll"])
    assert [(event.what, event.keys, event.generation, event.part) for event in told.rebalance] == [
        ("assigned", (X,), 2, 0),
        ("revoked", (X,), 2, 0),
        ("assigned", (Y, X), 3, 1),
    ]
    assert [event.time for event in told.rebalance] == sorted(event.time for event in told.rebalance)
    consumer.tell("lost", X)
    assert [event.what for event in subscribed.ask().rebalance] == ["lost"]
    assert list(subscribed.do(["poll"]).rebalance) == []  # each is told once


@pytest.mark.spec("HIS-41")
def test_who_subscribes_to_a_key_gets_its_stranger_too_and_polls_and_commits_it_like_its_own(subscribed: Hands) -> None:
    subscribed.take([X], from_start=False)
    assert subscribed.consumer.subscribed[-1] == [topic_of(X)] == [topic_of(Y)]

    def begins() -> list[Any]:
        subscribed.consumer.tell("assign", X, Y)
        return records(X, 5) + records(Y, 3, 4)

    subscribed.consumer.batches = [begins]
    told = subscribed.do(["poll"], ["offsets", None])
    assert [event.keys for event in told.rebalance] == [(X, Y)]
    assert told.polls[0].runs == {X: ((5,), (105,)), Y: ((3, 4), (103, 104))}
    assert told.commits == [({X: 6, Y: 5}, OK)]


@pytest.mark.spec("HIS-11")
def test_who_transforms_tells_what_it_heard_while_it_consumed(library: Library, tmp_path: Path) -> None:
    hands = Hands(library, tmp_path / "h", Cell("subscribe", "transactional"), number=2)

    def resumes() -> list[Any]:
        hands.consumer.tell("assign", X)
        return records(X, 5)

    hands.consumer.batches = [resumes]
    hands.producer.deliveries = iter([0])
    told = hands.transform()
    assert [(event.what, event.part) for event in told.rebalance] == [("assigned", 0)]
    assert told.polls[0].runs == {X: ((5,), (105,))}
    assert (told.sends[0].source, told.commits) == ((X, 5), [({X: 6}, told.type)])


@pytest.mark.spec("HIS-13")
def test_who_subscribes_without_transactions_commits_after_each_poll_and_who_is_assigned_never(
    subscribed: Hands, assigned: Hands
) -> None:
    for hands in (subscribed, assigned):
        for _ in range(100):
            hands.producer.deliveries = iter(range(9))
            told = hands.send_and_poll()
            kinds = [type(part).__name__ for part in told.parts]
            behind = [after for before, after in zip(kinds, [*kinds[1:], ""], strict=True) if before == "Poll"]
            assert set(behind) <= ({"Commit"} if hands is subscribed else {"Poll", "Send", ""})
            assert kinds.count("Commit") == (kinds.count("Poll") if hands is subscribed else 0)


def _at(key: int, offset: int) -> tuple[str, int, int]:
    return topic_of(key), partition_of(key), offset
