"""``kt reassign --cancel``: send nothing more, send back what is under way, and with --rollback what has ended (RSN-37X).

A controller in ZooKeeper mode cannot be stopped half-way: deleting /admin/reassign_partitions or /controller would leave
partitions between both assignments. From Kafka 2.4 on the controller is asked by a request, which ends moves of either
kind. Older ones know none: there the znode asks for the replicas from before, at which they look only when the next
controller starts, which then goes back all the way (seen with 1.1.1), and kt says so.
"""

from dataclasses import dataclass

from kafkatool.commands.reassign.modes import PlanMode
from kafkatool.commands.reassign.rows import COLUMNS, item, status_lines
from kafkatool.commands.reassign.run_output import NUMBERED, RunOutput
from kafkatool.commands.shared.credentials import broker_access
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.termination import interruptions_kept, terminated_like_interrupted
from kafkatool.core.errors import KafkatoolError, RefusedError
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import in_number
from kafkatool.core.operations.reassignment.ending_moves import ControllerUnreachableError, asking
from kafkatool.core.operations.reassignment.events import Cancelled, Gone
from kafkatool.core.operations.reassignment.runs.cancellation import Cancellation, CancelTerms
from kafkatool.core.operations.reassignment.runs.run_throttles import rate_begun
from kafkatool.core.operations.reassignment.status import Verification
from kafkatool.core.operations.reassignment.submission import check_rate
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import ZooKeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(PlanMode):
    """The flags of ``--cancel``."""

    LACKING = "If --cancel option is used, command must include --reassignment-json-file that was executed"

    rollback: bool
    throttle: int | None
    force: bool
    preserve_throttles: bool
    dry_run: bool

    def carry_out(self) -> int:
        """Return 0 when nothing of the plan is under way, and with --rollback all is as it was."""
        plan = self.read_plan()
        if self.rollback or self.rollback_file is not None:
            origin = self.read_rollback(plan)
        else:
            origin = self.files.known_way_back(plan, name_of=self.name_of)
        with terminated_like_interrupted(), self.session() as zk:
            output = RunOutput(self, going_back=self._going_back)
            if not self.force:
                check_rate(self.throttle)
            cancellation = Cancellation(
                zk,
                plan,
                self.files,
                origin,
                self._terms(zk, plan),
                name_of=self.name_of,
                on_progress=output.progress,
            )
            try:
                if self.dry_run:
                    return self._plan_only(zk, plan, cancellation, output)
                found, ended = self._follow(cancellation, output)
            except ControllerUnreachableError as e:
                raise RefusedError(str(e), now=self.asking_brokers(e.endpoint, self._again)) from e
            if not ended:
                self.out.note("not finished: what is under way goes on; the same command looks again")
            if self.rollback or not ended:
                self.out.lines(status_lines(found.items, self.name_of))
            else:
                moved = sum(move.status is Status.COMPLETED for move in found.items)
                planned = in_number(len(plan), "partition is", "partitions are")
                self.out.note(f"nothing is under way; {moved} of {planned} as planned")
            cluster_id = None if self.out.is_text else read_cluster_id(zk)
        self.out.show(Answer((), [item(m) for m in found.items], COLUMNS, cluster_id))
        return 0 if ended and (not self.rollback or found.completed) else 1

    @property
    def _again(self) -> str:
        """Return the flags of this command that either way takes: left out, the way back would be another one."""
        throttle = "" if self.throttle is None else f" --throttle {self.throttle}"
        return self.cancelling(rollback=self.rollback) + throttle + " --preserve-throttles" * self.preserve_throttles

    @property
    def _going_back(self) -> str | None:
        """Return what to type where this command is cut short, and why: by no other one the rest goes back."""
        if not self.rollback:
            return None
        off = "" if self.preserve_throttles else "; no throttle is left then"
        return f"{self.command(self._again + ' --force' * self.force)}  # goes on until all is back{off}"

    def _terms(self, zk: ZooKeeper, plan: Moves) -> CancelTerms:
        """Return the flags' terms; what goes back does so under the throttle that the plan was begun with."""
        rate = rate_begun(zk, plan, self.files) if self.rollback and self.throttle is None else self.throttle
        return CancelTerms(
            rollback=self.rollback, throttle=rate, force=self.force, preserve_throttles=self.preserve_throttles
        )

    def _plan_only(self, zk: ZooKeeper, plan: Moves, cancellation: Cancellation, output: RunOutput) -> int:
        from kafkatool.core.operations.requests.planned import plan_moves

        with asking(zk, plan, broker_access()) as client:
            planned = cancellation.plan(client)
            shown = [] if client is None else plan_moves(client, planned.requests)
        if planned.gone:
            output.show(Gone(planned.gone))
        self.out.planned(planned.ops, sequential_paths=NUMBERED, requests=shown)
        return 0

    def _follow(self, cancellation: Cancellation, output: RunOutput) -> tuple[Verification, bool]:
        """Show the events; return what was found, and whether it ended. Cut short, it says where things stand."""
        try:
            with interruptions_kept(), output:
                for event in cancellation.carry_out(broker_access(), timeout_s=self.timeout):
                    output.show(event)
                    if isinstance(event, Cancelled):
                        found, ended = event.found, event.ended
        except (KafkatoolError, KeyboardInterrupt, OSError):  # OSError: whoever read stdout or stderr has gone
            for event in cancellation.end_early():
                output.show(event)
            raise
        return found, ended
