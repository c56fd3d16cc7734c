"""``kt elect``: preferred replica elections, in the words of Kafka's own tool, with results one can trust (ELE).

stdout has Kafka's lines; each partition's outcome, and the reason, goes to stderr as text, or to stdout as JSON or TSV.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kafkatool.commands.completion import complete_brokers, complete_files, complete_topics
from kafkatool.commands.elect.columns import CAUTION, COLUMNS, REPORT_COLUMNS
from kafkatool.commands.shared.bootstrap import Bootstrap, bootstrap_option, is_typed
from kafkatool.commands.shared.options import (
    KtCommand,
    optional_zookeeper_option,
    output_option,
    partition_form_option,
    writing_options,
)
from kafkatool.commands.shared.output import Output
from kafkatool.core.collecting import collected_rarely
from kafkatool.core.errors import RefusedError, UsageError


@click.command(
    cls=KtCommand,
    examples=(
        "kt elect --zookeeper zk1:2181/kafka --path-to-json-file election.json",
        "kt elect --zookeeper zk1:2181/kafka --only-imbalanced --batch-partitions 50 --interval 30",
        "kt elect --zookeeper zk1:2181/kafka --report",
    ),
    columns=COLUMNS,
    notes=(
        "status: elected, already_preferred, not_in_isr, preferred_down, unknown, failed, pending (--no-wait, or not known "
        "by the end of the time); with --bootstrap-server has_leader, no_live_replica, being_deleted, too. "
        f"--report: items hold {', '.join(REPORT_COLUMNS)}.",
        CAUTION,
        "One znode holds about 13,000 partitions with names of 50 characters; kt cuts larger elections into batches.",
    ),
)
@optional_zookeeper_option
@bootstrap_option
@click.option(
    "--command-config",
    "--admin.config",
    "command_config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --bootstrap-server: properties of the client.",
)
@click.option(
    "--election-type",
    default="preferred",
    show_default=True,
    metavar="preferred|unclean",
    help="unclean, with --bootstrap-server: have any live replica lead where none in sync is left; records may be lost.",
)
@click.option(
    "--path-to-json-file",
    metavar="FILE",
    shell_complete=complete_files,
    help="Partitions to elect; - is stdin. [default: all]",
)
@click.option(
    "--topic",
    metavar="REGEX",
    shell_complete=complete_topics,
    help="Only partitions of topics whose whole name matches.",
)
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="With --bootstrap-server: of --topic, just it."
)
@click.option("--all-topic-partitions", is_flag=True, help="All there are.")
@click.option(
    "--broker",
    type=click.IntRange(min=0),
    metavar="ID",
    shell_complete=complete_brokers,
    help="Only partitions that prefer this broker.",
)
@click.option("--only-imbalanced", is_flag=True, help="Only partitions that an election would change.")
@click.option(
    "--max-json-size", type=click.IntRange(min=64), default=512_000, show_default=True, help="Bytes of one batch."
)
@click.option(
    "--batch-partitions", type=click.IntRange(min=0), default=0, help="Partitions of one batch. [default: all]"
)
@click.option("--interval", type=click.FloatRange(min=0), default=0, metavar="S", help="Pause between batches.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=30, show_default=True, metavar="S", help="Wait per batch."
)
@click.option("--no-wait", is_flag=True, help="End once the last batch was asked for, as Kafka's tool does.")
@click.option("--force", is_flag=True, help="Also without a controller, or beside a reassignment.")
@click.option(
    "--write-json", type=click.Path(path_type=Path), metavar="FILE", help="Save the selection; elect nothing."
)
@click.option("--report", is_flag=True, help="Show leaders and imbalance per broker; elect nothing.")
@click.option("--threshold", type=click.FloatRange(min=0), default=10, show_default=True, help="--report: percent.")
@writing_options
@partition_form_option("dash")
@output_option
def elect(bootstrap: Bootstrap | None, **flags: Any) -> int:
    """Give leadership back to each partition's preferred replica.

    The preferred replica is the first of the assignment. It is elected if its broker is up and it is in the ISR, so no
    data is lost. kt waits until the controller has tried every partition, and exits 0 only if each is led by its
    preferred replica.
    """
    if bootstrap is not None:
        return _by_request(bootstrap, flags)
    from kafkatool.commands.elect import by_znode

    return by_znode.elect(by_znode.Options(**flags))


@collected_rarely()
def _by_request(bootstrap: Bootstrap, flags: Mapping[str, Any]) -> int:
    """Elect by the admin protocol; the outcome comes with the answer (ADM-45 to ADM-50)."""
    from kafkatool.commands.elect import by_request

    if given := [f for f, v in (("--no-wait", flags["no_wait"]), ("--write-json", flags["write_json"])) if v]:
        raise UsageError(f"{given[0]} needs --zookeeper")
    out: Output = flags["out"]
    if flags["report"]:
        return by_request.report(out, bootstrap, flags["topic"], flags["threshold"], cluster_id=flags["cluster_id"])
    try:
        wanted = by_request.wanted_of(
            flags["election_type"],
            flags["topic"],
            flags["partition"],
            flags["path_to_json_file"],
            flags["all_topic_partitions"],
            flags["broker"],
            flags["only_imbalanced"],
        )
        return by_request.elect(
            out,
            bootstrap,
            wanted,
            batch_partitions=flags["batch_partitions"],
            interval_s=flags["interval"],
            timeout_s=flags["timeout"] if is_typed("timeout") else None,
            force=flags["force"],
            dry_run=flags["dry_run"],
            cluster_id=flags["cluster_id"],
        )
    except RefusedError as e:
        return out.failed(e)
