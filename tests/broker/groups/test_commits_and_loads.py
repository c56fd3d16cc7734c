"""Commits in each state of a group; transactions and bad reads in a load of the offsets partition."""

import logging
import re
import threading
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.groups import owned
from kafkatool.broker.groups.coordinator import OffsetToCommit
from kafkatool.broker.groups.group import Group
from kafkatool.broker.groups.loader import Loaded, load
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked
from kafkatool.broker.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    encode_group,
    encode_key,
    encode_offset,
)
from kafkatool.broker.groups.states import GroupState
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.errors import StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, Record, encode_batch, read_header
from tests.broker.groups.test_coordinator import OFFSETS_PARTITION, A, B, Stage, owned_group
from tests.broker.storage.batch_builders import marker
from tests.broker.storage.logs import Later, make_log
from tests.waiting import eventually


class Joiner:
    """One client: its parked or answered JoinGroups."""

    def __init__(self, stage: Stage, instance_id: str | None = None) -> None:
        self._stage = stage
        self._instance_id = instance_id
        self.answers: list[JoinResult] = []
        self.id = ""

    def join(self) -> None:
        protocols = (("range", b"r"),)
        request = JoinRequest(
            self.id, self._instance_id, "c", "/h", 60_000, 60_000, "consumer", protocols, needs_known_id=False
        )
        self._stage.coordinator.join("g", request, Parked(self._answered, lambda: None))

    def _answered(self, result: JoinResult) -> None:
        self.answers.append(result)
        self.id = result.member_id

    def sync(self) -> None:
        generation = self.answers[-1].generation
        parked: Parked[Any] = Parked(lambda _: None, lambda: None)
        self._stage.coordinator.sync("g", self.id, self._instance_id, generation, {}, parked)

    def commit(self, generation: int | None = None) -> ErrorCode:
        known = self.answers[-1].generation if generation is None else generation
        return self._stage.commit({A: 5}, member=self.id, generation=known)[A]


@pytest.mark.spec("GRP-47", "GRP-19")
def test_who_may_commit_depends_on_the_state_of_the_group(stage: Stage) -> None:
    stage.lead()
    assert stage.commit({A: 1}, generation=0) == {A: ErrorCode.ILLEGAL_GENERATION}, "an unknown group"
    assert stage.commit({A: 1}) == {A: ErrorCode.NONE}, "from outside it makes a simple group"
    assert stage.commit({A: 2}, member="anybody") == {A: ErrorCode.NONE}
    assert stage.commit({A: 2}, member="anybody", generation=1) == {A: ErrorCode.UNKNOWN_MEMBER_ID}
    first, second = Joiner(stage), Joiner(stage)
    first.join()
    assert first.commit() is ErrorCode.REBALANCE_IN_PROGRESS, "CompletingRebalance"
    assert stage.commit({A: 3}) == {A: ErrorCode.REBALANCE_IN_PROGRESS}
    first.sync()
    assert first.commit() is ErrorCode.NONE, "Stable"
    assert stage.commit({A: 3}) == {A: ErrorCode.UNKNOWN_MEMBER_ID}, "from outside a group with members"
    assert first.commit(generation=7) is ErrorCode.ILLEGAL_GENERATION
    second.join()
    assert not second.answers
    assert first.commit() is ErrorCode.NONE, "PreparingRebalance: members may still commit"
    assert stage.fetch() == (ErrorCode.NONE, {A: 5})


@pytest.mark.spec("GRP-47", "GRP-53")
def test_a_commit_for_a_partition_whose_tombstone_is_on_its_way_is_told_to_come_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    stage.commit({A: 1, B: 1})
    append, met = stage.replica.append, list[Mapping[TopicPartition, ErrorCode]]()

    def append_after_commits(entries: Mapping[TopicPartition, bytearray], **options: Any) -> None:
        if not met:
            met.append({})
            met[:] = [stage.commit({A: 2}), stage.commit({B: 2})]
        append(entries, **options)

    monkeypatch.setattr(stage.replica, "append", append_after_commits)
    stage.coordinator.on_partitions_deleted([A])
    assert met == [{A: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, {B: ErrorCode.NONE}]
    assert stage.fetch() == (ErrorCode.NONE, {B: 2})
    assert stage.commit({A: 3}) == {A: ErrorCode.NONE}
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 3, B: 2}), "it stands behind the tombstone"


@pytest.mark.spec("GRP-47", "GRP-37")
def test_a_fenced_static_member_commits_nothing_but_an_outsider_with_that_instance_id_does(stage: Stage) -> None:
    stage.lead()
    offsets = {A: stage_value(1)}
    told: list[Any] = []
    stage.coordinator.commit("g", "", "i", -1, offsets, told.append)
    assert told.pop() == {A: ErrorCode.NONE}, "assign() with an instance id (KAFKA-14201)"
    member = Joiner(stage, "i")
    member.join()
    stage.coordinator.commit("g", "another-id", "i", 1, offsets, told.append)
    assert told.pop() == {A: ErrorCode.FENCED_INSTANCE_ID}, "before 27: it is CompletingRebalance"
    member.sync()
    stage.coordinator.commit("g", "another-id", "i", 1, offsets, told.append)
    assert told.pop() == {A: ErrorCode.FENCED_INSTANCE_ID}
    stage.coordinator.commit("g", member.id, "i", 1, offsets, told.append)
    assert told.pop() == {A: ErrorCode.NONE}


def stage_value(offset: int) -> OffsetToCommit:
    return OffsetToCommit(OffsetValue(offset, None, "m", 1, None), False)


@pytest.mark.spec("GRP-12", "TXN-86", "TXN-88")
@pytest.mark.parametrize(("commit", "offset"), [(True, 9), (False, 1)])
def test_a_load_applies_transactional_commits_with_their_marker_only(stage: Stage, commit: bool, offset: int) -> None:
    stage.lead()
    stage.commit({A: 1})

    def append(batch: bytearray) -> None:
        stage.replica.log.append_as_leader(batch, 0, origin_client=False, verification=UNVERIFIED)

    record = Record(
        0, 0, encode_key(OffsetKey("g", *A)), encode_offset(OffsetValue(9, None, "", 1, None), with_epoch=True), ()
    )
    append(encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 1}), "pending: not to be seen"
    append(marker(commit=commit, producer=(7, 0), base_offset=0))
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: offset})
    stage.commit({A: 4, B: 2})
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 4, B: 2}), "later in the log than the transaction"


@pytest.mark.spec("GRP-12")
def test_a_commit_between_a_transactional_one_and_its_marker_is_the_later_one(stage: Stage) -> None:
    record = Record(0, 0, encode_key(OffsetKey("g", *A)), offset_value(9), ())
    batch = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    stage.replica.log.append_as_leader(batch, 0, origin_client=False, verification=UNVERIFIED)
    fill(stage, [(OffsetKey("g", *A), offset_value(4))])
    stage.replica.log.append_as_leader(marker(commit=True, producer=(7, 0), base_offset=0), 0, origin_client=False)
    stage.lead()
    assert stage.fetch() == (ErrorCode.NONE, {A: 4})


@pytest.mark.spec("GRP-12", "GRP-14")
@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", "no records"])
def test_a_control_batch_without_a_marker_is_skipped(key: bytes | str | None) -> None:
    records = [] if isinstance(key, str) else [Record(0, 0, key, b"", ())]
    header = read_header(marker(commit=True, producer=(7, 0), base_offset=0))
    assert header is not None
    loaded = Loaded()
    loaded.offsets["g"].transactional[7] = {}
    loaded.apply(header, records)
    assert loaded.offsets["g"].transactional == {7: {}}, "the transaction goes on"


@pytest.mark.spec("GRP-14", "GRP-8")
def test_a_load_that_fails_is_repeated_and_meanwhile_the_group_is_loading(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    stage.commit({A: 3})
    read: Callable[..., Any] = stage.replica.log.read
    whole = threading.Event()

    def failing(*args: Any, **options: Any) -> Any:
        if not whole.is_set():
            raise StorageError("the disk hiccups")
        return read(*args, **options)

    monkeypatch.setattr(stage.replica.log, "read", failing)
    stage.coordinator = stage.make()
    stage.coordinator.on_leadership_change([stage.state()], [])
    assert stage.fetch() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})
    assert stage.commit({A: 4}) == {A: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert stage.coordinator.heartbeat("g", "m", None, 1) is ErrorCode.NONE, "clients do not expect 14 there"
    whole.set()
    eventually(lambda: stage.fetch()[0] is ErrorCode.NONE, "the next attempt, after some seconds", 60)
    assert stage.fetch() == (ErrorCode.NONE, {A: 3})


# --- the pieces of a load (GRP-9 to 13) -----------------------------------------------------------------------------


class Pieces:
    """A log that notes how it is read."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.partition = source.partition
        self.log_start_offset = source.log_start_offset
        self.log_end_offset = source.log_end_offset
        self.reads: list[tuple[int, int]] = []  # offset, size asked for

    def read(self, offset: int, size: int, end: int, *, min_one_batch: bool) -> Any:
        self.reads.append((offset, size))
        assert end == self.log_end_offset
        return self._source.read(offset, size, end, min_one_batch=min_one_batch)


def fill(stage: Stage, values: list[tuple[Any, bytes | None]]) -> None:
    """Append each record as a batch of its own."""
    for key, value in values:
        encoded = key if isinstance(key, bytes) else encode_key(key)
        stage.replica.log.append_as_leader(encode_batch([Record(0, 0, encoded, value, ())]), 0, origin_client=False)


def offset_value(offset: int, metadata: str = "") -> bytes:
    return encode_offset(OffsetValue(offset, None, metadata, 1, None), with_epoch=True)


def read_all(source: Any, size: int = 1 << 20) -> Loaded:
    loaded = load(source, size, lambda: True)
    assert loaded is not None
    return loaded


@pytest.mark.spec("GRP-9")
def test_a_load_reads_from_log_start_to_log_end_in_pieces_and_a_larger_batch_whole(stage: Stage) -> None:
    log = stage.replica.log
    fill(stage, [(OffsetKey("g", "t", p), offset_value(p, "m" * (5000 if p == 7 else 0))) for p in range(20)])
    source = Pieces(log)
    source.log_start_offset = 3
    loaded = read_all(source, 500)
    assert sorted(p.partition for p in loaded.offsets["g"].in_force) == list(range(3, 20))
    assert source.reads[0] == (3, 500) and {size for _, size in source.reads} == {500}
    assert len(source.reads) > 4 and [o for o, _ in source.reads] == sorted({o for o, _ in source.reads})
    assert loaded.offsets["g"].in_force[A._replace(partition=7)].value.metadata == "m" * 5000


@pytest.mark.spec("GRP-9")
def test_the_size_of_the_pieces_is_the_setting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(stage, [(OffsetKey("g", "t", 0), offset_value(5))])
    sizes: list[int] = []
    read = stage.replica.log.read

    def noting(offset: int, size: int, *args: Any, **options: Any) -> Any:
        sizes.append(size)
        return read(offset, size, *args, **options)

    monkeypatch.setattr(stage.replica.log, "read", noting)
    stage.lead()
    stage.config = replace(stage.config, offsets_load_buffer_size=777)
    stage.restart()
    assert sizes == [5_242_880, 777]


@pytest.mark.spec("GRP-9")
def test_a_load_reads_beyond_the_high_watermark(stage: Stage) -> None:
    fill(stage, [(OffsetKey("g", "t", 0), offset_value(5))])
    assert stage.replica.log.high_watermark == 0
    assert read_all(stage.replica.log).offsets["g"].in_force[A].value.offset == 5


@pytest.mark.spec("GRP-9")
def test_a_load_ends_where_a_read_brings_nothing_and_when_leadership_goes(stage: Stage) -> None:
    fill(stage, [(OffsetKey("g", "t", p), offset_value(p)) for p in range(20)])
    source = Pieces(stage.replica.log)
    source.log_end_offset += 7  # compaction has left a gap at the end
    assert len(read_all(source).offsets["g"].in_force) == 20
    wanted = [True, True, False]
    source = Pieces(stage.replica.log)
    assert load(source, 300, lambda: wanted.pop(0)) is None  # type: ignore[arg-type]
    assert len(source.reads) == 2


def group_value(*members: str, generation: int = 3, **fields: Any) -> GroupValue:
    made = tuple(
        MemberValue(m, fields.pop("instance_id", None), "c", "/h", 60_000, 20_000, b"sub", b"mine") for m in members
    )
    protocol, leader = ("range", members[0]) if members else (None, None)
    return GroupValue("consumer", generation, protocol, leader, fields.get("timestamp", 77), made)


@pytest.mark.spec("GRP-10", "GRP-13")
def test_what_the_records_of_a_partition_make_of_groups(stage: Stage) -> None:
    newer_key = b"\0\x09" + b"a newer broker's"
    fill(
        stage,
        [
            (GroupKey("stable"), encode_group(group_value("x", generation=1))),
            (GroupKey("stable"), encode_group(group_value("m", "n"))),
            (OffsetKey("stable", "t", 0), offset_value(1)),
            (newer_key, b"whatever"),
            (OffsetKey("stable", "t", 0), offset_value(2)),
            (OffsetKey("stable", "t", 1), offset_value(3)),
            (OffsetKey("stable", "t", 1), None),
            (GroupKey("empty"), encode_group(group_value(generation=9))),
            (GroupKey("gone"), encode_group(group_value("m"))),
            (GroupKey("gone"), None),
            (OffsetKey("simple", "t", 1), offset_value(4)),
            (OffsetKey("all-deleted", "t", 1), offset_value(4)),
            (OffsetKey("all-deleted", "t", 1), None),
        ],
    )
    stage.lead()
    found = {g.group.id: g.group for g in stage.coordinator.groups.all()}
    assert {i: (g.state.value, g.generation, g.protocol_type) for i, g in found.items()} == {
        "stable": ("Stable", 3, "consumer"),
        "empty": ("Empty", 9, "consumer"),
        "simple": ("Empty", 0, None),
    }
    assert stage.fetch("stable") == (ErrorCode.NONE, {A: 2})
    assert stage.fetch("simple") == (ErrorCode.NONE, {B: 4})


@pytest.mark.spec("GRP-10")
def test_of_a_batch_the_unknown_keys_alone_are_skipped(stage: Stage) -> None:
    records = [
        Record(0, 0, b"\0\x09" + b"a newer broker's", b"whatever", ()),
        Record(1, 0, encode_key(OffsetKey("g", "t", 0)), offset_value(1), ()),
        Record(2, 0, encode_key(OffsetKey("g", "t", 0)), offset_value(2), ()),
    ]
    stage.replica.log.append_as_leader(encode_batch(records), 0, origin_client=False)
    stage.lead()
    assert stage.fetch() == (ErrorCode.NONE, {A: 2})


@pytest.mark.spec("GRP-11")
def test_a_loaded_member_knows_the_stored_protocol_alone_and_is_dynamic_without_an_instance_id(stage: Stage) -> None:
    fill(
        stage,
        [
            (GroupKey("dynamic"), encode_group(group_value("m"))),
            (GroupKey("static"), encode_group(group_value("m", instance_id="one"))),
            (GroupKey("old"), encode_group(group_value("m"), version=2)),
        ],
    )
    stage.lead()
    for name, instance_id in (("dynamic", None), ("static", "one"), ("old", None)):
        group = owned_group(stage, name).group
        (member,) = group.members.values()
        assert (member.protocols, member.instance_id) == ((("range", b"sub"),), instance_id)
        assert group.state_timestamp_ms == 77
        for effect in group.join(new_member(), Parked(lambda _: None, lambda: None), 0):
            effect()
        group.on_time(200_000)
        assert ("m" in group.members) is (instance_id is not None), "who does not come back, but for static members"


def new_member() -> JoinRequest:
    protocols = (("range", b"r"),)
    return JoinRequest("", None, "c", "/h", 500_000, 60_000, "consumer", protocols, needs_known_id=False)


@pytest.mark.spec("GRP-11")
def test_the_state_timestamp_is_taken_from_every_version_that_has_it() -> None:
    for version, expected in ((1, None), (2, 77), (3, 77)):
        data = encode_group(group_value("m"), version=version)
        assert int.from_bytes(data[:2]) == version
        assert decode_group(data).state_timestamp_ms == expected
        none = encode_group(group_value("m", timestamp=None), version=version)
        assert (b"\xff" * 8 in none) is (version >= 2)
        assert decode_group(none).state_timestamp_ms is None


@pytest.mark.spec("GRP-12", "GRP-55")
def test_what_a_transaction_holds_keeps_its_group(stage: Stage) -> None:
    record = Record(0, 0, encode_key(OffsetKey("held", "t", 0)), offset_value(9), ())
    batch = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    stage.replica.log.append_as_leader(batch, 0, origin_client=False, verification=UNVERIFIED)
    stage.lead()
    assert stage.fetch("held") == (ErrorCode.NONE, {})
    stage.expire_after(days=30)
    assert [g.group.id for g in stage.coordinator.groups.all()] == ["held"]


@pytest.mark.spec("GRP-55", "GRP-52", "GRP-50")
def test_no_commit_for_a_group_that_expires_is_erased_with_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lead()
    stage.commit({A: 1})
    append = stage.replica.append
    told: list[ErrorCode] = []

    def meanwhile(*args: Any, **options: Any) -> None:
        """A client commits while the tombstones are on their way."""
        monkeypatch.undo()
        told.append(stage.commit({A: 2})[A])
        append(*args, **options)

    monkeypatch.setattr(stage.replica, "append", meanwhile)
    stage.expire_after(days=8)
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE], "it tries again"
    assert stage.commit({A: 2}) == {A: ErrorCode.NONE}
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 2})


@pytest.mark.spec("GRP-12")
def test_a_marker_ends_the_transaction_of_its_producer_alone(stage: Stage) -> None:
    def hold(producer: int, partition: int) -> None:
        record = Record(0, 0, encode_key(OffsetKey("g", "t", partition)), offset_value(producer), ())
        batch = encode_batch(
            [record], producer_id=producer, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
        )
        stage.replica.log.append_as_leader(batch, 0, origin_client=False, verification=UNVERIFIED)

    hold(7, 0)
    hold(8, 1)
    stage.replica.log.append_as_leader(marker(commit=True, producer=(7, 0), base_offset=0), 0, origin_client=False)
    stage.lead()
    assert stage.fetch() == (ErrorCode.NONE, {A: 7})


def _hold(stage: Stage, offset: int) -> None:
    """Append a commit of A in a transaction of producer 7."""
    record = Record(0, 0, encode_key(OffsetKey("g", *A)), offset_value(offset), ())
    batch = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    stage.replica.log.append_as_leader(batch, 0, origin_client=False, verification=UNVERIFIED)


@pytest.mark.spec("GRP-12", "TXN-86", "TXN-87")
@pytest.mark.parametrize(("committed", "offsets"), [(True, {A: 9}), (False, {A: 1})])
@pytest.mark.parametrize("when", ["read", "about to be taken over"])
def test_a_marker_that_comes_during_a_load_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, when: str, committed: bool, offsets: dict[Any, int]
) -> None:
    """It is replicated here, the new leader, behind what the load has read: nobody will tell of it again."""
    fill(stage, [(OffsetKey("g", "t", 0), offset_value(1))])
    _hold(stage, 9)

    def marked() -> None:
        log = stage.replica.log
        at = log.log_end_offset
        log.append_as_leader(marker(commit=committed, producer=(7, 0), base_offset=0), 0, origin_client=False)
        stage.coordinator.end_transaction(0, 7, committed=committed, log_offset=at)

    def loading(*args: Any) -> Loaded | None:
        loaded = load(*args)
        if when == "read":
            marked()
        return loaded

    def restored(*args: Any, **options: Any) -> Group:
        if when != "read":
            marked()
        return Group(*args, **options)

    monkeypatch.setattr(owned, "load", loading)
    monkeypatch.setattr(owned, "Group", restored)
    stage.lead()
    assert stage.fetch() == (ErrorCode.NONE, offsets)
    assert stage.coordinator.fetch_offsets("g", None, stable=True).unstable == set()
    monkeypatch.undo()
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, offsets), "as the next load has it"


@pytest.mark.spec("TXN-86")
def test_a_marker_that_the_load_has_read_ends_nothing_that_came_after_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hold(stage, 9)
    at = stage.replica.log.log_end_offset
    stage.replica.log.append_as_leader(marker(commit=True, producer=(7, 0), base_offset=0), 0, origin_client=False)
    _hold(stage, 12)

    def told_late(*args: Any) -> Loaded | None:
        stage.coordinator.end_transaction(0, 7, committed=False, log_offset=at)
        return load(*args)

    monkeypatch.setattr(owned, "load", told_late)
    stage.lead()
    assert stage.fetch() == (ErrorCode.NONE, {A: 9})
    assert stage.coordinator.fetch_offsets("g", None, stable=True).unstable == {A}


def test_what_was_heard_in_a_load_that_was_lost_is_of_no_other(stage: Stage) -> None:
    groups = stage.coordinator.groups
    groups.partitions.begin_load(0, 1)
    stage.coordinator.end_transaction(0, 7, committed=True, log_offset=100)
    stage.epoch = 1
    stage.follow()
    _hold(stage, 9)
    stage.lead()
    assert stage.fetch() == (ErrorCode.NONE, {})


class LookedBehind:
    """A lock; whoever lets go of it looks around at once, as others may from then on."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._look = look
        self._looking = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if not self._looking:
            self._looking = True
            self._look()
            self._looking = False


@pytest.mark.spec("GRP-13")
def test_a_group_is_never_seen_without_its_offsets(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(stage, [(GroupKey("g"), encode_group(group_value("m"))), (OffsetKey("g", "t", 0), offset_value(1))])
    seen: list[Any] = []
    groups, read = stage.coordinator.groups, stage.replica.log.read

    def look_meanwhile() -> None:
        seen.append((stage.fetch(), stage.coordinator.describe("g").state))

    def reading(*args: Any, **options: Any) -> Any:
        look_meanwhile()
        return read(*args, **options)

    monkeypatch.setattr(groups, "_lock", LookedBehind(look_meanwhile))
    monkeypatch.setattr(stage.replica.log, "read", reading)
    term = groups.partitions.begin_load(0, 1)
    assert term is not None
    groups.topic.load(term)
    look_meanwhile()
    loading: Any = ((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {}), "")
    whole: Any = ((ErrorCode.NONE, {A: 1}), "Stable")
    owned_at = seen.index(whole)
    assert owned_at > 0 and len(seen) > owned_at + 1
    assert seen == [loading] * owned_at + [whole] * (len(seen) - owned_at)
    (member,) = owned_group(stage).group.members.values()
    left = (member.session_deadline_ms or 0) - stage.coordinator.now_ms()
    assert 0 < left <= 20_000, "one full session from the load on"


# --- loads that fail, partitions that come and go (GRP-6, 14, 15) ---------------------------------------------------


@pytest.mark.spec("GRP-14")
def test_a_load_is_tried_again_ever_later_and_says_where_it_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(stage, [(OffsetKey("g", "t", p), offset_value(p)) for p in range(20)])
    read = stage.replica.log.read
    again: list[tuple[float, Callable[[], None]]] = []

    def failing(offset: int, *args: Any, **options: Any) -> Any:
        if offset:
            raise StorageError("the disk hiccups")
        return read(0, 300, *args[1:], **options)

    def note(name: str, work: Callable[[], None], *, delay_ms: float) -> None:
        again.append((delay_ms, work))

    monkeypatch.setattr(stage.replica.log, "read", failing)
    groups = stage.coordinator.groups
    term = groups.partitions.begin_load(0, 1)
    assert term is not None
    monkeypatch.setattr(stage.scheduler, "schedule", note)
    groups.topic.load(term)
    for _ in range(8):
        again[-1][1]()
    assert [ms for ms, _ in again] == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert groups.partitions.loading() and not groups.all()
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(lines) == 9
    assert all("__consumer_offsets-0" in line and "the disk hiccups" in line for line in lines)
    (found,) = {tuple(re.findall(r"offset (\d+)", line)) for line in lines}
    (offset,) = map(int, found)
    assert 0 < offset < 20


@pytest.mark.spec("GRP-14", "GRP-59")
def test_other_partitions_are_served_beside_one_that_cannot_be_loaded(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "two", partitions=2)
    try:
        here, there = "group-0", "group-1"
        assert [stage.coordinator.partition_of(g) for g in (here, there)] == [0, 1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stage.replica.log, "read", lambda *_args, **_options: fail())
            fill(stage, [(OffsetKey(here, "t", 0), offset_value(1))])
            stage.coordinator.on_leadership_change(stage.states(), [])
            eventually(lambda: stage.fetch(there)[0] is ErrorCode.NONE, "the other partition")
            assert stage.commit({A: 1}, group=there) == {A: ErrorCode.NONE}
            assert stage.fetch(here)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            listed = stage.coordinator.list_groups()
            assert listed == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ((there, "", "Empty"),))
    finally:
        stage.close()


def fail() -> Any:
    raise StorageError("the disk hiccups")


@pytest.mark.spec("GRP-6", "GRP-7")
def test_leadership_means_loading_at_once_and_a_new_epoch_does_not_load_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Callable[[], None]] = []
    monkeypatch.setattr(stage.scheduler, "submit", lambda work, _name: loads.append(work))
    stage.coordinator.on_leadership_change([stage.state()], [])
    assert stage.fetch()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "when the call returns, before the answer"
    assert len(loads) == 1, "the log is read in the background"
    loads[0]()
    assert stage.fetch()[0] is ErrorCode.NONE
    stage.commit({A: 1})
    stage.coordinator.on_leadership_change([stage.state()], [])
    assert len(loads) == 1 and stage.fetch() == (ErrorCode.NONE, {A: 1})
    stale = stage.epoch
    stage.follow()
    stage.coordinator.on_leadership_change([stage.state(stale)], [])
    assert stage.fetch()[0] is ErrorCode.NOT_COORDINATOR, "older than the newest seen"
    stale = stage.epoch
    stage.coordinator.on_leadership_change([stage.state()], [])
    loads[-1]()
    stage.coordinator.on_leadership_change([], [stage.state(stale)])
    assert stage.fetch() == (ErrorCode.NONE, {A: 1}), "an unload that is older is dropped as well"


@pytest.mark.spec("GRP-7")
def test_a_load_that_was_overtaken_stops_reading_and_takes_nothing_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(stage, [(OffsetKey("g", "t", p), offset_value(p)) for p in range(2)])
    loads: list[Callable[[], None]] = []

    def note(work: Callable[[], None], name: str) -> None:
        if name == "group-load":
            loads.append(work)

    monkeypatch.setattr(stage.scheduler, "submit", note)
    read, reads = stage.replica.log.read, 0

    def overtaken(offset: int, _size: int, *args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == 1:
            stage.follow()
            stage.coordinator.on_leadership_change([stage.state()], [])
        return read(offset, 10, *args, **options)

    monkeypatch.setattr(stage.replica.log, "read", overtaken)
    stage.coordinator.on_leadership_change([stage.state()], [])
    loads[0]()
    assert reads == 1 and stage.fetch()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(loads) == 2
    loads[1]()
    assert len(stage.fetch()[1]) == 2


@pytest.mark.spec("GRP-15")
@pytest.mark.parametrize("how", ["follower", "deleted"])
def test_all_of_a_group_ends_before_the_control_request_is_answered(stage: Stage, how: str) -> None:
    stage.lead()
    stage.commit({A: 1}, group="simple")
    first, second = Joiner(stage), Joiner(stage)
    first.join()
    second.join()
    first.join()
    second.join()
    synced: list[Any] = []
    parked: Parked[Any] = Parked(synced.append, lambda: None)
    stage.coordinator.sync("g", second.id, None, 2, {}, parked)
    other: list[JoinResult] = []
    stage.coordinator.join("another", new_member(), Parked(lambda _: None, lambda: None))
    stage.coordinator.join("another", new_member(), Parked(other.append, lambda: None))
    assert not synced and not other
    groups = stage.coordinator.groups.all()
    assert len(groups) == 3
    end = stage.replica.log.log_end_offset
    if how == "follower":
        stage.follow()
    else:
        stage.replica.remove(OFFSETS_PARTITION)
        stage.coordinator.on_partitions_stopped([A, OFFSETS_PARTITION])
    assert [r.error for r in synced] == [r.error for r in other] == [ErrorCode.NOT_COORDINATOR]
    assert {(g.group.state.value, g.deadline, g.group.next_deadline_ms()) for g in groups} == {("Dead", None, None)}
    assert stage.coordinator.groups.all() == [] and stage.fetch()[0] is ErrorCode.NOT_COORDINATOR
    assert stage.replica.log.log_end_offset == end, "nothing is written"


@pytest.mark.spec("GRP-15")
@pytest.mark.parametrize("how", ["follower", "deleted"])
def test_a_partition_that_is_being_loaded_is_lost_as_well(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    fill(stage, [(OffsetKey("g", "t", 0), offset_value(1))])
    loads: list[Callable[[], None]] = []
    monkeypatch.setattr(stage.scheduler, "submit", lambda work, _name: loads.append(work))
    stage.coordinator.on_leadership_change([stage.state()], [])
    if how == "follower":
        stage.follow()
    else:
        stage.replica.remove(OFFSETS_PARTITION)
        stage.coordinator.on_partitions_stopped([OFFSETS_PARTITION])
    assert stage.fetch()[0] is ErrorCode.NOT_COORDINATOR
    loads[0]()
    assert stage.fetch()[0] is ErrorCode.NOT_COORDINATOR and not stage.coordinator.groups.all()


# --- what is not seen, and what deletion leaves (GRP-18, 52, 53, 54) ------------------------------------------------


@pytest.mark.spec("GRP-52", "GRP-53", "GRP-50")
def test_a_commit_is_seen_once_acknowledged_and_does_not_outlive_the_deletion_of_its_topic(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    stage.commit({A: 1})
    acknowledge: list[Callable[[], None]] = []
    append = stage.replica.append

    def append_and_wait(entries: Any, *, on_done: Callable[[Any], None], **options: Any) -> None:
        append(entries, on_done=lambda done: acknowledge.append(lambda: on_done(done)), **options)

    told: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(stage.replica, "append", append_and_wait)
        stage.coordinator.commit("g", "", None, -1, {A: stage_value(2), B: stage_value(2)}, told.append)
    assert told == [] and stage.fetch() == (ErrorCode.NONE, {A: 1}), "not acknowledged: not seen, nor answered"
    stage.coordinator.on_partitions_deleted([B])
    acknowledge.pop()()
    assert told == [{A: ErrorCode.NONE, B: ErrorCode.NONE}]
    assert stage.fetch() == (ErrorCode.NONE, {A: 2})
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {A: 2}), "nor is it in the log"


@pytest.mark.spec("GRP-53")
def test_a_deleted_partition_leaves_every_group_whatever_its_state(stage: Stage) -> None:
    stage.lead()
    member = Joiner(stage)
    member.join()
    member.sync()
    assert member.commit() is ErrorCode.NONE
    stage.commit({A: 1, B: 2}, group="simple")
    stage.coordinator.on_partitions_deleted([A])
    for _ in range(2):
        assert [stage.fetch(g)[1] for g in ("g", "simple")] == [{}, {B: 2}]
        assert stage.coordinator.describe("g").state == "Stable"
        stage.restart()


@pytest.mark.spec("GRP-53")
@pytest.mark.parametrize("state", [s for s in GroupState if s is not GroupState.DEAD])
def test_a_deleted_partition_leaves_a_group_in_any_state_with_a_tombstone_for_it_alone(
    stage: Stage, state: GroupState
) -> None:
    stage.lead()
    stage.commit({A: 1, B: 2})
    owned_group(stage).group.state = state
    end = stage.replica.log.log_end_offset
    stage.coordinator.on_partitions_deleted([A])
    assert stage.fetch() == (ErrorCode.NONE, {B: 2})
    assert owned_group(stage).group.state is state
    assert stage.replica.log.log_end_offset == end + 1
    stage.restart()
    assert stage.fetch() == (ErrorCode.NONE, {B: 2})


@pytest.mark.spec("GRP-54", "GRP-55")
def test_expiry_runs_at_its_interval_and_leaves_groups_with_members_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged: list[tuple[Any, float, float]] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            stage.scheduler,
            "schedule",
            lambda _name, work, *, delay_ms, period_ms: arranged.append((work, delay_ms, period_ms)),
        )
        stage.coordinator.startup()
    assert arranged == [(stage.coordinator.expire, 600_000, 600_000)]
    stage.lead()
    member = Joiner(stage)
    member.join()
    member.sync()
    member.commit()
    group = owned_group(stage).group
    for state in ("Stable", "PreparingRebalance", "CompletingRebalance"):
        group.state = type(group.state)(state)
        for session in group.members.values():
            session.session_deadline_ms = None
        stage.expire_after(days=10)
        assert stage.fetch() == (ErrorCode.NONE, {A: 5}), state


@pytest.mark.spec("GRP-54")
def test_interval_and_retention_are_those_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path / "set", offsets_retention_check_interval_ms="5000", offsets_retention_minutes="1440")
    try:
        arranged: list[tuple[float, float]] = []
        with monkeypatch.context() as patch:
            patch.setattr(
                stage.scheduler,
                "schedule",
                lambda _name, _work, *, delay_ms, period_ms: arranged.append((delay_ms, period_ms)),
            )
            stage.coordinator.startup()
        assert arranged == [(5000, 5000)]
        stage.lead()
        stage.commit({A: 1}, at_ms=stage.wall_ms())
        stage.expire_after(days=0.75)
        assert stage.fetch() == (ErrorCode.NONE, {A: 1})
        stage.expire_after(days=0.5)
        assert stage.fetch() == (ErrorCode.NONE, {})
    finally:
        stage.close()


@pytest.mark.spec("GRP-9")
def test_a_load_reads_records_one_by_one(tmp_path: Path) -> None:
    """A few kilobytes, compressed, may be so many that a list of them takes hundreds of megabytes."""
    log = make_log(tmp_path, Later())
    count = 100_000
    newer = Record(0, 1000, b"\x00\x07", b"v")  # a key of a version that this broker does not know
    sent = encode_batch([newer] * count, codec=4, base_offset=0, last_offset=count - 1)
    log.append_as_follower(memoryview(sent))
    tracemalloc.start()
    try:
        assert load(log, 1 << 20, lambda: True) is not None
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
