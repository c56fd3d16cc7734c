"""``kt reassign --verify``: how far a plan is, at once or when it has ended (RSN-12, RSN-13, RSN-33X)."""

import shlex
from collections import Counter
from dataclasses import dataclass

from kafkatool.commands.reassign.modes import PlanMode
from kafkatool.commands.reassign.rows import COLUMNS, NUMBERED, item, status_lines
from kafkatool.commands.reassign.run_output import RunOutput
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.model.values import join_ids
from kafkatool.core.operations.reassignment import status
from kafkatool.core.operations.reassignment.events import Verified
from kafkatool.core.operations.reassignment.run import Run
from kafkatool.core.operations.reassignment.status import Status


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
                self.out.planned([op for write in removal for op in write.ops], sequential_paths=NUMBERED)
                return 0
            run = Run(zk, plan, self.files, name_of=self.name_of, on_progress=output.progress)
            if self.wait:
                with terminated_like_interrupted(), output:
                    for event in run.wait(self.timeout):
                        output.show(event)
            for event in run.verify(preserve_throttles=self.preserve_throttles):
                output.show(event)
                if isinstance(event, Verified):
                    found = event.found
                    self.out.lines(["Status of partition reassignment:", *status_lines(found.items, self.name_of)])
                    self._note_what_is_missing(event)
            if not self.out.is_text:
                self.out.show(Answer((), [item(m) for m in found.items], COLUMNS, read_cluster_id(zk)))
        return 0 if found.completed else 1

    def _note_what_is_missing(self, event: Verified) -> None:
        """Say what keeps partitions from being as planned, as far as it is seen, and what to do now."""
        note, found = self.out.note, event.found
        counts = Counter(move.status for move in found.items)
        if found.awaited:
            note(
                f"what is in progress waits for brokers that are not registered: {join_ids(found.awaited)}; start them"
            )
        gone = sum(not move.current for move in found.items)
        if unsent := counts[Status.PENDING]:
            if event.carried_out:
                note(f"{unsent} partitions have not been sent yet: the kt that carries out this plan is to send them")
                return
            note(f"{unsent} partitions have not been sent, and no kt on this machine is at it any more; to go on:")
            note(self.command("--execute --resume"))
        elif gone:
            note(f"{gone} of {len(found.items)} partitions do not exist: the plan is stale, or that of another cluster")
        elif (failed := counts[Status.FAILED]) and not counts[Status.IN_PROGRESS]:
            note(
                f"{failed} of {len(found.items)} partitions are not as planned, and nothing is under way: they were not "
                "sent, or the controller gave them up (its log says why), or a kt on another machine is still to send "
                "them"
            )
            # The state file that a run has left holds the throttle it is to be sent under.
            mode = "--execute --resume" if event.resumable else "--execute"
            if self.rollback:
                own = self.rollback_file
                mode = "--cancel --rollback" + ("" if own is None else f" --rollback-file {shlex.quote(str(own))}")
            note(f"{self.command(mode)}  # send them")
