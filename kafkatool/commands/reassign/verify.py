"""``kt reassign --verify``: how far a plan is, at once or when it has ended (RSN-12, RSN-13, RSN-33X)."""

import shlex
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace

from kafkatool.commands.reassign.execute import end_run, is_carried_out, mode_command, rollback_plan, unfinished_run
from kafkatool.commands.reassign.flags import COLUMNS, NUMBERED, Options, item, read_plan, session, status_lines
from kafkatool.commands.reassign.progress import ProgressView
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.reassignment import requests as reassignment
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.requests import Move, Status, Verification
from kafkatool.core.operations.reassignment.saved_run import RunState
from kafkatool.core.planner.plan_files import Moves
from kafkatool.core.zookeeper.session import ZooKeeper


def verify(o: Options) -> None:
    """Exit code 0 when every partition has the planned replicas; throttles are taken off then."""
    plan = rollback_plan(o, read_plan(o)) if o.rollback else read_plan(o)
    with session(o) as zk:
        if o.wait and not o.dry_run:
            with terminated_like_interrupted(), ProgressView(o, zk, plan) as view:
                reassignment.wait(
                    zk, plan, timeout_s=o.timeout, on_progress=view.show, unsent=_Unsent(o, zk, plan).partitions
                )
        run = unfinished_run(o, plan)
        ends = None if o.dry_run or o.preserve_throttles else run
        found = reassignment.verify(zk, plan, preserve_throttles=o.preserve_throttles or ends is not None)
        if o.dry_run:
            o.out.planned([op for write in found.removal for op in write.ops], sequential_paths=NUMBERED)
            return
        carried_out = is_carried_out(o)
        moves = _with_pending(found.items, run, carried_out)
        o.out.lines(["Status of partition reassignment:", *status_lines(moves, o.name_of)])
        _say_what_is_missing(o, replace(found, items=tuple(moves)), carried_out, resumable=run is not None)
        throttles.apply(zk, found.removal)
        if found.removal:
            o.out.line("Throttle was removed.")
        if ends is not None and found.completed:
            end_run(o, zk, ends)
        if not o.out.is_text:
            o.out.show(Answer((), [item(m) for m in moves], COLUMNS, read_cluster_id(zk)))
    o.out.exit(0 if found.completed else 1)


class _Unsent:
    """What a run of kt's in batches, under way elsewhere, is still to send. Its lock tells whether it is under way."""

    def __init__(self, o: Options, zk: ZooKeeper, plan: Moves) -> None:
        self._o, self._zk, self._plan = o, zk, plan
        self._run: RunState | None = None
        self._found: frozenset[TopicPartition] = frozenset()

    def partitions(self, sent: Set[TopicPartition]) -> frozenset[TopicPartition]:
        """``sent``: those of the plan that were in the znode just now.

        Empty if there is no such run, if it was cancelled, or if it ended early and nothing of it is left to end. A run
        notes a batch as sent before it sends it, so what counts is what was noted as finished.
        """
        run = unfinished_run(self._o, self._plan)
        if run is None or run.cancelled or run.finished == len(run.batches):
            self._run = None
            return frozenset()
        if run != self._run or not sent:  # else what was sent is all that can have changed
            found = reassignment.verify(self._zk, self._plan, preserve_throttles=True)
            self._found = frozenset(m.partition for m in found.items if m.status is not Status.COMPLETED)
        if not sent and not is_carried_out(self._o):
            return frozenset()
        self._run = run
        self._found -= sent
        return self._found


def _say_what_is_missing(o: Options, found: Verification, carried_out: bool, *, resumable: bool) -> None:
    """What keeps partitions from being as planned, as far as it is seen, and what to do now.

    ``resumable``: a run has left its state file, and with it the throttle it is to be sent under.
    """
    counts = Counter(move.status for move in found.items)
    if found.awaited:
        o.out.note(
            f"what is in progress waits for brokers that are not registered: {join_ids(found.awaited)}; start them"
        )
    gone = sum(not move.current for move in found.items)
    if unsent := counts[Status.PENDING]:
        if carried_out:
            o.out.note(f"{unsent} partitions have not been sent yet: the kt that carries out this plan is to send them")
            return
        o.out.note(f"{unsent} partitions have not been sent, and no kt on this machine is at it any more; to go on:")
        o.out.note(mode_command(o, "--execute --resume"))
    elif gone:
        o.out.note(
            f"{gone} of {len(found.items)} partitions do not exist: the plan is stale, or that of another cluster"
        )
    elif (failed := counts[Status.FAILED]) and not counts[Status.IN_PROGRESS]:
        o.out.note(
            f"{failed} of {len(found.items)} partitions are not as planned, and nothing is under way: they were not sent, "
            "or the controller gave them up (its log says why), or a kt on another machine is still to send them"
        )
        mode = "--execute --resume" if resumable else "--execute"
        if o.rollback:
            file = "" if o.rollback_file is None else f" --rollback-file {shlex.quote(str(o.rollback_file))}"
            mode = f"--cancel --rollback{file}"
        o.out.note(f"{mode_command(o, mode)}  # send them")


def _with_pending(moves: Sequence[Move], run: RunState | None, carried_out: bool) -> list[Move]:
    """What a run has not sent has not failed: batches are sent in the plan's order, so those are the last ones.

    A batch is noted as sent before it is: of a run that is under way one that has not finished may be about to be.
    """
    batches = run.batches if run is not None else ()
    unsent = sum(batch.partitions for batch in batches if not (batch.finished if carried_out else batch.sent))
    failed = [m.partition for m in moves if m.status is Status.FAILED]
    pending = set(failed[max(0, len(failed) - unsent) :])
    return [replace(m, status=Status.PENDING) if m.partition in pending else m for m in moves]
