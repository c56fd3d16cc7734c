"""``kt reassign``: generate, execute, verify and list reassignments, in the words of Kafka's own tool (RSN).

Whatever Kafka's tool prints on stdout is printed there; counts, progress and advice of kt's own go to stderr.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.completion import complete_brokers
from kafkatool.commands.reassign.cancel import Cancel
from kafkatool.commands.reassign.execute import Execute
from kafkatool.commands.reassign.generate import Generate
from kafkatool.commands.reassign.modes import Mode, chosen
from kafkatool.commands.reassign.rows import COLUMNS
from kafkatool.commands.reassign.running import ShowRunning
from kafkatool.commands.reassign.verify import Verify
from kafkatool.commands.shared.options import (
    KtCommand,
    output_option,
    partition_form_option,
    writing_options,
    zookeeper_option,
)
from kafkatool.core.errors import KafkatoolError, UsageError
from kafkatool.core.operations.reassignment.proposal import Strategy

MODES: Final[Mapping[str, type[Mode]]] = {
    "generate": Generate,
    "execute": Execute,
    "verify": Verify,
    "cancel": Cancel,
    "list": ShowRunning,
}


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
def reassign(modes: Sequence[str], **flags: Any) -> int:
    """Move partitions' replicas to other brokers.

    Exactly one of --generate, --execute, --verify, --cancel, --list. Kafka's plan files work unchanged, both ways.
    """
    mode = chosen(MODES, modes, flags, click.get_current_context().command.params)
    try:
        return mode.carry_out()
    except UsageError:
        raise
    except KafkatoolError as e:
        return mode.out.failed(e, text=f"Partitions reassignment failed due to {e}")
