"""Commits in each state of a group; transactions and bad reads in a load of the offsets partition."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.groups.coordinator import OffsetToCommit
from kafkatool.broker.groups.loader import Loaded
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked
from kafkatool.broker.groups.records import OffsetKey, OffsetValue, encode_key, encode_offset
from kafkatool.core.errors import StorageError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, Record, encode_batch, read_header
from tests.broker.groups.test_coordinator import A, B, Stage
from tests.broker.storage.batch_builders import marker
from tests.waiting import eventually


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    yield made
    made.close()


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


@pytest.mark.spec("GRP-47", "GRP-37")
def test_a_fenced_static_member_commits_nothing_but_an_outsider_with_that_instance_id_does(stage: Stage) -> None:
    stage.lead()
    offsets = {A: stage_value(1)}
    told: list[Any] = []
    stage.coordinator.commit("g", "", "i", -1, offsets, told.append)
    assert told.pop() == {A: ErrorCode.NONE}, "assign() with an instance id (KAFKA-14201)"
    member = Joiner(stage, "i")
    member.join()
    member.sync()
    stage.coordinator.commit("g", "another-id", "i", 1, offsets, told.append)
    assert told.pop() == {A: ErrorCode.FENCED_INSTANCE_ID}
    stage.coordinator.commit("g", member.id, "i", 1, offsets, told.append)
    assert told.pop() == {A: ErrorCode.NONE}


def stage_value(offset: int) -> OffsetToCommit:
    return OffsetToCommit(OffsetValue(offset, None, "m", 1, None), False)


@pytest.mark.spec("GRP-12")
@pytest.mark.parametrize(("commit", "offset"), [(True, 9), (False, 1)])
def test_a_load_applies_transactional_commits_with_their_marker_only(stage: Stage, commit: bool, offset: int) -> None:
    stage.lead()
    stage.commit({A: 1})

    def append(batch: bytearray) -> None:
        stage.replica.log.append_as_leader(batch, 0, origin_client=False)

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
