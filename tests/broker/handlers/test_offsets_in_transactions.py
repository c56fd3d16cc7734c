"""AddOffsetsToTxn and TxnOffsetCommit over raw sockets; both coordinators are real, what is verified is the test's word."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.groups.coordinator import GroupCoordinator, OffsetToCommit
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked
from kafkatool.broker.groups.records import OffsetValue
from kafkatool.broker.groups.states import GroupState
from kafkatool.broker.groups.writer import TransactionalProducer
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.transactions.coordinator import DescribedTransaction
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import add_offsets_to_txn
from kafkatool.core.protocol.messages import txn_offset_commit as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import iter_batches, read_header
from tests.broker.groups.test_coordinator import OFFSETS_PARTITION, A, B, Stage, owned_group
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.broker.storage.logs import everything
from tests.broker.transactions.stage import OFFSETS, OWN
from tests.broker.transactions.stage import stage as transactions_stage
from tests.broker.transactions.test_two_coordinators import hold_markers

NONE, AWAY, LOADING = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
UNKNOWN, OLD, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID
SERVED = {28: load_handlers()[28]}
VERSIONS = range(4)


@dataclass
class Verified:
    """Stands for the leader's verification: what it says of the next appends; those allowed are in the log at once."""

    stage: Stage
    codes: list[ErrorCode] = field(default_factory=list)
    batches: list[tuple[str, bytes]] = field(default_factory=list)

    def append(
        self,
        entries: Mapping[TopicPartition, bytearray],
        _headers: object,
        transactional_id: str,
        *,
        on_done: Callable[[Mapping[TopicPartition, Any]], None],
        **_: Any,
    ) -> None:
        (batch,) = entries.values()
        self.batches.append((transactional_id, bytes(batch)))
        error = self.codes.pop(0) if self.codes else NONE
        on_done({OFFSETS_PARTITION: SimpleNamespace(error=error, base_offset=len(self.batches))})


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    made.lead()
    yield made
    made.close()


@pytest.fixture
def verified(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Verified:
    made = Verified(stage)
    monkeypatch.setattr(stage.replica, "verified_appends", made, raising=False)
    return made


@pytest.fixture
def client(stage: Stage, verified: Verified) -> Iterator[Client]:
    cache = MetadataCache(1)
    cache.update(update(state("t", 0, 1, [1]), state("t", 1, 1, [1]), brokers=[live(1)]))
    context = handler_context(groups=stage.coordinator, metadata_cache=cache, config=stage.config)
    with broker_of(SERVED, context) as made:
        yield made


def commit(
    client: Client, version: int, *places: TopicPartition, group: str = "g", metadata: str = "", **fields: Any
) -> list[int]:
    topics = [
        wire.TxnOffsetCommitRequestTopic(
            topic=p.topic,
            partitions=[
                wire.TxnOffsetCommitRequestPartition(
                    partition=p.partition, committed_offset=5, committed_metadata=metadata if p == A else None
                )
            ],
        )
        for p in places or (A,)
    ]
    named = {"transactional_id": "id", "producer_id": 7, "producer_epoch": 2, **fields}
    request = wire.TxnOffsetCommitRequest(group_id=group, topics=topics, **named)
    answer = client.call(wire.API, version, request)
    assert [(t.topic, p.partition) for t in answer.topics for p in t.partitions] == list(places or (A,))
    return [p.error_code for t in answer.topics for p in t.partitions]


# --- TxnOffsetCommit -------------------------------------------------------------------------------------------


@pytest.mark.spec("TXN-82", "TXN-36", "GRP-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_is_refused_in_the_order_of_the_checks(
    stage: Stage, client: Client, verified: Verified, version: int
) -> None:
    unknown = TopicPartition("gone", 0)
    partitions = stage.coordinator.groups.partitions
    assert commit(client, version, group="") == [ErrorCode.INVALID_GROUP_ID]
    assert commit(client, version, unknown, group="") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    stage.follow()
    assert commit(client, version, A, unknown) == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    partitions.begin_load(0, stage.epoch + 1)
    assert commit(client, version) == [AWAY if version < 2 else LOADING], "older clients die of 14"
    partitions.end(0, None)
    assert not verified.batches and stage.coordinator.groups.all() == []
    stage.lead()
    too_long = "m" * (stage.config.offset_metadata_max_bytes + 1)
    assert commit(client, version, A, B, unknown, metadata=too_long) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    described = stage.coordinator.describe("g")
    assert (described.state, described.protocol_type) == ("Empty", ""), "made, and simple"
    assert commit(client, version, transactional_id="") == [NONE], "it is for the verification alone"
    owned_group(stage).group.die()
    assert commit(client, version) == [AWAY]
    stage.coordinator.shutdown()
    assert commit(client, version) == [AWAY]
    assert commit(client, version, group="") == [ErrorCode.INVALID_GROUP_ID], "the id comes first"
    partitions.end(0, None)
    assert commit(client, version) == [AWAY], "before that it does not lead"
    partitions.begin_load(0, stage.epoch + 1)
    assert commit(client, version) == [AWAY], "and before that it loads"
    assert commit(client, version, group="") == [ErrorCode.INVALID_GROUP_ID], "before both: the id"


@pytest.mark.spec("GRP-48", "TXN-82")
@pytest.mark.parametrize(("limit", "code"), [(1, NONE), (0, ErrorCode.OFFSET_METADATA_TOO_LARGE)])
def test_the_limit_of_metadata_is_the_setting_here_too(
    stage: Stage, client: Client, limit: int, code: ErrorCode
) -> None:
    stage.lead()
    config = replace(stage.config, offset_metadata_max_bytes=limit)
    cache = MetadataCache(1)
    cache.update(update(state("t", 0, 1, [1]), brokers=[live(1)]))
    with broker_of(SERVED, handler_context(groups=stage.coordinator, metadata_cache=cache, config=config)) as asked:
        assert commit(asked, 3, metadata="m") == [code]


@pytest.mark.spec("SEC-101")
def test_an_id_that_is_too_long_is_no_request_and_makes_no_group(stage: Stage, client: Client) -> None:
    stage.lead()
    for version in VERSIONS:
        assert commit(client, version, A, B, transactional_id="x" * 4097) == [ErrorCode.INVALID_REQUEST] * 2
    assert stage.coordinator.groups.all() == []
    assert commit(client, 3, transactional_id="x" * 4096) == [NONE]


def member_of(stage: Stage, instance_id: str | None = None) -> str:
    """Give the group g one member, in generation 1, which nobody has synced in."""
    told: list[JoinResult] = []
    request = JoinRequest("", instance_id, "c", "/h", 60_000, 60_000, "consumer", (("range", b"r"),), False)
    stage.coordinator.join("g", request, Parked(told.append, lambda: None))
    return told[0].member_id


@pytest.mark.spec("TXN-82")
def test_who_commits_in_a_transaction_is_checked_by_what_it_tells_of_itself(stage: Stage, client: Client) -> None:
    assert commit(client, 3, member_id="anybody") == [NONE], "the group has no members"
    assert commit(client, 3, member_id="anybody", generation_id=0) == [UNKNOWN]
    assert commit(client, 3, generation_id=0) == commit(client, 3, group_instance_id="i") == [UNKNOWN]
    member = member_of(stage, "i")
    (known,) = owned_group(stage).group.members.values()
    known.session_deadline_ms = 1e15
    told: list[tuple[dict[str, Any], ErrorCode]] = [
        ({}, NONE),
        ({"member_id": member, "generation_id": 1}, NONE),  # CompletingRebalance, which is not told: 27 is fatal
        ({"member_id": member, "generation_id": 1, "group_instance_id": "i"}, NONE),
        ({"member_id": "another", "generation_id": 9, "group_instance_id": "i"}, FENCED),
        ({"member_id": member, "generation_id": 9, "group_instance_id": "other"}, UNKNOWN),
        ({"member_id": "another", "generation_id": 9}, UNKNOWN),
        ({"member_id": "another"}, UNKNOWN),
        ({"generation_id": 1}, UNKNOWN),
        ({"member_id": member, "generation_id": 0}, OLD),
        ({"member_id": member}, OLD),
    ]
    for now in (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE, GroupState.STABLE):
        owned_group(stage).group.state = now
        for fields, code in told:
            assert commit(client, 3, **fields) == [code], (now, fields)
    assert known.session_deadline_ms == 1e15, "no sign of life"
    for version in range(3):
        assert commit(client, version) == [NONE], "these tell nothing"


@pytest.mark.spec("TXN-83")
def test_its_batch_has_the_transactions_bit_and_identity_and_the_sequence_0_each_time(
    client: Client, verified: Verified
) -> None:
    assert [commit(client, 3, A, B) for _ in range(2)] == [[NONE, NONE]] * 2
    for transactional_id, batch in verified.batches:
        header = read_header(batch)
        assert header is not None and transactional_id == "id"
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
        assert (header.attributes & 0x30, header.record_count) == (0x10, 2), "in a transaction, and no control batch"


@pytest.mark.spec("TXN-83")
@pytest.mark.parametrize(
    ("appended", "told"),
    [(47, 47), (48, 48), (49, 49), (19, 15), (20, 15), (3, 15), (6, 16), (56, 16), (7, 7), (10, 28), (18, 28)],
)
def test_the_codes_of_its_append(client: Client, verified: Verified, appended: int, told: int) -> None:
    verified.codes = [ErrorCode(appended)]
    assert commit(client, 3, A, B) == [told, told]


@pytest.mark.spec("TXN-83", "TXN-72", "TXN-86")
def test_a_real_coordinator_and_a_real_log_verify_it_look_at_its_epoch_and_not_at_its_sequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transactions_stage(tmp_path, monkeypatch) as on:
        world, asked = on.world, list[Identity]()
        world.know(A, B, brokers={1: 9001, 2: 9002})
        groups = GroupCoordinator(world.config, world.manager, world.cache, world.scheduler, count_partitions=lambda: 1)
        groups.on_leadership_change([world.partition(OFFSETS)], [])
        on.settle()
        verify = on.coordinator.verify

        def noting(id_: str, who: Identity, partitions: Any) -> Any:
            asked.append(who)
            return verify(id_, who, partitions)

        monkeypatch.setattr(on.coordinator, "verify", noting)
        context = handler_context(groups=groups, metadata_cache=world.cache, config=world.config)
        log = world.partition(OFFSETS).log
        with broker_of(SERVED, context) as client:

            def commits(who: Identity, *places: TopicPartition, id_: str = "id") -> int:
                named: Any = {"producer_id": who.producer_id, "producer_epoch": who.epoch}
                return max(commit(client, 3, *places, transactional_id=id_, **named))

            _, mine = on.init("id")
            assert commits(mine) == ErrorCode.INVALID_TXN_STATE, "nothing was added"
            assert commits(mine, id_="other") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert commits(Identity(mine.producer_id, mine.epoch + 1)) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert log.log_end_offset == 0
            assert on.add("id", mine, OFFSETS) is NONE
            assert (commits(mine), commits(mine, A, B)) == (NONE, NONE)
            assert asked[-2:] == [mine] * 2, "each time: it has no sequence that tells a late one"
            headers = [h for _, h in iter_batches(everything(log))]
            assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [(*mine, 0)] * 2
            assert on.end("id", mine, committed=True) is NONE
            assert commits(mine) == ErrorCode.INVALID_TXN_STATE, "late"
            _, renewed = on.init("id", mine)
            assert on.add("id", renewed, OFFSETS) is NONE and commits(renewed) == NONE
            end = log.log_end_offset
            asked.clear()
            assert (commits(mine), asked) == (ErrorCode.INVALID_PRODUCER_EPOCH, []), "the log knows it"
            assert on.end("id", renewed, committed=False) is NONE
            on.coordinator.shutdown()
            assert commits(renewed) == AWAY, "what a Produce is told 19 of"
            assert log.log_end_offset == end + 1, "the marker"


@pytest.mark.spec("TXN-83", "TXN-105")
def test_an_offset_that_comes_between_the_decision_and_its_marker_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transactions_stage(tmp_path, monkeypatch) as on:
        world = on.world
        world.know(A, brokers={1: 9001, 2: 9002})
        groups = GroupCoordinator(world.config, world.manager, world.cache, world.scheduler, count_partitions=lambda: 1)
        groups.on_leadership_change([world.partition(OFFSETS)], [])
        on.settle()
        context = handler_context(groups=groups, metadata_cache=world.cache, config=world.config)
        log = world.partition(OFFSETS).log
        with broker_of(SERVED, context) as client:
            _, mine = on.init("id")
            named: Any = {"transactional_id": "id", "producer_id": mine.producer_id, "producer_epoch": mine.epoch}
            assert on.add("id", mine, OFFSETS) is NONE
            assert commit(client, 3, A, **named) == [NONE]
            deliver = hold_markers(on, monkeypatch)
            assert on.end("id", mine, committed=True) is NONE
            assert commit(client, 3, A, **named) == [AWAY], "it is to come again, should it be right"
            assert log.log_end_offset == 1
            deliver()
            on.settle()
            assert commit(client, 3, A, **named) == [ErrorCode.INVALID_TXN_STATE]


@pytest.mark.spec("TXN-86")
@pytest.mark.parametrize("refused", [47, 19, 7])
def test_a_commit_that_is_refused_changes_no_pending_one(
    stage: Stage, client: Client, verified: Verified, refused: int
) -> None:
    assert commit(client, 3) == [NONE]
    verified.codes = [ErrorCode(refused)]
    assert commit(client, 3, B, A) != [NONE, NONE]
    stage.coordinator.end_transaction(0, 7, committed=True, log_offset=9)
    assert stage.fetch() == (NONE, {A: 5})


@pytest.mark.spec("TXN-86")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in their order", "the later one first"])
def test_of_two_commits_of_a_transaction_the_later_in_the_log_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int]
) -> None:
    acknowledge: list[Callable[[], None]] = []

    def append(*_: Any, on_done: Callable[[Any], None], **__: Any) -> None:
        result = SimpleNamespace(error=NONE, base_offset=len(acknowledge))
        acknowledge.append(lambda: on_done({OFFSETS_PARTITION: result}))

    monkeypatch.setattr(stage.replica, "verified_appends", SimpleNamespace(append=append), raising=False)
    told: list[Any] = []
    for offset in (5, 6):
        wanted = {A: OffsetToCommit(OffsetValue(offset, None, "", 1, None), False)}
        stage.coordinator.commit_in_transaction(
            "g", TransactionalProducer("id", 7, 2), "", None, -1, wanted, told.append
        )
    for number in order:
        acknowledge[number]()
    assert told == [{A: NONE}] * 2 and stage.fetch() == (NONE, {})
    stage.coordinator.end_transaction(0, 7, committed=True, log_offset=9)
    assert stage.fetch() == (NONE, {A: 6})


def _committing(stage: Stage) -> dict[int, set[str]]:
    return stage.coordinator.groups._committing[0]  # noqa: SLF001  # nothing else shows what is kept


def _write(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[ErrorCode, int], None]:
    """Have producer 7 commit A; return what ends the write, with that code and at that offset of the log."""
    acknowledge: list[Callable[[Any], None]] = []
    held = SimpleNamespace(append=lambda *_, on_done, **__: acknowledge.append(on_done))
    with monkeypatch.context() as patch:
        patch.setattr(stage.replica, "verified_appends", held, raising=False)
        wanted = {A: OffsetToCommit(OffsetValue(5, None, "", 1, None), False)}
        stage.coordinator.commit_in_transaction("g", TransactionalProducer("id", 7, 2), "", None, -1, wanted, print)
    (on_done,) = acknowledge
    return lambda code, at: on_done({OFFSETS_PARTITION: SimpleNamespace(error=code, base_offset=at)})


@pytest.mark.spec("TXN-86", "SEC-101")
def test_of_a_commit_that_fails_nothing_is_kept_of_its_producer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _write(stage, monkeypatch), _write(stage, monkeypatch)
    first(ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert _committing(stage) == {7: {"g"}}, "of the other one"
    second(ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert _committing(stage) == {}
    _write(stage, monkeypatch)(NONE, 3)
    _write(stage, monkeypatch)(ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert _committing(stage) == {7: {"g"}}
    stage.coordinator.end_transaction(0, 7, committed=True, log_offset=9)
    assert stage.fetch() == (NONE, {A: 5}) and _committing(stage) == {}


@pytest.mark.spec("TXN-86")
@pytest.mark.parametrize("marker", ["before the answer", "after it"])
def test_a_commit_that_stands_behind_a_marker_waits_for_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, marker: str
) -> None:
    answer = _write(stage, monkeypatch)
    if marker == "after it":
        answer(NONE, 10)
    stage.coordinator.end_transaction(0, 7, committed=False, log_offset=9)
    if marker == "before the answer":
        answer(NONE, 10)
    assert stage.fetch() == (NONE, {})
    stage.coordinator.end_transaction(0, 7, committed=True, log_offset=11)
    assert stage.fetch() == (NONE, {A: 5}) and _committing(stage) == {}


@pytest.mark.spec("TXN-86", "GRP-16")
def test_a_commit_answered_after_its_group_was_loaded_anew_takes_nothing_from_that_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = _write(stage, monkeypatch)
    stage.follow()
    stage.lead()
    _write(stage, monkeypatch)(NONE, 3)
    late(NONE, 2)
    stage.coordinator.end_transaction(0, 7, committed=True, log_offset=9)
    assert stage.fetch() == (NONE, {A: 5})


@pytest.mark.spec("TXN-86")
def test_of_a_producer_nothing_is_kept_for_a_group_that_is_deleted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(stage, monkeypatch)(NONE, 3)
    told: list[ErrorCode] = []
    stage.coordinator.delete("g", told.append)
    assert told == [NONE]
    stage.coordinator.end_transaction(0, 7, committed=True, log_offset=9)
    assert _committing(stage) == {}


# --- AddOffsetsToTxn -------------------------------------------------------------------------------------------


@pytest.mark.spec("TXN-36")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_groups_partition_is_added_and_its_topic_made_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    made: list[str] = []
    with transactions_stage(tmp_path, monkeypatch) as on:
        context = handler_context(
            transactions=on.coordinator,
            metadata_cache=on.world.cache,
            groups=SimpleNamespace(partition_of=lambda group: 1 if group == "elsewhere" else 0),
            topic_admin=SimpleNamespace(create_internal_offsets_topic=lambda: made.append(OFFSETS.topic)),
        )
        _, mine = on.init("id")
        with broker_of({25: load_handlers()[25]}, context) as client:

            def add(group: str, who: Identity = mine, id_: str = "id") -> int:
                request = add_offsets_to_txn.AddOffsetsToTxnRequest(
                    transactional_id=id_, producer_id=who.producer_id, producer_epoch=who.epoch, group_id=group
                )
                code: int = client.call(add_offsets_to_txn.API, version, request).error_code
                return code

            def partitions() -> set[TopicPartition]:
                found = on.coordinator.describe("id")
                assert isinstance(found, DescribedTransaction)
                return set(found.partitions)

            assert add("g", id_="") == ErrorCode.INVALID_REQUEST
            assert add("g", Identity(77, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
            assert add("g", Identity(mine.producer_id, mine.epoch + 1)) == fenced
            assert (partitions(), made) == (set(), [])
            assert (add("g"), partitions()) == (NONE, {OFFSETS})
            end = on.world.partition(OWN).log.log_end_offset
            assert (add("h"), add(""), partitions()) == (NONE, NONE, {OFFSETS}), "the same partition, once"
            assert on.world.partition(OWN).log.log_end_offset == end, "nothing is written for it"
            assert (add("elsewhere"), partitions()) == (NONE, {OFFSETS, OFFSETS._replace(partition=1)})
            on.world.know(OFFSETS, leader=-2)  # the topic is deleted
            assert (add("g", Identity(77, 0)), made) == (AWAY, [OFFSETS.topic]), "before anything else"
            assert (add("g", id_=""), made) == (AWAY, [OFFSETS.topic] * 2)
            on.world.know(OFFSETS)
            on.coordinator.shutdown()
            assert (add("g"), made) == (AWAY, [OFFSETS.topic] * 2)
            assert add("g", id_="") == ErrorCode.INVALID_REQUEST, "before the coordinator is looked at"
