"""The report as plain data: JSON prints it, text and page are made of it. Keys are the stable contract."""

from dataclasses import asdict
from typing import Any, Final

from kafkatool.core.statelog.history.observations import milliseconds
from kafkatool.core.statelog.history.partition_summary import PartitionSummary
from kafkatool.core.statelog.history.report import BROKER_EVENTS, PLOT_STEPS, Report, running
from kafkatool.core.statelog.history.verdict import CANNOT_SAY

MOST_MOMENTS: Final = 200
"""Moments of the chronology that are told; of more, the first."""

Data = dict[str, Any]


def as_data(report: Report, *, utc: bool, with_skew: bool, asked: str | None = None) -> Data:
    """Return all of a report in dicts, lists, numbers and texts. Times as in the logs, lengths in milliseconds.

    ``asked`` is what the report was asked about, such as ``orders-0``; None: all.
    """
    overview, sums = report.overview, report.sums
    visibility, verdict = report.visibility, report.verdict
    counts = overview.counts
    return {
        "verdict": {"state": verdict.state, "reasons": list(verdict.reasons), "asked": asked},
        "logs": {
            "files": overview.files,
            "first": overview.first and report.first,
            "last": overview.last and report.last,
            "span_ms": milliseconds(report.last) - milliseconds(report.first) if overview.first else 0,
            "utc": utc,
        },
        "visibility": {
            "modes": list(visibility.modes),
            "hours": {mode: list(of_it) for mode, of_it in visibility.modes.items()},
            "leader_isr_changes": visibility.leader_isr,
            "offline": visibility.offline,
            "controllers": visibility.controllers,
            "not_visible": list(visibility.hidden),
        },
        "totals": {
            "partitions": sums.partitions,
            "without_leader": sums.without_leader,
            "still_without_leader": sums.still_without_leader,
            "longest_leaderless_ms": sums.longest_leaderless_ms,
            **{name: sums.totals[name] for name in ("leaderless_ms", "outages", "elections", "leader_changes")},
            **{name: sums.totals[name] for name in ("isr_shrinks", "isr_growths", "failed", "ignored")},
            **{name: sums.totals[name] for name in ("unseen", "unclean")},
            "stale_controllers": overview.events["stale_controller"],
        },
        "chronology": [moment._asdict() for moment in report.chronology[:MOST_MOMENTS]],
        "controllers": _controllers(report),
        "brokers": _brokers(report),
        "partitions": [_partition(summary, report) for summary in sums.top],
        "minutes": [
            {"minute": m.minute, "lines": m.lines, "facts": dict(sorted(m.facts.items()))} for m in report.minutes
        ],
        "skew": _skew(report) if with_skew else None,
        "lines": {
            **{name: getattr(counts, name) for name in ("lines", "records", "continuation_lines", "orphan_lines")},
            **{name: getattr(counts, name) for name in ("without_partition", "out_of_order")},
            **{name: getattr(counts, name) for name in ("unknown_form", "other_loggers")},
        },
        "plots": _plots(report),
    }


def _controllers(report: Report) -> list[Data]:
    overview = report.overview
    found = []
    for epoch, broker in sorted({*overview.controllers, *overview.heard}):
        own = overview.controllers.get((epoch, broker))
        activity = own or overview.heard[epoch, broker]
        told_by = "itself" if own else "other brokers"
        found.append({"epoch": epoch, "broker": broker, **activity._asdict(), "told_by": told_by})
    return found


def _brokers(report: Report) -> list[Data]:
    activities, counts = report.overview.brokers, report.sums.brokers
    silent = {"lines": 0, "first": None, "last": None}
    return [
        {
            "broker": broker,
            **(activities[broker]._asdict() if broker in activities else silent),
            **{event: counts[broker, event] for event in BROKER_EVENTS},
        }
        for broker in sorted({*activities, *(broker for broker, _ in counts)})
    ]


def _partition(summary: PartitionSummary, report: Report) -> Data:
    """Return a partition's row. What these logs cannot show is None where the count is 0 (SCL-19X)."""
    read = report.verdict.state != CANNOT_SAY
    sees_isr, sees_offline = read and report.visibility.leader_isr, read and report.visibility.offline
    sees_failures = read and report.visibility.controllers
    data = asdict(summary)
    spans = data.pop("spans")
    data["leaderless_at_end"] = data.pop("leaderless_open")
    for name, visible in (
        *(("isr_shrinks", sees_isr), ("isr_growths", sees_isr), ("failed", sees_failures)),
        *(("outages", sees_offline), ("leaderless_ms", sees_offline), ("longest_leaderless_ms", sees_offline)),
    ):
        if not visible and data[name] == 0:
            data[name] = None
    data["isr"] = list(summary.isr) if summary.isr is not None else None
    data["spans"] = [
        dict(zip(("start_ms", "end_ms", "leader", "in_sync", "replicas"), span, strict=True)) for span in spans
    ]
    return data


def _skew(report: Report) -> list[Data]:
    return [
        {"controller": controller, "broker": broker, **skew._asdict()}
        for (controller, broker), skew in sorted(report.sums.skew.items())
    ]


def _plots(report: Report) -> Data:
    """Return values at equal steps of time; times are milliseconds since 1970 of the clock shown."""
    sums = report.sums
    brokers = sorted({broker for broker, _ in sums.led})
    return {
        "start_ms": milliseconds(report.first) if report.overview.first else 0,
        "end_ms": milliseconds(report.last) if report.overview.first else 0,
        "steps": PLOT_STEPS,
        "led": {str(b): running({at: n for (broker, at), n in sums.led.items() if broker == b}) for b in brokers},
        "without_leader": running(sums.leaderless),
        "out_of_sync": running(sums.missing),
        "bar_minutes": report.bar_minutes,
        "bars": [report.bars.get(i, 0) for i in range(max(report.bars, default=-1) + 1)],
    }
