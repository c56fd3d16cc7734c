"""``kt reassign``: generate, execute, verify and list reassignments, in the words of Kafka's own tool (RSN).

Whatever Kafka's tool prints on stdout is printed there; counts, progress and advice of kt's own go to stderr.
"""

import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands import reassign_plan
from kafkatool.commands.completion import complete_brokers
from kafkatool.commands.options import (
    KtCommand,
    connect,
    output_option,
    parse_broker_ids,
    partition_form_option,
    read_cluster_id,
    writing_options,
    zookeeper_option,
)
from kafkatool.commands.output import Answer, Output
from kafkatool.commands.progress_line import ProgressLine
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.model import TopicPartition
from kafkatool.core.operations import reassignment, throttles
from kafkatool.core.operations.reassignment import Move, Prepared, Progress, Proposal, Status, Strategy
from kafkatool.core.operations.throttles import ConfigWrite
from kafkatool.core.plan_files import (
    STDIN,
    Moves,
    PartitionName,
    parse_plan,
    parse_topics_to_move,
    plan_json,
    read_text,
    write_file,
)
from kafkatool.core.planner.figures import BrokerFigures
from kafkatool.core.znodes import ConfigChangeZnode
from kafkatool.core.zookeeper import ZooKeeper

COLUMNS: Final = ("topic", "partition", "from", "to", "status")
NUMBERED: Final = (ConfigChangeZnode.PREFIX,)
THROTTLE_WARNING: Final = (
    "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is removed. "
    "You can also alter the throttle by rerunning the Execute command passing a new value."
)

TAKEN_BY: Final = {  # parameter -> the modes that take it; those not listed are taken by all
    "topics_to_move_json_file": ("generate",),
    "broker_list": ("generate",),
    "disable_rack_aware": ("generate",),
    "out_file": ("generate",),
    "strategy": ("generate",),
    "exclude_brokers": ("generate",),
    "replication_factor": ("generate",),
    "explain": ("generate",),
    "reassignment_json_file": ("execute", "verify"),
    "throttle": ("execute",),
    "skip_unchanged": ("execute",),
    "force": ("execute",),
    "rollback_file": ("execute",),
    "wait": ("execute",),
    "timeout": ("execute",),
    "preserve_throttles": ("verify",),
    "dry_run": ("execute", "verify"),
}
FLAGS: Final = {"out_file": "--out"}


@dataclass(frozen=True, slots=True)
class Options:
    """The flags after click, one mode chosen."""

    zookeeper: str
    out: Output
    name_of: PartitionName
    cluster_id: str | None
    zk_max_bytes: int
    dry_run: bool
    topics_to_move_json_file: str | None
    broker_list: str | None
    disable_rack_aware: bool
    out_file: Path | None
    strategy: str | None
    exclude_brokers: str | None
    replication_factor: int | None
    explain: bool
    reassignment_json_file: str | None
    throttle: int | None
    skip_unchanged: bool
    force: bool
    rollback_file: Path | None
    wait: bool
    timeout: float | None
    preserve_throttles: bool


@click.command(
    cls=KtCommand,
    examples=(
        "kt reassign --zookeeper zk1:2181/kafka --generate --topics-to-move-json-file topics.json --broker-list 4,5",
        "kt reassign --zookeeper zk1:2181/kafka --generate --topics-to-move-json-file topics.json --broker-list 1,2,3,4 "
        "--strategy minimal --exclude-brokers 1 --explain",
        "kt reassign --zookeeper zk1:2181/kafka --execute --reassignment-json-file plan.json --throttle 50000000 --wait",
        "kt reassign --zookeeper zk1:2181/kafka --verify --reassignment-json-file plan.json",
    ),
    columns=COLUMNS,
    notes=(
        "status: pending, in_progress, completed, failed, noop. --list adds isr.",
        "generate --explain adds reason and copies_to to each partition, and an item for each broker: broker, "
        "replicas_before, replicas_after, leaders_before, leaders_after, incoming, outgoing, copied_bytes "
        "(null: not known).",
    ),
)
@click.option("--generate", "modes", flag_value="generate", multiple=True, help="Propose a plan; write nothing.")
@click.option("--execute", "modes", flag_value="execute", multiple=True, help="Start a plan.")
@click.option("--verify", "modes", flag_value="verify", multiple=True, help="Compare a plan; done: remove throttles.")
@click.option("--list", "modes", flag_value="list", multiple=True, help="Show what is being reassigned.")
@zookeeper_option
@click.option("--topics-to-move-json-file", metavar="FILE", help="generate: topics to plan for; - is stdin.")
@click.option(
    "--broker-list",
    metavar="ID,ID…",
    shell_complete=complete_brokers,
    help="generate: brokers to spread the topics over.",
)
@click.option("--disable-rack-aware", is_flag=True, help="generate: ignore racks.")
@click.option(
    "--strategy",
    type=click.Choice([str(s) for s in Strategy]),
    help="generate: spread every topic anew, or move as little as evens out all of them. [default: kafka]",
)
@click.option(
    "--exclude-brokers",
    metavar="ID,ID…",
    shell_complete=complete_brokers,
    help="generate: brokers to drain; they end empty.",
)
@click.option(
    "--replication-factor", type=click.IntRange(min=1), metavar="R", help="generate: plan for R replicas each."
)
@click.option("--explain", is_flag=True, help="generate: say why each partition changes, ask the brokers for sizes.")
@click.option("--out", "out_file", metavar="FILE", type=click.Path(path_type=Path), help="generate: save the plan.")
@click.option("--reassignment-json-file", metavar="FILE", help="execute, verify: the plan; - is stdin.")
@click.option("--throttle", type=click.IntRange(min=-1), metavar="B/S", help="execute: bytes per second and broker.")
@click.option("--skip-unchanged", is_flag=True, help="execute: leave out partitions that are as planned already.")
@click.option("--force", is_flag=True, help="execute: beside unknown brokers, an election, a tiny throttle.")
@click.option(
    "--rollback-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="execute: save the current replicas there. [default: plan.json -> plan.rollback.json]",
)
@click.option("--wait", is_flag=True, help="execute: show progress until done, then remove the throttle.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="execute --wait: give up after S seconds.")
@click.option("--preserve-throttles", is_flag=True, help="verify: leave throttles alone.")
@writing_options
@partition_form_option("bracket")
@output_option
def reassign(modes: Sequence[str], **flags: Any) -> None:
    """Move partitions' replicas to other brokers.

    Exactly one of --generate, --execute, --verify, --list. Kafka's plan files work unchanged, both ways.
    """
    mode = _checked_mode(modes, flags)
    options = Options(**flags)
    try:
        {"generate": _generate, "execute": _execute, "verify": _verify, "list": _list}[mode](options)
    except UsageError:
        raise
    except KafkatoolError as e:
        options.out.failure(e, text=f"Partitions reassignment failed due to {e}")


def _checked_mode(modes: Sequence[str], flags: dict[str, Any]) -> str:
    """The one mode, when every flag given belongs to it and none is missing (RSN-1). Raises UsageError."""
    if len(set(modes)) != 1:
        raise UsageError("Command must include exactly one action: --generate, --execute or --verify")
    mode = modes[0]
    if flags["throttle"] == -1:
        flags["throttle"] = None  # Kafka's spelling of none
    foreign = [name for name, takers in TAKEN_BY.items() if flags[name] not in (None, False) and mode not in takers]
    if foreign:
        raise UsageError(f"{_flag(foreign[0])} can't be used with --{mode}")
    if mode == "generate" and not (flags["topics_to_move_json_file"] and flags["broker_list"]):
        raise UsageError(
            "If --generate option is used, command must include both --topics-to-move-json-file and --broker-list "
            "options"
        )
    if mode in ("execute", "verify") and not flags["reassignment_json_file"]:
        source = "output during the --generate option" if mode == "execute" else "used during the --execute option"
        raise UsageError(f"If --{mode} option is used, command must include --reassignment-json-file that was {source}")
    if flags["timeout"] is not None and not flags["wait"]:
        raise UsageError("--timeout needs --wait")
    return mode


def _flag(name: str) -> str:
    return FLAGS.get(name, "--" + name.replace("_", "-"))


# --- generate --------------------------------------------------------------------------------------------------


def _generate(o: Options) -> None:
    assert o.broker_list and o.topics_to_move_json_file
    brokers = parse_broker_ids(o.broker_list, "--broker-list")
    if twice := sorted({b for b in brokers if brokers.count(b) > 1}):
        raise RefusedError(f"Broker list contains duplicate entries: {','.join(map(str, twice))}")
    exclude = parse_broker_ids(o.exclude_brokers, "--exclude-brokers") if o.exclude_brokers else ()
    topics = parse_topics_to_move(read_text(o.topics_to_move_json_file, sys.stdin), o.topics_to_move_json_file)
    with _session(o) as zk:
        found = reassignment.generate(
            zk,
            topics,
            brokers,
            rack_aware=not o.disable_rack_aware,
            rng=random.SystemRandom(),
            strategy=Strategy(o.strategy or Strategy.KAFKA),
            exclude=exclude,
            replication_factor=o.replication_factor,
        )
        cluster_id = None if o.out.is_text else read_cluster_id(zk)
    if o.replication_factor is None and o.strategy != Strategy.MINIMAL:
        for topic in found.uneven_topics:
            o.out.note(f"partitions of {topic} have different numbers of replicas; all are planned with partition 0's")
    if o.out_file is not None:
        write_file(o.out_file, plan_json(found.proposed))
    rows = reassign_plan.figures(found, _sizes(found) if o.explain else None)
    if o.out.is_text:
        lines = [
            "Current partition replica assignment",
            plan_json(found.current),
            "",
            "Proposed partition reassignment configuration",
            plan_json(found.proposed),
        ]
        o.out.lines(lines)
        _note_meaning(o, found, rows)
        return
    moves = [
        Move(p, found.current[p], to, Status.NOOP if found.current[p] == to else Status.PENDING)
        for p, to in found.proposed.items()
    ]
    items = [_item(m) for m in moves]
    if o.explain:
        items = [{**_item(m), **reassign_plan.partition_fields(found, m.partition)} for m in moves]
        items += reassign_plan.broker_items(rows)
    o.out.show(Answer((), items, (*COLUMNS, *(reassign_plan.EXPLAINED_COLUMNS if o.explain else ())), cluster_id))


def _sizes(found: Proposal) -> dict[TopicPartition, int]:
    from kafkatool.core.operations.replica_sizes import read_sizes  # the wire protocol: other modes start without it

    return read_sizes(found.brokers.values(), found.current)


def _note_meaning(o: Options, found: Proposal, rows: Sequence[BrokerFigures]) -> None:
    """What the plan will do, at a glance; beside the answer, which scripts parse."""
    if o.explain:
        for text in reassign_plan.partition_lines(found, o.name_of):
            o.out.note(text)
    for text in reassign_plan.broker_lines(rows, all_brokers=o.explain):
        o.out.note(text)
    o.out.note(reassign_plan.total_line(found, rows))


# --- execute ---------------------------------------------------------------------------------------------------


def _execute(o: Options) -> None:
    plan = _plan(o)
    with _session(o) as zk:
        prepared = reassignment.prepare(
            zk, plan, throttle=o.throttle, skip_unchanged=o.skip_unchanged, force=o.force, name_of=o.name_of
        )
        if prepared.running is not None:
            _only_throttle(o, zk, prepared)
        elif o.dry_run:
            o.out.planned(prepared.ops, sequential_paths=NUMBERED)
        else:
            _start(o, zk, prepared)


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
        o.out.show(Answer((), _items(prepared.moves, prepared, Status.PENDING), COLUMNS, read_cluster_id(zk)))


def _start(o: Options, zk: ZooKeeper, prepared: Prepared) -> None:
    cluster_id = None if o.out.is_text else read_cluster_id(zk)
    if not prepared.moves:
        o.out.note("every partition of the plan has the planned replicas already: nothing was written")
        o.out.show(Answer((), _items(prepared.current, prepared, Status.NOOP), COLUMNS, cluster_id))
        return
    if prepared.unchanged:
        o.out.note(f"{len(prepared.unchanged)} partitions of the plan have the planned replicas already")
    current = {p: prepared.current[p] for p in prepared.moves}
    rollback = _rollback_file(o)
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
    if o.wait:
        _wait(o, zk, prepared, undo, cluster_id)
    o.out.show(Answer((), _items(prepared.moves, prepared, Status.IN_PROGRESS), COLUMNS, cluster_id))


def _wait(o: Options, zk: ZooKeeper, prepared: Prepared, undo: list[ConfigWrite], cluster_id: str | None) -> None:
    """Follow the move to its end (RSN-33X), take the throttle off again (RSN-23X), and end the command."""
    line = ProgressLine(o.out.note)
    try:
        ended = reassignment.wait(
            zk, prepared.moves, timeout_s=o.timeout, on_progress=lambda p: line.show(_progress_text(p))
        )
    except (KafkatoolError, KeyboardInterrupt):
        _say_how_to_go_on(o)
        raise
    finally:
        line.end()
    found = reassignment.verify(zk, prepared.moves, preserve_throttles=True)
    o.out.lines(_status_lines(found.items, o.name_of))
    if not ended:
        o.out.note(f"not finished after {o.timeout:g} s: the reassignment goes on")
        _say_how_to_go_on(o)
    elif undo:
        for path in throttles.undo(zk, undo):
            o.out.note(f"{path} was changed by somebody else meanwhile: its throttle was left as it is")
        o.out.line("Throttle was removed.")
    o.out.show(Answer((), [_item(m) for m in found.items], COLUMNS, cluster_id))
    o.out.exit(0 if found.completed else 1)


def _say_how_to_go_on(o: Options) -> None:
    plan = o.reassignment_json_file if o.reassignment_json_file != STDIN else "PLAN"
    removes = " and, when all is done, removes the throttle" if o.throttle is not None else ""
    o.out.note(f"kt reassign --zookeeper {o.zookeeper} --verify --reassignment-json-file {plan} looks again{removes}")


def _progress_text(p: Progress) -> str:
    remaining = p.remaining_s
    eta = "unknown" if remaining is None else f"{int(remaining) // 60}:{int(remaining) % 60:02d}"
    return f"batch 1/1: {p.finished}/{p.total} partitions, {p.in_sync}/{p.wanted} replicas in sync, ETA {eta}"


def _rollback_file(o: Options) -> Path:
    if o.rollback_file is not None:
        return o.rollback_file
    assert o.reassignment_json_file
    if o.reassignment_json_file == STDIN:
        return Path("reassignment.rollback.json")
    return Path(o.reassignment_json_file.removesuffix(".json") + ".rollback.json")


# --- verify and list -------------------------------------------------------------------------------------------


def _verify(o: Options) -> None:
    plan = _plan(o)
    with _session(o) as zk:
        found = reassignment.verify(zk, plan, preserve_throttles=o.preserve_throttles)
        if o.dry_run:
            o.out.planned([op for write in found.removal for op in write.ops], sequential_paths=NUMBERED)
            return
        o.out.lines(["Status of partition reassignment:", *_status_lines(found.items, o.name_of)])
        throttles.apply(zk, found.removal)
        if found.removal:
            o.out.line("Throttle was removed.")
        if not o.out.is_text:
            o.out.show(Answer((), [_item(m) for m in found.items], COLUMNS, read_cluster_id(zk)))
    o.out.exit(0 if found.completed else 1)


def _status_lines(moves: Sequence[Move], name_of: PartitionName) -> list[str]:
    """All ERROR lines first, then one line per partition (RSN-12)."""
    errors = [
        f"ERROR: Assigned replicas ({_ids(m.current)}) don't match the list of replicas for reassignment "
        f"({_ids(m.target)}) for partition {name_of(m.partition)}"
        for m in moves
        if m.status is Status.FAILED
    ]
    ends = {
        Status.IN_PROGRESS: "is still in progress",
        Status.COMPLETED: "completed successfully",
        Status.FAILED: "failed",
    }
    return errors + [f"Reassignment of partition {name_of(m.partition)} {ends[m.status]}" for m in moves]


def _list(o: Options) -> None:
    with _session(o) as zk:
        moves = reassignment.list_running(zk)
        cluster_id = None if o.out.is_text else read_cluster_id(zk)
    lines = ["No partition reassignments found."]
    if moves:
        lines = ["Current partition reassignments:"]
        lines += [
            f"{o.name_of(m.partition)}: replicas: {_ids(m.current)}. target: {_ids(m.target)}. isr: {_ids(m.isr)}."
            for m in moves
        ]
    items = [{**_item(m), "isr": list(m.isr)} for m in moves]
    o.out.show(Answer(lines, items, (*COLUMNS, "isr"), cluster_id))


# --- shared ----------------------------------------------------------------------------------------------------


def _plan(o: Options) -> Moves:
    assert o.reassignment_json_file
    name = "stdin" if o.reassignment_json_file == STDIN else o.reassignment_json_file
    return parse_plan(read_text(o.reassignment_json_file, sys.stdin), name, name_of=o.name_of)


def _session(o: Options) -> Any:
    return connect(o.zookeeper, cluster_id=o.cluster_id, zk_max_bytes=o.zk_max_bytes)


def _item(move: Move) -> dict[str, Any]:
    topic, partition = move.partition
    return {
        "topic": topic,
        "partition": partition,
        "from": list(move.current),
        "to": list(move.target),
        "status": str(move.status),
    }


def _items(moves: Moves, prepared: Prepared, status: Status) -> list[dict[str, Any]]:
    """Rows of a plan whose changing partitions have ``status``."""
    return [
        _item(Move(p, prepared.current[p], to, Status.NOOP if prepared.current[p] == to else status))
        for p, to in moves.items()
    ]


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
