"""``kt reassign --execute``: start a plan in one batch or several, and follow it to its end (RSN-7 to RSN-23X)."""

import shlex
import sys
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from kafkatool.commands.reassign.flags import COLUMNS, NUMBERED, Options, item, items, read_plan, session, status_lines
from kafkatool.commands.reassign.progress import ProgressView
from kafkatool.commands.shared.options import read_cluster_id, same_cluster
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.errors import (
    KafkatoolError,
    RefusedError,
    UsageError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperError,
)
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment import following, run_lock, status, submission, throttles
from kafkatool.core.operations.reassignment.saved_run import RunState, new_state, remove
from kafkatool.core.operations.reassignment.status import Status
from kafkatool.core.operations.reassignment.submission import MAX_BATCH_BYTES, SHOWN_BY_LIST, Prepared
from kafkatool.core.planner.plan_files import (
    CURRENT_ASSIGNMENT,
    STDIN,
    Moves,
    parse_plan,
    plan_json,
    read_text,
    write_file,
)
from kafkatool.core.zookeeper.session import ZooKeeper

THROTTLE_WARNING: Final = (
    "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is removed. "
    "You can also alter the throttle by rerunning the Execute command passing a new value."
)


ZNODE_OVERHEAD_BYTES: Final = 512  # of a write beside the znode's value: path, ACL, headers


def execute(o: Options) -> None:
    """Raises UsageError, and RefusedError in Kafka's words; nothing is written then."""
    plan = read_plan(o)
    with terminated_like_interrupted():
        if o.resume:
            with _alone(o):
                _resume(o, plan)
        else:
            _execute(o, plan)


def _execute(o: Options, plan: Moves) -> None:
    with session(o) as zk:
        prepared = submission.prepare(
            zk,
            plan,
            throttle=o.throttle,
            skip_unchanged=o.skip_unchanged,
            force=o.force,
            max_bytes=o.max_json_size or MAX_BATCH_BYTES,
            max_count=o.batch_partitions or 0,
            name_of=o.name_of,
        )
        _check_batches_fit(o, prepared)
        if prepared.running is not None:
            _only_throttle(o, zk, prepared)
        elif o.dry_run:
            o.out.planned(prepared.ops, sequential_paths=NUMBERED)
        else:
            _start(o, zk, plan, prepared)


def _check_batches_fit(o: Options, prepared: Prepared) -> None:
    """A batch that ZooKeeper refuses must not be found when others were carried out already (RSN-20X)."""
    largest = o.max_json_size or MAX_BATCH_BYTES
    if len(prepared.batches) > 1 and largest + ZNODE_OVERHEAD_BYTES > o.zk_max_bytes:
        raise UsageError(
            f"batches of {largest} bytes may not fit into ZooKeeper's limit of {o.zk_max_bytes} bytes (--zk-max-bytes): "
            "give a smaller --max-json-size"
        )


def _only_throttle(o: Options, zk: ZooKeeper, prepared: Prepared) -> None:
    """A reassignment runs already: rates may change, nothing else (RSN-10)."""
    if o.throttle is None:
        o.out.failure(RefusedError("There is an existing assignment running.", now=SHOWN_BY_LIST))
    o.out.line("There is an existing assignment running.")
    if o.dry_run:
        o.out.planned(prepared.ops, sequential_paths=NUMBERED)
        return
    submission.start(zk, prepared)
    o.out.line(f"The throttle limit was set to {o.throttle} B/s")
    if not o.out.is_text:
        o.out.show(Answer((), items(prepared.moves, prepared, Status.PENDING), COLUMNS, read_cluster_id(zk)))


def _start(o: Options, zk: ZooKeeper, plan: Moves, prepared: Prepared) -> None:
    cluster_id = None if o.out.is_text else read_cluster_id(zk)
    if not prepared.moves:
        o.out.note("every partition of the plan has the planned replicas already: nothing was written")
        o.out.show(Answer((), items(prepared.current, prepared, Status.NOOP), COLUMNS, cluster_id))
        return
    followed = o.wait or len(prepared.batches) > 1
    with _alone(o):
        _begin(o, zk, plan, prepared, cluster_id, followed=followed)


def _begin(
    o: Options, zk: ZooKeeper, plan: Moves, prepared: Prepared, cluster_id: str | None, *, followed: bool
) -> None:
    if followed and state_file(o).exists():
        raise RefusedError(
            f"{state_file(o)} is that of a run that was not finished: continue it with --execute --resume, "
            "or remove the file"
        )
    if prepared.unchanged:
        o.out.note(f"{len(prepared.unchanged)} partitions of the plan have the planned replicas already")
    current = {p: prepared.current[p] for p in prepared.moves}
    _save_rollback(o, prepared, current)
    o.out.lines(
        [
            CURRENT_ASSIGNMENT,
            "",
            plan_json(current),
            "",
            "Save this to use as the --reassignment-json-file option during rollback",
            *([THROTTLE_WARNING] if o.throttle is not None else []),
        ]
    )
    if not followed:
        _submit(o, zk, prepared)
        o.out.show(Answer((), items(prepared.moves, prepared, Status.IN_PROGRESS), COLUMNS, cluster_id))
        return
    bounds = (o.max_json_size or MAX_BATCH_BYTES, o.batch_partitions or 0)
    state = new_state(plan, prepared.batches, bounds, throttles.saved(prepared.throttle_writes))
    state = state.with_batch(0, finished=False)
    run = _Run(o, zk, state, plan, prepared.moves, cluster_id)
    with _ending_early(run):
        view = ProgressView(o, zk, prepared.moves)
        state.write(state_file(o))
        try:
            _submit(o, zk, prepared)
        except (RefusedError, ZnodeTooLargeError, VersionConflictError):
            remove(state_file(o))  # nothing was started, and the throttles are back as they were
            raise
        _follow(run, prepared.batches, view, started=True, timeout_s=o.timeout)


def _save_rollback(o: Options, prepared: Prepared, current: Moves) -> None:
    """The way back is on the disk before the first write (RSN-21X). Raises RefusedError.

    A plan that was carried out already has no way back of its own: the one that its first run saved stays.
    """
    file = rollback_file(o)
    if len(prepared.unchanged) == len(current) and file.exists():
        o.out.note(f"rollback plan: {file}, as an earlier run saved it: this run changes nothing")
        return
    kept = write_file(file, plan_json(current))
    o.out.note(f"rollback plan: {file}" + (f"; the one of an earlier run is kept as {kept}" if kept else ""))


def _submit(o: Options, zk: ZooKeeper, prepared: Prepared) -> None:
    submission.start(zk, prepared, name_of=o.name_of)
    if o.throttle is not None:
        o.out.line(f"The throttle limit was set to {o.throttle} B/s")
    o.out.line(f"Successfully started reassignment of partitions {plan_json(prepared.moves)}")
    if not prepared.controller:
        o.out.note("no controller is elected: nothing moves until a broker becomes it")
    if len(prepared.batches) > 1:
        o.out.note(f"{len(prepared.batches)} batches, each sent when the one before it has ended")


# --- follow ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """A run under way: ``state`` is what its state file says, ``moves`` what it is to achieve of ``plan``."""

    o: Options
    zk: ZooKeeper
    state: RunState
    plan: Moves
    moves: Moves
    cluster_id: str | None

    def note_batch(self, number: int, finished: bool) -> None:
        """In the state file, before anything is built on it. Raises RefusedError: the run was cancelled elsewhere.

        The file may have gone because a --verify found all completed before this run looked: then this run has ended.
        """
        elsewhere = unfinished_run(self.o, self.plan)
        done = elsewhere is None and status.verify(self.zk, self.moves, preserve_throttles=True).completed
        if not done and (elsewhere is None or elsewhere.cancelled):
            raise RefusedError("the run was cancelled: no further batch is sent")
        self.state = self.state.with_batch(number, finished=finished)
        if not done and self.state != elsewhere:
            self.state.write(state_file(self.o))


@contextmanager
def _alone(o: Options) -> Iterator[None]:
    """While the block runs this kt carries out the plan, and others see that. Raises RefusedError: another does."""
    try:
        with run_lock.held(lock_file(o)):
            yield
    except run_lock.HeldError as e:
        raise RefusedError(str(e), now=f"{mode_command(o, '--verify --wait')}  # follow it") from e


@contextmanager
def _ending_early(run: _Run) -> Iterator[None]:
    """Whatever ends the run before its time, as long as there is something to resume, is followed by ``_end_early``."""
    try:
        yield
    except (KafkatoolError, KeyboardInterrupt, OSError):  # OSError: whoever read stdout or stderr has gone
        if state_file(run.o).exists():
            _end_early(run)
        raise


def _resume(o: Options, plan: Moves) -> None:
    """Go on where a run ended, however it ended (RSN-22X): let end what is under way, then send what is left."""
    state = RunState.read(state_file(o), plan)
    with session(o) as zk:
        run = _Run(o, zk, state, plan, plan, None if o.out.is_text else read_cluster_id(zk))
        with _ending_early(run):
            _go_on(run, plan)


def _go_on(run: _Run, plan: Moves) -> None:
    o, zk, state = run.o, run.zk, run.state
    begun = time.monotonic()
    throttles.set_again(zk, state.throttles)
    with ProgressView(o, zk, plan, "under way: ") as view:
        ended = following.wait(zk, plan, timeout_s=o.timeout, on_progress=view.show)
    if not ended:
        _finish(run, unsent=frozenset(), ended=False)
    left = submission.prepare(
        zk,
        plan,
        skip_unchanged=True,
        force=o.force,
        max_bytes=state.max_json_size,
        max_count=state.batch_partitions,
        name_of=o.name_of,
    )
    run.state = state.resumed(left.batches)
    run.state.write(state_file(o))  # also if it was cancelled: this is to go on
    remaining_s = None if o.timeout is None else max(0.0, o.timeout - (time.monotonic() - begun))
    _follow(run, left.batches, ProgressView(o, zk, left.moves), started=False, timeout_s=remaining_s)


def _follow(
    run: _Run, batches: Sequence[Moves], view: ProgressView, *, started: bool, timeout_s: float | None
) -> NoReturn:
    """Follow the batches to their end (RSN-33X), take the throttle off again (RSN-23X), and end the command."""
    first = run.state.finished
    with view:
        followed = following.follow(
            run.zk,
            batches,
            timeout_s=timeout_s,
            on_progress=view.show,
            on_batch=lambda number, finished: run.note_batch(first + number, finished),
            started=started,
        )
    unsent = frozenset(p for batch in batches[followed.sent :] for p in batch)
    _finish(run, unsent=unsent, ended=followed.finished == len(batches))


def _finish(run: _Run, *, unsent: Set[TopicPartition], ended: bool) -> NoReturn:
    """Say how far it is, leave the throttle and the state file as that asks for, and end the command."""
    o = run.o
    found = status.verify(run.zk, run.moves, preserve_throttles=True)
    moves = [
        replace(m, status=Status.PENDING) if m.partition in unsent and m.status is Status.FAILED else m
        for m in found.items
    ]
    o.out.lines(status_lines([m for m in moves if m.status is not Status.PENDING], o.name_of))
    if ended:
        end_run(o, run.zk, run.state)
    else:
        moving = any(m.status is Status.IN_PROGRESS for m in moves)
        goes_on = "the reassignment goes on" if moving else "nothing is under way"
        o.out.note(f"not finished after {o.timeout:g} s: {goes_on}")
        if unsent:
            o.out.note(f"{len(unsent)} partitions were not sent")
        _end_early(run)
    o.out.show(Answer((), [item(m) for m in moves], COLUMNS, run.cluster_id))
    o.out.exit(0 if found.completed else 1)


def _end_early(run: _Run) -> None:
    """The throttle goes unless something still moves under it; then say which commands go on from here (RSN-23X)."""
    o, removes, moving = run.o, bool(run.state.throttles), True
    try:
        moving = bool(set(status.running(run.zk) or ()).intersection(run.moves))
        if removes and not moving:
            take_throttle_off(o, run.zk, run.state)
            removes = False
    except ZooKeeperError as e:
        o.out.note(f"{e}: whether the throttle must stay cannot be seen")
    if moving:
        o.out.note("the brokers go on with what was sent, without kt" + ("; the throttle stays" if removes else ""))
    way = "go on; takes the throttle off when all is done" if removes else "go on"
    for what, mode in ((way, "--execute --resume"), ("look", "--verify"), ("send no more", "--cancel")):
        o.out.note(f"{mode_command(o, mode)}  # {what}")


def mode_command(o: Options, mode: str) -> str:
    """What to type to do ``mode`` with the same plan. One from stdin stays there: its state file goes by that name."""
    assert o.reassignment_json_file
    stdin = " < PLAN" if o.reassignment_json_file == STDIN else ""
    plan = f"--reassignment-json-file {shlex.quote(o.reassignment_json_file)}{stdin}"
    return f"kt reassign{same_cluster(o.zookeeper, o.cluster_id)} {mode} {plan}"


def end_run(o: Options, zk: ZooKeeper, state: RunState) -> None:
    """All is done: throttles become what they were, then nothing is left to resume."""
    take_throttle_off(o, zk, state)
    remove(state_file(o))


def unfinished_run(o: Options, plan: Moves) -> RunState | None:
    """That of this plan, if there is one: --verify ends it when it finds all completed."""
    try:
        return RunState.read(state_file(o), plan)
    except RefusedError:
        return None  # none, or not of this plan: then it says nothing about its throttles


def is_carried_out(o: Options) -> bool:
    """Whether a kt that is seen from here sends this plan and follows it."""
    return run_lock.is_held(lock_file(o))


def take_throttle_off(o: Options, zk: ZooKeeper, state: RunState) -> None:
    for path in throttles.restore(zk, state.throttles):
        o.out.note(f"{path} was changed by somebody else meanwhile: its throttle was left as it is")
    if state.throttles:
        o.out.line("Throttle was removed.")


def rollback_file(o: Options) -> Path:
    if o.rollback_file is not None:
        return o.rollback_file
    assert o.reassignment_json_file
    if o.reassignment_json_file == STDIN:
        return Path("reassignment.rollback.json")
    return Path(o.reassignment_json_file.removesuffix(".json") + ".rollback.json")


def rollback_plan(o: Options, plan: Moves) -> Moves:
    """The rollback file of ``plan``, read (RSN-36X). Raises UsageError, and RefusedError: it is of another plan."""
    file = rollback_file(o)
    found = parse_plan(read_text(str(file), sys.stdin), str(file), name_of=o.name_of)
    if strange := sorted(set(found).difference(plan)):
        names = ",".join(map(o.name_of, strange))
        raise RefusedError(f"{file} is not the rollback of this plan, which does not have {names}")
    return found


def lock_file(o: Options) -> Path:
    """The plan itself; for one from stdin the directory of its state file."""
    assert o.reassignment_json_file
    return Path() if o.reassignment_json_file == STDIN else Path(o.reassignment_json_file)


def state_file(o: Options) -> Path:
    """Beside the plan, as the rollback plan is."""
    assert o.reassignment_json_file
    if o.reassignment_json_file == STDIN:
        return Path("reassignment.state.json")
    return Path(o.reassignment_json_file.removesuffix(".json") + ".state.json")
