"""``kt reassign --cancel``: send nothing more, let end what is under way, go back if that is asked for (RSN-37X).

A controller in ZooKeeper mode cannot be stopped half-way: deleting /admin/reassign_partitions or /controller would leave
partitions between both assignments. So what was sent is carried out first.
"""

from kafkatool.commands.options import read_cluster_id
from kafkatool.commands.output import Answer
from kafkatool.commands.progress_line import ProgressLine
from kafkatool.commands.reassign_common import COLUMNS, Options, item, read_plan, session, status_lines
from kafkatool.commands.reassign_execute import (
    end_run,
    progress_text,
    rollback_plan,
    state_file,
    terminated_like_interrupted,
    unfinished_run,
)
from kafkatool.core.operations import reassignment
from kafkatool.core.operations.reassignment import Status
from kafkatool.core.plan_files import Moves
from kafkatool.core.zookeeper import ZooKeeper


def cancel(o: Options) -> None:
    """Exit code 0 when nothing of the plan is under way, and with --rollback all is as it was."""
    plan = read_plan(o)
    before = rollback_plan(o, plan) if o.rollback else None
    with terminated_like_interrupted(), session(o) as zk:
        ended = _stop(o, zk, plan)
        if ended and before is not None:
            ended = _go_back(o, zk, before)
        if ended and not o.preserve_throttles and (run := unfinished_run(o, plan)) is not None:
            end_run(o, zk, run)
        found = reassignment.verify(zk, before if before is not None else plan, preserve_throttles=True)
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


def _stop(o: Options, zk: ZooKeeper, plan: Moves) -> bool:
    """Until no batch of the plan is in the znode, and none will follow; False: the deadline passed first."""
    line = ProgressLine(o.out.note)
    try:
        while True:
            run = unfinished_run(o, plan)
            if run is not None and not run.cancelled:
                run.cancel().write(state_file(o))
            if not reassignment.wait(
                zk, plan, timeout_s=o.timeout, on_progress=lambda p: line.show(f"under way: {progress_text(p)}")
            ):
                return False
            run = unfinished_run(o, plan)  # the run may have written its file at the same moment
            if run is None or run.cancelled:
                return True
    finally:
        line.end()


def _go_back(o: Options, zk: ZooKeeper, before: Moves) -> bool:
    """Submit what differs from ``before`` and follow it; False: the deadline passed first."""
    prepared = reassignment.prepare(zk, before, skip_unchanged=True, force=o.force, name_of=o.name_of)
    line = ProgressLine(o.out.note)
    try:
        followed = reassignment.follow(
            zk,
            prepared.batches,
            timeout_s=o.timeout,
            on_progress=lambda p: line.show(f"back: {progress_text(p)}"),
            started=False,
        )
    finally:
        line.end()
    return followed.finished == len(prepared.batches)
