"""The checks every request begins with, and partitions that are lost while one is being answered (GRP-8, GRP-16)."""

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.groups.coordinator import OffsetToCommit
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.records import OffsetKey, OffsetValue, encode_key
from kafkatool.broker.groups.writer import TransactionalProducer
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.broker.groups.test_coordinator import OFFSETS_PARTITION, A, Stage, owned_group
from tests.waiting import eventually

OK, BAD_ID, STOPPING, LOADING, LOST = (
    ErrorCode.NONE,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def ask_join(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    told: list[JoinResult] = []
    protocols = (("range", b"r"),)
    request = JoinRequest(member_id, None, "c", "/h", 60_000, 60_000, "consumer", protocols, needs_known_id=False)
    stage.coordinator.join(group, request, Parked(told.append, lambda: None))
    (answer,) = told
    return answer.error


def ask_sync(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    told: list[SyncResult] = []
    parked: Parked[SyncResult] = Parked(told.append, lambda: None)
    stage.coordinator.sync(group, member_id, None, generation, {member_id: b"mine"}, parked)
    (answer,) = told
    return answer.error


def ask_heartbeat(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    return stage.coordinator.heartbeat(group, member_id, None, generation)


def ask_leave(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    return stage.leave(member_id, group)


def ask_commit(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    return stage.commit({A: 9}, group=group, member=member_id, generation=generation)[A]


def ask_fetch(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    error, offsets = stage.fetch(group)
    assert not error or not offsets
    return error


def ask_describe(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    described = stage.coordinator.describe(group)
    assert not described.error or (described.state, described.members) == ("", ())
    return described.error


def ask_delete(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    told: list[ErrorCode] = []
    stage.coordinator.delete(group, told.append)
    (code,) = told
    return code


Request = Callable[..., ErrorCode]
REQUESTS: list[Request] = [
    ask_join,
    ask_sync,
    ask_heartbeat,
    ask_leave,
    ask_commit,
    ask_fetch,
    ask_describe,
    ask_delete,
]


def ask_offset_delete(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    told: list[tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]] = []
    stage.coordinator.delete_offsets(group, [A], lambda error, codes: told.append((error, codes)))
    ((error, codes),) = told
    return error or codes[A]


def ask_txn_commit(stage: Stage, group: str, member_id: str = "m", generation: int = 1) -> ErrorCode:
    told: list[Mapping[TopicPartition, ErrorCode]] = []
    wanted = {A: OffsetToCommit(OffsetValue(9, None, "", 1, None), False)}
    producer = TransactionalProducer("id", 7, 0)
    stage.coordinator.commit_in_transaction(group, producer, member_id, None, generation, wanted, told.append)
    return told[0][A]


RACED = [*REQUESTS, ask_offset_delete, ask_txn_commit]
MAY_BE_NAMELESS = (ask_commit, ask_fetch, ask_describe, ask_delete)
WHILE_LOADING = {ask_heartbeat: OK, ask_sync: ErrorCode.REBALANCE_IN_PROGRESS}  # clients do not expect 14 there


@pytest.mark.spec("GRP-8", "GRP-3", "SEC-101")
@pytest.mark.parametrize("ask", REQUESTS)
def test_first_the_id_then_stopping_then_loading_then_ownership(stage: Stage, ask: Request) -> None:
    partitions = stage.coordinator.groups.partitions
    nameless = LOST if ask in MAY_BE_NAMELESS else BAD_ID
    assert [ask(stage, "g"), ask(stage, ""), ask(stage, "x" * 4097)] == [LOST, nameless, BAD_ID]
    partitions.begin_load(0, 1)
    expected = WHILE_LOADING.get(ask, LOADING)
    assert ask(stage, "g") is expected
    assert ask(stage, "") is (expected if ask in MAY_BE_NAMELESS else BAD_ID)
    assert ask(stage, "x" * 4097) is BAD_ID
    stage.coordinator.shutdown()
    stopping = LOST if ask is ask_fetch else STOPPING  # 15 would end Java and aiokafka consumers
    assert ask(stage, "g") is stopping, "before loading"
    assert ask(stage, "") is (stopping if ask in MAY_BE_NAMELESS else BAD_ID), "the id comes first"
    assert ask(stage, "x" * 4097) is BAD_ID
    partitions.end(0, None)
    assert ask(stage, "g") is stopping


@pytest.mark.spec("GRP-19", "GRP-21", "GRP-45", "GRP-47", "GRP-56", "GRP-58", "GRP-60")
def test_what_each_request_says_of_a_group_that_is_not_known(stage: Stage) -> None:
    stage.lead()
    assert {ask.__name__: ask(stage, "unknown") for ask in REQUESTS} == {
        **dict.fromkeys(("ask_join", "ask_sync", "ask_heartbeat", "ask_leave"), ErrorCode.UNKNOWN_MEMBER_ID),
        "ask_commit": ErrorCode.ILLEGAL_GENERATION,
        "ask_fetch": OK,
        "ask_describe": OK,
        "ask_delete": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert stage.coordinator.groups.all() == []


def make_members(stage: Stage) -> str:
    """Make g a group with one member, which is stable; return the member's id."""
    told: list[JoinResult] = []
    protocols = (("range", b"r"),)
    request = JoinRequest("", None, "c", "/h", 60_000, 60_000, "consumer", protocols, needs_known_id=False)
    stage.coordinator.join("g", request, Parked(told.append, lambda: None))
    member = told[0].member_id
    assert ask_sync(stage, "g", member) is OK
    return member


def lose(stage: Stage, *, back: bool) -> None:
    """Lose the partition; ``back``: lead and load it again at once."""
    stage.follow()
    if back:
        stage.lead()


@pytest.mark.spec("GRP-16")
@pytest.mark.parametrize("ask", RACED)
@pytest.mark.parametrize("moment", ["before the group is looked up", "after it was looked up"])
@pytest.mark.parametrize("back", [False, True], ids=["lost", "lost and loaded again"])
def test_a_partition_lost_after_the_first_check_is_answered_16(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, ask: Request, moment: str, back: bool
) -> None:
    stage.lead()
    stage.commit({A: 1})
    member = make_members(stage)
    groups = stage.coordinator.groups
    look_up, known = groups.get, owned_group(stage)
    end = stage.replica.log.log_end_offset

    def losing(group: str) -> Any:
        monkeypatch.setattr(groups, "get", look_up)
        found = look_up(group)
        lose(stage, back=back)
        return found if moment.startswith("after") else None

    monkeypatch.setattr(groups, "get", losing)
    assert ask(stage, "g", member) is LOST
    assert stage.replica.log.log_end_offset == end, "and nothing is decided or written"
    assert known.group.state.value == "Dead"


@pytest.mark.spec("GRP-16", "GRP-56", "GRP-19")
@pytest.mark.parametrize("back", [False, True], ids=["lost", "lost and loaded again"])
def test_an_offset_fetch_whose_partition_is_lost_while_it_reads_never_says_nothing_committed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    stage.lead()
    stage.commit({A: 1})
    asked: list[bool] = []

    def partitions() -> Iterator[Any]:
        yield A
        asked.append(True)
        lose(stage, back=back)  # the group's lock is held by this very thread
        yield A

    fetched = stage.coordinator.fetch_offsets("g", partitions())
    assert asked and (fetched.error, fetched.offsets) == (LOST, {})


@pytest.mark.spec("GRP-16")
@pytest.mark.parametrize("ask", RACED)
def test_a_group_whose_unload_has_only_begun_decides_nothing(stage: Stage, ask: Request) -> None:
    stage.lead()
    member = make_members(stage)
    stage.epoch += 1
    assert stage.coordinator.groups.partitions.end(0, stage.epoch)  # its turn in the unload has not come
    before = owned_group(stage).group.to_value()
    assert ask(stage, "g", member) is LOST
    assert owned_group(stage).group.to_value() == before


@pytest.mark.spec("GRP-16")
def test_a_deadline_that_comes_during_the_unload_decides_nothing(stage: Stage) -> None:
    stage.lead()
    make_members(stage)
    owned = owned_group(stage)
    stage.epoch += 1
    stage.coordinator.groups.partitions.end(0, stage.epoch)
    end = stage.replica.log.log_end_offset
    stage.passed_ms += 3_600_000
    stage.coordinator.groups.on_time(owned)
    assert len(owned.group.members) == 1 and stage.replica.log.log_end_offset == end


@pytest.mark.spec("GRP-16")
@pytest.mark.parametrize("what", ["a round of expiry", "a deletion of topics"])
def test_nothing_is_taken_from_a_group_whose_unload_has_begun(stage: Stage, what: str) -> None:
    stage.lead()
    stage.commit({A: 1})
    owned = owned_group(stage)
    stage.epoch += 1
    stage.coordinator.groups.partitions.end(0, stage.epoch)
    end = stage.replica.log.log_end_offset
    if what == "a round of expiry":
        stage.expire_after(days=9)
    else:
        stage.coordinator.on_partitions_deleted([A])
    assert list(owned.group.offsets.in_force) == [A] and owned.group.state.value == "Empty"
    assert stage.replica.log.log_end_offset == end


def lose_at_the_next_acknowledgement(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the unload begin, and come no further, when what is appended is acknowledged."""
    append = stage.replica.append

    def losing(entries: Any, *, on_done: Callable[[Any], None], **options: Any) -> None:
        def done(results: Any) -> None:
            stage.epoch += 1
            stage.coordinator.groups.partitions.end(0, stage.epoch)
            on_done(results)

        append(entries, on_done=done, **options)

    monkeypatch.setattr(stage.replica, "append", losing)


@pytest.mark.spec("GRP-16")
def test_a_commit_acknowledged_when_the_unload_has_only_begun_is_answered_16(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    stage.commit({A: 1})
    lose_at_the_next_acknowledgement(stage, monkeypatch)
    assert stage.commit({A: 2}) == {A: LOST}
    assert owned_group(stage).group.offsets.in_force[A].value.offset == 1


@pytest.mark.spec("GRP-16")
@pytest.mark.parametrize("ask", [ask_delete, ask_offset_delete])
def test_a_deletion_acknowledged_when_the_unload_has_only_begun_is_answered_16(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, ask: Request
) -> None:
    stage.lead()
    stage.commit({A: 1})
    lose_at_the_next_acknowledgement(stage, monkeypatch)
    assert ask(stage, "g") is LOST


@pytest.mark.spec("GRP-16", "GRP-14")
def test_a_damaged_groups_deletion_acknowledged_when_the_unload_has_only_begun_is_answered_16(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    damaged = Record(0, 0, encode_key(OffsetKey("g", *A)), b"\0\x63rubbish", ())
    stage.replica.log.append_as_leader(encode_batch([damaged]), 0, origin_client=False)
    stage.restart()
    assert ask_describe(stage, "g") is LOADING
    lose_at_the_next_acknowledgement(stage, monkeypatch)
    assert ask_delete(stage, "g") is LOST


@pytest.mark.spec("GRP-14")
@pytest.mark.parametrize("ask", [ask for ask in RACED if ask is not ask_delete])
def test_whatever_is_asked_of_a_damaged_group_is_answered_as_while_it_loads(stage: Stage, ask: Request) -> None:
    stage.lead()
    stage.commit({A: 1}, group="whole")
    damaged = Record(0, 0, encode_key(OffsetKey("g", *A)), b"\0\x63rubbish", ())
    stage.replica.log.append_as_leader(encode_batch([damaged]), 0, origin_client=False)
    stage.restart()
    assert ask(stage, "g") is WHILE_LOADING.get(ask, LOADING)
    assert stage.fetch("whole") == (OK, {A: 1})


@pytest.mark.spec("GRP-16")
def test_a_commit_in_a_transaction_acknowledged_when_the_unload_has_only_begun_is_answered_16(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losing(*_: Any, on_done: Callable[[Any], None], **__: Any) -> None:
        stage.epoch += 1
        stage.coordinator.groups.partitions.end(0, stage.epoch)
        on_done({OFFSETS_PARTITION: SimpleNamespace(error=OK, base_offset=1)})

    stage.lead()
    stage.commit({A: 1})
    monkeypatch.setattr(stage.replica, "verified_appends", SimpleNamespace(append=losing), raising=False)
    assert ask_txn_commit(stage, "g", "", -1) is LOST


@pytest.mark.spec("GRP-16")
def test_a_commit_in_a_transaction_that_its_coordinator_answers_for_when_the_group_was_let_go_is_answered_16(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[Any], None]] = []
    held = SimpleNamespace(append=lambda *_, on_done, **__: waiting.append(on_done))
    monkeypatch.setattr(stage.replica, "verified_appends", held, raising=False)
    stage.lead()
    stage.commit({A: 1})
    owned = owned_group(stage)
    known = owned.group.offsets
    told: list[Mapping[TopicPartition, ErrorCode]] = []
    wanted = {A: OffsetToCommit(OffsetValue(9, None, "", 1, None), False)}
    producer = TransactionalProducer("id", 7, 0)
    stage.coordinator.commit_in_transaction("g", producer, "", None, -1, wanted, told.append)
    stage.follow()
    eventually(lambda: owned.group.offsets is not known, "the end of the unload")
    waiting[0]({OFFSETS_PARTITION: SimpleNamespace(error=ErrorCode.NOT_LEADER_FOR_PARTITION, base_offset=-1)})
    assert told == [{A: LOST}]


@pytest.mark.spec("TXN-86")
def test_of_a_commit_in_a_transaction_with_nothing_to_store_nothing_is_left(stage: Stage) -> None:
    stage.lead()
    stage.commit({A: 1})
    told: list[Mapping[TopicPartition, ErrorCode]] = []
    wanted = {A: OffsetToCommit(OffsetValue(9, None, "", 1, None), True)}
    stage.coordinator.commit_in_transaction("g", TransactionalProducer("id", 7, 0), "", None, -1, wanted, told.append)
    assert told == [{A: ErrorCode.OFFSET_METADATA_TOO_LARGE}]
    assert not owned_group(stage).group.offsets.knows_transaction(7), "nobody would note its end"


@pytest.mark.spec("GRP-16", "GRP-41")
def test_an_assignment_acknowledged_after_the_partition_was_lost_is_answered_16(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    told: list[JoinResult] = []
    protocols = (("range", b"r"),)
    request = JoinRequest("", None, "c", "/h", 60_000, 60_000, "consumer", protocols, needs_known_id=False)
    stage.coordinator.join("g", request, Parked(told.append, lambda: None))
    lose_at_the_next_acknowledgement(stage, monkeypatch)
    assert ask_sync(stage, "g", told[0].member_id) is LOST
