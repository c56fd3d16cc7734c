"""Join phases, sessions, sync limits and static members at their edges: what counts, what does not, and when exactly."""

import logging

import pytest

from kafkatool.broker.groups.expiry import expire_group
from kafkatool.broker.groups.member import JoinResult, Parked, SyncResult
from kafkatool.broker.groups.states import GroupState
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.groups.test_group import RANGE, Play

BOTH = (("range", b"r"), ("sticky", b"s"))


def leave(play: Play, who: str) -> ErrorCode:
    (code,) = play.leave((play.member(who), None))
    return code


def beat(play: Play, *names: str) -> list[ErrorCode]:
    return [play.group.heartbeat(play.member(n), None, play.group.generation, play.now) for n in names]


def completing(play: Play, *names: str) -> None:
    """Have them form a generation that nobody has synced in; the first leads."""
    for name in names:
        play.join(name)
    while play.group.state is GroupState.PREPARING_REBALANCE:
        for member in list(play.group.members.values()):
            if member.join is None:
                play.join(member.client_id, member.id)


# --- how the join phase ends (GRP-24, 26 to 33) ---------------------------------------------------------------------


@pytest.mark.spec("GRP-26")
def test_a_rebalance_takes_back_parked_syncs_and_its_deadline_does_not_move() -> None:
    play = Play()
    completing(play, "a", "b", "z")
    play.sync("b")
    play.sync("z")
    assert play.synced == {"b": [], "z": []}
    play.join("c", rebalance_ms=90_000)
    assert play.synced == {who: [SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)] for who in "bz"}
    assert play.group.join_deadline_ms == play.now + 90_000, "the largest of all, the joining one's too"
    patient = Play()
    completing(patient, "a", "b")
    for who, timeout in (("a", 50_000), ("b", 80_000)):
        patient.group.members[patient.member(who)].rebalance_timeout_ms = timeout
    patient.now = 700
    patient.join("c", rebalance_ms=5000)
    assert patient.group.join_deadline_ms == 80_700, "not that of the first, nor of the last"
    for member in play.group.members.values():
        member.session_deadline_ms = None
    play.wait(30_000)
    play.join("d", rebalance_ms=500_000)
    assert play.group.join_deadline_ms == 90_000, "later joins do not move it"
    play.wait(59_999)
    assert play.group.state is GroupState.PREPARING_REBALANCE
    play.wait(1)
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    assert {m.client_id for m in play.group.members.values()} == {"c", "d"}


@pytest.mark.spec("GRP-24", "GRP-26", "GRP-21")
def test_a_pending_id_keeps_the_join_phase_open_until_it_joins_leaves_or_its_time_is_up() -> None:
    for way in ("joins", "leaves", "is forgotten"):
        play = Play()
        play.stable("a")
        play.join("b", known=True, session_ms=7000)
        pending = play.last("b").member_id
        play.join("a", play.member("a"))
        assert play.group.state is GroupState.PREPARING_REBALANCE, "everybody who is admitted is parked"
        play.wait(6999)
        assert play.group.pending
        play.join("b", pending, known=True, protocols=())
        assert play.last("b").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and play.group.pending
        if way == "joins":
            play.join("b", pending, known=True)
        elif way == "leaves":
            play.leave((pending, None))
        else:
            play.wait(1)
        assert not play.group.pending and play.group.state is GroupState.COMPLETING_REBALANCE, way
        assert (play.last("b").error is ErrorCode.NONE) is (way == "joins")


@pytest.mark.spec("GRP-21")
def test_of_several_things_wrong_with_a_join_the_first_to_be_checked_is_told() -> None:
    play = Play()
    play.join("a", instance_id="one")
    for protocols, error in (((), ErrorCode.INCONSISTENT_GROUP_PROTOCOL), (RANGE, ErrorCode.FENCED_INSTANCE_ID)):
        play.join("x", "stranger", "one", protocols)
        assert play.last("x") == JoinResult(error, "stranger", generation=-1, protocol="", leader="", members=())
    play.join("x", "stranger")
    assert play.last("x").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(play.group.members) == [play.member("a")]
    play.group.die()
    play.join("x", "stranger", "one", ())
    assert play.last("x") == JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, "stranger")


@pytest.mark.spec("GRP-24", "GRP-55")
def test_a_group_with_a_pending_id_is_not_removed_by_expiry() -> None:
    play = Play()
    play.join("a", known=True)
    assert expire_group(play.group, 10**12, 1) == ([], False)
    play.wait(10_000)
    assert expire_group(play.group, 10**12, 1) == ([], True)


@pytest.mark.spec("GRP-24")
def test_a_static_member_is_admitted_at_once_in_every_version() -> None:
    play = Play()
    play.join("a", instance_id="one", known=True)
    assert play.last("a").error is ErrorCode.NONE and not play.group.pending


@pytest.mark.spec("GRP-27")
def test_a_group_that_was_emptied_waits_once_and_does_not_end_early() -> None:
    play = Play(delay_ms=3000)
    play.join("a", rebalance_ms=60_000)
    while play.group.state is GroupState.PREPARING_REBALANCE:
        play.wait(1000)
    assert leave(play, "a") is ErrorCode.NONE and play.group.state is GroupState.EMPTY
    started = play.now
    play.join("b", rebalance_ms=60_000)
    play.wait(2999)
    play.join("c", rebalance_ms=60_000)
    assert play.group.state is GroupState.PREPARING_REBALANCE
    play.wait(1)
    assert play.now == started + 3000 and play.group.state is GroupState.COMPLETING_REBALANCE


@pytest.mark.spec("GRP-28", "GRP-32")
def test_static_members_stay_with_their_subscription_and_the_earliest_parked_leads() -> None:
    play = Play()
    play.join("a", instance_id="one", session_ms=1_800_000)
    play.sync("a")
    play.acknowledge()
    play.join("gone")
    play.join("a", play.member("a"), instance_id="one", session_ms=1_800_000)
    play.join("b")
    gone, a = play.member("gone"), play.member("a")
    assert play.group.leader == a
    play.join("c")
    answered = len(play.joined["gone"])
    for member in play.group.members.values():
        member.session_deadline_ms = None
    play.wait(60_000)
    assert gone not in play.group.members and len(play.joined["gone"]) == answered, "removed silently"
    assert play.group.heartbeat(gone, None, play.group.generation, play.now) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.group.leader == play.member("b"), "the earliest of those that are parked"
    assert play.last("b").members == (
        (a, "one", b"r"),
        (play.member("b"), None, b"r"),
        (play.member("c"), None, b"r"),
    )


@pytest.mark.spec("GRP-28")
def test_when_only_absent_static_members_are_left_the_wait_starts_again() -> None:
    play = Play()
    play.join("a", instance_id="one", session_ms=1_800_000)
    play.sync("a")
    play.acknowledge()
    play.join("b")
    assert leave(play, "b") is ErrorCode.NONE
    play.wait(60_000)
    assert play.group.state is GroupState.PREPARING_REBALANCE and play.group.generation == 1
    assert play.group.join_deadline_ms == play.now + 60_000


@pytest.mark.spec("GRP-29", "GRP-18")
def test_an_empty_generation_that_cannot_be_stored_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    play = Play()
    play.stable("a")
    leave(play, "a")
    assert play.group.state is GroupState.EMPTY
    (stored,) = play.stores
    assert (stored.value.generation, stored.value.protocol, stored.value.leader, stored.value.members) == (
        2,
        None,
        None,
        (),
    )
    with caplog.at_level(logging.WARNING):
        play.acknowledge(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (line,) = caplog.records
    assert line.levelno == logging.WARNING and "generation 2 without members" in line.getMessage()
    assert (play.group.state, play.group.generation) == (GroupState.EMPTY, 2)


@pytest.mark.spec("GRP-31", "GRP-43")
def test_every_members_session_starts_anew_when_the_join_phase_ends() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("c", session_ms=9000)
    play.join("a", play.member("a"))
    play.wait(8000)
    play.join("b", play.member("b"))
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    assert len({(play.last(w).generation, play.last(w).protocol, play.last(w).leader) for w in "abc"}) == 1
    assert [w for w in "abc" if play.last(w).members] == ["a"]
    deadlines = {m.client_id: m.session_deadline_ms for m in play.group.members.values()}
    assert deadlines == {"a": 18_000, "b": 18_000, "c": 17_000}


@pytest.mark.spec("GRP-32")
def test_the_leader_stays_over_generations_and_then_the_earliest_admitted_follows() -> None:
    play = Play()
    completing(play, "a", "b", "c")
    a, b, c = (play.member(w) for w in "abc")
    for _ in range(3):
        play.join("b", b, protocols=(("range", bytes([play.group.generation])),))
        completing(play)
        assert play.group.leader == play.last("c").leader == a
    leave(play, "a")
    assert play.group.leader == b
    completing(play)
    assert play.last("c").leader == b
    leave(play, "b")
    completing(play)
    assert play.last("c").leader == c


@pytest.mark.spec("GRP-33")
def test_a_new_member_is_removed_after_exactly_300_s_and_an_old_one_never_for_that() -> None:
    play = Play()
    play.stable("a")
    a = play.member("a")
    play.join("b", rebalance_ms=2_000_000, session_ms=6000)
    play.join("a", a, rebalance_ms=2_000_000)
    play.settle()
    play.now = 0
    play.join("c", rebalance_ms=2_000_000)
    play.join("a", a, rebalance_ms=2_000_000)
    for _ in range(299):
        play.wait(1000)
        beat(play, "b")
    play.wait(999)
    beat(play, "b")
    assert not play.joined["c"] and len(play.group.members) == 3, "b is awaited still"
    play.wait(1)
    assert play.last("c") == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert [m.client_id for m in play.group.members.values()] == ["a", "b"], "a is parked as long, and no newcomer"
    for _ in range(100):
        play.wait(5000)
        beat(play, "b")
    assert a in play.group.members


# --- a full group (GRP-34) ------------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-34", "GRP-21")
def test_a_full_group_takes_by_its_state() -> None:
    for state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        smaller = Play(max_size=2)
        completing(smaller, "a")
        if state is GroupState.STABLE:
            smaller.settle()
        assert smaller.group.state is state
        smaller.join("b")
        assert not smaller.joined["b"], "parked: there is room for one more"
    play = Play(max_size=2, delay_ms=3000)
    play.join("a")
    play.join("b")
    play.join("c", protocols=())
    assert play.last("c") == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""), "before the protocols are looked at"
    play.join("a", play.member("a"))
    assert "a" in play.dropped and not play.joined["a"], "one that is parked already is taken"
    play.wait(3000)
    play.wait(3000)
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    play.join("c")
    play.join("a", play.member("a"))
    assert play.last("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED and play.last("a").error is ErrorCode.NONE
    for who in ("b", "a"):
        play.sync(who)
    play.acknowledge()
    play.join("c")
    play.join("b", play.member("b"))
    assert play.last("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED and play.last("b").error is ErrorCode.NONE
    assert play.group.state is GroupState.STABLE
    leave(play, "b")
    play.join("c")
    assert not [r for r in play.joined["c"] if r.error is ErrorCode.NONE], "parked: fewer than the limit are"
    play.join("a", play.member("a"))
    assert play.last("c").error is ErrorCode.NONE


@pytest.mark.spec("GRP-34", "GRP-21")
def test_a_member_that_comes_back_when_the_limit_is_parked_is_removed() -> None:
    larger = Play()
    larger.stable("a", "b", "c")
    play = Play(max_size=2)
    play.group.restore(larger.group.to_value(), 0)
    for who in ("a", "b"):
        play.join(who, larger.member(who))
    c = larger.member("c")
    play.join("c", c)
    assert play.last("c") == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "") and c not in play.group.members
    assert play.group.state is GroupState.COMPLETING_REBALANCE, "nobody else is awaited"


# --- parked requests (GRP-35) ---------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-35")
def test_a_repeated_sync_replaces_the_parked_one() -> None:
    play = Play()
    completing(play, "a", "b")
    play.sync("b")
    play.sync("b")
    assert play.dropped[-1] == "b" and play.synced["b"] == []
    play.sync("a")
    play.acknowledge()
    assert len(play.synced["b"]) == 1, "the older is never answered"


# --- static members (GRP-37 to 40) ----------------------------------------------------------------------------------


def static(delay_ms: int = 0, protocols: tuple[tuple[str, bytes], ...] = RANGE) -> Play:
    """Make a stable group of the static member a, which leads, and b."""
    play = Play(delay_ms=delay_ms)
    play.join("a", instance_id="one", protocols=protocols)
    play.join("b", protocols=protocols)
    play.join("a", play.member("a"), instance_id="one", protocols=protocols)
    for who in ("b", "a"):
        play.sync(who, {m: m.encode() for m in play.group.members})
    play.acknowledge()
    assert play.group.state is GroupState.STABLE and play.last("b").leader == play.member("a")
    return play


@pytest.mark.spec("GRP-38")
def test_a_static_restart_during_the_join_phase_is_parked_in_the_old_place() -> None:
    play = static()
    old = play.member("a")
    play.join("c")
    play.join("a", old, instance_id="one")
    play.join("a", instance_id="one")
    assert play.joined["a"][-1] == JoinResult(ErrorCode.FENCED_INSTANCE_ID, old), "what the old one had parked"
    assert play.group.state is GroupState.PREPARING_REBALANCE and not play.stores
    play.join("b", play.member("b"))
    new = play.last("a")
    assert new.error is ErrorCode.NONE and new.leader == new.member_id != old, "it leads in the old one's place"
    assert next(iter(play.group.members)) == new.member_id


@pytest.mark.spec("GRP-38")
def test_a_static_restart_while_the_assignment_is_awaited_starts_a_rebalance() -> None:
    play = static()
    play.join("b", play.member("b"), protocols=(("range", b"new"),))
    old = play.member("a")
    play.join("a", old, instance_id="one")
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    play.group.members[old].sync = None
    play.sync("a")
    (store,) = play.stores
    play.join("a", instance_id="one")
    assert play.synced["a"][-1] == SyncResult(ErrorCode.FENCED_INSTANCE_ID)
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert play.stores == [store], "nothing is stored for it"


@pytest.mark.spec("GRP-38")
def test_a_static_restart_that_changes_the_chosen_protocol_starts_a_rebalance() -> None:
    play = static(protocols=BOTH)
    assert play.group.protocol == "range"
    play.join("a", instance_id="one", protocols=(("sticky", b"s"),))
    assert play.group.state is GroupState.PREPARING_REBALANCE and not play.stores
    play.join("b", play.member("b"), protocols=BOTH)
    assert play.last("a").protocol == "sticky"


@pytest.mark.spec("GRP-38", "GRP-37")
def test_the_record_of_a_static_restart_has_the_new_id() -> None:
    play = static()
    old = play.member("a")
    play.join("a", instance_id="one")
    (store,) = play.stores
    new = play.member("a")
    assert [m.member_id for m in store.value.members] == [new, play.member("b")] and store.value.leader == new
    answered = len(play.joined["a"])
    play.acknowledge()
    assert len(play.joined["a"]) == answered + 1 and play.last("a").member_id == new, "answered once it is stored"
    told: list[SyncResult] = []
    for effect in play.group.sync(old, "one", 2, {}, Parked(told.append, lambda: None), play.now):
        effect()
    assert told == [SyncResult(ErrorCode.FENCED_INSTANCE_ID)]


@pytest.mark.spec("GRP-39", "GRP-51", "GRP-35")
@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),  # JoinGroup never answers 27
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_static_restart_that_is_not_stored_has_the_old_id_back_in_place(stored: ErrorCode, told: ErrorCode) -> None:
    play = static()
    before = play.group.to_value()
    play.join("a", instance_id="one", protocols=(("range", b"other"),))
    play.acknowledge(stored)
    assert play.last("a") == JoinResult(told, "")
    assert play.group.to_value() == before and play.group.state is GroupState.STABLE
    old = play.member("a")
    assert play.group.heartbeat(old, "one", 2, play.now) is ErrorCode.NONE


@pytest.mark.spec("GRP-40")
def test_a_static_member_goes_by_its_session_or_by_leaving_with_its_id() -> None:
    for by_leaving in (True, False):
        play = static()
        old = play.member("a")
        play.join("a", instance_id="one")
        play.acknowledge()
        assert beat(play, "b") == [ErrorCode.NONE], "its restart is no rebalance"
        assert play.leave((old, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
        if by_leaving:
            assert leave(play, "a") is ErrorCode.NONE
        else:
            for _ in range(2):
                play.wait(5000)
                beat(play, "b")
        assert [m.client_id for m in play.group.members.values()] == ["b"]
        assert play.group.state is GroupState.PREPARING_REBALANCE


# --- assignments and the sync limit (GRP-41, 42) --------------------------------------------------------------------


@pytest.mark.spec("GRP-41")
def test_the_record_has_an_entry_for_every_member_and_for_nobody_else() -> None:
    play = Play()
    completing(play, "a", "b")
    a, b = play.member("a"), play.member("b")
    play.sync("b", {b: b"a follower's assignments do not count"})
    assert not play.stores
    play.sync("a", {a: b"A", "nobody": b"X"})
    (store,) = play.stores
    assert [(m.member_id, m.assignment) for m in store.value.members] == [(a, b"A"), (b, b"")]
    play.acknowledge(ErrorCode.NOT_COORDINATOR)
    assert play.synced == {w: [SyncResult(ErrorCode.NOT_COORDINATOR)] for w in "ab"}, "all parked hear it"
    assert play.group.state is GroupState.PREPARING_REBALANCE


@pytest.mark.spec("GRP-41", "GRP-26")
@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_an_assignment_stored_when_a_rebalance_has_begun_decides_nothing(outcome: ErrorCode) -> None:
    play = Play()
    completing(play, "a")
    play.sync("a", {play.member("a"): b"A"})
    play.join("b")
    assert play.synced["a"] == [SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)]
    deadline = play.group.join_deadline_ms
    play.now += 5
    play.acknowledge(outcome)
    assert play.group.state is GroupState.PREPARING_REBALANCE and play.group.join_deadline_ms == deadline
    assert len(play.synced["a"]) == 1 and play.group.members[play.member("a")].assignment == b""


@pytest.mark.spec("GRP-42")
@pytest.mark.parametrize("stable", [True, False])
def test_the_sync_limit_is_the_groups_largest_rebalance_timeout_to_the_millisecond(stable: bool) -> None:
    play = Play()
    play.stable("a", "b")
    play.join("b", play.member("b"), protocols=(("range", b"new"),), rebalance_ms=20_000)
    play.join("a", play.member("a"), rebalance_ms=30_000)
    late = play.member("b")
    if stable:
        play.sync("a")
        play.acknowledge()
    expected = GroupState.STABLE if stable else GroupState.COMPLETING_REBALANCE
    for ms in (9000, 9000, 9000, 2999):
        play.wait(ms)
        beat(play, *("ab" if stable else "b"))
        play.group.members[play.member("a")].session_deadline_ms = None
    assert late in play.group.members and play.group.state is expected
    play.wait(1)
    assert late not in play.group.members
    assert play.group.state is (GroupState.PREPARING_REBALANCE if stable else GroupState.EMPTY), "of both nobody synced"


@pytest.mark.spec("GRP-42")
def test_who_owes_its_sync_while_the_assignment_is_awaited_goes_and_the_others_rebalance() -> None:
    play = Play()
    completing(play, "a", "b", "c")
    for who in "bc":
        play.sync(who)
    leader = play.group.members[play.member("a")]
    play.wait(8000)  # a heartbeat is due before its session ends, which is not what it goes by
    for _ in range(6):
        beat(play, "a")
        play.wait(8000)
    beat(play, "a")
    play.wait(3999)
    assert leader.id in play.group.members and play.group.state is GroupState.COMPLETING_REBALANCE
    assert play.synced == {"b": [], "c": []}
    play.wait(1)
    assert [m.client_id for m in play.group.members.values()] == ["b", "c"]
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert play.synced == {who: [SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)] for who in "bc"}


@pytest.mark.spec("GRP-42", "GRP-28")
def test_absent_static_members_owe_no_sync() -> None:
    play = Play()
    play.join("a", instance_id="one", session_ms=1_800_000)
    play.sync("a")
    play.acknowledge()
    play.join("b", session_ms=1_800_000)
    play.wait(60_000)
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    play.sync("b")
    play.acknowledge()
    play.wait(600_000)
    assert len(play.group.members) == 2 and play.group.state is GroupState.STABLE


# --- sessions (GRP-43 to 45) ----------------------------------------------------------------------------------------


@pytest.mark.spec("GRP-43")
def test_signs_of_life_move_the_session_and_refused_heartbeats_do_not() -> None:
    play = Play()
    play.stable("a", "b")
    a, b = play.group.members[play.member("a")], play.group.members[play.member("b")]
    generation = play.group.generation
    play.now = 1000
    assert play.group.heartbeat(b.id, None, generation + 1, play.now) is ErrorCode.ILLEGAL_GENERATION
    assert b.session_deadline_ms == 10_000
    assert play.group.heartbeat(b.id, None, generation, play.now) is ErrorCode.NONE
    assert b.session_deadline_ms == 11_000
    play.now = 2000
    play.sync("b")
    assert b.session_deadline_ms == 12_000, "the answer to SyncGroup"
    play.now = 3000
    play.join("c")
    assert beat(play, "b") == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert b.session_deadline_ms == 13_000, "27 is one, too"
    play.join("a", a.id)
    assert a.session_deadline_ms is None, "a parked JoinGroup: none runs"
    assert beat(play, "a") == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert a.session_deadline_ms is None, "nor after a heartbeat meanwhile"
    play.join("b", b.id)
    play.sync("b")
    assert b.session_deadline_ms is None, "a parked SyncGroup: none runs"
    assert beat(play, "b") == [ErrorCode.NONE] and b.session_deadline_ms is None
    play.now = 4000
    play.sync("a")
    play.acknowledge()
    assert b.session_deadline_ms == 14_000


@pytest.mark.spec("GRP-43")
def test_the_answer_to_a_parked_sync_is_a_sign_of_life_whatever_it_says() -> None:
    play = Play()
    completing(play, "a", "b")
    b = play.group.members[play.member("b")]
    play.sync("b")
    play.now = 3000
    play.join("c")
    assert play.synced["b"][-1].error is ErrorCode.REBALANCE_IN_PROGRESS and b.session_deadline_ms == 13_000
    completing(play)
    play.sync("b")
    play.sync("a")
    play.now = 5000
    play.acknowledge(ErrorCode.NOT_COORDINATOR)
    assert play.synced["b"][-1].error is ErrorCode.NOT_COORDINATOR and b.session_deadline_ms == 15_000


@pytest.mark.spec("GRP-44")
@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance", "PreparingRebalance"])
def test_a_session_that_ends_has_the_others_rebalance_or_ends_their_wait(state: str) -> None:
    play = Play()
    completing(play, "a", "b")
    if state != "CompletingRebalance":
        for who in "ba":
            play.sync(who)
        play.acknowledge()
    if state == "PreparingRebalance":
        play.join("a", play.member("a"), protocols=(("range", b"new"),))
    assert play.group.state.value == state
    generation = play.group.generation
    silent = play.member("b")
    play.wait(5000)
    if state != "PreparingRebalance":
        beat(play, "a")
    play.wait(5000)
    assert silent not in play.group.members
    if state == "PreparingRebalance":
        assert play.group.state is GroupState.COMPLETING_REBALANCE, "all that are left are parked"
        assert play.group.generation == generation + 1
    else:
        assert play.group.state is GroupState.PREPARING_REBALANCE


@pytest.mark.spec("GRP-45")
def test_who_leaves_with_a_parked_join_is_answered_25() -> None:
    play = Play()
    play.stable("a")
    play.join("b")
    b = play.member("b")
    assert leave(play, "b") is ErrorCode.NONE
    assert play.last("b") == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, b)
