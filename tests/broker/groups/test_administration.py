"""Describing, listing and deleting groups; damaged records, which deleting their group gets rid of."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.coordination import tombstones
from kafkatool.broker.groups.description import UNKNOWN_GROUP, GroupDescription, ListedGroups, MemberDescription
from kafkatool.broker.groups.member import JoinRequest, Parked, SyncResult
from kafkatool.broker.groups.records import GroupKey, OffsetKey, decode_key, encode_key
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, decode_records, encode_batch, iter_batches
from tests.broker.groups.test_coordinator import OFFSETS_PARTITION, A, B, Stage, join, owned_group


def make_stable(stage: Stage) -> str:
    """Make group g with one member; return its id."""
    member = join(stage).member_id
    synced: list[SyncResult] = []
    stage.coordinator.sync("g", member, None, 1, {member: b"mine"}, Parked(synced.append, lambda: None))
    assert synced == [SyncResult(ErrorCode.NONE, b"mine")]
    return member


def delete(stage: Stage, group: str = "g") -> ErrorCode:
    told: list[ErrorCode] = []
    stage.coordinator.delete(group, told.append)
    (code,) = told
    return code


def append(stage: Stage, key: bytes, value: bytes | None) -> int:
    """Put a record into the log behind the coordinator's back; return its offset."""
    batch = encode_batch([Record(0, 0, key, value, ())])
    return stage.replica.log.append_as_leader(batch, 0, origin_client=False).first_offset


def keys_in_log(stage: Stage) -> dict[Any, bool]:
    """Return each key, and whether its last record has a value."""
    log = stage.replica.log
    records = log.read(0, 1 << 20, log.log_end_offset, min_one_batch=True).records
    data = records.read() if isinstance(records, FileRegion) else records
    view = memoryview(data)
    return {
        decode_key(r.key): r.value is not None
        for position, header in iter_batches(view)
        for r in decode_records(view[position : position + header.size_bytes])
        if r.key is not None
    }


# --- describe and list -----------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-58", "GRP-8")
def test_a_group_is_described_with_its_members_data_only_while_stable(stage: Stage) -> None:
    assert stage.coordinator.describe("g") == GroupDescription(ErrorCode.NOT_COORDINATOR)
    stage.lead()
    assert stage.coordinator.describe("g") == UNKNOWN_GROUP == GroupDescription(ErrorCode.NONE, "Dead")
    stage.commit({A: 1})
    assert stage.coordinator.describe("g") == GroupDescription(ErrorCode.NONE, "Empty")
    member = join(stage).member_id
    plain = MemberDescription(member, None, "client", "/h", b"", b"")
    during = GroupDescription(ErrorCode.NONE, "CompletingRebalance", "consumer", "", (plain,))
    assert stage.coordinator.describe("g") == during
    stage.coordinator.sync("g", member, None, 1, {member: b"mine"}, Parked(lambda _: None, lambda: None))
    whole = MemberDescription(member, None, "client", "/h", b"r", b"mine")
    assert stage.coordinator.describe("g") == GroupDescription(ErrorCode.NONE, "Stable", "consumer", "range", (whole,))
    other = JoinRequest("", None, "d", "/i", 300_000, 60_000, "consumer", (("range", b"s"),), needs_known_id=False)
    stage.coordinator.join("g", other, Parked(lambda _: None, lambda: None))
    described = stage.coordinator.describe("g")
    assert described[:4] == (ErrorCode.NONE, "PreparingRebalance", "consumer", "")
    assert {(m.client_id, m.subscription, m.assignment) for m in described.members} == {
        ("client", b"", b""),
        ("d", b"", b""),
    }
    stage.coordinator.shutdown()
    assert stage.coordinator.describe("g") == GroupDescription(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.spec("GRP-59")
def test_all_groups_in_memory_are_listed_with_14_while_more_are_being_loaded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.coordinator.list_groups() == ListedGroups(ErrorCode.NONE, ())
    stage.lead()
    stage.commit({A: 1}, group="simple")
    make_stable(stage)
    listed = ListedGroups(ErrorCode.NONE, (("g", "consumer", "Stable"), ("simple", "", "Empty")))
    assert stage.coordinator.list_groups() == listed
    stage.restart()
    assert stage.coordinator.list_groups() == listed
    monkeypatch.setattr(stage.coordinator.groups.partitions, "loading", lambda: True)
    assert stage.coordinator.list_groups() == listed._replace(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    stage.coordinator.shutdown()
    assert stage.coordinator.list_groups() == ListedGroups(ErrorCode.COORDINATOR_NOT_AVAILABLE, ())


# --- delete ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-60", "GRP-8", "TXN-88")
def test_only_a_group_without_members_is_deleted_and_stays_so(stage: Stage) -> None:
    assert delete(stage) is ErrorCode.NOT_COORDINATOR
    stage.lead()
    assert delete(stage) is ErrorCode.GROUP_ID_NOT_FOUND
    member = make_stable(stage)
    assert stage.commit({A: 1, B: 2}, member=member, generation=1) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
    assert delete(stage) is ErrorCode.NON_EMPTY_GROUP
    assert stage.leave(member) is ErrorCode.NONE
    held, written = A._replace(partition=2), A._replace(partition=3)
    offsets = owned_group(stage).group.offsets
    offsets.transactional[7] = {held: offsets.in_force[A]}
    offsets.begin([written])
    assert delete(stage) is ErrorCode.NONE
    keys = [GroupKey("g"), *(OffsetKey("g", *p) for p in (A, B, held, written))]
    assert keys_in_log(stage) == dict.fromkeys(keys, False)
    assert stage.fetch() == (ErrorCode.NONE, {})
    assert delete(stage) is ErrorCode.GROUP_ID_NOT_FOUND
    stage.restart()
    assert stage.coordinator.describe("g") == UNKNOWN_GROUP
    assert stage.commit({A: 3}) == {A: ErrorCode.NONE}, "the id can be used again"


@pytest.mark.spec("GRP-60", "GRP-51", "GRP-18")
@pytest.mark.parametrize(
    ("appended", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_group_whose_tombstones_cannot_be_stored_is_there_again(
    stage: Stage, appended: ErrorCode, told: ErrorCode
) -> None:
    stage.lead()
    stage.commit({A: 1})
    stage.replica.refuse = appended
    assert delete(stage) is told
    assert stage.fetch() == (ErrorCode.NONE, {A: 1})
    assert stage.coordinator.describe("g") == GroupDescription(ErrorCode.NONE, "Empty")
    stage.replica.refuse = None
    assert delete(stage) is ErrorCode.NONE


@pytest.mark.spec("GRP-60", "GRP-19", "GRP-59", "GRP-18")
def test_while_the_tombstones_are_under_way_the_group_is_dead(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lead()
    stage.commit({A: 1})
    waiting: list[Callable[[], None]] = []
    store = stage.replica.append

    def store_later(*args: Any, on_done: Callable[..., None], **options: Any) -> None:
        store(*args, on_done=lambda results: waiting.append(lambda: on_done(results)), **options)

    monkeypatch.setattr(stage.replica, "append", store_later)
    told: list[ErrorCode] = []
    group = owned_group(stage).group
    group.state_timestamp_ms = 7
    stage.coordinator.delete("g", told.append)
    assert not told, "answered once they are replicated"
    assert (group.state.value, group.state_timestamp_ms) == ("Dead", 7), "it is stored no more"
    assert stage.fetch() == (ErrorCode.NONE, {})
    assert stage.commit({A: 2}) == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert join(stage).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert delete(stage) is ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.coordinator.describe("g").state == "Dead"
    assert stage.coordinator.list_groups().groups == ()
    waiting.pop()()
    assert told == [ErrorCode.NONE]
    assert stage.coordinator.groups.get("g") is None


@pytest.mark.spec("GRP-60", "GRP-17")
def test_tombstones_of_a_large_group_go_in_several_batches(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "BATCH_BYTES", 100)
    stage.lead()
    many = {A._replace(partition=p): p for p in range(20)}
    stage.commit(many)
    end = stage.replica.log.log_end_offset
    append, sizes = stage.replica.append, list[int]()

    def noting(entries: Any, **options: Any) -> None:
        sizes.extend(map(len, entries.values()))
        append(entries, **options)

    monkeypatch.setattr(stage.replica, "append", noting)
    assert delete(stage) is ErrorCode.NONE
    assert len(sizes) == len(many) and max(sizes) <= 110, "one tombstone in each"
    assert stage.replica.log.log_end_offset == end + len(many)
    assert not any(keys_in_log(stage).values())


@pytest.mark.spec("GRP-60")
def test_tombstones_of_a_group_go_in_batches_that_the_topic_takes(stage: Stage) -> None:
    stage.lead()
    many = {A._replace(partition=p): p for p in range(20)}
    stage.commit(many)
    largest = 200
    stage.logs.update_topic_config(
        OFFSETS_PARTITION.topic, {"cleanup.policy": "compact", "max.message.bytes": str(largest)}
    )
    end = stage.replica.log.log_end_offset
    assert delete(stage) is ErrorCode.NONE
    assert stage.replica.log.log_end_offset == end + len(many)
    records = stage.replica.log.read(end, 1 << 20, stage.replica.log.log_end_offset, min_one_batch=True).records
    data = records.read() if isinstance(records, FileRegion) else records
    sizes = [header.size_bytes for _, header in iter_batches(memoryview(data))]
    assert 1 < len(sizes) < len(many) and max(sizes) <= largest
    assert not any(keys_in_log(stage).values())


@pytest.mark.spec("GRP-55")
def test_a_group_that_expires_leaves_a_tombstone_for_each_key_it_has(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    member = make_stable(stage)
    stage.commit({A: 1, B: 2}, member=member, generation=1)
    stage.leave(member)
    stage.commit({A: 1}, group="simple")
    end = stage.replica.log.log_end_offset
    append, acks = stage.replica.append, set[int]()

    def noting(*entries: Any, **options: Any) -> None:
        acks.add(options["acks"])
        append(*entries, **options)

    monkeypatch.setattr(stage.replica, "append", noting)
    stage.expire_after(days=9)
    assert acks == {0}, "nobody waits for them"
    assert stage.coordinator.groups.all() == []
    assert stage.replica.log.log_end_offset == end + 4, "a simple group has no record of its own"
    assert keys_in_log(stage) == {
        GroupKey("g"): False,
        OffsetKey("g", *A): False,
        OffsetKey("g", *B): False,
        OffsetKey("simple", *A): False,
    }


# --- damaged records -------------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-14", "GRP-60")
def test_a_group_with_a_damaged_record_answers_14_until_it_is_deleted(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.lead()
    stage.commit({A: 1}, group="whole")
    stage.commit({A: 1})
    damaged = append(stage, encode_key(OffsetKey("g", *B)), b"\0\x63rubbish")
    make_stable(stage)  # a later group record does not hide the damage
    stage.restart()
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert str(OFFSETS_PARTITION) in line and f"offset {damaged} " in line and "group g " in line
    assert stage.fetch() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})
    assert stage.coordinator.describe("g").error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert stage.fetch("whole") == (ErrorCode.NONE, {A: 1})
    stage.replica.refuse = ErrorCode.REQUEST_TIMED_OUT
    assert delete(stage) is ErrorCode.REQUEST_TIMED_OUT
    assert stage.fetch()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    stage.replica.refuse = None
    assert delete(stage) is ErrorCode.NONE
    for _ in range(2):
        assert stage.fetch() == (ErrorCode.NONE, {})
        assert stage.fetch("whole") == (ErrorCode.NONE, {A: 1})
        stage.restart()


@pytest.mark.spec("GRP-14", "GRP-10")
def test_a_later_record_of_the_same_key_puts_the_damage_right(stage: Stage) -> None:
    stage.lead()
    append(stage, encode_key(OffsetKey("g", *A)), b"\0\x63rubbish")
    append(stage, encode_key(GroupKey("g")), b"\0\3")
    stage.commit({A: 7})
    append(stage, encode_key(GroupKey("g")), None)
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 7})


@pytest.mark.spec("GRP-14")
@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\5abc", b"\0\2\xff\xf0"])
def test_a_record_whose_key_is_damaged_is_skipped_with_a_line(
    stage: Stage, key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stage.lead()
    offset = append(stage, key, b"value")
    stage.commit({A: 1})
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 1})
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert str(OFFSETS_PARTITION) in line and f"offset {offset} " in line


@pytest.mark.spec("GRP-14")
def test_a_batch_that_rotted_on_the_disk_is_named_and_not_served_without(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.lead()
    stage.commit({A: 1})
    rotten = stage.replica.log.log_end_offset
    stage.commit({A: 2})
    (segment,) = Path(stage.replica.log.directory).glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    stage.coordinator = stage.make()
    loaded = stage.coordinator.groups
    stage.epoch += 1
    term = loaded.partitions.begin_load(0, stage.epoch)
    assert term is not None
    loaded.topic.load(term)
    assert stage.fetch() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert str(OFFSETS_PARTITION) in line and f"offset {rotten} " in line and "again in 1000 ms" in line


@pytest.mark.spec("GRP-2")
def test_growth_of_the_offsets_topic_is_warned_of_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    assert stage.coordinator.partition_count() == 1
    partitions = stage.metadata.snapshot.partitions
    (name,) = partitions
    partitions[name] = dict.fromkeys(range(5))
    for _ in range(3):
        assert stage.coordinator.partition_of("g") == 0, "where it was"
    (line,) = [r.getMessage() for r in caplog.records]
    assert "from 1 to 5 partitions" in line and "restarted" in line
    stage.coordinator = stage.make()
    assert stage.coordinator.partition_count() == 5, "a restart counts again"


@pytest.mark.spec("GRP-13", "GRP-34")
def test_a_loaded_group_with_too_many_members_rebalances(stage: Stage) -> None:
    stage.lead()
    make_stable(stage)
    stage.config = replace(stage.config, group_max_size=0)
    stage.restart()
    assert owned_group(stage).group.state.value == "PreparingRebalance"
