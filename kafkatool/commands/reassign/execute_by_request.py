"""``kt reassign --execute`` with ``--bootstrap-server``, in the words of Kafka's own tool of 3.9 (ADM-33, 34, 40, 42)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkatool.commands.reassign.request_mode import RequestPlanMode, named, plural_of, refused_of
from kafkatool.commands.reassign.rows import item, requested_lines, unchanged_line, way_back_line
from kafkatool.commands.shared.credentials import broker_access
from kafkatool.commands.shared.output import error_item
from kafkatool.commands.shared.plan_table import throttled_line
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.errors import BrokerAnswerError, KafkatoolError, RefusedError
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.requests import comparing, reassignments, throttles
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.reassignments import Checked, CutShortError
from kafkatool.core.operations.requests.throttles import Change, Own, Throttle
from kafkatool.core.planner.plan_files import (
    CURRENT_ASSIGNMENT,
    LogDirs,
    Moves,
    dashed,
    plan_json_with_log_dirs,
)

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient

THROTTLE_WARNING: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


def _started_line(partitions: Collection[TopicPartition]) -> str:
    return f"Successfully started partition reassignment{plural_of(partitions)} for {named(partitions)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteByRequest(RequestPlanMode):
    """The flags of ``--execute``."""

    LACKING = "Missing required option(s): reassignment-json-file"

    throttle: int | None
    replica_alter_log_dirs_throttle: int | None
    additional: bool
    disallow_replication_factor_change: bool
    force: bool
    wait: bool
    batch_partitions: int | None
    dry_run: bool

    def carry_out(self) -> int:
        """Check the plan, save the way back, set throttles, begin (ADM-33, ADM-34, ADM-40)."""
        plan, dirs = self.read_plan_and_log_dirs()
        dir_rate = self.replica_alter_log_dirs_throttle
        with terminated_like_interrupted(), self.client() as client:
            checked = reassignments.check(client, plan, additional=self.additional)
            least = 0
            if self.disallow_replication_factor_change:
                least = reassignments.least_to_keep_factors(client, checked)
            throttle = None
            if self.throttle is not None:
                throttle = Throttle.of(plan, checked.origin, checked.moving)
            told = {*(throttle.brokers if throttle else ()), *(r.broker for r in dirs if dir_rate is not None)}
            if (down := sorted(told - set(client.brokers))) and not self.force:
                raise RefusedError(
                    f"broker {join_ids(down)} is down and cannot be told of the throttle; nothing was written",
                    now="add --force to go on without it there",
                )
            requests = reassignments.requests(
                client,
                plan,
                allow_factor_change=not (self.disallow_replication_factor_change and least),
                most=self.batch_partitions or None,
            )
            self._note_terms(client, checked)
            if self.dry_run:
                return self._plan_requests(client, throttle, requests, least, dirs)
            self._save_way_back(checked)
            changes = self._throttle_changes(client, throttle, dirs)
            own = throttles.own(client, changes, others_moved=bool(checked.moving))
            try:
                throttles.carry_out(client, changes)
            except (KafkatoolError, KeyboardInterrupt):
                self.undo_throttles(client, own)
                raise
            if throttle is not None:
                self.out.line(f"The inter-broker throttle limit was set to {self.throttle} B/s")
            if dir_rate is not None:
                self.out.line(f"The replica-alter-dir throttle limit was set to {dir_rate} B/s")
            refused = self._send(client, requests, least, own)
            return self._go_on(client, checked, refused, own, dirs)

    def _note_terms(self, client: "ClusterClient", checked: Checked) -> None:
        """Tell what of the plan is in place already, and how long the rest takes under the throttle."""
        in_place = sum(p not in checked.moving and checked.current[p] == to for p, to in checked.plan.items())
        if in_place:
            self.out.note(unchanged_line(in_place, of_all=in_place == len(checked.plan)))
        if self.throttle:
            from kafkatool.core.operations.reassignment.copy_progress import Replica, ToCopy, read_largest_share

            origin = checked.origin
            lacking = {Replica(p, b) for p, to in checked.plan.items() for b in to if b not in origin[p]}
            share = read_largest_share(ToCopy(frozenset(lacking), client.brokers), broker_access())
            if (line := throttled_line(share, self.throttle)) is not None:
                self.out.note(line)

    def _throttle_changes(self, client: "ClusterClient", throttle: Throttle | None, dirs: LogDirs) -> list[Change]:
        """Make the requests that set both throttles, as far as they are wanted."""
        changes: list[Change] = []
        if throttle is not None and self.throttle is not None:
            changes = throttles.setting_requests(client, throttle, self.throttle)
        if self.replica_alter_log_dirs_throttle is not None:
            from kafkatool.core.operations.requests import log_dirs

            changes += log_dirs.throttle_requests(client, dirs, self.replica_alter_log_dirs_throttle)
        return changes

    def _plan_requests(
        self, client: "ClusterClient", throttle: Throttle | None, requests: Sequence[Any], least: int, dirs: LogDirs
    ) -> int:
        from kafkatool.core.operations.requests import log_dirs, planned

        changes = self._throttle_changes(client, throttle, dirs)
        throttles.carry_out(client, changes, validate_only=True)
        shown = [
            *planned.plan_configs(client, changes),
            *planned.plan_moves(client, requests, least=least),
            *planned.plan_log_dirs(client, log_dirs.requests(dirs)),
        ]
        self.out.planned_requests(shown, judged=bool(changes))
        return 0

    def _save_way_back(self, checked: Checked) -> None:
        """Save it before anything is written, and show what is now; one of a plan that changes nothing stays."""
        file, origin, plan, moving = self.files.rollback, checked.origin, checked.plan, checked.moving
        moved = self.files.moved_from_way_back(plan, origin, now=checked.current, moving=moving, name_of=dashed)
        if moved:
            if any(p not in moving and origin[p] != to for p, to in plan.items()):  # else nothing new is asked for
                self.out.note(way_back_line(file, saved=False, kept=None, moved=len(moved)))
        elif any(origin[p] != to for p, to in plan.items()) or not self.files.has_way_back(plan):
            kept = self.files.save_way_back(plan, origin)
            self.out.note(way_back_line(file, saved=True, kept=kept, moved=0))
        self.out.lines(
            [
                CURRENT_ASSIGNMENT,
                "",
                plan_json_with_log_dirs(checked.current),
                "",
                "Save this to use as the --reassignment-json-file option during rollback",
                *([THROTTLE_WARNING] if {self.throttle, self.replica_alter_log_dirs_throttle} != {None} else []),
            ]
        )

    def _send(
        self, client: "ClusterClient", requests: Sequence[Any], least: int, own: Own
    ) -> dict[TopicPartition, BrokerAnswerError]:
        """Begin the moves; return what was refused. Throttles go on where any move has begun, or may have."""
        try:
            outcome = reassignments.send(client, requests, least=least)
        except KeyboardInterrupt:
            self.out.note(self._looking)
            raise
        except CutShortError as e:
            if e.accepted:
                self.out.line(_started_line(e.accepted))
            if e.may_have_begun:
                e.now = self._looking
            else:
                self.undo_throttles(client, own)
            raise
        except KafkatoolError:
            self.undo_throttles(client, own)
            raise
        refused = refused_of(outcome)
        if len(refused) == len(outcome):
            if any(e.code in reassignments.UNSURE for e in refused.values()):
                self.out.note(self._looking)
            else:
                self.undo_throttles(client, own)
        return refused

    @property
    def _looking(self) -> str:
        """Return what to type where it ends with something begun, or perhaps begun."""
        what = "look: what was begun goes on, under the throttle; takes that off when nothing moves"
        return f"{self.command('--verify')}  # {what}"

    def _go_on(
        self,
        client: "ClusterClient",
        checked: Checked,
        refused: Mapping[TopicPartition, BrokerAnswerError],
        own: Own,
        dirs: LogDirs,
    ) -> int:
        """Tell what was begun, and see to the rest of it."""
        started = [p for p in checked.plan if p not in refused]
        dirs = {replica: path for replica, path in dirs.items() if replica.partition not in refused}
        try:
            moving, late = self._tell_and_list(client, started, refused, dirs)
        except KafkatoolError as e:
            e.now = self._looking
            raise
        superseded = sorted(p for p, m in moving.items() if m.target != checked.plan[p])
        if superseded:
            self.out.note(f"superseded by another request, and not waited for: {named(superseded)}")
        finished, followed = True, self.wait and bool(started)
        if followed:
            finished = self._follow(client, [p for p in started if p not in superseded], checked.plan, own, dirs)
        found: Sequence[Move] = ()
        if self.wait or not self.out.is_text:  # text has told all; the replicas of 10,000 partitions take their time
            begun = {p: checked.plan[p] for p in started}
            found = comparing.compare(client, begun, None if followed else moving)
            if followed:
                found = comparing.compare_again(client, begun, found)
        errors = [error_item(e, **p._asdict(), code=e.code) for p, e in sorted(refused.items())]
        self.show_items([item(m) for m in found], client.cluster_id, errors)
        done = not self.wait or all(m.status is Status.COMPLETED for m in found)
        return 0 if not refused and not late and finished and done else 1

    def _tell_and_list(
        self,
        client: "ClusterClient",
        started: Sequence[TopicPartition],
        refused: Mapping[TopicPartition, BrokerAnswerError],
        dirs: LogDirs,
    ) -> tuple[Mapping[TopicPartition, Moving], LogDirs]:
        """Tell what was begun, and list what of it moves; return that, and the log-dir moves that began too late."""

        def moving() -> Mapping[TopicPartition, Moving]:
            return read_moves(client, started, needed=True) if started else {}

        if dirs:
            self._tell(started, refused)
            late = self.start_log_dirs(client, dirs)
            return moving(), late
        try:  # asked first: the controller is soon busy with what was begun
            return moving(), {}
        finally:
            self._tell(started, refused)

    def _tell(self, started: Sequence[TopicPartition], refused: Mapping[TopicPartition, BrokerAnswerError]) -> None:
        """Tell what was begun, and what was not."""
        if not refused:
            self.out.line(_started_line(started))
            return
        self.show_refusals("Error reassigning partition(s):", refused)
        if started:
            self.out.note(f"these were started all the same: {named(started)}")

    def _follow(
        self,
        client: "ClusterClient",
        started: Sequence[TopicPartition],
        plan: Moves,
        own: Own,
        dirs: LogDirs,
    ) -> bool:
        finished = self.await_end(client, started, self.timeout) and self.await_log_dirs(client, dirs, self.timeout)
        if not finished:
            self.out.note(f"not finished after {self.timeout:g} s: the reassignment goes on")
            return False
        self.out.lines(requested_lines(comparing.compare_settled(client, {p: plan[p] for p in started})))
        placed = self.read_placements(client, dirs)
        self.out.lines(one.text for one in placed)
        self.finish(client, plan, preserve_throttles=not own.changes, own=own)
        return all(one.state.is_completed for one in placed)
