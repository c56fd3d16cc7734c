"""``kt reassign --execute``: start a plan in one batch or several, and follow it to its end (RSN-7 to RSN-23X)."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from kafkatool.commands.options import read_cluster_id
from kafkatool.commands.output import Answer
from kafkatool.commands.progress_line import ProgressLine
from kafkatool.commands.reassign_common import COLUMNS, NUMBERED, Options, item, items, read_plan, session, status_lines
from kafkatool.core.errors import (
    KafkatoolError,
    RefusedError,
    UsageError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperError,
)
from kafkatool.core.model import TopicPartition
from kafkatool.core.operations import reassignment, throttles
from kafkatool.core.operations.reassignment import Prepared, Progress, Status
from kafkatool.core.operations.reassignment_state import RunState, new_state, remove
from kafkatool.core.plan_files import STDIN, Moves, parse_plan, plan_json, read_text, write_file
from kafkatool.core.zookeeper import ZooKeeper

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
            _resume(o, plan)
        else:
            _execute(o, plan)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does, so that the throttle is not forgotten (RSN-23X)."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # no handler can be set; whoever runs the command in a thread handles signals
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _execute(o: Options, plan: Moves) -> None:
    with session(o) as zk:
        prepared = reassignment.prepare(
            zk,
            plan,
            throttle=o.throttle,
            skip_unchanged=o.skip_unchanged,
            force=o.force,
            max_bytes=o.max_json_size or reassignment.MAX_BATCH_BYTES,
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
    largest = o.max_json_size or reassignment.MAX_BATCH_BYTES
    if len(prepared.batches) > 1 and largest + ZNODE_OVERHEAD_BYTES > o.zk_max_bytes:
        raise UsageError(
            f"batches of {largest} bytes may not fit into ZooKeeper's limit of {o.zk_max_bytes} bytes (--zk-max-bytes): "
            "give a smaller --max-json-size"
        )


def _only_throttle(o: Options, zk: ZooKeeper, prepared: Prepared) -> None:
    """A reassignment runs already: rates may change, nothing else (RSN-10)."""
    if o.throttle is None:
        o.out.failure(RefusedError("There is an existing assignment running."))
    o.out.line("There is an existing assignment running.")
    if o.dry_run:
        o.out.planned(prepared.ops, sequential_paths=NUMBERED)
        return
    reassignment.start(zk, prepared)
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
    if followed and state_file(o).exists():
        raise RefusedError(
            f"{state_file(o)} is that of a run that was not finished: continue it with --execute --resume, "
            "or remove the file"
        )
    if prepared.unchanged:
        o.out.note(f"{len(prepared.unchanged)} partitions of the plan have the planned replicas already")
    current = {p: prepared.current[p] for p in prepared.moves}
    rollback = rollback_file(o)
    write_file(rollback, plan_json(current))
    o.out.note(f"rollback plan: {rollback}")
    o.out.lines(
        [
            "Current partition replica assignment",
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
    bounds = (o.max_json_size or reassignment.MAX_BATCH_BYTES, o.batch_partitions or 0)
    state = new_state(plan, prepared.batches, bounds, throttles.saved(prepared.throttle_writes))
    state = state.with_batch(0, finished=False)
    run = _Run(o, zk, state, plan, prepared.moves, cluster_id)
    with _ending_early(run):
        state.write(state_file(o))
        try:
            _submit(o, zk, prepared)
        except (RefusedError, ZnodeTooLargeError, VersionConflictError):
            remove(state_file(o))  # nothing was started, and the throttles are back as they were
            raise
        _follow(run, prepared.batches, started=True, timeout_s=o.timeout)


def _submit(o: Options, zk: ZooKeeper, prepared: Prepared) -> None:
    reassignment.start(zk, prepared, name_of=o.name_of)
    if o.throttle is not None:
        o.out.line(f"The throttle limit was set to {o.throttle} B/s")
    o.out.line(f"Successfully started reassignment of partitions {plan_json(prepared.moves)}")
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
        """In the state file, before anything is built on it. Raises RefusedError: the run was cancelled elsewhere."""
        elsewhere = unfinished_run(self.o, self.plan)
        if elsewhere is None or elsewhere.cancelled:
            raise RefusedError("the run was cancelled: no further batch is sent")
        self.state = self.state.with_batch(number, finished=finished)
        self.state.write(state_file(self.o))


@contextmanager
def _ending_early(run: _Run) -> Iterator[None]:
    """Whatever ends the run before its time, as long as there is something to resume, is followed by ``_end_early``."""
    try:
        yield
    except (KafkatoolError, KeyboardInterrupt):
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
    line = ProgressLine(o.out.note)
    try:
        ended = reassignment.wait(
            zk, plan, timeout_s=o.timeout, on_progress=lambda p: line.show(f"under way: {progress_text(p)}")
        )
    finally:
        line.end()
    if not ended:
        _finish(run, unsent=frozenset(), ended=False)
    left = reassignment.prepare(
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
    _follow(run, left.batches, started=False, timeout_s=remaining_s)


def _follow(run: _Run, batches: Sequence[Moves], *, started: bool, timeout_s: float | None) -> NoReturn:
    """Follow the batches to their end (RSN-33X), take the throttle off again (RSN-23X), and end the command."""
    first = run.state.finished
    line = ProgressLine(run.o.out.note)
    try:
        followed = reassignment.follow(
            run.zk,
            batches,
            timeout_s=timeout_s,
            on_progress=lambda p: line.show(progress_text(p)),
            on_batch=lambda number, finished: run.note_batch(first + number, finished),
            started=started,
        )
    finally:
        line.end()
    unsent = frozenset(p for batch in batches[followed.sent :] for p in batch)
    _finish(run, unsent=unsent, ended=followed.finished == len(batches))


def _finish(run: _Run, *, unsent: Set[TopicPartition], ended: bool) -> NoReturn:
    """Say how far it is, leave the throttle and the state file as that asks for, and end the command."""
    o = run.o
    found = reassignment.verify(run.zk, run.moves, preserve_throttles=True)
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
    """The throttle goes unless something still moves under it; then say which command takes it off (RSN-23X)."""
    o, removes = run.o, bool(run.state.throttles)
    try:
        if removes and not set(reassignment.running(run.zk) or ()).intersection(run.moves):
            take_throttle_off(o, run.zk, run.state)
            removes = False
    except ZooKeeperError as e:
        o.out.note(f"{e}: whether the throttle must stay cannot be seen")
    plan = o.reassignment_json_file if o.reassignment_json_file != STDIN else "PLAN"
    removal = " and, when all is done, removes the throttle" if removes else ""
    o.out.note(
        f"kt reassign --zookeeper {o.zookeeper} --execute --resume --reassignment-json-file {plan} goes on{removal}"
    )


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


def take_throttle_off(o: Options, zk: ZooKeeper, state: RunState) -> None:
    for path in throttles.restore(zk, state.throttles):
        o.out.note(f"{path} was changed by somebody else meanwhile: its throttle was left as it is")
    if state.throttles:
        o.out.line("Throttle was removed.")


def progress_text(p: Progress) -> str:
    remaining = p.remaining_s
    eta = "unknown" if remaining is None else f"{int(remaining) // 60}:{int(remaining) % 60:02d}"
    done = f"{p.finished}/{p.total} partitions, {p.in_sync}/{p.wanted} replicas in sync"
    return f"batch {p.batch}/{p.batches}: {done}, ETA {eta}"


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


def state_file(o: Options) -> Path:
    """Beside the plan, as the rollback plan is."""
    assert o.reassignment_json_file
    if o.reassignment_json_file == STDIN:
        return Path("reassignment.state.json")
    return Path(o.reassignment_json_file.removesuffix(".json") + ".state.json")
