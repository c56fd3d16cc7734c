"""A group at its next coordinator, lost in each of its states, and the consequences (GRP-63's table)."""

from typing import Any

import pytest

from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.groups.test_coordinator import A, Stage

OK, UNKNOWN, OLD = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION


class Member:
    """One client of group g; ``answers`` are those to its JoinGroups, and may be still to come."""

    def __init__(self, stage: Stage, metadata: bytes = b"r", *, needs_known_id: bool = False) -> None:
        self._stage = stage
        self._needs_known_id = needs_known_id
        self.metadata = metadata
        self.id = ""
        self.generation = -1
        self.answers: list[JoinResult] = []

    def join(self) -> None:
        protocols = (("range", self.metadata),)
        request = JoinRequest(
            self.id, None, "c", "/h", 60_000, 60_000, "consumer", protocols, needs_known_id=self._needs_known_id
        )
        self._stage.coordinator.join("g", request, Parked(self._joined, lambda: None))

    def _joined(self, result: JoinResult) -> None:
        self.answers.append(result)
        self.id = result.member_id
        self.generation = result.generation

    def sync(self, assignments: dict[str, bytes] | None = None) -> list[SyncResult]:
        told: list[SyncResult] = []
        parked: Parked[Any] = Parked(told.append, lambda: None)
        self._stage.coordinator.sync("g", self.id, None, self.generation, assignments or {}, parked)
        return told

    def stable(self) -> "Member":
        self.join()
        assert self.sync({self.id: b"mine"}) == [SyncResult(OK, b"mine")]
        return self

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        return self._stage.coordinator.heartbeat(
            "g", self.id, None, self.generation if generation is None else generation
        )

    def commit(self) -> ErrorCode:
        return self._stage.commit({A: 9}, member=self.id, generation=self.generation)[A]


@pytest.mark.spec("GRP-63")
def test_a_stable_group_just_goes_on(stage: Stage) -> None:
    stage.lead()
    member = Member(stage).stable()
    stage.restart()
    assert (member.heartbeat(), member.commit()) == (OK, OK)
    assert member.sync() == [SyncResult(OK, b"mine")]


@pytest.mark.spec("GRP-63")
def test_a_group_that_prepared_to_rebalance_is_stable_as_it_was_stored(stage: Stage) -> None:
    stage.lead()
    old, new, pending = Member(stage).stable(), Member(stage), Member(stage, needs_known_id=True)
    new.join()
    pending.join()
    assert (new.answers, pending.answers[-1].error) == ([], ErrorCode.MEMBER_ID_REQUIRED)
    stage.follow()
    assert new.answers[-1].error is ErrorCode.NOT_COORDINATOR
    stage.restart()
    assert old.heartbeat() is OK
    for newcomer in (new, pending):
        newcomer.id = newcomer.id or "newcomer"
        newcomer.join()
        assert newcomer.answers[-1].error is UNKNOWN, "ids it has not stored"
        newcomer.id = ""
    for one in (new, pending, pending, old):  # they join anew, one with the id that it is given for that
        one.join()
    assert [one.answers[-1].error for one in (old, new, pending)] == [OK] * 3
    assert {one.generation for one in (old, new, pending)} == {2}


@pytest.mark.spec("GRP-63")
def test_who_left_while_a_rebalance_was_prepared_goes_by_its_session(stage: Stage) -> None:
    stage.lead()
    member = Member(stage).stable()
    other = Member(stage)
    other.join()
    assert stage.leave(member.id) is OK
    assert other.answers[-1].generation == 2, "alone now, but not stored"
    stage.restart()
    (left,) = stage.coordinator.describe("g").members
    assert left.id == member.id
    held = stage.coordinator.groups.get("g")
    assert held is not None
    deadline = held.group.next_deadline_ms()
    assert deadline is not None and 0 < deadline - stage.coordinator.now_ms() <= 60_000
    held.group.on_time(deadline)
    assert not held.group.members


@pytest.mark.spec("GRP-63")
def test_a_generation_that_was_not_stored_is_not_known(stage: Stage) -> None:
    stage.lead()
    member = Member(stage).stable()
    member.metadata = b"changed"
    member.join()
    assert member.generation == 2
    newcomer = Member(stage)
    stage.restart()
    assert (member.heartbeat(), member.commit(), member.sync()) == (OLD, OLD, [SyncResult(OLD)])
    newcomer.id, newcomer.generation = "newcomer", 2
    assert (newcomer.heartbeat(), newcomer.commit(), newcomer.sync()) == (UNKNOWN, UNKNOWN, [SyncResult(UNKNOWN)])
    assert member.heartbeat(generation=1) is OK
    member.join()
    assert member.generation == 2, "the number is used twice"


@pytest.mark.spec("GRP-63")
@pytest.mark.parametrize("in_log", [True, False])
def test_an_assignment_not_acknowledged_is_there_or_not_as_the_log_has_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, in_log: bool
) -> None:
    stage.lead()
    member = Member(stage).stable()
    member.metadata = b"changed"
    member.join()
    append = stage.replica.append

    def lost(entries: Any, **options: Any) -> None:
        if in_log:
            append(entries, **{**options, "on_done": lambda _: None})

    with monkeypatch.context() as patch:
        patch.setattr(stage.replica, "append", lost)
        assert member.sync({member.id: b"new"}) == []
    stage.restart()
    assert member.heartbeat() is (OK if in_log else OLD)
    assert member.heartbeat(generation=1) is (OLD if in_log else OK)
    if in_log:
        assert member.sync() == [SyncResult(OK, b"new")]


@pytest.mark.spec("GRP-63")
@pytest.mark.parametrize("simple", [True, False])
def test_of_a_first_generation_nothing_is_known(stage: Stage, simple: bool) -> None:
    stage.lead()
    if simple:
        assert stage.commit({A: 1}) == {A: OK}
    member = Member(stage)
    member.join()
    assert member.generation == 1
    stage.restart()
    assert member.heartbeat() is UNKNOWN
    assert member.sync() == [SyncResult(UNKNOWN)]
    assert member.commit() is (UNKNOWN if simple else OLD)
    member.id = ""
    member.stable()


@pytest.mark.spec("GRP-63", "GRP-52")
@pytest.mark.parametrize("in_log", [True, False])
def test_a_commit_not_acknowledged_is_there_or_not_as_the_log_has_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, in_log: bool
) -> None:
    stage.lead()
    stage.commit({A: 1})
    append = stage.replica.append

    def timing_out(entries: Any, **options: Any) -> None:
        if in_log:
            append(entries, **{**options, "on_done": lambda _: None})
        stage.replica.refuse = ErrorCode.REQUEST_TIMED_OUT
        append(entries, **options)
        stage.replica.refuse = None

    with monkeypatch.context() as patch:
        patch.setattr(stage.replica, "append", timing_out)
        assert stage.commit({A: 2}) == {A: ErrorCode.REQUEST_TIMED_OUT}
    assert stage.fetch() == (OK, {A: 1}), "not visible here"
    stage.restart()
    assert stage.fetch() == (OK, {A: 2 if in_log else 1})


@pytest.mark.spec("GRP-63", "GRP-55")
def test_tombstones_that_did_not_get_there_bring_their_offsets_back_and_expire_again(stage: Stage) -> None:
    stage.lead()
    stage.commit({A: 1})
    stage.replica.refuse = ErrorCode.NOT_LEADER_FOR_PARTITION
    stage.expire_after(days=1)
    assert stage.fetch() == (OK, {})
    stage.replica.refuse = None
    stage.restart()
    assert stage.fetch() == (OK, {A: 1})
    stage.expire_after(days=1)
    stage.restart()
    assert stage.fetch() == (OK, {})


@pytest.mark.spec("GRP-63", "GRP-55")
def test_the_tombstone_of_a_group_that_did_not_get_there_brings_it_back_and_it_goes_again(stage: Stage) -> None:
    stage.lead()
    member = Member(stage).stable()
    assert stage.leave(member.id) is OK
    stage.replica.refuse = ErrorCode.NOT_LEADER_FOR_PARTITION
    stage.expire_after(days=1)
    assert stage.coordinator.groups.all() == []
    stage.replica.refuse = None
    stage.restart()
    (held,) = stage.coordinator.groups.all()
    assert (held.group.state.value, held.group.generation) == ("Empty", 2)
    stage.expire_after(days=1)
    for _ in range(2):
        assert stage.coordinator.groups.all() == []
        stage.restart()


def lost_and_led_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the partition, and load it again, just before the next record is appended."""
    append = stage.replica.append

    def held_up(entries: Any, **options: Any) -> None:
        monkeypatch.setattr(stage.replica, "append", append)
        stage.follow()
        stage.lead()
        append(entries, **options)

    monkeypatch.setattr(stage.replica, "append", held_up)


@pytest.mark.spec("GRP-15", "GRP-16")
def test_a_record_decided_before_the_partition_was_lost_is_not_written_after_it_came_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    member = Member(stage).stable()
    member.metadata = b"changed"
    member.join()
    groups = stage.coordinator.groups
    carry_out = groups.carry_out
    end = stage.replica.log.log_end_offset

    def held_up(*decided: Any) -> None:
        monkeypatch.setattr(groups, "carry_out", carry_out)
        stage.follow()
        stage.lead()
        carry_out(*decided)

    monkeypatch.setattr(groups, "carry_out", held_up)
    assert member.sync({member.id: b"of the old"}) == [SyncResult(ErrorCode.NOT_COORDINATOR)]
    assert stage.replica.log.log_end_offset == end, "the new owner of the id has not decided this"
    assert member.heartbeat(generation=1) is OK, "it goes on as it was loaded"


@pytest.mark.spec("GRP-16", "GRP-60")
def test_a_deletion_written_behind_a_new_load_is_not_acknowledged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.lead()
    stage.commit({A: 1})
    lost_and_led_again(stage, monkeypatch)
    told: list[ErrorCode] = []
    stage.coordinator.delete("g", told.append)
    assert (told, stage.fetch()) == ([ErrorCode.NOT_COORDINATOR], (OK, {A: 1}))
    stage.coordinator.delete("g", told.append)
    assert (told[1:], stage.fetch()) == ([OK], (OK, {})), "the client comes again"


@pytest.mark.spec("GRP-16", "GRP-52")
def test_a_commit_written_behind_a_new_load_is_not_acknowledged(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.lead()
    stage.commit({A: 1})
    lost_and_led_again(stage, monkeypatch)
    answered = stage.commit({A: 2})[A]
    assert (answered, stage.fetch()) == (ErrorCode.NOT_COORDINATOR, (OK, {A: 1}))
    assert stage.commit({A: 2}) == {A: OK}, "the client comes again"
    assert stage.fetch() == (OK, {A: 2})
