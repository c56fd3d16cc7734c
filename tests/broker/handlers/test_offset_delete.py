"""OffsetDelete over a raw socket; coordinator and log are the real ones."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.records import OffsetKey
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.offset_delete import (
    API,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.broker.groups.test_administration import keys_in_log
from tests.broker.groups.test_coordinator import A, B, Stage
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.waiting import eventually

OTHER, GONE = TopicPartition("other", 0), TopicPartition("gone", 0)
ALL = (A, B, OTHER, GONE)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def client(stage: Stage) -> Iterator[Client]:
    cache = MetadataCache(1)
    there = [state(p.topic, p.partition, 1, [1]) for p in (A, B, OTHER)]
    cache.update(update(*there, brokers=[live(1)]))
    with broker_of({47: load_handlers()[47]}, handler_context(groups=stage.coordinator, metadata_cache=cache)) as made:
        yield made


def delete(client: Client, *partitions: TopicPartition, group: str = "g") -> int | dict[TopicPartition, int]:
    """Return the group's error, else the code of each partition."""
    topics = [
        OffsetDeleteRequestTopic(topic=t, partitions=[OffsetDeleteRequestPartition(partition=p)]) for t, p in partitions
    ]
    answer = client.call(API, 0, OffsetDeleteRequest(group_id=group, topics=topics))
    if answer.error_code:
        assert answer.topics == []
        return int(answer.error_code)
    codes = [(TopicPartition(t.topic, p.partition), p.error_code) for t in answer.topics for p in t.partitions]
    assert len(dict(codes)) == len(codes), "each once"
    return dict(codes)


def committed(stage: Stage, group: str = "g") -> dict[TopicPartition, int]:
    return {p: value.offset for p, value in stage.coordinator.fetch_offsets(group, None).offsets.items()}


def join(stage: Stage, metadata: bytes, protocol_type: str = "consumer") -> list[JoinResult]:
    told: list[JoinResult] = []
    wish = JoinRequest(
        "", None, "c", "/h", 300_000, 60_000, protocol_type, (("range", metadata),), needs_known_id=False
    )
    stage.coordinator.join("g", wish, Parked(told.append, lambda: None))
    return told


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)


@pytest.mark.spec("ADM-67", "ADM-61", "GRP-8")
def test_the_first_checks_come_without_partitions_and_in_their_order(stage: Stage, client: Client) -> None:
    def answers() -> list[object]:
        return [delete(client, A), delete(client, A, group="")]

    nameless = ErrorCode.INVALID_GROUP_ID
    assert answers() == [ErrorCode.NOT_COORDINATOR, nameless]
    loads = stage.coordinator.groups.partitions
    loads.begin_load(0, 1)
    assert answers() == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, nameless]
    loads.end(0, None)
    stage.lead()
    assert answers() == [ErrorCode.GROUP_ID_NOT_FOUND, nameless]
    loads.begin_load(0, 9)
    stage.coordinator.shutdown()
    assert answers() == [ErrorCode.COORDINATOR_NOT_AVAILABLE, nameless]


@pytest.mark.spec("ADM-67")
def test_all_offsets_of_a_group_without_members_may_go_and_stay_gone(stage: Stage, client: Client) -> None:
    stage.lead()
    stage.commit({A: 1, B: 2, OTHER: 3})
    assert delete(client, A, GONE, A, OTHER) == {A: 0, GONE: 3, OTHER: 0}
    assert committed(stage) == {B: 2}
    assert {k: v for k, v in keys_in_log(stage).items() if isinstance(k, OffsetKey)} == {
        OffsetKey("g", *A): False,
        OffsetKey("g", *B): True,
        OffsetKey("g", *OTHER): False,
    }
    stage.restart()
    assert committed(stage) == {B: 2}
    assert delete(client, A) == {A: 0}, "nothing to delete is no error"
    assert delete(client) == {}
    stage.commit({A: 9})
    assert committed(stage) == {A: 9, B: 2}


@pytest.mark.spec("ADM-67")
@pytest.mark.parametrize(
    ("metadata", "codes", "left"),
    [
        (subscription("t"), {A: 86, B: 86, OTHER: 0, GONE: 3}, {A: 1, B: 2}),
        (subscription("other", "t"), {A: 86, B: 86, OTHER: 86, GONE: 3}, {A: 1, B: 2, OTHER: 3}),
        (subscription(), {A: 0, B: 0, OTHER: 0, GONE: 3}, {}),
        (b"odd", {A: 86, B: 86, OTHER: 86, GONE: 3}, {A: 1, B: 2, OTHER: 3}),
    ],
)
def test_what_members_read_is_kept(
    stage: Stage, client: Client, metadata: bytes, codes: dict[TopicPartition, int], left: dict[TopicPartition, int]
) -> None:
    stage.lead()
    stage.commit({A: 1, B: 2, OTHER: 3})
    join(stage, metadata)
    assert stage.coordinator.describe("g").state != "Empty"
    assert delete(client, *ALL) == codes
    assert committed(stage) == left


@pytest.mark.spec("ADM-67")
@pytest.mark.parametrize("phase", ["CompletingRebalance", "Stable", "PreparingRebalance"])
def test_what_any_member_reads_is_kept_in_each_state_of_a_group(stage: Stage, client: Client, phase: str) -> None:
    stage.lead()
    stage.commit({A: 1, OTHER: 3})
    first = join(stage, subscription("t"))
    eventually(lambda: bool(first), "the first member to be in the group")
    if phase != "CompletingRebalance":
        synced: list[SyncResult] = []
        member = first[0].member_id
        stage.coordinator.sync("g", member, None, 1, {member: b""}, Parked(synced.append, lambda: None))
    if phase == "PreparingRebalance":
        join(stage, subscription())
    assert stage.coordinator.describe("g").state == phase
    assert delete(client, A, OTHER) == {A: 86, OTHER: 0}
    assert committed(stage) == {A: 1}


@pytest.mark.spec("ADM-67")
def test_the_answer_waits_for_the_tombstones(stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lead()
    stage.commit({A: 1})
    held: list[Callable[[], None]] = []
    append = stage.replica.append
    monkeypatch.setattr(stage.replica, "append", lambda entries, **how: held.append(lambda: append(entries, **how)))
    topics = [OffsetDeleteRequestTopic(topic="t", partitions=[OffsetDeleteRequestPartition(partition=A.partition)])]
    client.send_request(API, 0, OffsetDeleteRequest(group_id="g", topics=topics))
    eventually(lambda: bool(held), "the tombstones to be on their way")
    assert client.answers_nothing_for(0.1) and committed(stage) == {A: 1}
    held[0]()
    answer = client.receive_response(API, 0)
    assert [p.error_code for t in answer.topics for p in t.partitions] == [0]
    assert committed(stage) == {}


@pytest.mark.spec("ADM-67")
def test_a_group_of_another_kind_keeps_all_while_it_has_members(stage: Stage, client: Client) -> None:
    stage.lead()
    stage.commit({A: 1})
    join(stage, subscription(), "connect")
    assert delete(client, A) == ErrorCode.NON_EMPTY_GROUP
    assert committed(stage) == {A: 1}


@pytest.mark.spec("ADM-67")
def test_what_could_not_be_stored_is_told_and_nothing_is_forgotten(stage: Stage, client: Client) -> None:
    stage.lead()
    stage.commit({A: 1, B: 2})
    stage.replica.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert delete(client, A, B) == {A: 15, B: 15}
    stage.replica.refuse = None
    assert committed(stage) == {A: 1, B: 2}
