"""``kt reassign --verify`` and ``--list``: how far a plan is, at once or when it has ended, and all that is under way.

RSN-12, RSN-13, RSN-33X, RSN-38X.
"""

import shlex
from collections import Counter
from dataclasses import dataclass

from kafkatool.commands.reassign.modes import Mode, PlanMode
from kafkatool.commands.reassign.rows import COLUMNS, item, left_throttle_text, status_lines
from kafkatool.commands.reassign.run_output import NUMBERED, RunOutput
from kafkatool.commands.shared.options import read_cluster_id, show_planned
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.run_progress import awaited_line
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import in_number, join_ids
from kafkatool.core.operations.reassignment import status
from kafkatool.core.operations.reassignment.events import Verified
from kafkatool.core.operations.reassignment.runs.run import LeftWaiting, Run
from kafkatool.core.operations.reassignment.status import LeftThrottle
from kafkatool.core.planner.plan_files import plan_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify(PlanMode):
    """The flags of ``--verify``."""

    LACKING = (
        "If --verify option is used, command must include --reassignment-json-file that was used during the "
        "--execute option"
    )

    rollback: bool
    wait: bool
    preserve_throttles: bool
    dry_run: bool

    def carry_out(self) -> int:
        """Return 0 when every partition has the planned replicas; throttles are taken off then."""
        plan = self.read_rollback(self.read_plan()) if self.rollback else self.read_plan()
        output = RunOutput(self)
        with self.session() as zk:
            if self.dry_run:
                removal = status.verify(zk, plan, preserve_throttles=self.preserve_throttles).removal
                ops = [op for write in removal for op in write.ops]
                show_planned(self.out, zk, ops, sequential_paths=NUMBERED)
                return 0
            run = Run(zk, plan, self.files, name_of=self.name_of, on_progress=output.progress)
            if self.wait:
                self._wait(run, output)
            for event in run.verify(preserve_throttles=self.preserve_throttles):
                output.show(event)
                if isinstance(event, Verified):
                    found = event.found
                    self.out.lines(["Status of partition reassignment:", *status_lines(found.items, self.name_of)])
                    self._note_what_is_missing(event)
            if not self.out.is_text:
                self.out.show(Answer((), [item(m) for m in found.items], COLUMNS, read_cluster_id(zk)))
        return 0 if found.completed else 1

    def _wait(self, run: Run, output: RunOutput) -> None:
        """Follow the plan; interrupted, say where it stands and which commands go on from there."""
        try:
            with terminated_like_interrupted(), output:
                for event in run.wait(self.timeout):
                    output.show(event)
        except KeyboardInterrupt:
            self._note_ways_on(run.left_waiting())
            raise

    def _note_ways_on(self, left: LeftWaiting) -> None:
        """Say what goes on without this command."""
        note = self.out.note
        if left.found is not None:
            counts = Counter(move.status for move in left.found.items)
            all_ = in_number(len(left.found.items), "partition", "partitions")
            others = [
                (Status.IN_PROGRESS, "in progress"),
                (Status.PENDING, "not sent yet"),
                (Status.FAILED, "not as planned"),
            ]
            told = [f"{counts[state]} {what}" for state, what in others if counts[state]]
            note(", ".join([f"{counts[Status.COMPLETED]} of {all_} as planned", *told]))
        goes_on = "the brokers go on with what was sent" + ", and a kt with sending the rest" * left.carried_out
        note(f"{goes_on}; nothing was changed by this command" + "; the throttle stays" * left.throttled)
        note(
            f"{self.command(self.waiting(rollback=self.rollback))}  # wait on; takes the throttle off when all is done"
        )
        if self.rollback:
            return
        note(f"{self.command('--cancel')}  # send no more, and send back what is under way")
        if self.files.rollback.is_file():
            note(f"{self.command('--cancel --rollback')}  # and what has ended, too")

    def _note_what_is_missing(self, event: Verified) -> None:
        """Say what keeps partitions from being as planned, as far as it is seen, and what to do now."""
        note, found = self.out.note, event.found
        counts = Counter(move.status for move in found.items)
        if found.awaited:
            note(awaited_line(found.awaited))
        if unsent := counts[Status.PENDING]:
            still_unsent = in_number(unsent, "partition has not been sent", "partitions have not been sent")
            if event.carried_out:
                note(f"{still_unsent} yet: the kt that carries out this plan is to do that")
                return
            note(f"{still_unsent}, and no kt on this machine is at it any more; to go on:")
            note(self.command("--execute --resume"))
            return
        if self.rollback:
            sending = f"{self.command(self.cancelling(rollback=True))}  # send them"
        elif event.resumable:  # the state file that a run has left holds the throttle it is to be sent under
            sending = f"{self.command('--execute --resume')}  # send them"
        else:
            sending = self.sending
        self.note_not_under_way(found.items, sending)


class ShowRunning(Mode):
    """The flags of ``--list``: those of every mode."""

    def carry_out(self) -> int:
        """Show targets, current replicas and ISR of what is being reassigned."""
        with self.session() as zk:
            moves = status.list_running(zk)
            left = status.left_throttle(zk)
            cluster_id = None if self.out.is_text else read_cluster_id(zk)
        lines = ["Current partition reassignments:" if moves else "No partition reassignments found."]
        lines += [
            f"{self.name_of(m.partition)}: replicas: {join_ids(m.current)}. target: {join_ids(m.target)}. "
            f"isr: {join_ids(m.isr)}."
            for m in moves
        ]
        items = [{**item(m), "isr": list(m.isr)} for m in moves]
        self.out.show(Answer(lines, items, (*COLUMNS, "isr"), cluster_id))
        if left is not None:
            self._note_throttle(left)
        return 0

    def _note_throttle(self, left: LeftThrottle) -> None:
        """Say which throttle stands for nothing, and what takes it off, whether or not its plan is still there."""
        note, what = self.out.note, left_throttle_text(left)
        if not left.way_off:
            note(f"{what}, of which nothing is under way: of a part that has ended, or left by an earlier plan")
            note(f"{self.to_type('--list')}  # when the rest has ended: tells how to take it off")
            return
        note(f"though nothing is being moved a throttle stands: {what}")
        note("unless its plan is between two batches, it was never verified to its end; this does the same:")
        verify = self.to_type("--verify --reassignment-json-file -")
        note(f"echo {shlex.quote(plan_json(left.way_off))} | {verify}")
