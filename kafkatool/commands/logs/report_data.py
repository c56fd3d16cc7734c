"""The report as plain data: what JSON prints, what text and page are made of. Keys are the stable contract."""

from dataclasses import asdict
from typing import Any, Final

from kafkatool.core.statelog.history.observations import milliseconds
from kafkatool.core.statelog.history.partition_summary import PartitionSummary
from kafkatool.core.statelog.history.report import PLOT_STEPS, Report, running

Data = dict[str, Any]

HIDDEN_ISR: Final = "ISR changes that leaders make themselves (no line passes them on; level TRACE is needed)"
HIDDEN_OFFLINE: Final = "partitions going offline, and being deleted (told at TRACE only, INFO is the default from 2.6)"


def as_data(report: Report, *, utc: bool, with_skew: bool) -> Data:
    """All of a report in dicts, lists, numbers and texts. Times as in the logs, lengths in milliseconds."""
    overview, sums = report.overview, report.sums
    hidden = [HIDDEN_ISR] * (not report.sees_leader_isr) + [HIDDEN_OFFLINE] * (not report.sees_offline)
    counts = overview.counts
    return {
        "logs": {
            "files": overview.files,
            "first": overview.first and report.first,
            "last": overview.last and report.last,
            "span_ms": _span_ms(report),
            "utc": utc,
        },
        "visibility": {
            "leader_isr_changes": report.sees_leader_isr,
            "offline": report.sees_offline,
            "not_visible": hidden if overview.first else [],
        },
        "totals": {
            "partitions": sums.partitions,
            "without_leader": sums.without_leader,
            "still_without_leader": sums.still_without_leader,
            "longest_leaderless_ms": sums.longest_leaderless_ms,
            **{name: sums.totals[name] for name in ("leaderless_ms", "outages", "elections", "leader_changes")},
            **{name: sums.totals[name] for name in ("isr_shrinks", "isr_growths", "failed", "ignored")},
            "stale_controllers": overview.events["stale_controller"],
        },
        "controllers": _controllers(report),
        "brokers": _brokers(report),
        "partitions": [_partition(figures, report) for figures in sums.top],
        "minutes": [
            {"minute": m.minute, "lines": m.lines, "facts": dict(sorted(m.facts.items()))} for m in report.minutes
        ],
        "skew": _skew(report) if with_skew else None,
        "lines": {
            "lines": counts.lines,
            "records": counts.records,
            "continuation_lines": counts.continuation_lines,
            "orphan_lines": counts.orphan_lines,
            "without_partition": counts.without_partition,
            "out_of_order": counts.out_of_order,
            "unknown_form": counts.unknown_form,
        },
        "plots": _plots(report),
    }


def without_leader(partition: Data, figure: str) -> str:
    """``leaderless_ms`` or ``longest_leaderless_ms`` of a partition in words."""
    length_ms = partition[figure]
    if length_ms is None:
        return "not visible"
    return duration(length_ms) if partition["outages"] else "never"


def duration(length_ms: float) -> str:
    """A length of time as people say it: 850 ms, 4.2 s, 3 min 05 s, 2 h 10 min, 3 d 4 h."""
    if length_ms < 1000:
        return f"{length_ms:.0f} ms"
    seconds = length_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def _span_ms(report: Report) -> int:
    return milliseconds(report.last) - milliseconds(report.first) if report.overview.first else 0


def _controllers(report: Report) -> list[Data]:
    overview = report.overview
    found = []
    for epoch, broker in sorted({*overview.controllers, *overview.heard}):
        own = overview.controllers.get((epoch, broker))
        spoke = own or overview.heard[epoch, broker]
        told_by = "itself" if own else "other brokers"
        found.append({"epoch": epoch, "broker": broker, **spoke._asdict(), "told_by": told_by})
    return found


def _brokers(report: Report) -> list[Data]:
    spoke, figures = report.overview.brokers, report.sums.brokers
    found = []
    for broker in sorted({*spoke, *figures}):
        words, own = spoke.get(broker), figures.get(broker)
        found.append(
            {
                "broker": broker,
                "lines": words.lines if words else 0,
                "first": words.first if words else None,
                "last": words.last if words else None,
                **{n: getattr(own, n, 0) for n in ("lost", "gained", "left_isr", "joined_isr", "led_at_end")},
            }
        )
    return found


def _partition(figures: PartitionSummary, report: Report) -> Data:
    """A partition's row. What these logs cannot show is None where the count is 0 (SCL-19X)."""
    sees_isr, sees_offline = report.sees_leader_isr, report.sees_offline
    data = asdict(figures)
    spans = data.pop("spans")
    data["leaderless_at_end"] = data.pop("leaderless_open")
    for name, visible in (
        *(("isr_shrinks", sees_isr), ("isr_growths", sees_isr)),
        *(("outages", sees_offline), ("leaderless_ms", sees_offline), ("longest_leaderless_ms", sees_offline)),
    ):
        if not visible and data[name] == 0:
            data[name] = None
    data["isr"] = list(figures.isr) if figures.isr is not None else None
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
    """Values at equal steps of time; times are milliseconds since 1970 of the clock shown."""
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
