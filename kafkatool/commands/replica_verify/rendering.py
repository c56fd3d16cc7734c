"""Texts, rows and columns of ``kt replica-verify``: reports in, lines and items out. Nothing here prints or reads flags."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from kafkatool.commands.shared.output import paint
from kafkatool.core.model.values import first_of, in_number, join_ids
from kafkatool.core.operations.verification.comparison import Mismatch, PartitionReport
from kafkatool.core.planner.plan_files import PartitionName

SHOWN: Final = 3  # partitions and replicas that are named of those not read
COLUMNS: Final = (
    *("topic", "partition", "replicas", "isr", "start", "end", "verified"),
    *("entries", "lag", "mismatches", "unreachable", "unreadable", "skipped", "status"),
)

COLOURS: Final = {
    "equal": "green",
    "different": "red",
    "incomplete": "yellow",
    "unreadable": "red",
    "unreachable": "yellow",
}


def status(report: PartitionReport) -> str:
    """Return the word for what was found, the worst of it: the command names them."""
    if report.mismatches:
        return "different"
    if not report.complete:
        return "incomplete"
    if report.unreadable:
        return "unreadable"
    return "unreachable" if report.missing else "equal"


def report_line(report: PartitionReport, name_of: PartitionName) -> str:
    """Write one partition on one line; what is fine is not mentioned."""
    lags = ", ".join(f"{b}: {lag}" for b, lag in report.lags.items() if lag)
    parts = [
        f"partition {name_of(report.partition)} {status(report)}: replicas {join_ids(report.replicas)}",
        f"isr {join_ids(report.isr)}",
        f"offsets {report.start} to {report.offset}" + ("" if report.complete else f" of {report.end}"),
        in_number(report.entries, "entry", "entries"),
        in_number(len(report.mismatches), "mismatch", "mismatches"),
    ]
    if lags:
        parts.append(f"lag {lags}")
    if report.missing:
        parts.append(f"unreachable {join_ids(sorted(report.missing))}")
    if report.unreadable:
        parts.append(f"unreadable {join_ids(sorted(report.unreadable))}")
    parts += [f"skipped {start} to {end - 1}" for start, end in report.skipped]
    return paint(", ".join(parts), COLOURS[status(report)])


def report_item(report: PartitionReport) -> dict[str, Any]:
    """Return the JSON object and TSV row of one partition."""
    return {
        **report.partition._asdict(),
        "replicas": report.replicas,
        "isr": report.isr,
        "start": report.start,
        "end": report.end,
        "verified": report.offset,
        "entries": report.entries,
        "lag": {str(b): lag for b, lag in report.lags.items()},
        "mismatches": [
            {
                "kind": m.kind,
                "offset": m.offset,
                "replicas": {str(m.replica): m.value, str(m.other_replica): m.other_value},
            }
            for m in report.mismatches
        ],
        "unreachable": {str(b): why for b, why in sorted(report.missing.items())},
        "unreadable": {str(b): why for b, why in sorted(report.unreadable.items())},
        "skipped": [list(r) for r in report.skipped],
        "status": status(report),
    }


def unread_texts(reports: Sequence[PartitionReport], name_of: PartitionName) -> Iterator[str]:
    """Say what a lag tells nothing of: partitions of which no replica is read, and each replica that is not."""
    if nowhere := [name_of(r.partition) for r in reports if not r.is_read]:
        yield f"not read: {len(nowhere)} of {in_number(len(reports), 'partition', 'partitions')}: {first_of(nowhere, SHOWN)}"
    unread = [(r.partition, b, why) for r in reports for b, why in r.unread.items()]
    if unread:
        names = [f"replica {b} of {name_of(p)} ({why})" for p, b, why in unread[:SHOWN]]
        more = f" and {len(unread) - SHOWN} more" if len(unread) > SHOWN else ""
        count = sum(len(r.replicas) for r in reports)
        yield f"not read: {len(unread)} of {in_number(count, 'replica', 'replicas')}: {', '.join(names)}{more}"


def mismatch_text(m: Mismatch, name_of: PartitionName) -> str:
    """Describe two replicas that differ, in Kafka's words."""
    if m.kind == "offset":
        return (
            f"partition {name_of(m.partition)}: replica {m.replica}'s offset {m.value} doesn't match "
            f"replica {m.other_replica}'s offset {m.other_value}"
        )
    if m.kind == "rotten":
        where = join_ids(sorted({m.replica, m.other_replica}), " and ")
        return (
            f"partition {name_of(m.partition)} is rotten at offset {m.offset} on {where}: it does not fit its checksum"
        )
    return (
        f"partition {name_of(m.partition)} has unmatched checksum at offset {m.offset}; replica {m.replica}'s checksum "
        f"{m.value}; replica {m.other_replica}'s checksum {m.other_value}"
    )


def local_time() -> str:
    """Write the time as Kafka's tool prints it (RPV-4)."""
    now = datetime.now().astimezone()
    return f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
