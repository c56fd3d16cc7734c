"""``kt reassign --execute``: start a plan in one batch or several, and follow it to its end (RSN-7 to RSN-23X)."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from kafkatool.commands.options import read_cluster_id
from kafkatool.commands.output import Answer
from kafkatool.commands.progress_line import ProgressLine
from kafkatool.commands.reassign_common import COLUMNS, NUMBERED, Options, item, items, read_plan, session, status_lines
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError, ZooKeeperError
from kafkatool.core.operations import reassignment, throttles
from kafkatool.core.operations.reassignment import Prepared, Progress, Status
from kafkatool.core.operations.throttles import ConfigWrite
from kafkatool.core.plan_files import STDIN, plan_json, write_file
from kafkatool.core.zookeeper import ZooKeeper

THROTTLE_WARNING: Final = (
    "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is removed. "
    "You can also alter the throttle by rerunning the Execute command passing a new value."
)


ZNODE_OVERHEAD_BYTES: Final = 512  # of a write beside the znode's value: path, ACL, headers


def execute(o: Options) -> None:
    """Raises UsageError, and RefusedError in Kafka's words; nothing is written then."""
    plan = read_plan(o)
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
            _start(o, zk, prepared)


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


def _start(o: Options, zk: ZooKeeper, prepared: Prepared) -> None:
    cluster_id = None if o.out.is_text else read_cluster_id(zk)
    if not prepared.moves:
        o.out.note("every partition of the plan has the planned replicas already: nothing was written")
        o.out.show(Answer((), items(prepared.current, prepared, Status.NOOP), COLUMNS, cluster_id))
        return
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
    undo = reassignment.start(zk, prepared, name_of=o.name_of)
    if o.throttle is not None:
        o.out.line(f"The throttle limit was set to {o.throttle} B/s")
    o.out.line(f"Successfully started reassignment of partitions {plan_json(prepared.moves)}")
    if len(prepared.batches) > 1:
        o.out.note(f"{len(prepared.batches)} batches, each sent when the one before it has ended")
    if o.wait or len(prepared.batches) > 1:
        _wait(o, zk, prepared, undo, cluster_id)
    o.out.show(Answer((), items(prepared.moves, prepared, Status.IN_PROGRESS), COLUMNS, cluster_id))


def _wait(o: Options, zk: ZooKeeper, prepared: Prepared, undo: list[ConfigWrite], cluster_id: str | None) -> None:
    """Follow the move to its end (RSN-33X), take the throttle off again (RSN-23X), and end the command."""
    line = ProgressLine(o.out.note)
    try:
        followed = reassignment.follow(
            zk, prepared.batches, timeout_s=o.timeout, on_progress=lambda p: line.show(progress_text(p))
        )
    except (KafkatoolError, KeyboardInterrupt):
        line.end()
        _end_early(o, zk, prepared, undo)
        raise
    line.end()
    found = reassignment.verify(zk, prepared.moves, preserve_throttles=True)
    unsent = {p for batch in prepared.batches[followed.sent :] for p in batch}
    moves = [replace(m, status=Status.PENDING) if m.partition in unsent else m for m in found.items]
    o.out.lines(status_lines([m for m in moves if m.status is not Status.PENDING], o.name_of))
    if followed.finished < len(prepared.batches):
        goes_on = "the reassignment goes on" if followed.finished < followed.sent else "nothing is under way"
        o.out.note(f"not finished after {o.timeout:g} s: {goes_on}")
        if unsent:
            o.out.note(
                f"{len(unsent)} partitions were not sent: --execute --skip-unchanged with the same plan sends them"
            )
        _end_early(o, zk, prepared, undo)
    elif undo:
        _take_throttle_off(o, zk, undo)
    o.out.show(Answer((), [item(m) for m in moves], COLUMNS, cluster_id))
    o.out.exit(0 if found.completed else 1)


def _end_early(o: Options, zk: ZooKeeper, prepared: Prepared, undo: list[ConfigWrite]) -> None:
    """The throttle goes unless something still moves under it; then say which command takes it off (RSN-23X)."""
    try:
        if undo and not set(reassignment.running(zk) or ()).intersection(prepared.moves):
            _take_throttle_off(o, zk, undo)
            return
    except ZooKeeperError as e:
        o.out.note(f"{e}: whether the throttle must stay cannot be seen")
    _say_how_to_go_on(o)


def _take_throttle_off(o: Options, zk: ZooKeeper, undo: list[ConfigWrite]) -> None:
    for path in throttles.undo(zk, undo):
        o.out.note(f"{path} was changed by somebody else meanwhile: its throttle was left as it is")
    o.out.line("Throttle was removed.")


def _say_how_to_go_on(o: Options) -> None:
    plan = o.reassignment_json_file if o.reassignment_json_file != STDIN else "PLAN"
    removes = " and, when all is done, removes the throttle" if o.throttle is not None else ""
    o.out.note(f"kt reassign --zookeeper {o.zookeeper} --verify --reassignment-json-file {plan} looks again{removes}")


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
