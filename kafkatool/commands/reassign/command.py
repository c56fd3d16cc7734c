"""``kt reassign``: generate, execute, verify and list reassignments, in the words of Kafka's own tool (RSN).

Whatever Kafka's tool prints on stdout is printed there; counts, progress and advice of kt's own go to stderr.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.completion import complete_brokers, complete_files
from kafkatool.commands.reassign.modes import chosen
from kafkatool.commands.reassign.rows import COLUMNS
from kafkatool.commands.shared.bootstrap import bootstrap_controller_option
from kafkatool.commands.shared.byte_sizes import ByteCount
from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_options,
    output_option,
    partition_form_option,
    writing_options,
)
from kafkatool.core.collecting import collected_rarely
from kafkatool.core.errors import AlreadyMovingError, KafkatoolError, UsageError
from kafkatool.core.planner.strategy import Strategy

_HERE: Final = "kafkatool.commands.reassign"
BY_ZNODE: Final[Mapping[str, str]] = {
    "generate": f"{_HERE}.generate:Generate",
    "execute": f"{_HERE}.execute:Execute",
    "verify": f"{_HERE}.verify:Verify",
    "cancel": f"{_HERE}.cancel:Cancel",
    "list": f"{_HERE}.verify:ShowRunning",
}
BY_REQUEST: Final[Mapping[str, str]] = {
    "generate": f"{_HERE}.generate_by_request:GenerateByRequest",
    "execute": f"{_HERE}.execute_by_request:ExecuteByRequest",
    "verify": f"{_HERE}.verify_by_request:VerifyByRequest",
    "cancel": f"{_HERE}.cancel_by_request:CancelByRequest",
    "list": f"{_HERE}.list_by_request:ListByRequest",
}
BY_CONTROLLER: Final[Mapping[str, str]] = {
    "cancel": f"{_HERE}.by_controller:CancelByController",
    "list": BY_REQUEST["list"],
}


SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "What to do": ("generate", "execute", "verify", "cancel", "list"),
    "Propose a plan (--generate)": (
        *("topics-to-move-json-file", "broker-list", "disable-rack-aware", "strategy", "exclude-brokers"),
        *("replication-factor", "explain", "out"),
    ),
    "Work on a plan (--execute, --verify, --cancel)": (
        *("reassignment-json-file", "rollback-file", "rollback", "wait", "timeout", "preserve-throttles", "dry-run"),
    ),
    "With --bootstrap-server alone (--execute)": (
        *("additional", "disallow-replication-factor-change", "replica-alter-log-dirs-throttle"),
    ),
    "Start it (--execute)": (*("throttle", "skip-unchanged", "force", "resume", "max-json-size", "batch-partitions"),),
}


@click.command(
    cls=KtCommand,
    sections=SECTIONS,
    examples=(
        "kt reassign --zookeeper zk1:2181/kafka --generate --topics-to-move-json-file topics.json --broker-list 4,5",
        "kt reassign --zookeeper zk1:2181/kafka --generate --topics-to-move-json-file topics.json --broker-list 1,2,3,4 "
        "--strategy minimal --exclude-brokers 1 --explain",
        "kt reassign --zookeeper zk1:2181/kafka --execute --reassignment-json-file plan.json --throttle 50000000 --wait",
        "kt reassign --zookeeper zk1:2181/kafka --verify --reassignment-json-file plan.json",
        "kt reassign --zookeeper zk1:2181/kafka --verify --wait --reassignment-json-file plan.json",
        "kt reassign --zookeeper zk1:2181/kafka --cancel --rollback --reassignment-json-file plan.json",
        "kt reassign --zookeeper zk1:2181/kafka --list",
        "kt reassign --bootstrap-controller c1:9093 --cancel --reassignment-json-file plan.json",
    ),
    columns=COLUMNS,
    notes=(
        "status: pending, in_progress, completed, failed, noop. --list adds isr.",
        "--verify --wait ends when nothing of the plan is under way. Of a plan that --execute sends in batches it waits "
        "for those to come as well, as long as a kt on this machine is at it, however long that stands still. Exit code "
        "1: not all is as planned; stderr says what is seen and what to type.",
        "--cancel sends back what is under way; --rollback also what has ended, to what the rollback file tells, under "
        "--throttle, or the plan's own throttle where that is still set. With "
        "Kafka 2.4 and later it asks the controller, as kt reassign --bootstrap-server does, so brokers must be reached: "
        "--command-config where they want a login. Controllers of Kafka 0.10 to 2.3 go back when the next one is elected.",
        "--bootstrap-controller takes --cancel and --list. Controllers tell the replicas of what moves alone: there is no "
        "--rollback, and after a cancel the plan's throttle comes off the brokers that the plan or its moves name, whether "
        "it is set there or not, and off the plan's topics. Whether replicas move between log directories only brokers "
        "tell: that goes on, under its own rate.",
        "generate --explain adds reason and copies_to to each partition, and an item for each broker: broker, "
        "replicas_before, replicas_after, leaders_before, leaders_after, incoming, outgoing, copied_bytes "
        "(null: not known).",
    ),
)
@click.option("--generate", "modes", flag_value="generate", multiple=True, help="Propose a plan; write nothing.")
@click.option("--execute", "modes", flag_value="execute", multiple=True, help="Start a plan.")
@click.option("--verify", "modes", flag_value="verify", multiple=True, help="Compare a plan; done: remove throttles.")
@click.option(
    "--cancel", "modes", flag_value="cancel", multiple=True, help="Send no more of a plan, turn what moves round."
)
@click.option("--list", "modes", flag_value="list", multiple=True, help="Show what is being reassigned.")
@cluster_options
@bootstrap_controller_option
@click.option(
    "--topics-to-move-json-file", metavar="FILE", shell_complete=complete_files, help="Topics to plan for; - is stdin."
)
@click.option(
    "--broker-list",
    metavar="ID,ID…",
    shell_complete=complete_brokers,
    help="Brokers to spread the topics over.",
)
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks.")
@click.option(
    "--strategy",
    type=click.Choice([str(s) for s in Strategy]),
    help="Spread every topic anew, or move as little as evens out all of them. [default: kafka]",
)
@click.option(
    "--exclude-brokers",
    metavar="ID,ID…",
    shell_complete=complete_brokers,
    help="Brokers to drain; they end empty.",
)
@click.option("--replication-factor", type=click.IntRange(min=1), metavar="R", help="Plan for R replicas each.")
@click.option("--explain", is_flag=True, help="Say why each partition changes.")
@click.option("--out", "out_file", metavar="FILE", type=click.Path(path_type=Path), help="Save the plan.")
@click.option("--reassignment-json-file", metavar="FILE", shell_complete=complete_files, help="The plan; - is stdin.")
@click.option(
    "--throttle", type=ByteCount(min=-1), metavar="B/S", help="Bytes per second and broker; also of --rollback."
)
@click.option("--skip-unchanged", is_flag=True, help="Leave out partitions that are as planned already.")
@click.option("--force", is_flag=True, help="Also with unknown brokers, beside an election, with a tiny throttle.")
@click.option(
    "--rollback-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where --execute saves the current replicas; --cancel and --verify --rollback read them. [default: "
    "plan.rollback.json]",
)
@click.option("--rollback", is_flag=True, help="--verify: compare with the rollback file. --cancel: go all back to it.")
@click.option(
    "--wait",
    "--watch",
    "wait",
    is_flag=True,
    help="Show progress until done, then remove the throttle.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with a run in batches or with --wait that was cut short; implies --wait.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Give up waiting after S seconds.",
)
@click.option("--max-json-size", type=click.IntRange(min=64), metavar="BYTES", help="Largest batch. [default: 512000]")
@click.option(
    "--batch-partitions",
    type=click.IntRange(min=0),
    metavar="N",
    help="Partitions of one batch; by ZooKeeper several imply --wait. [default: all; by request 10000 on KRaft, else 1000]",
)
@click.option(
    "--additional", is_flag=True, help="Although something moves; also with another --throttle for what moves."
)
@click.option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="Refuse partitions that would get another number of replicas.",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    type=ByteCount(min=-1),
    metavar="B/S",
    help="Bytes per second that a broker may copy between its log directories, where the plan names some.",
)
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles alone.")
@writing_options
@partition_form_option("bracket")
@output_option
def reassign(modes: Sequence[str], **flags: Any) -> int:
    """Move partitions' replicas to other brokers.

    Exactly one of --generate, --execute, --verify, --cancel, --list. Kafka's plan files work unchanged, both ways.
    """
    bootstrap = flags["bootstrap"]
    kinds = BY_ZNODE if bootstrap is None else BY_CONTROLLER if bootstrap.controllers else BY_REQUEST
    mode = chosen(kinds, modes, flags, click.get_current_context().command.params)
    try:
        with collected_rarely():  # plans are read before the cluster is
            return mode.carry_out()
    except UsageError:
        raise
    except AlreadyMovingError as e:
        return mode.out.failed(e)
    except KafkatoolError as e:
        if mode.bootstrap is not None:
            return mode.out.failed(e, text=f"Error: {e}")
        return mode.out.failed(e, text=f"Partitions reassignment failed due to {e}")
