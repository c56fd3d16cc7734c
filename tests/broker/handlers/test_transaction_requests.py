"""Requests of transactions as they come over the wire: versions, order of checks, codes."""

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.transaction_markers import Marker
from kafkatool.broker.transactions import coordinator as coordinators
from kafkatool.broker.transactions.coordinator import DescribedTransaction
from kafkatool.broker.transactions.marker_writes import MarkerWrite, OffsetsEnd
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import (
    add_offsets_to_txn,
    api_versions,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from kafkatool.core.protocol.messages import add_partitions_to_txn as add
from kafkatool.core.protocol.messages import write_txn_markers as markers
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import iter_batches
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import follower
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import everything
from tests.broker.transactions.stage import HERE, HOUR_MS, OFFSETS, OWN, THERE, Stage, stage
from tests.waiting import eventually

NONE = ErrorCode.NONE
NOBODY = Identity(-1, -1)
ANNOUNCED = {
    9: (0, 7),  # OffsetFetch
    10: (0, 4),  # FindCoordinator
    22: (0, 4),  # InitProducerId
    24: (0, 4),  # AddPartitionsToTxn
    25: (0, 3),  # AddOffsetsToTxn
    26: (0, 3),  # EndTxn
    27: (0, 1),  # WriteTxnMarkers
    28: (0, 3),  # TxnOffsetCommit
    61: (0, 0),  # DescribeProducers
    65: (0, 0),  # DescribeTransactions
    66: (0, 1),  # ListTransactions
}


@dataclass(frozen=True, slots=True)
class Served:
    """A stage behind a socket."""

    stage: Stage
    client: Client

    def init(
        self, version: int, id_: str = "id", expected: Identity = NOBODY, timeout_ms: int = 60_000
    ) -> tuple[int, Identity]:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=id_,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )
        answer = self.client.call(init_producer_id.API, version, request)
        return answer.error_code, Identity(answer.producer_id, answer.producer_epoch)

    def add(
        self, version: int, identity: Identity, *places: TopicPartition, id_: str = "id"
    ) -> dict[TopicPartition, int]:
        request = add.AddPartitionsToTxnRequest(
            transactional_id=id_,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=topics(*places),
        )
        return codes(self.client.call(add.API, version, request).topics)

    def end(self, version: int, identity: Identity, *, committed: bool = True, id_: str = "id") -> int:
        request = end_txn.EndTxnRequest(
            transactional_id=id_, producer_id=identity.producer_id, producer_epoch=identity.epoch, committed=committed
        )
        code: int = self.client.call(end_txn.API, version, request).error_code
        return code


def topics(*places: TopicPartition) -> list[add.AddPartitionsToTxnTopic]:
    return [add.AddPartitionsToTxnTopic(topic=p.topic, partitions=[p.partition]) for p in places]


def codes(found: list[add.AddPartitionsToTxnResponseTopic]) -> dict[TopicPartition, int]:
    return {TopicPartition(t.topic, p.partition): p.error_code for t in found for p in t.partitions}


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with stage(tmp_path, monkeypatch) as made:
        context = handler_context(
            transactions=made.coordinator, metadata_cache=made.world.cache, marker_writes=made.remote_markers
        )
        with broker_of(load_handlers(), context) as client:
            yield Served(made, client)


@pytest.mark.spec("TXN-102", "TXN-91", "TXN-29", "TXN-35")
def test_the_versions_of_this_protocol_are_served_and_not_those_that_raise_the_epoch_at_each_end() -> None:
    served = load_handlers()
    assert {key: served[key].versions for key in ANNOUNCED} == ANNOUNCED
    with broker_of({18: served[18]}, handler_context()) as client:
        client.send_request(
            api_versions.API, 3, api_versions.ApiVersionsRequest(client_software_name="kt", client_software_version="1")
        )
        told = client.receive()
    assert told.endswith(bytes(5)), "no throttling and no tagged field, so no feature transaction.version"


@pytest.mark.spec("TXN-24", "TXN-25", "SEC-101")
def test_an_identity_is_asked_for_in_every_version(on: Served) -> None:
    for version in range(5):
        code, given = on.init(version)
        assert (code, given.epoch) == (NONE, version)
    for version, half in product((3, 4), (Identity(given.producer_id, -1), Identity(-1, given.epoch))):
        assert on.init(version, expected=half) == (ErrorCode.INVALID_REQUEST, NOBODY)
    for version in range(5):
        assert on.init(version, timeout_ms=0) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, NOBODY)
    strange = Identity(given.producer_id, 0)
    assert on.init(4, expected=strange) == (ErrorCode.PRODUCER_FENCED, NOBODY)
    assert on.init(3, expected=strange) == (ErrorCode.INVALID_PRODUCER_EPOCH, NOBODY)
    for wrong in ("", "x" * 4097):
        assert on.init(0, wrong) == (ErrorCode.INVALID_REQUEST, NOBODY)
    on.stage.coordinator.shutdown()
    for half in (Identity(given.producer_id, -1), Identity(-1, given.epoch)):
        assert on.init(4, expected=half)[0] == ErrorCode.INVALID_REQUEST, "before the coordinator is looked at"


@pytest.mark.spec("SEC-101")
def test_an_id_that_is_too_long_is_no_request_of_any_kind(on: Served) -> None:
    wrong, refused = "x" * 4097, ErrorCode.INVALID_REQUEST
    me = on.init(0)[1]
    assert on.add(3, me, HERE, id_=wrong) == {HERE: refused}
    assert on.end(3, me, id_=wrong) == refused
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[wrong])
    assert [t.error_code for t in on.client.call(describe_transactions.API, 0, request).transactions] == [refused]
    one = add.AddPartitionsToTxnTransaction(
        transactional_id=wrong,
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        verify_only=True,
        topics=topics(HERE),
    )
    (told,) = on.client.call(add.API, 4, add.AddPartitionsToTxnRequest(transactions=[one])).transactions
    assert codes(told.topics) == {HERE: refused}
    groups = SimpleNamespace(partition_of=lambda _: OFFSETS.partition)
    parts = {"transactions": on.stage.coordinator, "metadata_cache": on.stage.world.cache, "groups": groups}
    with broker_of(load_handlers(), handler_context(**parts, topic_admin=None)) as client:
        offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=wrong, producer_id=me.producer_id, producer_epoch=me.epoch, group_id="g"
        )
        assert client.call(add_offsets_to_txn.API, 3, offsets).error_code == refused
    longest = "x" * 4096
    assert on.init(0, longest)[0] == NONE


@pytest.mark.spec("TXN-31", "TXN-35", "TXN-38", "TXN-5")
@pytest.mark.parametrize("version", range(4))
def test_partitions_are_looked_at_before_who_asks(on: Served, version: int) -> None:
    me = on.init(0)[1]
    unknown, strange = TopicPartition("nowhere", 0), Identity(77, 0)
    not_tried = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert on.add(version, me) == on.add(version, strange) == on.add(version, me, id_="") == {}
    assert on.add(version, strange, HERE, unknown) == {HERE: not_tried, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    internal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert on.add(version, strange, OFFSETS, OWN, HERE) == {OFFSETS: internal, OWN: internal, HERE: not_tried}
    assert on.add(version, strange, HERE) == {HERE: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    old = Identity(me.producer_id, me.epoch + 5)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
    assert on.add(version, old, HERE, THERE) == {HERE: fenced, THERE: fenced}, "the code stands at each"
    assert on.add(version, me, HERE, unknown) == {HERE: not_tried, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert on.add(version, me, HERE, OFFSETS) == {HERE: not_tried, OFFSETS: internal}
    assert described(on).state is TransactionState.EMPTY, "nothing was added"
    assert (on.add(version, me, HERE), on.add(version, me, THERE)) == ({HERE: NONE}, {THERE: NONE})
    assert described(on).partitions == {HERE, THERE}, "the union"
    assert on.add(version, me, HERE, THERE) == {HERE: NONE, THERE: NONE}
    on.stage.coordinator.shutdown()
    assert on.add(version, me, HERE) == {HERE: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert on.add(version, me) == {}, "nothing is looked at"
    assert on.add(version, me, HERE, OFFSETS) == {HERE: not_tried, OFFSETS: internal}, "the coordinator is not asked"
    assert on.add(version, me, HERE, id_="") == {HERE: ErrorCode.INVALID_REQUEST}, "nor for an empty id"
    assert on.add(version, me, HERE, OFFSETS, id_="") == {HERE: not_tried, OFFSETS: internal}
    absent = {HERE: not_tried, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert on.add(version, me, HERE, unknown, id_="") == on.add(version, me, HERE, unknown) == absent
    on.stage.world.follow(OWN, epoch=5)
    on.stage.coordinator.on_leadership_change([], [on.stage.world.partition(OWN)])
    assert on.add(version, me, HERE) == {HERE: ErrorCode.COORDINATOR_NOT_AVAILABLE}, "before that it does not lead"


@pytest.mark.spec("TXN-35", "TXN-34")
@pytest.mark.parametrize("version", [3, 4])
def test_versions_3_and_4_are_flexible_with_their_headers(on: Served, version: int) -> None:
    """Byte for byte: request header 2, response header 1, and tags, none of them, at the end of all there is."""
    me, tags = on.init(0)[1], b"\0"
    identity = struct.pack(">qh", *me)
    asked = b"\2" + b"\5here" + b"\2" + bytes(4) + tags  # one topic, one partition
    told = b"\2" + b"\5here" + b"\2" + bytes(4) + b"\0\0" + tags + tags
    header = struct.pack(">hhih", 24, version, 77, 4) + b"test" + tags
    if version == 3:
        request, answer = b"\3id" + identity + asked + tags, bytes(4) + told + tags
    else:
        request = b"\2" + b"\3id" + identity + b"\0" + asked + tags + tags
        answer = bytes(4) + b"\0\0" + b"\2" + b"\3id" + told + tags + tags
    frame = header + request
    on.client.socket.sendall(struct.pack(">i", len(frame)) + frame)
    assert bytes(on.client.receive()) == struct.pack(">i", 77) + tags + answer
    assert described(on).partitions == {HERE}


def described(on: Served) -> DescribedTransaction:
    found = on.stage.coordinator.describe("id")
    assert isinstance(found, DescribedTransaction)
    return found


@pytest.mark.spec("TXN-34", "TXN-35")
def test_version_4_adds_where_it_is_not_to_verify_alone(on: Served) -> None:
    me = on.init(0)[1]
    internal, not_tried = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED

    def ask(identity: Identity, *places: TopicPartition, verify_only: bool = False) -> dict[TopicPartition, int]:
        one = add.AddPartitionsToTxnTransaction(
            transactional_id="id",
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            verify_only=verify_only,
            topics=topics(*places),
        )
        answer = on.client.call(add.API, 4, add.AddPartitionsToTxnRequest(transactions=[one]))
        return codes(answer.transactions[0].topics)

    assert ask(me, HERE, OFFSETS) == {HERE: not_tried, OFFSETS: internal}
    nowhere = TopicPartition("nowhere", 0)
    assert ask(me, HERE, nowhere) == {HERE: not_tried, nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert ask(Identity(me.producer_id, me.epoch + 1), HERE) == {HERE: ErrorCode.PRODUCER_FENCED}
    assert ask(Identity(77, 0), HERE) == {HERE: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert described(on).state is TransactionState.EMPTY
    assert ask(me, HERE) == ask(me, HERE) == {HERE: NONE}
    assert ask(me, HERE, THERE, verify_only=True) == {HERE: NONE, THERE: ErrorCode.INVALID_TXN_STATE}
    assert ask(me, THERE) == {THERE: NONE} and described(on).partitions == {HERE, THERE}


@pytest.mark.spec("TXN-34")
def test_a_broker_asks_for_several_transactions_at_once_and_changes_nothing(on: Served) -> None:
    assert on.client.call(add.API, 4, add.AddPartitionsToTxnRequest(transactions=[])).transactions == []
    me = on.init(0)[1]
    assert on.add(3, me, HERE) == {HERE: NONE}

    def ask(id_: str, identity: Identity, *places: TopicPartition) -> add.AddPartitionsToTxnTransaction:
        return add.AddPartitionsToTxnTransaction(
            transactional_id=id_,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            verify_only=True,
            topics=topics(*places),
        )

    unknown = TopicPartition("nowhere", 0)
    asked = [
        ask("id", me, HERE, THERE),
        ask("other", me, HERE),
        ask("", me, HERE),
        ask("id", Identity(me.producer_id, 9), HERE),
        ask("id", me, HERE, unknown),
        ask("id", me, OFFSETS),
    ]
    answer = on.client.call(add.API, 4, add.AddPartitionsToTxnRequest(transactions=asked))
    assert answer.error_code == NONE
    assert [(t.transactional_id, codes(t.topics)) for t in answer.transactions] == [
        ("id", {HERE: NONE, THERE: ErrorCode.INVALID_TXN_STATE}),
        ("other", {HERE: ErrorCode.INVALID_PRODUCER_ID_MAPPING}),
        ("", {HERE: ErrorCode.INVALID_REQUEST}),
        ("id", {HERE: ErrorCode.PRODUCER_FENCED}),
        ("id", {HERE: ErrorCode.OPERATION_NOT_ATTEMPTED, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        ("id", {OFFSETS: ErrorCode.INVALID_TXN_STATE}),
    ]
    assert described(on).partitions == {HERE}
    assert on.end(3, me) == NONE
    found: list[dict[TopicPartition, int]] = []

    def has_ended() -> bool:
        """Ask until the markers are written: so long another transaction is under way."""
        later = on.client.call(add.API, 4, add.AddPartitionsToTxnRequest(transactions=[ask("id", me, HERE)]))
        found.append(codes(later.transactions[0].topics))
        return found[-1] != {HERE: ErrorCode.CONCURRENT_TRANSACTIONS}

    eventually(has_ended, "the end of the transaction")
    assert found[-1] == {HERE: ErrorCode.INVALID_TXN_STATE}


@pytest.mark.spec("TXN-39")
@pytest.mark.parametrize("version", range(4))
def test_an_end_of_an_old_epoch_is_told_so_in_the_code_its_version_knows(on: Served, version: int) -> None:
    me = on.init(0)[1]
    assert on.end(version, me) == ErrorCode.INVALID_TXN_STATE  # nothing was begun
    assert on.add(version, me, HERE) == {HERE: NONE}
    old = Identity(me.producer_id, me.epoch + 1)
    assert on.end(version, old) == (ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED)
    assert (on.end(version, me), on.end(version, me)) == (NONE, NONE)
    assert on.end(version, me, committed=False) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.spec("TXN-93", "TXN-43")
def test_ids_are_described_each_by_itself(on: Served) -> None:
    me = on.init(0)[1]
    assert told_states(on) == ["Empty"]
    on.stage.passed_ms += 5000
    assert on.add(3, me, THERE, HERE) == {HERE: NONE, THERE: NONE}
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["id", "", "nobody"])
    mine, empty, nobody = on.client.call(describe_transactions.API, 0, request).transactions
    assert (mine.state, mine.timeout_ms, mine.start_time_ms) == ("Ongoing", 60_000, 5000)
    assert [(t.topic, list(t.partitions)) for t in mine.topics] == [("here", [0]), ("there", [0])]
    assert (mine.producer_id, mine.producer_epoch) == (me.producer_id, me.epoch)
    for refused, code in ((empty, ErrorCode.INVALID_REQUEST), (nobody, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)):
        assert (refused.error_code, refused.state, refused.producer_id, refused.topics) == (code, "", 0, [])
        assert (refused.timeout_ms, refused.start_time_ms, refused.producer_epoch) == (0, 0, 0)
    assert on.end(3, me, committed=False) == NONE
    eventually(lambda: told_states(on) == ["CompleteAbort"], "the markers")
    (ended,) = on.client.call(
        describe_transactions.API, 0, describe_transactions.DescribeTransactionsRequest(transactional_ids=["id"])
    ).transactions
    assert (ended.timeout_ms, ended.start_time_ms) == (60_000, 5000), "as it began"
    for committed in (True, False):
        gone = TopicPartition("gone", int(committed))
        assert on.stage.add("id", me, HERE, gone) is NONE
        on.stage.coordinator.end("id", me, committed=committed, done=_ignore)
        name = "Commit" if committed else "Abort"
        assert told_states(on) == [f"Prepare{name}", "gone"], "the one without marker"
        on.stage.deleted.add(gone)
        on.stage.settle()
        assert told_states(on) == [f"Complete{name}"]


def told_states(on: Served) -> list[str]:
    """Return what is said over the wire of the id: its state, and the topics of its partitions."""
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["id"])
    (told,) = on.client.call(describe_transactions.API, 0, request).transactions
    return [told.state, *(topic.topic for topic in told.topics)]


@pytest.mark.spec("TXN-8", "TXN-22", "TXN-24", "TXN-31", "TXN-34", "TXN-36", "TXN-39", "TXN-93", "TXN-94")
def test_who_loads_or_does_not_lead_or_stops_says_so_in_each_request(
    on: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = on.init(0)[1]
    half, none = Identity(me.producer_id, -1), Identity(77, 0)
    groups = SimpleNamespace(partition_of=lambda _: OFFSETS.partition)
    context = handler_context(
        transactions=on.stage.coordinator, metadata_cache=on.stage.world.cache, groups=groups, topic_admin=None
    )

    def add_offsets(client: Client, who: Identity, id_: str = "id", version: int = 3) -> int:
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=id_, producer_id=who.producer_id, producer_epoch=who.epoch, group_id="g"
        )
        code: int = client.call(add_offsets_to_txn.API, version, request).error_code
        return code

    def fourth(who: Identity, id_: str = "id", *, verify_only: bool = False) -> int:
        one = add.AddPartitionsToTxnTransaction(
            transactional_id=id_,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            verify_only=verify_only,
            topics=topics(HERE),
        )
        answer = on.client.call(add.API, 4, add.AddPartitionsToTxnRequest(transactions=[one]))
        assert answer.error_code == NONE
        return codes(answer.transactions[0].topics)[HERE]

    def told(client: Client) -> set[int]:
        """Ask each request, of who may and of a stranger, which would be told 49, or 90 where it asks for an identity."""
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=["id"])
        (described_,) = on.client.call(describe_transactions.API, 0, request).transactions
        assert (described_.state, described_.topics, described_.timeout_ms, described_.start_time_ms) == ("", [], 0, 0)
        assert (described_.producer_id, described_.producer_epoch) == (0, 0)
        found = {described_.error_code}
        for expected in (NOBODY, me, none):
            code, given = on.init(4, expected=expected)
            assert given == NOBODY
            found.add(code)
        found |= {on.init(version)[0] for version in range(4)}
        for who in (me, none):
            found |= {fourth(who), fourth(who, verify_only=True)}
            for version in range(4):
                found |= {on.end(version, who), add_offsets(client, who, version=version)}
                found |= {*on.add(version, who, HERE).values()}
        bad = ErrorCode.INVALID_REQUEST
        assert (on.init(4, "")[0], on.init(4, expected=half)[0]) == (bad,) * 2
        for version in range(4):
            assert (add_offsets(client, me, "", version), on.end(version, me, id_="")) == (bad, bad)
            assert on.add(version, me, HERE, id_="") == {HERE: bad}
        assert fourth(me, "") == fourth(me, "", verify_only=True) == bad
        assert on.init(4, expected=half, timeout_ms=0)[0] == bad, "before the timeout is looked at"
        assert on.init(4, timeout_ms=0)[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return found

    def listed() -> tuple[int, int]:
        answer = on.client.call(list_transactions.API, 1, list_transactions.ListTransactionsRequest())
        return answer.error_code, len(answer.transactions)

    with broker_of({25: load_handlers()[25]}, context) as client:
        assert listed() == (NONE, 1)
        assert on.stage.add("id", me, TopicPartition("gone", 0)) is NONE
        on.stage.coordinator.end("id", me, committed=True, done=_ignore)  # its marker waits for the metadata
        monkeypatch.setattr(coordinators, "PATIENCE_MS", 10)
        again = ErrorCode.CONCURRENT_TRANSACTIONS
        assert fourth(me) == fourth(me, verify_only=True) == again
        for version in range(4):
            assert add_offsets(client, me, version=version) == on.end(version, me) == again
            assert on.add(version, me, HERE) == {HERE: again}
        assert on.init(4) == on.init(4, expected=none) == (again, NOBODY)
        on.stage.world.follow(OWN, epoch=5)
        on.stage.coordinator.on_leadership_change([], [on.stage.world.partition(OWN)])
        assert (told(client), listed()) == ({ErrorCode.NOT_COORDINATOR}, (NONE, 0))
        assert on.stage.coordinator.owned.partitions.begin_load(OWN.partition, 6)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (told(client), listed()) == ({loading}, (loading, 0))
        on.stage.coordinator.shutdown()
        stopping = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (told(client), listed()) == ({stopping}, (stopping, 0)), "also while it loads"


@pytest.mark.spec("TXN-48")
def test_a_producer_whose_id_was_forgotten_is_told_49_and_gets_a_new_identity(on: Served) -> None:
    old = on.init(3)[1]
    assert (on.add(3, old, HERE), on.end(3, old)) == ({HERE: NONE}, NONE)
    eventually(lambda: described(on).state is TransactionState.COMPLETE_COMMIT, "the markers")
    for _ in range(4):  # the clock is trusted when it has gone evenly for an hour
        on.stage.passed_ms += HOUR_MS
        on.stage.coordinator.expire()
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (on.add(3, old, HERE), on.end(3, old)) == ({HERE: unknown}, unknown)
    code, fresh = on.init(3, expected=old)
    assert (code, fresh.epoch) == (NONE, 0) and fresh.producer_id != old.producer_id
    assert on.add(3, fresh, HERE) == {HERE: NONE}


@pytest.mark.spec("TXN-94")
def test_ids_are_listed_by_state_by_producer_and_by_age(on: Served) -> None:
    open_ = on.init(0)[1]
    on.stage.passed_ms += 10_000
    assert on.add(3, open_, HERE) == {HERE: NONE}
    empty = on.init(0, "empty")[1]
    on.stage.passed_ms += 10_000

    def listed(version: int = 1, **filters: object) -> list[str]:
        request = list_transactions.ListTransactionsRequest(**filters)  # type: ignore[arg-type]
        answer = on.client.call(list_transactions.API, version, request)
        assert answer.error_code == NONE
        return [*(t.transactional_id for t in answer.transactions), *(f"no state {s}" for s in answer.unknown_states)]

    assert listed() == listed(0) == ["empty", "id"]
    assert listed(states=["Ongoing"]) == ["id"]
    assert listed(states=["Strange", "Empty"]) == ["empty", "no state Strange"]
    assert listed(states=["Strange"]) == ["no state Strange"]
    assert listed(producer_ids=[empty.producer_id, 4711]) == ["empty"]
    assert listed(duration_ms=10_000) == ["empty"]  # it never began: as Kafka, which counts from -1
    assert listed(duration_ms=9_999) == ["empty", "id"]
    assert listed(0, states=["Strange", "Ongoing"]) == ["id", "no state Strange"]
    assert listed(0, producer_ids=[open_.producer_id]) == ["id"]
    assert listed(states=["Ongoing"], producer_ids=[empty.producer_id]) == [], "each filter counts"
    gone = TopicPartition("gone", 0)
    assert on.stage.add("id", open_, gone) is NONE
    for committed in (True, False):
        on.stage.coordinator.end("id", open_, committed=committed, done=_ignore)
        name = "Commit" if committed else "Abort"
        for state in (f"Prepare{name}", f"Complete{name}"):
            assert listed(duration_ms=10_000) == ["empty"], "whatever the state"
            assert listed(duration_ms=9_999) == ["empty", "id"]
            assert listed(states=[state]) == ["id"]
            on.stage.deleted.add(gone)
            on.stage.settle()
        on.stage.deleted.clear()
        assert on.stage.add("id", open_, gone) is NONE
        on.stage.passed_ms += 10_000


@pytest.mark.spec("TXN-59", "TXN-58", "TXN-62", "TXN-85", "TXN-96")
def test_markers_of_an_old_epoch_and_of_a_former_coordinator_are_refused(on: Served) -> None:
    def write(producer_epoch: int, coordinator_epoch: int, *places: TopicPartition) -> dict[TopicPartition, int]:
        marker = markers.TxnMarker(
            producer_id=7,
            producer_epoch=producer_epoch,
            committed=False,
            topics=[markers.WriteTxnMarkersTopic(topic=p.topic, partitions=[p.partition]) for p in places],
            coordinator_epoch=coordinator_epoch,
        )
        (answer,) = on.client.call(markers.API, 1, markers.WriteTxnMarkersRequest(markers=[marker])).markers
        return {TopicPartition(t.topic, p.partition): p.error_code for t in answer.topics for p in t.partitions}

    unknown = TopicPartition("nowhere", 0)
    assert write(3, 5, HERE, unknown) == {HERE: NONE, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert write(3, 5, HERE) == {HERE: NONE}  # a repeat, or one that comes late from this coordinator
    assert write(3, 4, HERE) == {HERE: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert write(2, 5, HERE) == {HERE: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert write(4, 5, HERE) == {HERE: NONE}
    end_of_old = [MarkerWrite(Identity(7, 3), Marker(True, 5), [HERE])]
    outcomes: list[int] = []
    on.stage.remote_markers.write(end_of_old, lambda done: outcomes.extend(done[0].values()))
    assert outcomes == [ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.spec("TXN-59", "TXN-99")
@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_is_refused_in_the_order_of_the_checks(on: Served, version: int) -> None:
    world, nowhere = on.stage.world, TopicPartition("nowhere", 0)

    def write(producer_epoch: int, coordinator_epoch: int, place: TopicPartition = HERE) -> int:
        marker = markers.TxnMarker(
            producer_id=7,
            producer_epoch=producer_epoch,
            committed=False,
            topics=[markers.WriteTxnMarkersTopic(topic=place.topic, partitions=[place.partition])],
            coordinator_epoch=coordinator_epoch,
        )
        (answer,) = on.client.call(markers.API, version, markers.WriteTxnMarkersRequest(markers=[marker])).markers
        code: int = answer.topics[0].partitions[0].error_code
        return code

    assert write(3, 5) == NONE
    world.logs.update_topic_config(HERE.topic, {"min.insync.replicas": "2"})
    end = world.partition(HERE).log.log_end_offset
    assert write(2, 4) == ErrorCode.INVALID_PRODUCER_EPOCH, "the producer's epoch, the coordinator's,"
    assert write(3, 4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write(3, 5) == write(4, 5) == ErrorCode.NOT_ENOUGH_REPLICAS, "and then whether enough are in sync"
    assert world.partition(HERE).log.log_end_offset == end
    world.follow(HERE, epoch=5)
    assert write(2, 4) == write(3, 5) == ErrorCode.NOT_LEADER_FOR_PARTITION, "who leads comes before"
    world.logs.take_offline(world.partition(HERE).log.directory.parent, OSError("gone"))
    world.scheduler.run()
    assert write(2, 4) == ErrorCode.KAFKA_STORAGE_ERROR, "a replica whose disk has failed has no role"
    assert write(2, 4, nowhere) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.spec("TXN-59")
def test_each_entry_of_a_producer_is_written_and_all_are_answered_as_one(on: Served) -> None:
    def entry(producer_id: int, *places: TopicPartition, epoch: int = 0) -> markers.TxnMarker:
        return markers.TxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
            topics=[markers.WriteTxnMarkersTopic(topic=p.topic, partitions=[p.partition]) for p in places],
            coordinator_epoch=0,
        )

    elsewhere = TopicPartition("elsewhere", 0)
    on.stage.world.follow(elsewhere)
    entries = [entry(7, HERE), entry(8, THERE), entry(7, OFFSETS, elsewhere, epoch=1), entry(9)]
    answer = on.client.call(markers.API, 1, markers.WriteTxnMarkersRequest(markers=entries))
    told = {
        m.producer_id: {TopicPartition(t.topic, p.partition): p.error_code for t in m.topics for p in t.partitions}
        for m in answer.markers
    }
    assert told == {
        7: {HERE: NONE, OFFSETS: NONE, elsewhere: ErrorCode.NOT_LEADER_FOR_PARTITION},
        8: {THERE: NONE},
    }, "an entry without partitions is not answered"
    assert [on.stage.markers(place, 7) for place in (HERE, THERE, OFFSETS)] == [[(0, True)], [], [(1, True)]]


@pytest.mark.spec("TXN-59", "TXN-60", "TXN-86")
def test_a_marker_is_answered_when_all_replicas_have_it_and_its_offsets_are_in_force_by_then(on: Served) -> None:
    world, before_ms = on.stage.world, int(time.time() * 1000)
    log = world.lead(OFFSETS, epoch=3, isr=(1, 2), replicas=(1, 2), version=1).log
    told: list[tuple[list[OffsetsEnd], object]] = []
    written = [MarkerWrite(Identity(7, 0), Marker(True, 0), [OFFSETS])]
    on.stage.remote_markers.write(
        written, lambda outcomes: told.append((list(on.stage.ended_offsets), outcomes[0][OFFSETS]))
    )
    assert (log.log_end_offset, told, on.stage.ended_offsets) == (1, [], [])
    ((_, header),) = iter_batches(everything(log))
    assert header.partition_leader_epoch == 3 and before_ms <= header.max_timestamp <= int(time.time() * 1000)
    world.fetch(1, follower(2), OFFSETS)
    assert told == [([OffsetsEnd(OFFSETS.partition, 7, True, 0)], NONE)]


@pytest.mark.spec("TXN-59", "TXN-86")
def test_a_marker_that_is_not_replicated_in_time_or_on_too_few_is_told_so_and_puts_no_offsets_in_force(
    on: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, appends = on.stage.world, on.stage.world.manager.appends
    append = appends.append
    asked: list[tuple[int, int]] = []

    def noting(entries: Any, *, acks: int, timeout_ms: int, **options: Any) -> None:
        asked.append((acks, timeout_ms))
        append(entries, acks=acks, timeout_ms=timeout_ms, **options)

    monkeypatch.setattr(appends, "append", noting)
    world.logs.update_topic_config(OFFSETS.topic, {"min.insync.replicas": "2"})
    world.lead(OFFSETS, epoch=3, isr=(1, 2), replicas=(1, 2), version=1)
    told: list[object] = []

    def write() -> None:
        written = [MarkerWrite(Identity(7, 0), Marker(True, 0), [OFFSETS])]
        on.stage.remote_markers.write(written, lambda outcomes: told.append(outcomes[0][OFFSETS]))

    write()
    assert (told, asked) == ([], [(-1, world.config.request_timeout_ms)])
    world.manager.delayed.expire_all()
    assert told == [ErrorCode.REQUEST_TIMED_OUT]
    write()
    assert len(told) == 1
    world.lead(OFFSETS, epoch=4, isr=(1,), replicas=(1, 2), version=2)
    assert told[1:] == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert on.stage.ended_offsets == []


@pytest.mark.spec("TXN-59")
def test_a_leader_that_may_not_or_cannot_write_a_marker_says_so(on: Served) -> None:
    def write() -> int:
        marker = markers.TxnMarker(
            producer_id=7,
            producer_epoch=0,
            committed=True,
            topics=[markers.WriteTxnMarkersTopic(topic=HERE.topic, partitions=[HERE.partition])],
            coordinator_epoch=0,
        )
        (answer,) = on.client.call(markers.API, 1, markers.WriteTxnMarkersRequest(markers=[marker])).markers
        code: int = answer.topics[0].partitions[0].error_code
        return code

    world = on.stage.world
    world.logs.update_topic_config(HERE.topic, {"min.insync.replicas": "2"})
    assert write() == ErrorCode.NOT_ENOUGH_REPLICAS
    world.logs.update_topic_config(HERE.topic, {})
    assert write() == NONE
    world.logs.take_offline(world.partition(HERE).log.directory.parent, OSError("gone"))
    world.scheduler.run()
    assert write() == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.spec("TXN-62", "TXN-58")
def test_a_marker_of_a_higher_epoch_lets_sequences_begin_anew_and_one_of_the_same_does_not(on: Served) -> None:
    me = on.init(0)[1]
    places = frozenset({HERE})

    def write(epoch: int) -> None:
        on.stage.remote_markers.write([MarkerWrite(Identity(me.producer_id, epoch), Marker(True, 0), [HERE])], _ignore)

    assert on.add(3, me, *places) == {HERE: NONE}
    assert [on.stage.world.produce(HERE)[0].error, on.stage.produce("id", me, HERE)] == [NONE, NONE]
    log = on.stage.world.partition(HERE).log
    entry = log.state.producers.entries[me.producer_id]
    write(0)
    assert len(entry.batches) == 1, "sequences run on over transactions"

    def refusal(epoch: int, sequence: int) -> ErrorCode:
        with pytest.raises(AppendError) as refused:
            log.append_as_leader(batch(producer=(me.producer_id, epoch, sequence)), 0)
        return refused.value.code

    assert refusal(0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append_as_leader(batch(producer=(me.producer_id, 0, 0)), 0).duplicate is True
    assert log.append_as_leader(batch(producer=(me.producer_id, 0, 1)), 0).duplicate is False
    write(1)
    assert (entry.epoch, list(entry.batches)) == (1, [])
    assert {refusal(1, sequence) for sequence in (1, 2, 5)} == {ErrorCode.UNKNOWN_PRODUCER_ID}
    assert {refusal(0, sequence) for sequence in (0, 1, 2)} == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert log.append_as_leader(batch(producer=(me.producer_id, 1, 0)), 0).duplicate is False


def _ignore(_: object) -> None: ...
