"""The first batch of a transaction in a partition: asked for, held to its order, refused when the leave is void."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.replication.leading.verified_appends import Answer, Question
from kafkatool.broker.settings.description import BrokerOverrides
from kafkatool.broker.settings.dynamic import in_force
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, read_header
from tests.broker.replication.world import TP, World, world
from tests.broker.storage.batch_builders import batch

NONE, AGAIN, NOT_ADDED = ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_TXN_STATE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@dataclass
class Leader:
    """A leader whose coordinator answers when the test says so."""

    broker: World
    questions: list[tuple[Question, Callable[[Answer], None]]] = field(default_factory=list)

    def ask(self, question: Question, timeout_ms: float, done: Callable[[Answer], None]) -> None:
        self.questions.append((question, done))

    def answer(self, code: int = NONE) -> None:
        """Answer the oldest question."""
        question, done = self.questions.pop(0)
        done(dict.fromkeys(question.partitions, code))

    def produce(
        self, sequence: int, *, epoch: int = 0, count: int = 1, partition: TopicPartition = TP
    ) -> list[AppendResult]:
        """Send a transactional batch; the list returned gets the result when it is there."""
        records = batch(count, attributes=TRANSACTIONAL, producer=(7, epoch, sequence))
        header = read_header(records)
        assert header is not None
        results: list[AppendResult] = []
        self.broker.manager.verified_appends.append(
            {partition: records},
            {partition: header},
            "id",
            acks=1,
            timeout_ms=60_000,
            on_done=lambda done: results.append(done[partition]),
        )
        return results

    def end(self, *, epoch: int = 0) -> None:
        marker = encode_marker(7, epoch, Marker(committed=False, coordinator_epoch=0), 1)
        self.broker.manager.appends.append({TP: marker}, acks=1, timeout_ms=0, internal=True, on_done=lambda _: None)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    with world(tmp_path) as broker:
        broker.lead()
        broker.know(TP, TopicPartition(TRANSACTION_TOPIC, 0))
        made = Leader(broker)
        broker.manager.verified_appends.ask_by(made.ask)
        yield made


def codes(*results: list[AppendResult]) -> list[ErrorCode | None]:
    return [result[0].error if result else None for result in results]


@pytest.mark.spec("TXN-34")
def test_kafka_3_9s_word_for_what_was_not_added_is_taken_for_48(leader: Leader) -> None:
    first = leader.produce(0)
    leader.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert codes(first) == [NOT_ADDED]


@pytest.mark.spec("TXN-72")
def test_one_question_for_a_transaction_and_none_for_its_later_batches(leader: Leader) -> None:
    first = leader.produce(0)
    assert codes(first) == [None] and leader.broker.partition().log.log_end_offset == 0, "not there before the word"
    assert [(q.transactional_id, q.producer_id, q.producer_epoch, q.partitions) for q, _ in leader.questions] == [
        ("id", 7, 0, (TP,))
    ]
    leader.answer()
    assert codes(first, leader.produce(1), leader.produce(2)) == [NONE] * 3 and leader.questions == []
    leader.end()
    repeat = leader.produce(2)  # of a batch that is kept: asked for as well, now that nothing is open
    leader.answer(NOT_ADDED)
    assert codes(repeat) == [NOT_ADDED]


@pytest.mark.spec("TXN-77")
@pytest.mark.parametrize(("code", "told"), [(NONE, NONE), (ErrorCode.INVALID_TXN_STATE, NOT_ADDED)])
def test_the_other_partitions_of_a_request_are_appended_with_what_is_asked_for(
    leader: Leader, code: ErrorCode, told: ErrorCode
) -> None:
    other = TopicPartition(TP.topic, TP.partition + 1)
    logs = [leader.broker.partition().log, leader.broker.lead(other).log]
    first = batch(attributes=TRANSACTIONAL, producer=(7, 0, 0))
    header = read_header(first)
    assert header is not None
    results: list[Mapping[TopicPartition, AppendResult]] = []
    leader.broker.manager.verified_appends.append(
        {TP: first, other: batch()}, {TP: header}, "id", acks=1, timeout_ms=60_000, on_done=results.append
    )  # it returns while the coordinator thinks
    assert [q.partitions for q, _ in leader.questions] == [(TP,)]
    assert (results, [log.log_end_offset for log in logs]) == ([], [0, 0])
    leader.answer(code)
    (by_partition,) = results
    assert {tp: result.error for tp, result in by_partition.items()} == {TP: told, other: NONE}
    assert [log.log_end_offset for log in logs] == [int(told is NONE), 1]


@pytest.mark.spec("TXN-75", "TXN-106")
@pytest.mark.parametrize("what", ["marker", "truncation", "role"])
def test_what_comes_between_question_and_append_voids_the_leave(leader: Leader, what: str) -> None:
    if what == "truncation":
        leader.broker.produce()
    late = leader.produce(0)
    if what == "marker":
        leader.end()
    elif what == "truncation":
        leader.broker.partition().log.truncate_to(0)
    else:
        leader.broker.follow(epoch=1)
        leader.broker.lead(epoch=2, version=1)
    before = leader.broker.partition().log.log_end_offset
    leader.answer()
    assert codes(late) == [NOT_ADDED]
    log = leader.broker.partition().log
    assert (log.log_end_offset, log.open_transactions()) == (before, [])


@pytest.mark.spec("TXN-75")
def test_a_first_append_consumes_the_leave(leader: Leader) -> None:
    first, second = leader.produce(0), leader.produce(0)  # the same batch twice, over two connections
    leader.answer()
    leader.end()
    leader.answer()
    assert codes(first, second) == [NONE, NOT_ADDED]


@pytest.mark.spec("TXN-76")
def test_none_of_several_requests_on_the_way_overtakes_the_first(leader: Leader) -> None:
    waiting = [leader.produce(sequence) for sequence in (3, 4)]  # the log knows nothing of the producer: any first one
    _, done = leader.questions.pop()
    done({TP: NONE})  # the answer for the second comes first
    assert codes(*waiting) == [None, OUT_OF_ORDER]
    leader.answer(ErrorCode.NETWORK_EXCEPTION)
    assert codes(waiting[0]) == [AGAIN]
    overtaking = leader.produce(4)
    leader.answer()
    assert codes(overtaking) == [OUT_OF_ORDER], "the first has failed with what is repeated"
    again = leader.produce(3)
    leader.answer()
    assert codes(again, leader.produce(4)) == [NONE, NONE]


@pytest.mark.spec("TXN-76")
def test_a_lower_sequence_that_asks_later_is_the_one_to_come_first(leader: Leader) -> None:
    higher, lower = leader.produce(4), leader.produce(3)
    leader.answer()
    assert codes(higher, lower) == [OUT_OF_ORDER, None]
    leader.answer()
    assert codes(lower, leader.produce(4)) == [NONE, NONE]


@pytest.mark.spec("TXN-76", "TXN-105")
def test_a_batch_that_comes_after_its_transaction_does_not_keep_the_next_one_from_beginning(leader: Leader) -> None:
    first = leader.produce(0)
    leader.answer()
    leader.end()
    late = leader.produce(0)
    leader.answer(NOT_ADDED)
    following, overtaking = leader.produce(1), leader.produce(2)
    _, done = leader.questions.pop()
    done({TP: NONE})
    assert codes(overtaking) == [OUT_OF_ORDER], "the order is held by what was written"
    leader.answer()
    assert codes(first, late, following) == [NONE, NOT_ADDED, NONE]


@pytest.mark.spec("TXN-76", "TXN-26")
def test_a_higher_epoch_has_an_order_of_its_own(leader: Leader) -> None:
    leader.produce(5)
    leader.questions.clear()
    newer = leader.produce(7, epoch=1)
    leader.answer()
    older = leader.produce(5)
    assert leader.questions == [], "an older epoch is refused whatever is said"
    assert codes(newer, older) == [NONE, ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.spec("TXN-81")
@pytest.mark.parametrize("sequence", [0, 41, 2**31 - 1])
def test_a_transaction_of_a_producer_that_the_log_does_not_know_begins_anywhere(leader: Leader, sequence: int) -> None:
    first = leader.produce(sequence)
    leader.answer()
    assert codes(first) == [NONE]
    idempotent = leader.broker.manager.appends
    results: list[AppendResult] = []
    idempotent.append(
        {TP: batch(producer=(8, 0, 41))}, acks=1, timeout_ms=0, on_done=lambda done: results.append(done[TP])
    )
    assert codes(results) == [ErrorCode.UNKNOWN_PRODUCER_ID], "which is for idempotent producers alone"


@pytest.mark.spec("TXN-80", "TXN-73", "TXN-71")
def test_verification_can_be_switched_off_and_on_while_the_broker_runs(leader: Leader) -> None:
    manager, config = leader.broker.manager, leader.broker.config
    assert config.transaction_partition_verification_enable, "the default"
    manager.reconfigure(replace(config, transaction_partition_verification_enable=False))
    assert codes(leader.produce(0)) == [NONE] and leader.questions == []
    plain: list[AppendResult] = []
    manager.appends.append(
        {TP: batch(producer=(7, 0, 1))}, acks=1, timeout_ms=0, on_done=lambda done: plain.append(done[TP])
    )
    assert codes(plain) == [NOT_ADDED], "TXN-71 stays: a plain batch within its transaction"
    leader.end()
    manager.reconfigure(config)
    asked = leader.produce(1)
    assert codes(asked) == [None] and len(leader.questions) == 1
    leader.answer()
    leader.end()
    off, on = ({"transaction.partition.verification.enable": enabled} for enabled in ("false", "true"))
    for of_this, of_all, asks in ((off, {}, False), ({}, off, False), (on, off, True), ({}, {}, True)):
        manager.reconfigure(in_force(config, BrokerOverrides(of_this, of_all)))
        leader.produce(2)
        assert len(leader.questions) == int(asks), "as a config node says"
        leader.questions.clear()
        leader.end()


@pytest.mark.spec("TXN-80", "TXN-73")
def test_without_verification_too_nothing_is_taken_where_no_coordinator_can_be(tmp_path: Path) -> None:
    with world(tmp_path, transaction_partition_verification_enable="false") as broker:
        broker.lead()
        broker.know(TP)
        assert codes(Leader(broker).produce(0)) == [NOT_ADDED]


@pytest.mark.spec("TXN-75")
def test_what_was_asked_for_nobody_is_not_kept_for_ever(leader: Leader) -> None:
    waiting = leader.produce(0)
    state = leader.broker.partition().log.state.producers
    state.expire(0)
    leader.answer()
    assert codes(waiting) == [NONE], "asked since the look before the last"
    leader.end()
    lost = leader.produce(1, epoch=1)
    for _ in range(2):
        state.expire(2**62)
    leader.answer()
    assert codes(lost) == [NOT_ADDED]


@pytest.mark.spec("TXN-76")
@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("not here", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("not led here", ErrorCode.NOT_LEADER_FOR_PARTITION),
        ("before the role was lost", AGAIN),
    ],
)
def test_what_was_sent_behind_a_refused_batch_does_not_take_its_place(
    leader: Leader, where: str, told: ErrorCode
) -> None:
    """Librdkafka takes the answer to the later one for a word on the earlier one, too, and commits without it."""
    partition = TopicPartition("new", 0) if where == "not here" else TP
    if where == "not led here":
        leader.broker.follow(epoch=1)
    refused = leader.produce(5, partition=partition)
    if where == "before the role was lost":
        leader.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader.broker.follow(epoch=1)
    assert codes(refused) == [told]
    leader.broker.lead(partition, epoch=2, version=1)
    assert codes(leader.produce(6, partition=partition)) == [AGAIN] and not leader.questions
    again = leader.produce(5, partition=partition)
    leader.answer()
    assert codes(again, leader.produce(6, partition=partition)) == [NONE, NONE]


@pytest.mark.spec("TXN-76", "TXN-81")
@pytest.mark.parametrize("since", ["marker", "epoch"])
def test_a_refused_batch_that_was_given_up_keeps_nothing_out(leader: Leader, since: str) -> None:
    leader.broker.follow(epoch=1)
    assert codes(leader.produce(5)) == [ErrorCode.NOT_LEADER_FOR_PARTITION]
    leader.broker.lead(epoch=2, version=1)
    if since == "marker":
        leader.end()
    later = leader.produce(6, epoch=int(since == "epoch"))
    leader.answer()
    assert codes(later) == [ErrorCode.UNKNOWN_PRODUCER_ID if since == "marker" else NONE]
