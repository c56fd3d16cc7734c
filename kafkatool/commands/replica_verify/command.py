"""``kt replica-verify``: compares the data of all replicas as Kafka's own tool does, or once, with an answer (RPV)."""

import time
from collections.abc import Iterable
from functools import partial

import click

from kafkatool.commands.completion import complete_topics
from kafkatool.commands.replica_verify.rendering import (
    COLUMNS,
    local_time,
    mismatch_text,
    report_item,
    report_line,
    status,
    unread_texts,
)
from kafkatool.commands.shared.bootstrap import ONLY_ONE, is_typed
from kafkatool.commands.shared.byte_sizes import ByteCount
from kafkatool.commands.shared.credentials import broker_connections
from kafkatool.commands.shared.local_cluster import local_zookeeper
from kafkatool.commands.shared.options import (
    KtCommand,
    broker_options,
    connect,
    optional_zookeeper_option,
    output_option,
    partition_form_option,
)
from kafkatool.commands.shared.output import Answer, Output
from kafkatool.commands.shared.progress_line import ProgressLine, duration
from kafkatool.commands.shared.termination import terminated_like_interrupted
from kafkatool.core.client.addresses import parse_addresses
from kafkatool.core.collecting import collected_rarely
from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.model import topic_names
from kafkatool.core.operations.verification.comparison import (
    EARLIEST,
    LATEST,
    STALL_S,
    Layout,
    Mismatch,
    PartitionReport,
    Verifier,
)
from kafkatool.core.operations.verification.replica_reader import (
    BrokerReader,
    layout_from_brokers,
    layout_from_zookeeper,
)
from kafkatool.core.planner.plan_files import PartitionName


@click.command(
    cls=KtCommand,
    examples=(
        "kt replica-verify --broker-list kafka1:9092,kafka2:9092 --topic-white-list 'orders.*'",
        "kt replica-verify --zookeeper zk1:2181/kafka --once",
    ),
    columns=COLUMNS,
    notes=(
        "status: equal, different, incomplete, unreadable (a broker answers, and its replica is damaged, refused or not "
        "there), unreachable (a broker is down: --allow-missing forgives this alone). Compared are record batches, by last "
        "offset and CRC, up to each replica's high watermark. Exit codes with --once: 0 all equal, 1 not, or not sure, 2 "
        "usage.",
    ),
)
@click.option(
    "--broker-list",
    "--bootstrap-server",
    "broker_list",
    metavar="HOST:PORT,…",
    help="Brokers to ask where the replicas are.",
)
@optional_zookeeper_option
@broker_options
@click.option(
    "--topic-white-list",
    metavar="REGEX",
    default=".*",
    show_default=True,
    shell_complete=complete_topics,
    help="Topics to verify.",
)
@click.option("--fetch-size", type=click.IntRange(min=1), default=1_048_576, show_default=True, help="Bytes per fetch.")
@click.option("--max-wait-ms", type=click.IntRange(min=0), default=1000, show_default=True, help="Wait of a fetch.")
@click.option(
    "--time",
    "start",
    type=click.IntRange(min=EARLIEST),
    metavar="MS",
    help="Start: -1 latest, -2 earliest, or ms since 1970. [default: -1; with --once -2]",
)
@click.option(
    "--report-interval-ms", type=click.IntRange(min=1), default=30_000, show_default=True, help="Between reports."
)
@click.option("--max-bytes-per-second", type=ByteCount(min=1), metavar="BYTES", help="Read no broker faster than this.")
@click.option("--once", is_flag=True, help="Verify what is there now, then end with an answer.")
@click.option("--allow-missing", is_flag=True, help="--once: a broker that is down is no failure.")
@partition_form_option("bracket")
@output_option
@collected_rarely()
def replica_verify(
    broker_list: str | None,
    zookeeper: str | None,
    topic_white_list: str,
    fetch_size: int,
    max_wait_ms: int,
    start: int | None,
    report_interval_ms: int,
    max_bytes_per_second: int | None,
    once: bool,
    allow_missing: bool,
    name_of: PartitionName,
    out: Output,
) -> int:
    """Compare the data of all replicas, each read from its own broker.

    Without --once it runs until interrupted, or until replicas differ in their offsets.
    """
    if broker_list is not None and is_typed("zookeeper"):
        raise UsageError(ONLY_ONE)
    if broker_list is None and zookeeper is None:
        zookeeper = local_zookeeper()
    if not once and (allow_missing or not out.is_text):
        raise UsageError("--allow-missing and --output need --once")
    layout = _layout(broker_list, zookeeper, topic_white_list, out)
    if not layout.replicas:
        raise RefusedError(
            "No topics found. --topic-white-list, if specified, is either filtering out all topics or there is no topic."
        )
    reader = BrokerReader(
        layout,
        broker_connections(),
        fetch_size_bytes=fetch_size,
        max_wait_ms=max_wait_ms,
        max_bytes_per_second=max_bytes_per_second,
    )
    line = ProgressLine(out.note)

    def on_mismatch(mismatch: Mismatch) -> None:
        line.end()
        out.line(f"{local_time()}: {mismatch_text(mismatch, name_of)}")

    verifier = Verifier(layout, reader, on_mismatch=on_mismatch)
    try:
        verifier.begin((EARLIEST if once else LATEST) if start is None else start)
        out.line(f"{local_time()}: verification process is started.")
        if not once:
            return _run(verifier, out, name_of, report_interval_ms / 1000)
        with terminated_like_interrupted():  # else the terminal would be left without its cursor
            _run_once(verifier, line)
        reports = verifier.reports
        _say_news(reports, out, name_of, set())
        items = [] if out.is_text else [report_item(r) for r in reports]
        out.show(Answer((report_line(r, name_of) for r in reports), items, cluster_id=layout.cluster_id))
        fine = {"equal", "unreachable"} if allow_missing else {"equal"}
        return 0 if all(status(r) in fine for r in reports) else 1
    finally:
        reader.close()
        verifier.close()


def _layout(broker_list: str | None, zookeeper: str | None, pattern: str, out: Output) -> Layout:
    choose = partial(topic_names.select, pattern=pattern)
    if broker_list is not None:
        addresses = parse_addresses(broker_list, "--broker-list")
        return layout_from_brokers(addresses, choose, broker_connections(), unseen=out.unseen)
    assert zookeeper is not None
    with connect(zookeeper) as zk:
        return layout_from_zookeeper(zk, choose, broker_connections())


def _run_once(verifier: Verifier, line: ProgressLine) -> None:
    """Compare with progress: a large topic takes a while."""
    begun = time.monotonic()

    def show() -> None:
        reports = verifier.reports
        done = sum(r.offset - r.start for r in reports)
        total = sum(max(r.end, r.offset) - r.start for r in reports if r.end is not None)
        elapsed_s = time.monotonic() - begun
        eta = duration(elapsed_s / done * max(0, total - done) if done else None)
        text = f"{sum(r.complete for r in reports)}/{len(reports)} partitions, {done} of {total} offsets, ETA {eta}"
        line.show(text, min(1.0, done / total) if total else None)

    try:
        verifier.run_once(stall_s=STALL_S, on_round=show)
    finally:
        line.end()


def _run(verifier: Verifier, out: Output, name_of: PartitionName, interval_s: float) -> int:
    """Compare and report until replicas differ in an offset: exit code 1 at once (RPV-5)."""
    told: set[tuple[int, str]] = set()
    next_report = time.monotonic() + interval_s
    while True:
        verifier.round()
        _say_news(verifier.reports, out, name_of, told)
        if any(m.kind == "offset" for r in verifier.reports for m in r.mismatches):
            return 1
        if time.monotonic() >= next_report:
            next_report = time.monotonic() + interval_s
            if (worst := verifier.worst()) is not None:
                out.line(
                    f"{local_time()}: max lag is {worst.lag} for partition {name_of(worst.partition)} at offset "
                    f"{worst.offset} among {sum(r.is_read for r in verifier.reports)} partitions"
                )
            for text in unread_texts(verifier.reports, name_of):
                out.note(f"{local_time()}: {text}")
            for broker, why in verifier.unreachable.items():
                out.note(f"compared without broker {broker}: {why}")


def _say_news(
    reports: Iterable[PartitionReport], out: Output, name_of: PartitionName, told: set[tuple[int, str]]
) -> None:
    """Print on stderr, each once, replicas that cannot be read (RPV-9X) and ranges that are skipped (RPV-10X)."""
    for report in reports:
        for word, unread in (("is unreachable", report.missing), ("cannot be read", report.unreadable)):
            for broker, why in unread.items():
                if (broker, why) not in told:
                    told.add((broker, why))
                    out.note(f"replica {broker} {word}, e.g. of partition {name_of(report.partition)}: {why}")
        for start, end in report.skipped:
            text = f"partition {name_of(report.partition)}: offsets {start} to {end - 1} are not on every replica"
            if (-1, text) not in told:
                told.add((-1, text))
                out.note(text)
