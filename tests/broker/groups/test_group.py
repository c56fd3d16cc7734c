"""A group's life as a list of calls: joins, rebalances, assignments, sessions, static members. No clock, no broker."""

from dataclasses import dataclass, field, replace

import pytest

from kafkatool.broker.groups.group import Group, StoreGroup
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Parked, SyncResult
from kafkatool.broker.groups.states import GroupState
from kafkatool.core.protocol.messages.error_codes import ErrorCode

RANGE = (("range", b"r"),)


@dataclass
class Play:
    """A group whose effects run at once; stores wait until ``acknowledge``."""

    group: Group = field(init=False)
    joined: dict[str, list[JoinResult]] = field(default_factory=dict)
    synced: dict[str, list[SyncResult]] = field(default_factory=dict)
    stores: list[StoreGroup] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    now: float = 0
    delay_ms: int = 0
    max_size: int = 100

    def __post_init__(self) -> None:
        self.group = Group("g", self.stores.append, max_size=self.max_size, initial_delay_ms=self.delay_ms)

    def join(
        self,
        who: str,
        member_id: str = "",
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        known: bool = False,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        kind: str = "consumer",
    ) -> None:
        answers = self.joined.setdefault(who, [])
        request = JoinRequest(
            member_id, instance_id, who, "/127.0.0.1", session_ms, rebalance_ms, kind, protocols, known
        )
        parked = Parked(answers.append, lambda: self.dropped.append(who))
        for effect in self.group.join(request, parked, self.now):
            effect()

    def sync(self, who: str, assignments: dict[str, bytes] | None = None, generation: int | None = None) -> None:
        answers = self.synced.setdefault(who, [])
        member = self.member(who)
        for effect in self.group.sync(
            member,
            None,
            self.group.generation if generation is None else generation,
            assignments or {},
            Parked(answers.append, lambda: self.dropped.append(who)),
            self.now,
        ):
            effect()

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        codes, effects = self.group.leave(members, self.now)
        for effect in effects:
            effect()
        assert isinstance(codes, list)
        return codes

    def acknowledge(self, error: ErrorCode = ErrorCode.NONE) -> None:
        for effect in self.stores.pop(0).done(error, self.now):
            effect()

    def wait(self, ms: float) -> None:
        self.now += ms
        for effect in self.group.on_time(self.now):
            effect()

    def member(self, who: str) -> str:
        return next(m.id for m in self.group.members.values() if m.client_id == who)

    def stable(self, *names: str) -> None:
        for name in names:
            self.join(name)
        for name in names:
            if self.group.members[self.member(name)].join is None and len(names) > 1 and not self.last(name).members:
                self.join(name, self.member(name))
        self.settle()

    def settle(self) -> None:
        """Have everybody who is asked to join again, then the leader assign."""
        while self.group.state is GroupState.PREPARING_REBALANCE:
            for member in list(self.group.members.values()):
                if member.join is None:
                    self.join(member.client_id, member.id)
        for member in list(self.group.members.values()):
            self.sync(member.client_id, {m: m.encode() for m in self.group.members})
        self.acknowledge()

    def last(self, who: str) -> JoinResult:
        return self.joined[who][-1]


@pytest.mark.spec("GRP-18", "GRP-26", "GRP-31", "GRP-32", "GRP-41")
def test_two_members_form_a_generation_and_get_what_the_leader_assigned() -> None:
    play = Play()
    play.join("a")
    assert play.last("a").generation == 1 and play.group.state is GroupState.COMPLETING_REBALANCE
    play.join("b")
    assert play.group.state is GroupState.PREPARING_REBALANCE and not play.joined["b"]
    a, b = play.member("a"), play.member("b")
    assert play.group.heartbeat(a, None, 1, play.now) is ErrorCode.REBALANCE_IN_PROGRESS
    play.join("a", a)
    assert play.last("a").leader == a == play.last("b").leader
    assert [m[0] for m in play.last("a").members] == [a, b] and play.last("b").members == ()
    assert play.last("b").generation == 2 and play.last("b").protocol == "range"
    play.sync("b")
    assert play.synced["b"] == [], "parked until the leader's assignment is stored"
    play.sync("a", {a: b"A", "nobody": b"X"})
    assert len(play.stores) == 1 and play.synced["a"] == []
    play.acknowledge()
    assert play.group.state is GroupState.STABLE
    assert play.synced["a"] == [SyncResult(ErrorCode.NONE, b"A")]
    assert play.synced["b"] == [SyncResult(ErrorCode.NONE, b"")], "no entry: empty bytes"
    play.sync("b")
    assert len(play.synced["b"]) == 2, "a Stable group answers at once"
    play.sync("a", {a: b"another"})
    assert play.synced["a"][-1].assignment == b"A" and play.stores == [], "a repeat stores nothing more"


@pytest.mark.spec("GRP-24")
def test_a_first_join_gets_an_id_and_comes_again_with_it() -> None:
    play = Play()
    play.join("a", known=True)
    refused = play.last("a")
    assert refused.member_id.startswith("a-")
    assert refused == JoinResult(
        ErrorCode.MEMBER_ID_REQUIRED, refused.member_id, generation=-1, protocol="", leader="", members=()
    )
    assert not play.group.members and refused.member_id in play.group.pending
    play.join("a", refused.member_id, known=True)
    assert play.last("a").error is ErrorCode.NONE and play.last("a").member_id == refused.member_id
    play.join("b", known=True)
    play.wait(10_000)
    assert not play.group.pending, "an id that is not used is forgotten after the session timeout"
    play.join("b", play.last("b").member_id, known=True)
    assert play.last("b").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("GRP-22")
def test_protocols_must_fit() -> None:
    play = Play()
    play.join("a", protocols=())
    assert play.last("a").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    play.stable("a")
    play.join("b", protocols=(("roundrobin", b""),))
    assert play.last("b").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    play.join("c", kind="connect")
    assert play.last("c").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    play = Play()
    play.join("a")
    play.join("b", protocols=(*RANGE, ("sticky", b"")))
    play.join("a", play.member("a"), protocols=(("roundrobin", b""),))
    assert play.last("a").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    play.join("a", play.member("a"), protocols=(("sticky", b""),))
    play.settle()
    assert play.last("a").protocol == "sticky", "a member that comes again fits by what it offers now"


@pytest.mark.spec("GRP-27")
@pytest.mark.parametrize(
    "joins, timeout_ms, ends",
    [((0, 1, 4), 10_000, 9), ((0, 1, 4, 7), 10_000, 10), ((0,), 10_000, 3), ((0, 1), 2_000, 3)],
)
def test_the_first_wait_grows_while_members_come(joins: tuple[int, ...], timeout_ms: int, ends: int) -> None:
    play = Play(delay_ms=3000)
    for second in range(ends):
        if second in joins:
            play.join(f"m{second}", rebalance_ms=timeout_ms)
        play.wait(999)
        assert play.group.state is GroupState.PREPARING_REBALANCE
        play.wait(1)
    assert play.group.state is GroupState.COMPLETING_REBALANCE and len(play.group.members) == len(joins)


@pytest.mark.spec("GRP-28", "GRP-32")
def test_who_does_not_come_back_in_time_is_removed_and_the_next_leads() -> None:
    play = Play()
    play.stable("a", "b")
    a, b = play.member("a"), play.member("b")
    assert play.group.leader == a
    play.join("c", rebalance_ms=5000)
    play.join("b", b, rebalance_ms=5000)
    for member in play.group.members.values():
        member.session_deadline_ms = None
    play.wait(60_000)
    assert a not in play.group.members and play.group.leader == b
    assert {m[0] for m in play.last("b").members} == {b, play.member("c")}


@pytest.mark.spec("GRP-30", "GRP-31")
def test_the_protocol_with_most_votes_wins_and_the_leader_breaks_ties() -> None:
    play = Play()
    play.join("a", protocols=(("x", b"ax"), ("y", b"ay"), ("z", b"")))
    a = play.member("a")
    play.join("b", protocols=(("y", b"by"), ("x", b"bx")))
    play.join("a", a, protocols=(("x", b"ax"), ("y", b"ay"), ("z", b"")))
    assert play.last("a").protocol == "x"
    assert [m[2] for m in play.last("a").members] == [b"ax", b"bx"]
    play.join("c", protocols=(("y", b"cy"), ("x", b"")))
    for who in ("a", "b"):
        protocols = play.group.members[play.member(who)].protocols
        play.join(who, play.member(who), protocols=protocols)
    assert play.last("c").protocol == "y"


@pytest.mark.spec("GRP-19")
def test_the_table_of_rejoins() -> None:
    play = Play()
    play.stable("a", "b")
    a, b = play.member("a"), play.member("b")
    play.join("b", b)
    assert play.last("b").generation == play.group.generation and play.group.state is GroupState.STABLE
    play.join("b", b, protocols=(("range", b"new"),))
    assert play.group.state is GroupState.PREPARING_REBALANCE, "other protocols: rebalance"
    play.join("a", a)
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    answers = len(play.joined["a"])
    play.join("a", a)
    assert len(play.joined["a"]) == answers + 1 and play.last("a").members, "the leader gets its list again"
    play.sync("a", {})
    play.acknowledge()
    play.join("a", a)
    assert play.group.state is GroupState.PREPARING_REBALANCE, "the leader may ask for a rebalance"
    play.join("x", "unknown")
    assert play.last("x").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.spec("GRP-19")
def test_checks_of_sync_and_heartbeat() -> None:
    play = Play()
    play.stable("a")
    a = play.member("a")
    assert play.group.heartbeat("nobody", None, 1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.group.heartbeat(a, None, 0, 0) is ErrorCode.ILLEGAL_GENERATION
    assert play.group.heartbeat(a, None, 1, 0) is ErrorCode.NONE
    play.sync("a", generation=0)
    assert play.synced["a"][-1].error is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.spec("GRP-33", "GRP-35")
def test_a_parked_join_is_replaced_and_a_forgotten_one_ends() -> None:
    play = Play(delay_ms=3000)
    play.join("a", rebalance_ms=1_000_000)
    a = play.member("a")
    play.join("a", a, rebalance_ms=1_000_000)
    assert play.dropped == ["a"] and not play.joined["a"]
    play.wait(3000)
    play.sync("a", {})
    play.acknowledge()
    play.join("b", rebalance_ms=1_000_000)
    for _ in range(34):
        play.wait(9000)
        play.group.heartbeat(a, None, 1, play.now)
    assert play.last("b") == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")


@pytest.mark.spec("GRP-34")
def test_a_full_group_refuses() -> None:
    play = Play(max_size=1)
    play.stable("a")
    play.join("b")
    assert play.last("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED and play.last("b").member_id == ""
    assert len(play.group.members) == 1 and play.group.state is GroupState.STABLE


@pytest.mark.spec("GRP-37", "GRP-38", "GRP-40", "GRP-43")
def test_a_static_member_restarts_without_a_rebalance() -> None:
    play = Play()
    play.join("a", instance_id="one")
    a = play.member("a")
    play.sync("a", {a: b"A"})
    play.acknowledge()
    play.now = 9_000
    play.join("a", instance_id="one")
    assert len(play.stores) == 1, "the new id is stored first"
    play.acknowledge()
    assert play.group.next_deadline_ms() == 19_000, "its session begins anew"
    new = play.last("a")
    assert new.error is ErrorCode.NONE and new.generation == 1 and new.leader == a != new.member_id
    assert new.members == () and play.group.state is GroupState.STABLE and play.group.leader == new.member_id
    assert new.protocol == "range"
    assert play.group.heartbeat(a, "one", 1, 0) is ErrorCode.FENCED_INSTANCE_ID
    play.sync("a")
    assert play.synced["a"][-1].assignment == b"A"
    play.join("x", a, instance_id="one")
    assert play.last("x").error is ErrorCode.FENCED_INSTANCE_ID
    for unfit in ("some", new.member_id):
        play.join("y", unfit, instance_id="other")
        assert play.last("y") == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, unfit), "also with a member's id"
    assert play.group.state is GroupState.STABLE


@pytest.mark.spec("GRP-39")
def test_a_static_restart_that_cannot_be_stored_is_undone() -> None:
    play = Play()
    play.join("a", instance_id="one")
    a = play.member("a")
    play.sync("a", {})
    play.acknowledge()
    play.join("a", instance_id="one")
    play.acknowledge(ErrorCode.NOT_COORDINATOR)
    assert play.last("a").error is ErrorCode.NOT_COORDINATOR
    assert list(play.group.members) == [a] and play.group.leader == a


@pytest.mark.spec("GRP-41", "GRP-51")
def test_an_assignment_that_cannot_be_stored_starts_a_rebalance() -> None:
    play = Play()
    play.join("a")
    play.sync("a", {})
    play.acknowledge(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert play.synced["a"][-1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.group.state is GroupState.PREPARING_REBALANCE


@pytest.mark.spec("GRP-42")
def test_a_member_that_never_syncs_is_removed() -> None:
    play = Play()
    play.stable("a", "b")
    play.join("c", rebalance_ms=30_000)
    for who in ("a", "b"):
        play.join(who, play.member(who), rebalance_ms=30_000)
    b = play.member("b")
    play.sync("a", {})
    play.sync("c")
    play.acknowledge()
    for _ in range(6):
        play.wait(5000)
        for member in list(play.group.members):
            play.group.heartbeat(member, None, play.group.generation, play.now)
    assert b not in play.group.members, "heartbeats do not help it"


@pytest.mark.spec("GRP-29", "GRP-43", "GRP-44")
def test_sessions_end_at_exactly_last_sign_plus_timeout() -> None:
    play = Play()
    play.stable("a")
    a = play.member("a")
    play.now = 5000
    assert play.group.heartbeat(a, None, 1, play.now) is ErrorCode.NONE
    play.wait(9999)
    assert a in play.group.members
    play.wait(1)
    assert not play.group.members and play.group.state is GroupState.EMPTY
    assert play.group.generation == 2 and play.group.leader is None and play.group.protocol is None
    assert play.stores[-1].value.members == ()


@pytest.mark.spec("GRP-43")
def test_a_join_and_a_sync_that_are_refused_at_once_are_no_signs_of_life() -> None:
    play = Play()
    play.stable("a")
    a = play.member("a")
    play.now = 5000
    play.join("a", a, kind="connect")
    assert play.last("a").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    play.sync("a", generation=7)
    assert play.synced["a"][-1].error is ErrorCode.ILLEGAL_GENERATION
    play.wait(4999)
    assert a in play.group.members
    play.wait(1)
    assert not play.group.members


@pytest.mark.spec("GRP-45")
def test_leaving() -> None:
    play = Play()
    play.stable("a", "b")
    b = play.member("b")
    assert play.leave((b, None)) == [ErrorCode.NONE] and play.group.state is GroupState.PREPARING_REBALANCE
    assert play.leave((b, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    play.join("c", known=True)
    pending = play.last("c").member_id
    assert play.leave((pending, None)) == [ErrorCode.NONE] and not play.group.pending
    assert play.leave((pending, None)) == [ErrorCode.UNKNOWN_MEMBER_ID], "it is forgotten"


@pytest.mark.spec(
    "GRP-45",
)
def test_several_leave_by_id_and_by_instance_id_with_one_rebalance() -> None:
    play = Play()
    for who, instance in (("a", "one"), ("b", "two"), ("c", None), ("d", None)):
        play.join(who, instance_id=instance)
    play.settle()
    assert play.group.state is GroupState.STABLE
    generation, stores = play.group.generation, len(play.stores)
    a, b, c = play.member("a"), play.member("b"), play.member("c")
    outcome = play.leave(("", "one"), (a, "two"), ("", "three"), (c, None), (c, None), ("", None), (a, "one"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert outcome == [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID, unknown, ErrorCode.NONE, unknown, unknown, unknown]
    assert [m.client_id for m in play.group.members.values()] == ["b", "d"]
    assert play.group.state is GroupState.PREPARING_REBALANCE and len(play.stores) == stores, "it waits for the others"
    play.settle()
    assert (play.group.state, play.group.generation) == (GroupState.STABLE, generation + 1), "one rebalance for both"
    assert play.leave((b, "two"), (play.member("d"), None)) == [ErrorCode.NONE] * 2
    assert play.group.state is GroupState.EMPTY and not play.group.members


@pytest.mark.spec("GRP-45")
def test_one_that_leaves_before_it_was_admitted_makes_no_rebalance() -> None:
    play = Play()
    play.stable("a", "b")
    generation = play.group.generation
    play.join("c", known=True)
    assert play.leave((play.last("c").member_id, None)) == [ErrorCode.NONE]
    assert (play.group.state, play.group.generation) == (GroupState.STABLE, generation)


@pytest.mark.spec("GRP-15", "GRP-18")
def test_a_group_that_is_unloaded_answers_what_is_parked() -> None:
    play = Play()
    play.stable("a")
    play.join("pending", known=True)
    play.now += 5
    play.join("b")
    since = play.group.state_timestamp_ms
    for effect in play.group.die():
        effect()
    assert (play.group.state, play.group.state_timestamp_ms) == (GroupState.DEAD, since), "it is stored no more"
    assert play.last("b").error is ErrorCode.NOT_COORDINATOR
    play.join("c")
    assert play.last("c").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.group.next_deadline_ms() is None


@pytest.mark.spec("GRP-10", "GRP-11", "GRP-13")
def test_a_stored_group_comes_back_stable_with_full_sessions() -> None:
    play = Play()
    play.stable("a", "b")
    value = play.group.to_value()
    again = Group("g", lambda _: None)
    again.restore(value, 1000)
    assert again.state is GroupState.STABLE and again.generation == play.group.generation
    assert again.leader == play.group.leader and list(again.members) == list(play.group.members)
    assert again.next_deadline_ms() == 11_000
    assert again.heartbeat(play.member("a"), None, again.generation, 2000) is ErrorCode.NONE
    other = Group("g", lambda _: None)
    first, second = value.members
    members = (first, replace(second, session_timeout_ms=6_000))
    other.restore(replace(value, leader=second.member_id, members=members), 1000)
    assert other.leader == second.member_id, "the stored one, whichever it is"
    assert other.next_deadline_ms() == 7_000, "of two sessions the one that ends first"


@pytest.mark.spec("GRP-13", "GRP-34")
def test_a_group_loaded_with_too_many_members_starts_a_rebalance() -> None:
    play = Play()
    play.stable("a", "b", "c")
    value = play.group.to_value()
    again = Play(max_size=2)
    assert again.group.restore(value, 0) == []
    assert again.group.state is GroupState.PREPARING_REBALANCE
    assert again.group.heartbeat(play.member("a"), None, value.generation, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    for name in ("a", "b", "c"):
        again.join(name, play.member(name))
    assert again.last("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    again.settle()
    assert again.group.state is GroupState.STABLE
    assert list(again.group.members) == [play.member("a"), play.member("b")]
    exact = Group("g", lambda _: None, max_size=3)
    assert exact.restore(value, 0) == []
    assert exact.state is GroupState.STABLE


@pytest.mark.spec("GRP-25")
def test_a_rejoin_takes_new_protocols_and_both_timeouts() -> None:
    play = Play()
    play.stable("a", "b")
    follower = next(w for w in ("a", "b") if play.member(w) != play.group.leader)
    play.join(follower, play.member(follower), session_ms=77_000, rebalance_ms=5_000)
    member = play.group.members[play.member(follower)]
    assert play.group.state is GroupState.STABLE, "the same protocols: no rebalance"
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (77_000, 5_000)
    both = (("sticky", b"s"), ("range", b"new"))
    play.join(follower, member.id, protocols=both, session_ms=9_000, rebalance_ms=80_000)
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms) == (both, 9_000, 80_000)
    leader = next(w for w in ("a", "b") if w != follower)
    assert play.group.join_deadline_ms == play.now + 80_000, "the largest of all, the new one included"
    play.join(leader, play.member(leader))
    assert play.last(leader).protocol == "range" and {m[0]: m[2] for m in play.last(leader).members} == {
        play.member(leader): b"r",
        member.id: b"new",
    }


@pytest.mark.spec("GRP-18")
def test_a_move_that_is_not_in_the_table_is_an_error_and_changes_nothing() -> None:
    play = Play()
    play.stable("a")
    since = play.group.state_timestamp_ms
    with pytest.raises(RuntimeError, match="from Stable to CompletingRebalance"):
        play.group.move(GroupState.COMPLETING_REBALANCE, 5)
    assert (play.group.state, play.group.state_timestamp_ms, play.group.generation) == (GroupState.STABLE, since, 1)


@pytest.mark.spec("GRP-41")
def test_an_assignment_is_stored_though_that_of_the_generation_before_still_is_on_its_way() -> None:
    play = Play()
    play.join("a")
    a = play.member("a")
    play.sync("a", {a: b"old"})
    play.join("b")
    play.join("a", a)
    play.sync("a", {a: b"new"})
    assert len(play.stores) == 2
    play.acknowledge()
    assert play.group.state is GroupState.COMPLETING_REBALANCE, "the record of generation 1 decides nothing any more"
    play.sync("a", {a: b"again"})
    assert len(play.stores) == 1, "a repeated SyncGroup stores nothing more"
    play.acknowledge()
    assert play.synced["a"][-1] == SyncResult(ErrorCode.NONE, b"new") and play.group.state is GroupState.STABLE


@pytest.mark.spec("GRP-33", "GRP-38", "GRP-43")
def test_no_session_runs_for_a_static_member_that_restarts_while_its_first_join_is_parked() -> None:
    play = Play(delay_ms=60_000)
    play.join("a", instance_id="one", session_ms=10_000, rebalance_ms=300_000)
    play.join("a", instance_id="one", session_ms=10_000, rebalance_ms=300_000)
    assert play.last("a").error is ErrorCode.FENCED_INSTANCE_ID
    play.wait(10_000)
    assert len(play.group.members) == 1
