"""``kt reassign``: generate, execute, verify and list reassignments, in the words of Kafka's own tool (RSN).

Whatever Kafka's tool prints on stdout is printed there; counts, progress and advice of kt's own go to stderr.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.completion import complete_brokers
from kafkatool.commands.reassign import generate as reassign_plan
from kafkatool.commands.reassign.cancel import cancel
from kafkatool.commands.reassign.execute import execute
from kafkatool.commands.reassign.flags import COLUMNS, Options, item, session
from kafkatool.commands.reassign.verify import verify
from kafkatool.commands.shared.options import (
    KtCommand,
    output_option,
    parse_broker_ids,
    partition_form_option,
    read_cluster_id,
    writing_options,
    zookeeper_option,
)
from kafkatool.commands.shared.output import Answer
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.reassignment import requests as reassignment
from kafkatool.core.operations.reassignment.requests import Move, Proposal, Status, Strategy
from kafkatool.core.planner.consequences import BrokerFigures
from kafkatool.core.planner.plan_files import (
    CURRENT_ASSIGNMENT,
    PROPOSED_ASSIGNMENT,
    parse_topics_to_move,
    plan_json,
    read_text,
    write_file,
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
    "reassignment_json_file": ("execute", "verify", "cancel"),
    "throttle": ("execute",),
    "skip_unchanged": ("execute",),
    "force": ("execute", "cancel"),
    "rollback_file": ("execute", "verify", "cancel"),
    "rollback": ("verify", "cancel"),
    "wait": ("execute", "verify"),
    "resume": ("execute",),
    "timeout": ("execute", "verify", "cancel"),
    "max_json_size": ("execute",),
    "batch_partitions": ("execute",),
    "preserve_throttles": ("verify", "cancel"),
    "dry_run": ("execute", "verify"),
}
FIXED_BY_THE_FIRST_RUN: Final = (
    "throttle",
    "skip_unchanged",
    "rollback_file",
    "max_json_size",
    "batch_partitions",
    "dry_run",
)
FLAGS: Final = {"out_file": "--out"}


@click.command(
    cls=KtCommand,
    examples=(
        "kt reassign --zookeeper zk1:2181/kafka --generate --topics-to-move-json-file topics.json --broker-list 4,5",
        "kt reassign --zookeeper zk1:2181/kafka --generate --topics-to-move-json-file topics.json --broker-list 1,2,3,4 "
        "--strategy minimal --exclude-brokers 1 --explain",
        "kt reassign --zookeeper zk1:2181/kafka --execute --reassignment-json-file plan.json --throttle 50000000 --wait",
        "kt reassign --zookeeper zk1:2181/kafka --verify --reassignment-json-file plan.json",
        "kt reassign --zookeeper zk1:2181/kafka --verify --wait --reassignment-json-file plan.json",
        "kt reassign --zookeeper zk1:2181/kafka --cancel --rollback --reassignment-json-file plan.json",
        "kt reassign --zookeeper zk1:2181/kafka --list",
    ),
    columns=COLUMNS,
    notes=(
        "status: pending, in_progress, completed, failed, noop. --list adds isr.",
        "--verify --wait ends when nothing of the plan is under way. Of a plan that --execute sends in batches it waits "
        "for those to come as well, as long as a kt on this machine is at it, however long that stands still. Exit code "
        "1: not all is as planned; stderr says what is seen and what to type.",
        "generate --explain adds reason and copies_to to each partition, and an item for each broker: broker, "
        "replicas_before, replicas_after, leaders_before, leaders_after, incoming, outgoing, copied_bytes "
        "(null: not known).",
    ),
)
@click.option("--generate", "modes", flag_value="generate", multiple=True, help="Propose a plan; write nothing.")
@click.option("--execute", "modes", flag_value="execute", multiple=True, help="Start a plan.")
@click.option("--verify", "modes", flag_value="verify", multiple=True, help="Compare a plan; done: remove throttles.")
@click.option("--cancel", "modes", flag_value="cancel", multiple=True, help="Send no more of a plan; --rollback: undo.")
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
@click.option("--explain", is_flag=True, help="generate: say why each partition changes.")
@click.option("--out", "out_file", metavar="FILE", type=click.Path(path_type=Path), help="generate: save the plan.")
@click.option("--reassignment-json-file", metavar="FILE", help="execute, verify, cancel: the plan; - is stdin.")
@click.option("--throttle", type=click.IntRange(min=-1), metavar="B/S", help="execute: bytes per second and broker.")
@click.option("--skip-unchanged", is_flag=True, help="execute: leave out partitions that are as planned already.")
@click.option("--force", is_flag=True, help="execute: beside unknown brokers, an election, a tiny throttle.")
@click.option(
    "--rollback-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="execute: save the current replicas there; verify --rollback: read them. [default: plan.rollback.json]",
)
@click.option("--rollback", is_flag=True, help="verify: compare with the rollback file. cancel: go back to it.")
@click.option(
    "--wait",
    "--watch",
    "wait",
    is_flag=True,
    help="execute, verify: show progress until done, then remove the throttle.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="execute: go on with a run in batches or with --wait that was cut short; implies --wait.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="S",
    help="execute, verify, cancel: give up waiting after S seconds.",
)
@click.option(
    "--max-json-size", type=click.IntRange(min=64), metavar="BYTES", help="execute: of one batch. [default: 512000]"
)
@click.option(
    "--batch-partitions",
    type=click.IntRange(min=0),
    metavar="N",
    help="execute: of one batch; several batches imply --wait. [default: all]",
)
@click.option("--preserve-throttles", is_flag=True, help="verify, cancel: leave throttles alone.")
@writing_options
@partition_form_option("bracket")
@output_option
def reassign(modes: Sequence[str], **flags: Any) -> None:
    """Move partitions' replicas to other brokers.

    Exactly one of --generate, --execute, --verify, --cancel, --list. Kafka's plan files work unchanged, both ways.
    """
    mode = _checked_mode(modes, flags)
    options = Options(**flags)
    try:
        {"generate": _generate, "execute": execute, "verify": verify, "cancel": cancel, "list": _list}[mode](options)
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
    if mode == "cancel" and not flags["reassignment_json_file"]:
        raise UsageError("If --cancel option is used, command must include --reassignment-json-file that was executed")
    if mode in ("execute", "verify") and not flags["reassignment_json_file"]:
        source = "output during the --generate option" if mode == "execute" else "used during the --execute option"
        raise UsageError(f"If --{mode} option is used, command must include --reassignment-json-file that was {source}")
    if flags["resume"] and (given := [f for f in FIXED_BY_THE_FIRST_RUN if flags[f] not in (None, False)]):
        raise UsageError(f"{_flag(given[0])} can't be used with --resume")
    if mode in ("verify", "cancel") and flags["rollback_file"] is not None and not flags["rollback"]:
        raise UsageError(f"--rollback-file needs --rollback with --{mode}")
    if flags["timeout"] is not None and mode != "cancel" and not (flags["wait"] or flags["resume"]):
        raise UsageError("--timeout needs --wait")
    return mode


def _flag(name: str) -> str:
    return FLAGS.get(name, "--" + name.replace("_", "-"))


# --- generate --------------------------------------------------------------------------------------------------


def _generate(o: Options) -> None:
    assert o.broker_list and o.topics_to_move_json_file
    brokers = parse_broker_ids(o.broker_list, "--broker-list")
    if twice := sorted({b for b in brokers if brokers.count(b) > 1}):
        raise RefusedError(f"Broker list contains duplicate entries: {join_ids(twice)}")
    exclude = parse_broker_ids(o.exclude_brokers, "--exclude-brokers") if o.exclude_brokers else ()
    topics = parse_topics_to_move(read_text(o.topics_to_move_json_file, sys.stdin), o.topics_to_move_json_file)
    with session(o) as zk:
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
    rows = reassign_plan.figures(found, _sizes(found) if o.explain or o.out.is_text else None)
    if o.out.is_text:
        lines = [
            CURRENT_ASSIGNMENT,
            plan_json(found.current),
            "",
            PROPOSED_ASSIGNMENT,
            plan_json(found.proposed),
        ]
        o.out.lines(lines)
        _note_meaning(o, found, rows)
        return
    moves = [
        Move(p, found.current[p], to, Status.NOOP if found.current[p] == to else Status.PENDING)
        for p, to in found.proposed.items()
    ]
    items = [item(m) for m in moves]
    if o.explain:
        items = [{**item(m), **reassign_plan.partition_fields(found, m.partition)} for m in moves]
        items += reassign_plan.broker_items(rows)
    o.out.show(Answer((), items, (*COLUMNS, *(reassign_plan.EXPLAINED_COLUMNS if o.explain else ())), cluster_id))


def _sizes(found: Proposal) -> dict[TopicPartition, int]:
    from kafkatool.core.operations.reassignment.replica_sizes import (
        read_sizes,  # the wire protocol: other modes start without it
    )

    return read_sizes(found.brokers.values(), found.current)


def _note_meaning(o: Options, found: Proposal, rows: Sequence[BrokerFigures]) -> None:
    """What the plan will do, at a glance; beside the answer, which scripts parse."""
    if o.explain:
        for text in reassign_plan.partition_lines(found, o.name_of):
            o.out.note(text)
    for text in reassign_plan.broker_lines(rows, all_brokers=o.explain):
        o.out.note(text)
    o.out.note(reassign_plan.total_line(found, rows))


# --- list -----------------------------------------------------------------------------------------------------


def _list(o: Options) -> None:
    with session(o) as zk:
        moves = reassignment.list_running(zk)
        cluster_id = None if o.out.is_text else read_cluster_id(zk)
    lines = ["No partition reassignments found."]
    if moves:
        lines = ["Current partition reassignments:"]
        lines += [
            f"{o.name_of(m.partition)}: replicas: {join_ids(m.current)}. target: {join_ids(m.target)}. "
            f"isr: {join_ids(m.isr)}."
            for m in moves
        ]
    items = [{**item(m), "isr": list(m.isr)} for m in moves]
    o.out.show(Answer(lines, items, (*COLUMNS, "isr"), cluster_id))
