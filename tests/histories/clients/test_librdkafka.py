"""librdkafka's recorder, with played clients: what each end of each call is written down as, over all errors there are."""

import itertools
import threading

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.histories.clients import librdkafka
from tests.histories.clients.client import Cell
from tests.histories.clients.librdkafka import Librdkafka
from tests.histories.clients.played import CODES, Library, raised, record
from tests.histories.clients.values import encode, partition_of, topic_of
from tests.histories.history import FAIL, INFO, OK

X, Y, Z = 0, 1, 2
_OUT_OF_ORDER, _INVALID_TXN_STATE = 45, 48
_STATE, _FENCED = -172, -144  # librdkafka's own


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    return Library(monkeypatch)


def transactional(library: Library) -> Librdkafka:
    client = Librdkafka("", Cell("subscribe", "transactional"), 1, group="g", transactional_id="t")
    library.calls.clear()
    return client


def at(key: int, offset: int) -> tuple[str, int, int]:
    return topic_of(key), partition_of(key), offset


# --- sends


@pytest.mark.spec("HIS-8", "HIS-13")
@pytest.mark.parametrize("flags", [{}, {"fatal": True}, {"retriable": True}, {"txn_requires_abort": True}])
def test_a_send_of_which_an_error_is_told_is_unknown_whatever_the_error(
    library: Library, flags: dict[str, bool]
) -> None:
    """An attempt before the last may have been appended; the send beside it keeps its own outcome."""
    client = Librdkafka("", Cell("assign", "plain"), 1)
    for code in CODES:
        library.producers[0].deliveries = iter([KafkaError(code, "told", **flags), 7])
        assert client.send([(X, 1), (Y, 2)]) == [(None, INFO), (7, OK)], code
    assert not client.broken


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_send_that_is_refused_before_anything_is_sent_fails(library: Library) -> None:
    """A full queue takes more later on; a producer with any other error never will."""
    client = Librdkafka("", Cell("assign", "idempotent"), 1)
    library.end("produce", BufferError("full"))
    library.producers[0].deliveries = iter([7])
    assert client.send([(X, 1), (X, 2)]) == [(None, FAIL), (7, OK)]
    assert not client.broken
    for code in CODES:
        client = Librdkafka("", Cell("assign", "idempotent"), 1)
        library.end("produce", raised(code))
        assert client.send([(X, 1)]) == [(None, FAIL)], code
        assert client.broken and not library.producers[-1].sent


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_send_that_is_answered_with_no_place_is_acknowledged_without_one(library: Library) -> None:
    client = Librdkafka("", Cell("assign", "plain", acks="0"), 1)
    library.producers[0].deliveries = iter([None, -1001, -1, 0])
    assert client.send([(X, value) for value in range(4)]) == [(None, OK)] * 3 + [(0, OK)]
    assert library.producers[0].settings["acks"] == "0"


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_send_is_waited_for_ten_seconds_and_what_is_heard_of_it_later_changes_nothing(library: Library) -> None:
    client = Librdkafka("", Cell("assign", "plain"), 1)
    (producer,) = library.producers
    outcomes = client.send([(X, 1)])
    assert outcomes == [(None, INFO)]
    assert library.calls.count("producer poll") == 10  # each takes a second, and a little
    producer.unheard[0](None, record(X, 3, None))
    producer.deliveries = iter([7])
    client.send([(X, 2)])
    assert outcomes == [(None, INFO)]
    assert library.calls.count("producer poll") == 11  # what is answered is waited for no longer


@pytest.mark.spec("HIS-8", "HIS-13")
def test_a_producer_that_gives_up_while_sends_are_waited_for_leaves_them_unknown(library: Library) -> None:
    for code in CODES:
        client = Librdkafka("", Cell("assign", "idempotent"), 1)
        library.producers[-1].deliveries = iter([7])
        library.end("producer poll", raised(code, fatal=True))
        assert client.send([(X, 1)]) == [(None, INFO)], code
        assert client.broken


@pytest.mark.spec("HIS-13")
def test_a_value_goes_to_the_partition_of_its_key_as_text_and_without_a_record_key(library: Library) -> None:
    client = Librdkafka("", Cell("assign", "plain"), 9)
    library.producers[0].deliveries = iter([0, 1])
    client.line = 400
    client.send([(5, 77), (5, 78)])
    assert library.producers[0].sent == [
        ("history-2", 1, encode(value, 5, 9, 400), None, None) for value in (77, 78)
    ]  # and says where in the history it was asked for


@pytest.mark.spec("HIS-7", "HIS-13", "HIS-41")
def test_of_a_compacted_key_a_value_has_a_record_key_and_a_tombstone_its_text_in_a_header(library: Library) -> None:
    client = Librdkafka("", Cell("assign", "plain", cleanup="compact"), 9)
    library.producers[0].deliveries = iter(range(3))
    client.send([(5, 35), (5, -36), (5, 51)])
    assert library.producers[0].sent == [
        ("history-2", 1, encode(35, 5, 9, 0), b"3", None),
        ("history-2", 1, None, b"4", [("value", encode(-36, 5, 9, 0))]),
        ("history-2", 1, encode(51, 5, 9, 0), b"3", None),
    ]
    told = [
        record(5, offset, value, headers=headers)
        for offset, (_, _, value, _, headers) in enumerate(library.producers[0].sent)
    ]
    library.consumers[0].batches = [told]
    assert client.poll() == {5: [(0, 35), (1, -36), (2, 51)]}


# --- polls


@pytest.mark.spec("HIS-7", "HIS-13")
def test_a_message_that_tells_an_error_is_no_record_and_one_that_is_no_value_is_polled_as_none(
    library: Library,
) -> None:
    client = Librdkafka("", Cell("assign", "plain"), 1)
    (consumer,) = library.consumers
    for code in CODES:
        told = record(X, 4, encode(9, X, 0), error=KafkaError(code))
        consumer.batches.append([record(X, 5, encode(1, X, 0)), told, record(Y, 3, b"what else"), record(X, 8, None)])
        assert client.poll() == {X: [(5, 1), (8, None)], Y: [(3, None)]}, code
    assert client.positions == {X: 9, Y: 4}


# --- keys


@pytest.mark.spec("HIS-11", "HIS-13")
def test_an_assign_passes_on_where_the_process_is_and_begins_other_keys_at_their_start(library: Library) -> None:
    client = Librdkafka("", Cell("assign", "plain"), 1)
    (consumer,) = library.consumers
    consumer.batches = [[record(X, 5, encode(1, X, 0)), record(Y, 7, encode(2, Y, 0))]]
    client.assign([X, Y], from_start=True)
    client.poll()
    client.assign([Y, Z])
    client.assign([X, Y])  # X was not among them: where it was read to is forgotten
    client.assign([X, Y], from_start=True)
    assert consumer.assigned == [
        [at(X, 0), at(Y, 0)],
        [at(Y, 8), at(Z, 0)],
        [at(X, 0), at(Y, 8)],
        [at(X, 0), at(Y, 0)],
    ]


@pytest.mark.spec("HIS-11", "HIS-13")
def test_who_subscribes_to_keys_asks_for_their_topics_each_once(library: Library) -> None:
    client = Librdkafka("", Cell("subscribe", "plain"), 1, group="g")
    client.subscribe([5, 0, 1, 4])
    assert library.consumers[0].subscribed == [["history-0", "history-2"]]


@pytest.mark.spec("HIS-11", "HIS-13")
def test_what_a_group_tells_is_kept_in_its_order_with_generation_and_time(library: Library) -> None:
    client = Librdkafka("", Cell("subscribe", "plain"), 1, group="g", clock=lambda: int(library.now))
    (consumer,) = library.consumers
    client.subscribe([X, Z])
    consumer.generation = 3
    consumer.told = {partition_of(X): 4}
    consumer.tell("assign", X, Y)
    begun = int(library.now)
    consumer.batches = [[record(X, 4, encode(1, X, 0)), record(Y, 0, encode(2, Y, 0))]]
    client.poll()
    library.pass_time(5)
    consumer.tell("revoke", X)
    assert client.positions == {Y: 1}  # of what is not its own it has no position
    consumer.generation = -1
    consumer.tell("lost", Y)
    assert [(each["what"], each["keys"], each["generation"]) for each in client.events] == [
        ("assigned", [X, Y], 3),
        ("revoked", [X], 3),
        ("lost", [Y], None),
    ]
    assert client.events[0]["time"] < begun <= client.events[1]["time"] - 5
    assert client.positions == {}
    assert consumer.assigned == [[at(X, 4), at(Y, 0)]]  # where the group is, or its start, by number


@pytest.mark.spec("HIS-11", "HIS-41", "HIS-45")
def test_a_partition_that_was_added_to_a_topic_is_assigned_like_others_and_told_of_as_no_key(library: Library) -> None:
    client = Librdkafka("", Cell("subscribe", "plain"), 1, group="g")
    (consumer,) = library.consumers
    client.subscribe([X])
    added = TopicPartition(topic_of(X), 2)
    consumer.callbacks["on_assign"](consumer, [TopicPartition(topic_of(X), partition_of(X)), added])
    assert consumer.assigned == [[at(X, 0), (topic_of(X), 2, 0)]]
    assert client.began == {X: 0}
    consumer.callbacks["on_revoke"](consumer, [added])
    consumer.callbacks["on_lost"](consumer, [TopicPartition(topic_of(X), partition_of(X)), added])
    assert [(each["what"], each["keys"]) for each in client.events] == [
        ("assigned", [X]),
        ("revoked", []),
        ("lost", [X]),
    ]


@pytest.mark.spec("HIS-44")
def test_sessions_of_a_group_are_six_seconds_but_of_who_is_patient(library: Library) -> None:
    Librdkafka("", Cell("subscribe", "plain"), 1, group="g")
    Librdkafka("", Cell("subscribe", "plain"), 2, group="g", patient=True)
    assert [each.settings["session.timeout.ms"] for each in library.consumers] == [6000, 60_000]


@pytest.mark.spec("HIS-11", "HIS-13")
@pytest.mark.parametrize("lost", [(), ("revoke",), ("lost",)])
def test_a_member_that_nobody_tells_where_its_group_is_reads_nothing_until_it_is_told(
    library: Library, lost: tuple[str, ...]
) -> None:
    client = Librdkafka("", Cell("subscribe", "plain"), 1, group="g")
    (consumer,) = library.consumers
    client.subscribe([X])
    library.always("committed", raised(KafkaError._TIMED_OUT))
    consumer.tell("assign", X)
    client.poll()
    assert consumer.assigned == [[]]
    assert client.began == {}
    for what in lost:
        consumer.tell(what, X)
    library.end("committed")
    consumer.told = {partition_of(X): 4}
    client.poll()
    assert consumer.assigned == ([[]] if lost else [[], [at(X, 4)]])
    assert client.began == ({} if lost else {X: 4})


@pytest.mark.spec("HIS-13")
def test_a_generation_is_told_by_frames_where_somebody_reads_them_and_else_by_the_client(library: Library) -> None:
    asked: list[str | None] = []

    def generation_of(member: str | None) -> int:
        asked.append(member)
        return 8

    client = Librdkafka("", Cell("subscribe", "plain"), 1, group="g")
    library.consumers[0].generation = 6
    assert client.generation == 6
    library.consumers[0].generation = -1
    assert client.generation is None
    told = Librdkafka("", Cell("subscribe", "plain"), 1, group="g", generation_of=generation_of)
    library.consumers[1].member = "m"
    assert (told.generation, asked) == (8, ["m"])


# --- commits


@pytest.mark.spec("HIS-8")
def test_a_commit_that_fails_is_unknown_whatever_the_error(library: Library) -> None:
    client = Librdkafka("", Cell("subscribe", "plain"), 1, group="g")
    assert client.commit({X: 4, Y: 5}) == OK
    assert library.consumers[0].commits == [[at(X, 4), at(Y, 5)]]
    for code in CODES:
        library.end("commit", raised(code))
        assert client.commit({X: 4}) == INFO, code
    library.consumers[0].refused = frozenset({partition_of(Y)})
    assert client.commit({X: 4, Y: 5}) == INFO


@pytest.mark.spec("HIS-13", "HIS-10")
@pytest.mark.parametrize("guarantee", ["plain", "idempotent", "transactional"])
def test_a_process_is_one_producer_and_one_consumer_that_commits_nothing_by_itself(
    library: Library, guarantee: str
) -> None:
    cell = Cell("subscribe", guarantee, "read_uncommitted")
    Librdkafka("", cell, 1, group="g", transactional_id="t" if cell.transactional else None)
    (producer,), (consumer,) = library.producers, library.consumers
    assert consumer.settings["enable.auto.commit"] is False
    assert (consumer.settings["isolation.level"], consumer.settings["group.id"]) == ("read_uncommitted", "g")
    assert producer.settings.get("enable.idempotence") == {"plain": False, "idempotent": True}.get(guarantee)
    assert producer.settings.get("transactional.id") == ("t" if cell.transactional else None)
    assert library.calls == (["init_transactions"] if cell.transactional else [])


# --- transactions


@pytest.fixture
def clocked(library: Library) -> Librdkafka:
    """Give a transactional process whose clock is the played one."""
    client = Librdkafka(
        "", Cell("assign", "transactional"), 1, transactional_id="t", clock=lambda: int(library.now * 10**9)
    )
    library.calls.clear()
    return client


@pytest.mark.spec("HIS-9", "HIS-13")
def test_a_transaction_whose_commit_is_answered_is_ok_and_the_process_goes_on(
    library: Library, clocked: Librdkafka
) -> None:
    begun = int(library.now * 10**9)
    assert clocked.commit_transaction() == (OK, True, begun)
    assert library.calls == ["commit_transaction"]


@pytest.mark.spec("HIS-9", "HIS-13")
def test_a_commit_that_may_be_asked_for_again_is_whatever_the_code(library: Library, clocked: Librdkafka) -> None:
    for code in CODES:
        library.calls.clear()
        library.end("commit_transaction", raised(code, retriable=True), raised(code, retriable=True))
        assert clocked.commit_transaction()[:2] == (OK, True), code
        assert library.calls == ["commit_transaction"] * 3


@pytest.mark.spec("HIS-9", "HIS-13")
def test_a_commit_that_is_not_answered_in_time_is_unknown_and_nothing_follows_it(
    library: Library, clocked: Librdkafka
) -> None:
    for code in CODES:
        library.calls.clear()
        begun = library.now
        library.always("commit_transaction", raised(code, retriable=True))
        ended = clocked.commit_transaction()
        assert ended == (INFO, False, int(begun * 10**9)), code
        assert set(library.calls) == {"commit_transaction"}
        assert 30 < library.now - begun <= 32


@pytest.mark.spec("HIS-9", "HIS-13")
def test_a_commit_that_is_refused_as_abortable_fails_if_the_abort_is_answered(
    library: Library, clocked: Librdkafka
) -> None:
    for code in CODES:
        library.calls.clear()
        begun = int(library.now * 10**9)
        library.end("commit_transaction", raised(code, txn_requires_abort=True))
        library.end("abort_transaction", raised(code, retriable=True))
        assert clocked.commit_transaction() == (FAIL, True, begun), code
        assert library.calls == ["commit_transaction", "abort_transaction", "abort_transaction"]


@pytest.mark.spec("HIS-9", "HIS-13")
@pytest.mark.parametrize("flags", [{}, {"fatal": True}, {"txn_requires_abort": True}])
def test_a_commit_is_unknown_if_the_abort_behind_it_is_not_answered(
    library: Library, clocked: Librdkafka, flags: dict[str, bool]
) -> None:
    for code in CODES:
        library.end("commit_transaction", raised(code, txn_requires_abort=True))
        library.end("abort_transaction", raised(code, **flags))
        assert clocked.commit_transaction()[:2] == (INFO, False), code


@pytest.mark.spec("HIS-9", "HIS-13")
@pytest.mark.parametrize("flags", [{}, {"fatal": True}])
def test_a_commit_that_ends_otherwise_is_unknown_and_never_taken_back(
    library: Library, clocked: Librdkafka, flags: dict[str, bool]
) -> None:
    """That the producer was fenced included: by whom, and whether behind the commit, it does not say."""
    for code in CODES:
        library.calls.clear()
        library.end("commit_transaction", raised(code, **flags))
        assert clocked.commit_transaction()[:2] == (INFO, False), code
        assert library.calls == ["commit_transaction"]


@pytest.mark.spec("HIS-9", "HIS-13")
@pytest.mark.parametrize("flags", [{}, {"fatal": True}, {"txn_requires_abort": True}])
def test_a_transaction_whose_commit_was_never_asked_for_fails_whatever_the_abort_comes_to(
    library: Library, clocked: Librdkafka, flags: dict[str, bool]
) -> None:
    """Also where the producer was fenced, and where librdkafka's abort ends in a fatal INVALID_TXN_STATE."""
    assert _INVALID_TXN_STATE in CODES
    assert clocked.abort_transaction() == (FAIL, True, None)
    for code in CODES:
        library.calls.clear()
        library.end("abort_transaction", raised(code, **flags))
        assert clocked.abort_transaction() == (FAIL, False, None), code
        assert library.calls == ["abort_transaction"]
    library.end("abort_transaction", *itertools.repeat(raised(_OUT_OF_ORDER, retriable=True), 3))
    assert clocked.abort_transaction() == (FAIL, True, None)
    library.always("abort_transaction", raised(_OUT_OF_ORDER, retriable=True))
    assert clocked.abort_transaction() == (FAIL, False, None)


@pytest.mark.spec("HIS-9", "HIS-13")
def test_offsets_are_sent_again_while_the_error_says_so_and_any_other_is_the_operations(
    library: Library, clocked: Librdkafka
) -> None:
    for code in CODES:
        library.calls.clear()
        library.end("send_offsets_to_transaction", raised(code, retriable=True))
        clocked.send_offsets({X: 4})
        assert library.calls == ["send_offsets_to_transaction"] * 2
        for flags in ({}, {"fatal": True}, {"txn_requires_abort": True}):
            library.end("send_offsets_to_transaction", raised(code, **flags))
            with pytest.raises(KafkaException):
                clocked.send_offsets({X: 4})


@pytest.mark.spec("HIS-9", "HIS-10")
def test_a_producer_that_never_returns_from_offsets_is_left_alone_and_its_process_ends(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(librdkafka, "_LOST_S", 0.1)
    client, released, returned = transactional(library), threading.Event(), threading.Event()

    def never(*_: object) -> None:
        released.wait()
        returned.set()

    monkeypatch.setattr(library.producers[0], "send_offsets_to_transaction", never, raising=False)
    with pytest.raises(KafkaException) as raised_by_it:
        client.send_offsets({X: 4})
    assert not raised_by_it.value.args[0].retriable()
    assert client.abort_transaction() == (FAIL, False, None)
    client.close()
    assert library.calls == ["close"], "of its consumer"
    released.set()
    assert returned.wait(120)


@pytest.mark.spec("HIS-9")
def test_after_a_failed_transaction_each_key_that_is_still_its_own_is_read_from_where_it_was(library: Library) -> None:
    client = transactional(library)
    client.positions = {X: 9, Y: 8}
    library.end("seek", raised(_STATE))  # no longer its own
    client.seek_back({X: 4, Y: 5})
    assert library.consumers[0].seeks == [at(Y, 5)]
    assert client.positions == {X: 9, Y: 5}


# --- its end


@pytest.mark.spec("HIS-10", "HIS-13")
def test_who_leaves_sends_nothing_more_and_closes_whatever_its_calls_say(library: Library) -> None:
    client = transactional(library)
    library.end("purge", raised(_FENCED, fatal=True))
    library.end("producer poll", SystemError("stumbled"))
    client.close()
    assert library.calls == ["purge", "producer poll", "close"]
    assert not hasattr(client, "_producer") and not hasattr(client, "_consumer")
