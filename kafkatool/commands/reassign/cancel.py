"""``kt reassign --cancel``: send nothing more, let end what is under way, go back if that is asked for (RSN-37X).

A controller in ZooKeeper mode cannot be stopped half-way: deleting /admin/reassign_partitions or /controller would leave
partitions between both assignments. So what was sent is carried out first.
"""

from dataclasses import dataclass

from kafkatool.commands.reassign.modes import PlanMode
from kafkatool.commands.reassign.rows import COLUMNS, item, status_lines
from kafkatool.commands.reassign.run_output import RunOutput
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.operations.reassignment.events import Cancelled
from kafkatool.core.operations.reassignment.run import Run
from kafkatool.core.operations.reassignment.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(PlanMode):
    """The flags of ``--cancel``."""

    LACKING = "If --cancel option is used, command must include --reassignment-json-file that was executed"

    rollback: bool
    force: bool
    preserve_throttles: bool

    def carry_out(self) -> int:
        """Return 0 when nothing of the plan is under way, and with --rollback all is as it was."""
        plan = self.read_plan()
        before = self.read_rollback(plan) if self.rollback else None
        with terminated_like_interrupted(), self.session() as zk, RunOutput(self) as output:
            run = Run(zk, plan, self.files, name_of=self.name_of, on_progress=output.progress)
            for event in run.cancel(
                before, timeout_s=self.timeout, force=self.force, preserve_throttles=self.preserve_throttles
            ):
                output.show(event)
                if isinstance(event, Cancelled):
                    found, ended = event.found, event.ended
            if not ended:
                self.out.note("not finished: what is under way goes on; the same command looks again")
            if before is not None or not ended:
                self.out.lines(status_lines(found.items, self.name_of))
            else:
                moved = sum(move.status is Status.COMPLETED for move in found.items)
                self.out.note(f"nothing is under way; {moved} of {len(plan)} partitions are as planned")
            cluster_id = None if self.out.is_text else read_cluster_id(zk)
        self.out.show(Answer((), [item(m) for m in found.items], COLUMNS, cluster_id))
        return 0 if ended and (before is None or found.completed) else 1
