"""The moves a group may make, and the answer to each request in each state (GRP-18, table B of GRP-19)."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kafkatool.broker.groups.group import Group
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.states import GroupState
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.groups.test_coordinator import A, Stage, owned_group

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)
OK, UNKNOWN, REBALANCING, AWAY = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
PARKED = None
LEGAL_FROM = {
    EMPTY: {PREPARING},
    PREPARING: {EMPTY, STABLE, COMPLETING},
    COMPLETING: {PREPARING},
    STABLE: {COMPLETING},
    DEAD: set(GroupState),
}


@pytest.mark.spec("GRP-18")
@pytest.mark.parametrize(("before", "after"), list(itertools.product(GroupState, GroupState)))
def test_legal_moves_set_the_timestamp_and_others_change_nothing(before: GroupState, after: GroupState) -> None:
    group = Group("g", store=lambda _: None, state=before, state_timestamp_ms=1, generation=4)
    if before in LEGAL_FROM[after]:
        group.move(after, 7)
        assert (group.state, group.state_timestamp_ms) == (after, 7)
    else:
        with pytest.raises(RuntimeError, match=f"group g cannot go from {before.value} to {after.value}"):
            group.move(after, 7)
        assert (group.state, group.state_timestamp_ms, group.generation) == (before, 1, 4)


@dataclass
class Scene:
    """Group g in one state; ``leader`` and ``follower`` are its members, ids it does not know where it has none."""

    stage: Stage
    state: GroupState
    leader: str = "leader"
    follower: str = "follower"
    generation: int = 1

    def join(self, member_id: str = "", protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"),)) -> Any:
        """Return the answer; None: parked."""
        told: list[JoinResult] = []
        request = JoinRequest(member_id, None, "c", "/h", 300_000, 300_000, "consumer", protocols, needs_known_id=False)
        self.stage.coordinator.join("g", request, Parked(told.append, lambda: None))
        return told[0] if told else None

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None) -> Any:
        told: list[SyncResult] = []
        parked: Parked[SyncResult] = Parked(told.append, lambda: None)
        self.stage.coordinator.sync("g", member_id, None, self.generation, assignments or {}, parked)
        return told[0] if told else None

    def commit(self, member_id: str, generation: int) -> ErrorCode:
        return self.stage.commit({A: 2}, member=member_id, generation=generation)[A]

    def delete(self) -> ErrorCode | None:
        told: list[ErrorCode] = []
        self.stage.coordinator.delete("g", told.append)
        return told[0] if told else None

    @property
    def group(self) -> Group:
        return owned_group(self.stage).group


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.lead()
    return stage


def scene(stage: Stage, state: GroupState, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Bring the group there by requests alone; {A: 1} is committed."""
    made = Scene(stage, state)
    stage.commit({A: 1})
    if state is DEAD:  # its tombstones are on their way for ever
        monkeypatch.setattr(stage.replica, "append", lambda *_args, **_options: None)
        assert made.delete() is PARKED
    elif state is not EMPTY:
        made.leader = made.join().member_id
        answers: list[JoinResult] = []
        request = JoinRequest("", None, "c", "/h", 300_000, 300_000, "consumer", (("range", b"r"),), False)
        stage.coordinator.join("g", request, Parked(answers.append, lambda: None))
        made.generation = made.join(made.leader, (("range", b"again"),)).generation
        assert made.join(made.leader, (("range", b"again"),)).generation == 2
        made.follower = answers[0].member_id
        if state is not COMPLETING:
            assert made.sync(made.leader, {made.leader: b"L", made.follower: b"F"}).assignment == b"L"
        if state is PREPARING:
            assert made.join() is PARKED
    assert made.group.state is state
    return made


def told(answer: Any) -> ErrorCode | None:
    return None if answer is None else answer.error


@dataclass(frozen=True)
class Row:
    """A request, and by state (in the order of GroupState) its answer and the state it leaves."""

    name: str
    ask: Callable[[Scene], ErrorCode | None]
    answers: tuple[ErrorCode | None, ...]
    after: tuple[GroupState, ...] = tuple(GroupState)


OTHER = (("range", b"other"),)
ROWS = [
    Row(
        "a new member joins",
        lambda s: told(s.join()),
        (OK, PARKED, PARKED, PARKED, AWAY),
        (COMPLETING, PREPARING, PREPARING, PREPARING, DEAD),
    ),
    Row(
        "a follower joins again",
        lambda s: told(s.join(s.follower)),
        (UNKNOWN, PARKED, OK, OK, AWAY),
    ),
    Row(
        "a follower joins again with other bytes",
        lambda s: told(s.join(s.follower, OTHER)),
        (UNKNOWN, PARKED, PARKED, PARKED, AWAY),
        (EMPTY, PREPARING, PREPARING, PREPARING, DEAD),
    ),
    Row(
        "a follower joins again with one more protocol",
        lambda s: told(s.join(s.follower, (("range", b"r"), ("sticky", b"")))),
        (UNKNOWN, PARKED, PARKED, PARKED, AWAY),
        (EMPTY, PREPARING, PREPARING, PREPARING, DEAD),
    ),
    Row(
        "the leader joins again",
        lambda s: told(s.join(s.leader, (("range", b"again"),))),
        (UNKNOWN, PARKED, OK, PARKED, AWAY),
        (EMPTY, PREPARING, COMPLETING, PREPARING, DEAD),
    ),
    Row("a follower syncs", lambda s: told(s.sync(s.follower)), (UNKNOWN, REBALANCING, PARKED, OK, AWAY)),
    Row(
        "the leader syncs",
        lambda s: told(s.sync(s.leader)),
        (UNKNOWN, REBALANCING, OK, OK, AWAY),
        (EMPTY, PREPARING, STABLE, STABLE, DEAD),
    ),
    Row(
        "a heartbeat",
        lambda s: s.stage.coordinator.heartbeat("g", s.leader, None, s.generation),
        (UNKNOWN, REBALANCING, OK, OK, AWAY),
    ),
    Row(
        "a member leaves",
        lambda s: s.stage.leave(s.leader),
        (UNKNOWN, OK, OK, OK, AWAY),
        (EMPTY, PREPARING, PREPARING, PREPARING, DEAD),
    ),
    Row("a member commits", lambda s: s.commit(s.leader, s.generation), (UNKNOWN, OK, REBALANCING, OK, AWAY)),
    Row("a commit from outside", lambda s: s.commit("", -1), (OK, UNKNOWN, REBALANCING, UNKNOWN, AWAY)),
    Row("an offset fetch", lambda s: s.stage.fetch()[0], (OK,) * 5),
    Row(
        "a deletion",
        lambda s: s.delete(),
        (
            PARKED,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ),
        (DEAD, PREPARING, COMPLETING, STABLE, DEAD),
    ),
]


@pytest.mark.spec("GRP-19", "GRP-45", "GRP-47", "GRP-56", "GRP-60", "GRP-8")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("state", list(GroupState), ids=lambda state: state.value)
def test_the_answer_depends_on_the_state(
    stage: Stage, state: GroupState, row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scene(stage, state, monkeypatch)
    group, generation, members = made.group, made.group.generation, len(made.group.members)
    if row.name == "a deletion":
        monkeypatch.setattr(stage.replica, "append", lambda *_args, **_options: None)
    index = list(GroupState).index(state)
    assert row.ask(made) is row.answers[index]
    assert group.state is row.after[index]
    if row.name == "a new member joins" and state is not DEAD:
        assert len(group.members) == members + 1
        assert (group.generation, group.protocol_type) == (generation + (state is EMPTY), "consumer")
    if row.name == "a member leaves" and state in (PREPARING, COMPLETING, STABLE):
        assert made.leader not in group.members and len(group.members) == members - 1
    if "commit" in row.name and state is not DEAD:
        assert stage.fetch()[1] == {A: 2 if row.answers[index] is OK else 1}
    if row.name == "an offset fetch":
        assert stage.fetch()[1] == ({} if state is DEAD else {A: 1})
    if row.name == "a follower syncs" and state is STABLE:
        assert made.sync(made.follower).assignment == b"F"


@pytest.mark.spec("GRP-19", "GRP-31")
@pytest.mark.parametrize("state", [COMPLETING, STABLE], ids=lambda state: state.value)
def test_this_generation_has_its_members_for_the_leader_alone_while_completing(
    stage: Stage, state: GroupState, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = scene(stage, state, monkeypatch)
    expected = (2, "range", made.leader)
    follower = made.join(made.follower)
    assert (follower.generation, follower.protocol, follower.leader, follower.members) == (*expected, ())
    if state is COMPLETING:
        leader = made.join(made.leader, (("range", b"again"),))
        assert (leader.generation, leader.protocol, leader.leader) == expected
        assert leader.members == ((made.leader, None, b"again"), (made.follower, None, b"r"))


@pytest.mark.spec("GRP-19")
def test_the_same_protocols_in_another_order_are_others(stage: Stage) -> None:
    made = Scene(stage, EMPTY)
    both = (("range", b"r"), ("sticky", b"s"))
    member = made.join(protocols=both).member_id
    assert told(made.join(member, both)) is OK, "CompletingRebalance: this generation"
    assert made.join(member, both[::-1]).generation == 2, "a rebalance, which ends at once"
    assert made.join(member, (("sticky", b"s"), ("other", b"r"))).generation == 3, "and so is one by another name"


@pytest.mark.spec("GRP-19", "GRP-37")
def test_a_fenced_one_is_told_so_before_that_it_is_no_member_and_a_stranger_before_the_generation() -> None:
    group = Group("g", store=lambda _: None, initial_delay_ms=0)
    told: list[JoinResult] = []
    request = JoinRequest("", "one", "c", "/h", 10_000, 10_000, "consumer", (("range", b"r"),), needs_known_id=False)
    for effect in group.join(request, Parked(told.append, lambda: None), 0):
        effect()
    member = told[0].member_id

    def ask(member_id: str, instance_id: str | None, generation: int) -> set[ErrorCode]:
        synced: list[SyncResult] = []
        parked: Parked[SyncResult] = Parked(synced.append, lambda: None)
        for effect in group.sync(member_id, instance_id, generation, {}, parked, 0):
            effect()
        return {synced[0].error, group.heartbeat(member_id, instance_id, generation, 0)}

    assert ask("another", "one", 9) == {ErrorCode.FENCED_INSTANCE_ID}
    assert ask("another", None, 9) == ask("another", "two", 9) == {UNKNOWN}
    assert ask(member, "one", 9) == ask(member, None, 0) == {ErrorCode.ILLEGAL_GENERATION}
    group.die()
    assert ask("another", "one", 9) == {AWAY}


@pytest.mark.spec("GRP-18")
def test_an_illegal_move_is_logged_and_its_request_answered_with_an_unknown_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kafkatool.broker.handlers.call import load_handlers
    from kafkatool.core.protocol.messages import leave_group
    from tests.broker.handlers.served import broker_of, handler_context

    made = scene(stage, STABLE, monkeypatch)

    def confused(group: Group, *_: Any) -> Any:
        group.move(EMPTY, 5)

    monkeypatch.setattr(Group, "leave", confused)
    served = {13: load_handlers()[13]}
    with broker_of(served, handler_context(groups=stage.coordinator)) as client:
        request = leave_group.LeaveGroupRequest(group_id="g", member_id=made.leader)
        assert client.call(leave_group.API, 0, request).error_code == -1
    assert "group g cannot go from Stable to Empty" in caplog.text
    assert (made.group.state, made.group.generation, len(made.group.members)) == (STABLE, 2, 2)
