"""The report in words: its verdict in a sentence or two, its tables, and all of it as text. The page shares them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkatool.commands.logs.report_data import Data

HIDDEN = "not visible"
"""Stands for what these logs cannot show (SCL-19X)."""


class Table(NamedTuple):
    """A table of the report; ``name`` tells it from the others."""

    name: str
    title: str
    heading: Sequence[str]
    rows: Sequence[Sequence[object]]


def text_lines(data: Data) -> Iterator[str]:
    """Yield the lines of the report as text."""
    about = data["logs"]
    zone = "UTC" if about["utc"] else "brokers' local time"
    yield f"Logs: {about['files']} files, {data['lines']['lines']} lines"
    if about["first"] is None:
        yield "No line with a time: nothing to report."
        return
    yield f"From {about['first']} to {about['last']} ({zone}), {duration(about['span_ms'])}"
    yield from (f"Not visible: {hidden}" for hidden in data["visibility"]["not_visible"])
    yield ""
    yield verdict(data)
    yield ""
    for table in tables(data, still=" until the end"):
        if table.name == "partitions":
            title = f"Partitions: the {listed_of_all(data)}"
            yield from _columns(title, table.heading[:-1], [_with_isr(*row) for row in table.rows])
        else:
            yield from _columns(table.title, table.heading, table.rows)


def verdict(data: Data) -> str:
    """Return the outage in a sentence or two."""
    totals = data["totals"]
    if not totals["partitions"]:
        return "The logs tell nothing about partitions."
    changes = len(data["controllers"]) - 1
    return (
        f"{_without_leader(data)} {_count(totals['leader_changes'], 'leader change')}, "
        f"{_count(totals['isr_shrinks'], 'ISR shrink')}, {_count(totals['failed'], 'failure')}, "
        f"{_count(max(changes, 0), 'controller change')}."
    )


def tables(data: Data, *, still: str) -> Iterator[Table]:
    """Yield all tables; ``still`` follows how long a partition was without leader that is so at the end."""
    yield Table(
        *("controllers", "Controllers", ("Epoch", "Broker", "First heard", "Last heard", "Lines", "Told by")),
        [(c["epoch"], c["broker"], c["first"], c["last"], c["lines"], c["told_by"]) for c in data["controllers"]],
    )
    yield Table(
        *("brokers", "Brokers"),
        ("Broker", "Lines", "Leaderships lost", "Gained", "Left an ISR", "Came back", "Leads at the end"),
        [
            tuple(b[name] for name in ("broker", "lines", "lost", "gained", "left_isr", "joined_isr", "led_at_end"))
            for b in data["brokers"]
        ],
    )
    yield Table(
        *("partitions", "Partitions"),
        (
            *("Partition", "Without leader", "Longest", "Times", "Elections", "Leader changes", "ISR shrank", "Grew"),
            *("Failed", "Ignored", "At the end", "ISR"),
        ),
        [_partition_row(p, still) for p in data["partitions"]],
    )
    yield Table(
        *("minutes", "Busiest minutes", ("Minute", "Lines", "Facts")),
        [
            (m["minute"], m["lines"], ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in m["facts"].items()))
            for m in data["minutes"]
        ],
    )
    yield Table(
        *("clocks", "Clocks, beside the controller's"),
        ("Broker", "Controller", "Behind, at least", "Ahead, at most", "Pairs"),
        [(s["broker"], s["controller"], *_skew_bounds(s), s["pairs"]) for s in data["skew"] or ()],
    )
    yield Table(*("lines", "Lines", ("Class", "Number")), [(k.replace("_", " "), n) for k, n in data["lines"].items()])


def listed_of_all(data: Data) -> str:
    """Return how many partitions are listed, of how many."""
    return f"{len(data['partitions'])} that suffered most, of {data['totals']['partitions']}"


def duration(length_ms: float) -> str:
    """Return a length of time as people say it: 850 ms, 4.2 s, 3 min 05 s, 2 h 10 min, 3 d 4 h."""
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


def _without_leader(data: Data) -> str:
    totals = data["totals"]
    without, still = totals["without_leader"], totals["still_without_leader"]
    if without:
        worst = data["partitions"][0]
        end = f"{still} still {'is' if still == 1 else 'are'} at the end." if still else "All have one at the end."
        return (
            f"{without} of {totals['partitions']} partitions were without leader: "
            f"{duration(totals['leaderless_ms'])} in all, at most {duration(totals['longest_leaderless_ms'])} at a time; "
            f"worst {worst['topic']}-{worst['partition']}. {end}"
        )
    if data["visibility"]["offline"]:
        return f"None of {totals['partitions']} partitions was without leader."
    return f"{totals['partitions']} partitions; whether any was without leader is not visible in these logs."


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _partition_row(p: Data, still: str) -> tuple[object, ...]:
    def length(key: str) -> str:
        return HIDDEN if p[key] is None else duration(p[key]) if p["outages"] else "never"

    def shown(key: str) -> object:
        return HIDDEN if p[key] is None else p[key]

    return (
        f"{p['topic']}-{p['partition']}",
        length("leaderless_ms") + still * p["leaderless_at_end"],
        length("longest_leaderless_ms"),
        *map(shown, ("outages", "elections", "leader_changes", "isr_shrinks", "isr_growths", "failed", "ignored")),
        "deleted" if p["deleted"] else "no leader" if p["leader"] is None else f"leader {p['leader']}",
        ",".join(map(str, p["isr"] or ())),
    )


def _skew_bounds(skew: Data) -> tuple[str, str]:
    return f"{skew['behind_at_least_ms']} ms", f"{max(skew['ahead_at_most_ms'], 0)} ms"


def _with_isr(*row: object) -> Sequence[object]:
    """Return a partition's row with its last two cells as one, for lines are long."""
    *cells, end, isr = row
    return (*cells, f"{end}, ISR {isr}" if isr and end != "deleted" else end)


def _columns(title: str, heading: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield a title, the heading, rows in columns, an empty line; nothing without rows."""
    if not rows:
        return
    cells = [tuple(str(cell) or "-" for cell in row) for row in (map(str.upper, heading), *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heading))]
    right = [all(row[i].lstrip("-").isdigit() for row in cells[1:]) for i in range(len(heading))]
    yield title
    for row in cells:
        aligned = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True))
        yield f"  {'  '.join(aligned)}".rstrip()
    yield ""
