"""``kt reassign --cancel`` with ``--bootstrap-server``: in the words of Kafka's own tool of 3.9 (ADM-37)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkatool.commands.reassign.request_mode import RequestPlanMode, named, plural_of, refused_of
from kafkatool.commands.reassign.rows import item
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.errors import BrokerAnswerError, KafkatoolError
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition, in_number
from kafkatool.core.operations.requests import comparing, planned, reassignments, throttles
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.reassignments import CutShortError, Refusals
from kafkatool.core.operations.requests.throttles import Change, Own, Throttle
from kafkatool.core.operations.requests.topic_reading import read_topics, replicas_in
from kafkatool.core.planner.plan_files import LogDirs, Moves, PlacedReplica, dashed, plan_json
from kafkatool.core.protocol.messages.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient


NOTHING_SENT_BACK: Final = "nothing was sent back"
NO_LOG_DIR_MOVES: Final = "None of the specified partition moves are active."  # Kafka's word for those of log_dirs


def _cancelled_line(partitions: Collection[TopicPartition]) -> str:
    return f"Successfully cancelled partition reassignment{plural_of(partitions)} for: {named(partitions)}"


class CancelMode(RequestPlanMode):
    """What both ways of ``--cancel`` share: by brokers, and by controllers."""

    __slots__ = ()

    def turn_round(
        self, client: "ClusterClient", requests: Sequence[Any], moving: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], dict[TopicPartition, BrokerAnswerError]]:
        """Cancel what moves, and say so; return what was cancelled, and what was refused."""
        try:
            outcome = reassignments.send(client, requests)
        except CutShortError as e:
            if e.accepted:
                self.out.line(_cancelled_line(e.accepted))
            e.now = "the same command looks again, and cancels what still moves"
            raise
        refused = {
            p: e
            for p, e in refused_of(outcome).items()
            if e.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS  # it has ended meanwhile
        }
        cancelled = [p for p in moving if p not in refused]
        if refused:
            self.show_refusals("Error cancelling partition reassignment(s) for:", refused)
        if cancelled:
            self.out.line(_cancelled_line(cancelled))
        elif not refused:
            self.out.line("None of the specified partition reassignments are active.")
        return cancelled, refused

    def note_strange(self, strange: Sequence[Move]) -> None:
        """Say which partitions a cancel has left otherwise than they were, and print the plan that restores them."""
        if strange:
            self.out.note(f"not as before the plan: {named(m.partition for m in strange)}; this plan restores it:")
            self.out.note(plan_json({m.partition: m.target for m in strange}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelByRequest(CancelMode):
    """The flags of ``--cancel``."""

    LACKING = "Missing required option(s): reassignment-json-file"

    rollback: bool
    throttle: int | None
    preserve_throttles: bool
    dry_run: bool

    def carry_out(self) -> int:
        """Cancel what moves of the plan, at once; with --rollback send back what has ended too (ADM-37)."""
        plan, dirs = self.read_plan_and_log_dirs()
        origin = self.read_rollback(plan) if self.rollback else self.files.known_way_back(plan, name_of=dashed)
        with terminated_like_interrupted(), self.client() as client:
            moves = read_moves(client, plan, needed=True)
            returning = {p for p, m in moves.items() if self.rollback and m.is_to(origin.get(p))}
            moving = sorted(moves.keys() - returning)
            dirs = _staying(client, dirs, moves, returning) if dirs else {}
            requests = reassignments.requests(client, dict.fromkeys(moving))
            if self.dry_run:
                return self._plan_only(client, plan, origin, requests, dirs)
            cancelled: Sequence[TopicPartition] = ()
            refused: Mapping[TopicPartition, BrokerAnswerError] = {}
            if moving or not returning:
                cancelled, refused = self.turn_round(client, requests, moving)
            if returning:
                self._note_returning(returning)
            back, untold = self._ways_back(client, dirs)
            late = self.start_log_dirs(client, back)
            if not back and not untold:
                self.out.line(NO_LOG_DIR_MOVES)
            limit_s = client.settings.whole_timeout_ms / 1000 if self.timeout is None else self.timeout
            awaited = [*cancelled, *returning]
            ended = not awaited or self.await_end(
                client,
                awaited,
                self.timeout if returning else limit_s,  # a cancel is quick, a way back copies
                way_on=self.cancelling(rollback=self.rollback),
            )
            in_dirs = self.await_log_dirs(client, back, limit_s) and not late and not untold
            own: Own | None = Own()
            if self.rollback and ended and not refused:
                ended, own = self._go_back(client, origin)
            compared_with = origin if self.rollback else {p: origin[p] for p in cancelled if p in origin}
            after = comparing.compare_settled(client, compared_with) if ended else ()
            strange = [m for m in after if m.status is not Status.COMPLETED]
            self.finish(client, plan, preserve_throttles=self.preserve_throttles or own is None, own=own)
            self.note_strange(strange)
            if untold:
                self.out.note(f"whether {named(untold)} moves to another log directory is not known, and not cancelled")
            if not ended or not in_dirs:
                self.out.note("not finished: what is under way goes on; the same command looks again")
            self.show_items([item(m) for m in comparing.compare(client, plan)], client.cluster_id)
        return 0 if ended and in_dirs and not refused and not strange else 1

    def _note_returning(self, returning: Collection[TopicPartition]) -> None:
        """Say that an earlier run has sent those back, and that a throttle given now is not for them."""
        partitions = in_number(len(returning), "partition is", "partitions are")
        throttled = "" if self.throttle is None else "; --throttle is for what goes back after that"
        self.out.note(f"{partitions} on the way back already: that goes on, and is waited for{throttled}")

    def _ways_back(self, client: "ClusterClient", dirs: LogDirs) -> tuple[LogDirs, list[PlacedReplica]]:
        """Return where those replicas lie that are on their way to another log directory, and those not told of."""
        placed = self.read_placements(client, dirs)
        back = {one.replica: one.current for one in placed if one.state.is_moving and one.current is not None}
        return back, [one.replica for one in placed if not one.state.is_known]

    def _plan_only(
        self, client: "ClusterClient", plan: Moves, origin: Moves, requests: Sequence[Any], dirs: LogDirs
    ) -> int:
        """Show what would be asked for, if nothing ended meanwhile; throttles come off when nothing moves any more."""
        shown = planned.plan_moves(client, requests)
        if staying := self._ways_back(client, dirs)[0]:
            from kafkatool.core.operations.requests import log_dirs

            shown += planned.plan_log_dirs(client, log_dirs.requests(staying))
        moving = read_moves(client)
        own, changes = Own(), list[Change]()
        if self.rollback:
            current = replicas_in(read_topics(client, sorted({p.topic for p in origin})), origin)
            back = {p: to for p, to in origin.items() if p in current and p not in moving and current[p] != to}
            own = self._plan_throttle(client, back, current, ending=plan) if back else own
            changes += own.changes
            shown += planned.plan_configs(client, own.changes)
            shown += planned.plan_moves(client, reassignments.requests(client, back))
        if not self.preserve_throttles and not set(moving).difference(plan):
            found = self.found_throttles(client, plan, own=own)[0]
            undoing = [*throttles.removal_requests(found), *throttles.standing_again(own, found)]
            changes += undoing
            shown += planned.plan_configs(client, undoing)
        throttles.carry_out(client, changes, validate_only=True)
        self.out.planned_requests(shown, judged=bool(changes))
        return 0

    def _go_back(self, client: "ClusterClient", origin: Moves) -> tuple[bool, Own | None]:
        """Move what has ended back to where it was, under the throttle given or set already, and wait for it.

        Return whether it has ended, and the throttle that was set for it; None: it is to stay, as more may begin yet.
        """
        current = replicas_in(read_topics(client, sorted({p.topic for p in origin})), origin)
        back = {p: to for p, to in origin.items() if p in current and current[p] != to}
        if not back:
            return True, Own()
        own = self._throttle_way_back(client, back, current)
        self.out.note(f"{in_number(len(back), 'partition goes', 'partitions go')} back")
        outcome = self._send_back(client, back, own)
        refused = refused_of(outcome)
        if refused:
            self.show_refusals("Error reassigning partition(s):", refused)
        if any(e.code in reassignments.UNSURE for e in refused.values()):
            self.out.note(self._looking)
            return False, None
        if len(refused) == len(outcome):
            self.undo_throttles(client, own, NOTHING_SENT_BACK)
            own = own._replace(changes=())  # what goes on standing is put back at the end all the same
        if refused:
            return False, own
        try:
            return self.await_end(client, back, self.timeout, way_on=self.cancelling(rollback=True)), own
        except KafkatoolError as e:
            e.now = self._looking
            raise

    def _throttle_way_back(self, client: "ClusterClient", back: Moves, current: Moves) -> Own:
        """Set the throttle given, or the one set already, for what goes back; return what was set."""
        own = self._plan_throttle(client, back, current)
        try:
            throttles.carry_out(client, own.changes)
        except (KafkatoolError, KeyboardInterrupt):
            self.undo_throttles(client, own, NOTHING_SENT_BACK)
            raise
        return own

    def _plan_throttle(
        self, client: "ClusterClient", back: Moves, current: Moves, *, ending: Collection[TopicPartition] = ()
    ) -> Own:
        """Plan that throttle, and read what undoes it; what is ``ending`` moves no more by the time it is set."""
        rate = throttles.rate_set(client) if self.throttle is None else self.throttle
        if rate is None:
            return Own()
        moving = {p: m for p, m in read_moves(client).items() if p not in ending}
        changes = throttles.setting_requests(client, Throttle.of(back, current, moving), rate)
        own = throttles.own(client, changes, others_moved=bool(moving))
        if self.throttle is None and not any(own.lists_before.values()):
            own = own._replace(others_moved=True)  # rates that slow nothing are what a run has left: they go at the end
        return own

    def _send_back(self, client: "ClusterClient", back: Moves, own: Own) -> Refusals:
        """Begin the moves back. Their throttle stays where any of them has begun, or may have."""
        try:
            return reassignments.send(client, reassignments.requests(client, back))
        except KeyboardInterrupt:
            self.out.note(self._looking)
            raise
        except KafkatoolError as e:
            if isinstance(e, CutShortError):
                e.now = self._looking
            if not (isinstance(e, CutShortError) and e.may_have_begun):
                self.undo_throttles(client, own, NOTHING_SENT_BACK)
            raise

    @property
    def _looking(self) -> str:
        """Return what to type where it ends with something on its way back, or perhaps."""
        what = "look again, and send back the rest; takes the throttle off when nothing moves any more"
        return f"{self.command(self.cancelling(rollback=True))}  # {what}"


def _staying(
    client: "ClusterClient",
    dirs: LogDirs,
    moves: Mapping[TopicPartition, Moving],
    returning: Collection[TopicPartition],
) -> LogDirs:
    """Return the directories of replicas that stay; what a cancelled move has added goes, wherever it lies.

    ``returning``: what is on its way back already goes on.
    """
    partitions = {replica.partition for replica in dirs}
    assigned = replicas_in(read_topics(client, sorted({p.topic for p in partitions})), partitions)
    stay = {
        **assigned,
        **{p: m.target if p in returning else m.origin for p, m in moves.items()},
    }
    return {replica: path for replica, path in dirs.items() if replica.broker in stay.get(replica.partition, ())}
