"""One group's membership as a state machine: its members, its generation, the requests parked (GRP-18 to GRP-43).

It reads no clock, takes no lock and does no I/O: each method takes ``now_ms`` and returns the effects to carry out
after the caller has let go of the group's lock, in order. So a test is a list of calls (GRP-20).
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafkatool.broker.coordination.ids import cut
from kafkatool.broker.groups.member import JoinRequest, JoinResult, Member, Parked, SyncResult, metadata_bytes
from kafkatool.broker.groups.offsets import CommittedOffsets
from kafkatool.broker.groups.protocols import fits, most_voted, subscribed_topics
from kafkatool.broker.groups.records import GroupValue
from kafkatool.broker.groups.states import LEGAL, GroupState
from kafkatool.broker.limits import Limit
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

NEW_MEMBER_TIMEOUT_MS = 300_000  # a first JoinGroup parked longer belongs to a client that is gone (GRP-33)
MOST_PENDING = 10_000  # ids handed out to who has not come again (SEC-101)
MOST_METADATA_BYTES = 16 * 1024 * 1024
_CONSUMER = "consumer"  # the type of groups whose members tell which topics they read

Effect = Callable[[], object]


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """A group record to be written; ``done`` hears the append's outcome, as SyncGroup's code, and the time (GRP-41)."""

    value: GroupValue
    done: Callable[[ErrorCode, float], Sequence[Effect]]


@dataclass(slots=True)
class Group:
    """A group. ``store`` is called, as an effect, with each record to write. Members are kept in order of admission.

    ``to_wall_ms`` turns a time it was given into the wall's, as records have it.
    """

    id: str
    store: Callable[[StoreGroup], None]
    max_size: int = 2**31 - 1
    initial_delay_ms: int = 3000
    to_wall_ms: Callable[[float], float] = float
    over: Callable[[Limit], object] = lambda _: None  # called, as an effect, when a limit refuses a member (SEC-103)
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: float | None = None  # by the wall clock
    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)  # id handed out with 79 -> until when
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    join_deadline_ms: float | None = None  # end of the join phase's wait
    _initial_rest_ms: float | None = None  # GRP-27: what may still be waited; None outside the first wait
    _initial_wait_ms: float = 0
    _joined_in_wait: bool = False
    _storing_generation: int | None = None  # whose assignment is being stored; one of an earlier rebalance may still be

    # --- JoinGroup (GRP-21 to 35, 37, 38) -----------------------------------------------------------------------

    def join(self, request: JoinRequest, parked: Parked[JoinResult], now_ms: float) -> list[Effect]:
        def refuse(error: ErrorCode, member_id: str | None = None) -> list[Effect]:
            answer_id = request.member_id if member_id is None else member_id
            return [partial(parked.answer, JoinResult(error, answer_id))]

        if not self._has_room(request.member_id) or not self._bears(request):
            effects = self._remove(request.member_id, now_ms) if request.member_id in self.members else []
            if not self._bears(request):
                effects.append(partial(self.over, Limit.MEMBERS_METADATA))
            return [*effects, *refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")]
        if self.state is GroupState.DEAD:
            return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self._takes(request):
            return refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.pending.pop(request.member_id, None) is not None:
            return self._admit(request, request.member_id, parked, now_ms)
        known = self._static(request.instance_id)
        if request.member_id == "":
            member_id = f"{cut(request.instance_id or request.client_id)}-{uuid.uuid4()}"
            if known is not None:
                return self._replace_static(known, request, member_id, parked, now_ms)
            if request.asks_for_id:
                if len(self.pending) >= MOST_PENDING:
                    return [partial(self.over, Limit.MEMBER_IDS), *refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")]
                self.pending[member_id] = now_ms + request.session_timeout_ms
                return refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
            return self._admit(request, member_id, parked, now_ms)
        if known is not None and known.id != request.member_id:
            return refuse(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(request.member_id)
        if member is None or (request.instance_id is not None and known is None):
            return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
        return self._rejoin(member, request, parked, now_ms)

    def _rejoin(self, member: Member, request: JoinRequest, parked: Parked[JoinResult], now_ms: float) -> list[Effect]:
        same = member.protocols == request.protocols
        follows = self.state is GroupState.STABLE and member.id != self.leader
        unchanged = same and (follows or self.state is GroupState.COMPLETING_REBALANCE)
        member.update(request)
        if self.state is GroupState.EMPTY:
            return [partial(parked.answer, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.id))]
        if unchanged:
            return [partial(parked.answer, self._this_generation(member))]
        return [*self._park(member, parked), *self._rebalance(now_ms)]

    def _admit(self, request: JoinRequest, member_id: str, parked: Parked[JoinResult], now_ms: float) -> list[Effect]:
        member = Member.admitted(member_id, request, now_ms + NEW_MEMBER_TIMEOUT_MS)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        self.leader = self.leader or member_id
        self._joined_in_wait = True
        return [*self._park(member, parked), *self._rebalance(now_ms)]

    def _replace_static(
        self, old: Member, request: JoinRequest, member_id: str, parked: Parked[JoinResult], now_ms: float
    ) -> list[Effect]:
        effects = _refused(old, ErrorCode.FENCED_INSTANCE_ID, old.id)
        id_before, leader_before, protocols_before = old.id, self.leader, old.protocols
        old.join = old.sync = None
        self._rename(old, member_id)
        old.update(request)
        if not old.is_new:  # else its first JoinGroup stays parked, and only the limit for that runs (GRP-33)
            old.session_deadline_ms = now_ms + old.session_timeout_ms
        if self.state is not GroupState.STABLE or self._select_protocol() != self.protocol:
            return [*effects, *self._park(old, parked), *self._rebalance(now_ms)]
        result = JoinResult(
            ErrorCode.NONE, member_id, self.generation, self.protocol or "", leader_before or "", members=()
        )

        def stored(error: ErrorCode, _now_ms: float) -> Sequence[Effect]:
            if error is ErrorCode.NONE:
                return [partial(parked.answer, result)]
            if self.members.get(member_id) is old:  # back in place (GRP-39)
                self._rename(old, id_before)
                old.protocols = protocols_before
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.REBALANCE_IN_PROGRESS else error
            return [partial(parked.answer, JoinResult(code, ""))]

        return [*effects, partial(self.store, StoreGroup(self.to_value(), stored))]

    def _rename(self, member: Member, member_id: str) -> None:
        if self.leader == member.id:
            self.leader = member_id
        self.members = {member_id if m is member else i: m for i, m in self.members.items()}
        member.id = member_id

    @staticmethod
    def _park(member: Member, parked: Parked[JoinResult]) -> list[Effect]:
        replaced, member.join = member.join, parked
        if not member.is_new:
            member.session_deadline_ms = None  # no session runs out while its JoinGroup is parked (GRP-43)
        return [replaced.drop] if replaced else []

    def _has_room(self, member_id: str) -> bool:
        if len(self.members) < self.max_size or self.state is GroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            parked = sum(m.join is not None for m in self.members.values())
            return (member is not None and member.join is not None) or parked < self.max_size
        return member is not None

    def _bears(self, request: JoinRequest) -> bool:
        """Tell whether the metadata of all members, its own with them, is no more than a group may hold (SEC-101)."""
        others = sum(m.metadata_bytes for m in self.members.values() if m.id != request.member_id)
        return others + metadata_bytes(request.protocols) <= MOST_METADATA_BYTES

    def _takes(self, request: JoinRequest) -> bool:
        """Tell whether the member fits: the group's type, and one protocol that all members offer (GRP-22)."""
        if not request.protocol_type or not request.protocols:
            return False
        if not self.members:
            return True
        others = [m for m in self.members.values() if m.id != request.member_id] or list(self.members.values())
        return request.protocol_type == self.protocol_type and fits(request.protocols, others)

    def _static(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    # --- the join phase (GRP-26 to 31) --------------------------------------------------------------------------

    def _rebalance(self, now_ms: float) -> list[Effect]:
        """Start a rebalance unless one is under way; then see whether the join phase can end."""
        effects: list[Effect] = []
        if self.state is not GroupState.PREPARING_REBALANCE:
            for member in self.members.values():
                if member.sync:
                    effects.append(partial(member.sync.answer, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
                    member.sync = None
                    member.session_deadline_ms = now_ms + member.session_timeout_ms
                member.sync_deadline_ms = None
            longest = max((m.rebalance_timeout_ms for m in self.members.values()), default=0)
            if self.state is GroupState.EMPTY:
                self._initial_wait_ms = self.initial_delay_ms
                self._initial_rest_ms = max(longest - self.initial_delay_ms, 0)
                self._joined_in_wait = False
                self.join_deadline_ms = now_ms + self.initial_delay_ms
            else:
                self._initial_rest_ms = None
                self.join_deadline_ms = now_ms + longest
            self.move(GroupState.PREPARING_REBALANCE, now_ms)
        return [*effects, *self._try_end_join(now_ms)]

    def _try_end_join(self, now_ms: float) -> list[Effect]:
        if self.state is not GroupState.PREPARING_REBALANCE:
            return []
        if self._initial_rest_ms is not None:
            return self.on_join_deadline(now_ms) if self.initial_delay_ms == 0 else []
        if self.pending or any(m.join is None for m in self.members.values()):
            return []
        return self._end_join(now_ms)

    def on_join_deadline(self, now_ms: float) -> list[Effect]:
        """End the wait of the join phase, or prolong the first one."""
        if self.state is not GroupState.PREPARING_REBALANCE or self.join_deadline_ms is None:
            return []
        if now_ms < self.join_deadline_ms:
            return []
        rest = self._initial_rest_ms
        if rest is not None and self.generation == 0 and self._joined_in_wait and rest > 0 and self.initial_delay_ms:
            wait = min(self.initial_delay_ms, rest)
            self._initial_rest_ms = max(rest - self._initial_wait_ms, 0)
            self._initial_wait_ms, self._joined_in_wait = wait, False
            self.join_deadline_ms = now_ms + wait
            return []
        return self._end_join(now_ms)

    def _end_join(self, now_ms: float) -> list[Effect]:
        for member in [m for m in self.members.values() if m.join is None and m.instance_id is None]:
            del self.members[member.id]
        parked = [m for m in self.members.values() if m.join is not None]
        if self.members and not parked:
            self.join_deadline_ms = now_ms + max(m.rebalance_timeout_ms for m in self.members.values())
            return []
        self.join_deadline_ms = self._initial_rest_ms = None
        self.generation += 1
        if not self.members:
            self.protocol = self.leader = None
            self.move(GroupState.EMPTY, now_ms)
            return [partial(self.store, StoreGroup(self.to_value(), self._empty_stored))]
        if self.leader not in self.members or self.members[self.leader].join is None:
            self.leader = parked[0].id
        self.protocol = self._select_protocol()
        self.move(GroupState.COMPLETING_REBALANCE, now_ms)
        longest = max(m.rebalance_timeout_ms for m in self.members.values())
        effects: list[Effect] = []
        for member in self.members.values():
            member.assignment = b""
            if member.join is None:
                continue
            effects.append(partial(member.join.answer, self._this_generation(member)))
            member.join, member.is_new = None, False
            member.session_deadline_ms = now_ms + member.session_timeout_ms
            member.sync_deadline_ms = now_ms + longest
        return effects

    def _empty_stored(self, error: ErrorCode, _now_ms: float) -> Sequence[Effect]:
        if error is not ErrorCode.NONE:
            log.warning(
                "group %s: storing generation %d without members failed: %s", self.id, self.generation, error.name
            )
        return []

    def _this_generation(self, member: Member) -> JoinResult:
        leads = member.id == self.leader and self.state is GroupState.COMPLETING_REBALANCE
        protocol = self.protocol or ""
        members = tuple((m.id, m.instance_id, m.metadata(protocol)) for m in self.members.values()) if leads else ()
        return JoinResult(ErrorCode.NONE, member.id, self.generation, protocol, self.leader or "", members)

    def _select_protocol(self) -> str:
        members = list(self.members.values())
        return most_voted(members, self.members.get(self.leader or "", members[0]))

    # --- SyncGroup, Heartbeat, LeaveGroup, sessions (GRP-19, 41 to 45) ------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None, generation: int | None) -> ErrorCode:
        """Make the checks SyncGroup, Heartbeat and a member's commit share; a generation of None is not looked at."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        known = self._static(instance_id)
        if known is not None and known.id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Check who commits offsets in a transaction; who tells nothing of itself is not checked (TXN-82)."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and instance_id is None and not (member_id and self.members):
            return ErrorCode.NONE
        if instance_id is not None and self._static(instance_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self.check_member(member_id, instance_id, generation)

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
        parked: Parked[SyncResult],
        now_ms: float,
        protocol: tuple[str, str] | None = None,
    ) -> list[Effect]:
        error = self.check_member(member_id, instance_id, generation)
        if error is ErrorCode.NONE and protocol not in (None, (self.protocol_type, self.protocol)):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is ErrorCode.NONE and self.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error is ErrorCode.NONE and self.state is GroupState.EMPTY:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return [partial(parked.answer, SyncResult(error))]
        member = self.members[member_id]
        member.sync_deadline_ms = None
        if self.state is GroupState.STABLE:
            member.session_deadline_ms = now_ms + member.session_timeout_ms
            return [partial(parked.answer, SyncResult(ErrorCode.NONE, member.assignment))]
        replaced, member.sync = member.sync, parked
        member.session_deadline_ms = None
        effects: list[Effect] = [replaced.drop] if replaced else []
        if member_id == self.leader and self._storing_generation != self.generation:
            self._storing_generation = self.generation
            chosen = {m.id: assignments.get(m.id, b"") for m in self.members.values()}
            done = partial(self._assignment_stored, self.generation, chosen)
            effects.append(partial(self.store, StoreGroup(self.to_value(chosen), done)))
        return effects

    def _assignment_stored(
        self, generation: int, chosen: dict[str, bytes], error: ErrorCode, now_ms: float
    ) -> Sequence[Effect]:
        if self._storing_generation == generation:
            self._storing_generation = None
        if self.state is not GroupState.COMPLETING_REBALANCE or self.generation != generation:
            return []
        effects: list[Effect] = []
        if error is ErrorCode.NONE:
            self.move(GroupState.STABLE, now_ms)
        for member in self.members.values():
            if error is ErrorCode.NONE:
                member.assignment = chosen.get(member.id, b"")
            if member.sync:
                effects.append(partial(member.sync.answer, SyncResult(error, member.assignment)))
                member.sync = None
                member.session_deadline_ms = now_ms + member.session_timeout_ms
        return effects if error is ErrorCode.NONE else [*effects, *self._rebalance(now_ms)]

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: float) -> ErrorCode:
        error = self.check_member(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.touch(member_id, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def touch(self, member_id: str, now_ms: float) -> None:
        """Note a sign of life (GRP-43); no session runs while a request of the member is parked."""
        member = self.members[member_id]
        if member.join is None and member.sync is None:
            member.session_deadline_ms = now_ms + member.session_timeout_ms

    def leave(
        self, members: Sequence[tuple[str, str | None]], now_ms: float
    ) -> tuple[ErrorCode | list[ErrorCode], list[Effect]]:
        """Take out members named by id, instance id or both; the others go on without all of them, once.

        Return a code for each. Source: KIP-345, Kafka 2.8.2 group/GroupCoordinator.scala (handleLeaveGroup).
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        codes: list[ErrorCode] = []
        effects: list[Effect] = []
        gone = False
        for member_id, instance_id in members:
            known = self._static(instance_id) if not member_id else None
            leaving = known.id if known is not None else member_id
            if self.pending.pop(leaving, None) is not None:
                codes.append(ErrorCode.NONE)
                continue
            codes.append(self.check_member(leaving, instance_id, None))
            if codes[-1] is ErrorCode.NONE:
                effects += self._take_out(leaving, leaving)
                gone = True
        effects += self._go_on_without(now_ms) if gone else self._try_end_join(now_ms)
        return codes, effects

    def _remove(self, member_id: str, now_ms: float) -> list[Effect]:
        return [*self._take_out(member_id, member_id), *self._go_on_without(now_ms)]

    def _take_out(self, member_id: str, answer_id: str) -> list[Effect]:
        member = self.members.pop(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return _refused(member, ErrorCode.UNKNOWN_MEMBER_ID, answer_id)

    def _go_on_without(self, now_ms: float) -> list[Effect]:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self._rebalance(now_ms)
        return self._try_end_join(now_ms)

    def on_time(self, now_ms: float) -> list[Effect]:
        """Carry out everything that is due: sessions, sync limits, pending ids, the join phase's wait."""
        forgotten = [i for i, until in self.pending.items() if until <= now_ms]
        for member_id in forgotten:
            del self.pending[member_id]
        effects: list[Effect] = self._try_end_join(now_ms) if forgotten else []
        silent = [
            m
            for m in self.members.values()
            if any(d is not None and d <= now_ms for d in (m.session_deadline_ms, m.sync_deadline_ms))
        ]
        for member in silent:  # all of them before the others go on: a rebalance gives those that are left new limits
            log.info("group %s: member %s gave no sign of life in time and is removed", self.id, member.id)
            effects += self._take_out(member.id, "" if member.is_new else member.id)
        if silent:
            effects += self._go_on_without(now_ms)
        return [*effects, *self.on_join_deadline(now_ms)]

    def next_deadline_ms(self) -> float | None:
        """Return the time at which ``on_time`` is wanted next; None: nothing runs."""
        deadlines = [d for m in self.members.values() for d in (m.session_deadline_ms, m.sync_deadline_ms) if d]
        if self.join_deadline_ms is not None:
            deadlines.append(self.join_deadline_ms)
        return min([*deadlines, *self.pending.values()], default=None)

    def may_forget(self, partitions: Iterable[TopicPartition]) -> tuple[ErrorCode, frozenset[TopicPartition]]:
        """Return those whose offsets nobody goes by, or why none may be deleted (ADM-67)."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND, frozenset()
        if self.state is GroupState.EMPTY:
            return ErrorCode.NONE, frozenset(partitions)
        if self.protocol_type != _CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP, frozenset()
        subscribed = subscribed_topics(self.members.values())
        if subscribed is None:
            return ErrorCode.NONE, frozenset()
        return ErrorCode.NONE, frozenset(p for p in partitions if p.topic not in subscribed)

    # --- life ---------------------------------------------------------------------------------------------------

    def die(self) -> list[Effect]:
        """End the group, unloaded or deleted: parked requests get 16, nothing runs any more (GRP-15)."""
        members = self.members.values()
        effects = [effect for m in members for effect in _refused(m, ErrorCode.NOT_COORDINATOR, m.id)]
        self.members.clear()
        self.pending.clear()
        self.join_deadline_ms = None
        self.state = GroupState.DEAD
        return effects

    def undelete(self) -> None:
        """Restore a group whose deletion could not be stored, as it would be after the next load (GRP-60)."""
        self.state = GroupState.EMPTY

    def move(self, state: GroupState, now_ms: float) -> None:
        if self.state not in LEGAL[state]:
            raise RuntimeError(f"group {self.id} cannot go from {self.state.value} to {state.value}")
        self.state = state
        self.state_timestamp_ms = self.to_wall_ms(now_ms)

    def to_value(self, assignments: dict[str, bytes] | None = None) -> GroupValue:
        """Return the record that stores the group as it is, with those assignments if given."""
        protocol = self.protocol or ""
        members = tuple(
            m.to_value(protocol, m.assignment if assignments is None else assignments.get(m.id, b""))
            for m in self.members.values()
        )
        timestamp = None if self.state_timestamp_ms is None else int(self.state_timestamp_ms)
        return GroupValue(self.protocol_type or "", self.generation, self.protocol, self.leader, timestamp, members)

    def restore(self, value: GroupValue, now_ms: float) -> list[Effect]:
        """Take over what a loaded record says; each member has one full session from now (GRP-10, 11, 13).

        With more members than ``max_size`` allows, a rebalance starts, in which the last to join are refused.
        """
        self.protocol_type = value.protocol_type or None
        self.generation, self.protocol = value.generation, value.protocol
        self.state_timestamp_ms = value.state_timestamp_ms
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        protocol = value.protocol or ""
        self.members = {m.member_id: Member.restored(m, protocol, now_ms) for m in value.members}
        self.leader = value.leader if value.leader in self.members else next(iter(self.members), None)
        if len(self.members) <= self.max_size:
            return []
        log.info("group %s is loaded with %d members, over the limit of %d", self.id, len(self.members), self.max_size)
        return self._rebalance(now_ms)


def _refused(member: Member, error: ErrorCode, answer_id: str) -> list[Effect]:
    """Answer the requests that the member has parked, if any, with that error."""
    effects: list[Effect] = []
    if member.join:
        effects.append(partial(member.join.answer, JoinResult(error, answer_id)))
    if member.sync:
        effects.append(partial(member.sync.answer, SyncResult(error)))
    return effects
