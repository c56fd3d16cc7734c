"""``kt reassign --cancel``: send nothing more, let end what is under way, go back if that is asked for (RSN-37X).

A controller in ZooKeeper mode cannot be stopped half-way: deleting /admin/reassign_partitions or /controller would leave
partitions between both assignments. So what was sent is carried out first.
"""

import time
from typing import Final

from kafkatool.commands.reassign.execute import (
    end_run,
    is_carried_out,
    rollback_plan,
    state_file,
    unfinished_run,
)
from kafkatool.commands.reassign.flags import COLUMNS, Options, item, read_plan, session, status_lines
from kafkatool.commands.reassign.progress import ProgressView
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.reassignment import following, status, submission
from kafkatool.core.operations.reassignment.saved_run import RunState
from kafkatool.core.operations.reassignment.status import Status
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import ZooKeeper

PATIENCE_S: Final = 10.0  # a kt that carries out a plan looks for the mark every second
PAUSE_S: Final = 0.1


def cancel(o: Options) -> None:
    """Exit code 0 when nothing of the plan is under way, and with --rollback all is as it was."""
    plan = read_plan(o)
    before = rollback_plan(o, plan) if o.rollback else None
    with terminated_like_interrupted(), session(o) as zk:
        _say_what_is_not_cancelled(o, plan)
        ended = _stop(o, zk, plan)
        if ended and before is not None:
            ended = _go_back(o, zk, before)
        if ended and not o.preserve_throttles and (run := unfinished_run(o, plan)) is not None:
            end_run(o, zk, run)
        found = status.verify(zk, before if before is not None else plan, preserve_throttles=True)
        if not ended:
            o.out.note("not finished: what is under way goes on; the same command looks again")
        if before is not None or not ended:
            o.out.lines(status_lines(found.items, o.name_of))
        else:
            moved = sum(move.status is Status.COMPLETED for move in found.items)
            o.out.note(f"nothing is under way; {moved} of {len(plan)} partitions are as planned")
        cluster_id = None if o.out.is_text else read_cluster_id(zk)
    o.out.show(Answer((), [item(m) for m in found.items], COLUMNS, cluster_id))
    o.out.exit(0 if ended and (before is None or found.completed) else 1)


def _say_what_is_not_cancelled(o: Options, plan: Moves) -> None:
    """A state file that cannot be marked: of a run of another plan, as this one was when it was edited since."""
    try:
        RunState.read(state_file(o), plan)
    except RefusedError as e:
        if not isinstance(e.__cause__, FileNotFoundError):
            o.out.note(f"{e}; the run that this file is of is not cancelled")


def _stop(o: Options, zk: ZooKeeper, plan: Moves) -> bool:
    """Until no batch of the plan is in the znode, and none will follow; False: the deadline passed first.

    A kt that carries out the plan may write its file at the same moment, over the mark, and send what it was about to:
    only when it has let go of its lock nothing follows. One that does not see the mark, as it is suspended, say, is
    not waited for: it will see it.
    """
    patience_s = PATIENCE_S if o.timeout is None else min(PATIENCE_S, o.timeout)
    ended_at: float | None = None
    with ProgressView(o, zk, plan, "under way: ") as view:
        while True:
            run = unfinished_run(o, plan)
            if run is not None and not run.cancelled:
                ended_at = None
                run.cancel().write(state_file(o))
            if not following.wait(zk, plan, timeout_s=o.timeout, on_progress=view.show):
                return False
            ended_at = time.monotonic() if ended_at is None else ended_at
            run = unfinished_run(o, plan)
            if run is None or run.cancelled:
                if not is_carried_out(o):
                    return True
                if time.monotonic() >= ended_at + patience_s:
                    o.out.note("the kt that carries out this plan is still there; it sends nothing more once it looks")
                    return True
                time.sleep(PAUSE_S)


def _go_back(o: Options, zk: ZooKeeper, before: Moves) -> bool:
    """Submit what differs from ``before`` and follow it; False: the deadline passed first."""
    prepared = submission.prepare(zk, before, skip_unchanged=True, force=o.force, name_of=o.name_of)
    with ProgressView(o, zk, prepared.moves, "back: ") as view:
        followed = following.follow(zk, prepared.batches, timeout_s=o.timeout, on_progress=view.show, started=False)
    return followed.finished == len(prepared.batches)
