"""The report in words: its verdict in a sentence or two, its tables, and all of it as text. The page shares them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkatool.commands.logs.report_data import Data
from kafkatool.core.model.values import in_number
from kafkatool.core.statelog.history.chronology import BACK, CONTROLLER, GONE
from kafkatool.core.statelog.history.report import BROKER_EVENTS
from kafkatool.core.statelog.history.verdict import CANNOT_SAY, COMPLETE, NO_LOG_OF
from kafkatool.core.statelog.lines.forms import KRAFT, ZOOKEEPER

HIDDEN = "not visible"
"""Stands for what these logs cannot show (SCL-19X)."""


class Table(NamedTuple):
    """A table of the report; ``name`` tells it from the others. Columns not named in ``texts`` are figures to compare."""

    name: str
    title: str
    heading: Sequence[str]
    rows: Sequence[Sequence[object]]
    texts: Sequence[str] = ()


def text_lines(data: Data) -> Iterator[str]:
    """Yield the lines of the report as text."""
    yield verdict(data)
    yield ""
    about = data["logs"]
    zone = "UTC" if about["utc"] else "brokers' local time"
    files, lines = in_number(about["files"], "file", "files"), in_number(data["lines"]["lines"], "line", "lines")
    yield f"Logs: {files}, {lines}"
    if about["first"] is None:
        return
    yield f"From {about['first']} to {about['last']} ({zone}), {duration(about['span_ms'])}"
    yield from limits(data)
    yield ""
    if moments := list(chronology(data)):
        yield "What happened"
        yield from (f"  {time}  {words}" for time, words in moments)
        yield ""
    for table in tables(data, still=" until the end"):
        if table.name == "partitions":
            title = f"Partitions: the {listed_of_all(data)}"
            yield from _columns(title, table.heading[:-1], [_with_isr(*row) for row in table.rows])
        else:
            yield from _columns(table.title, table.heading, table.rows)


def limits(data: Data) -> Iterator[str]:
    """Yield what keeps the logs from telling all, and of lines of both modes which figure is of which."""
    yield from (f"{reason[0].upper()}{reason[1:]}." for reason in data["verdict"]["reasons"])
    if len(hours := data["visibility"]["hours"]) > 1:
        with_, without = (f"{first} to {last}" for first, last in (hours[ZOOKEEPER], hours[KRAFT]))
        yield (
            f"Lines with ZooKeeper ({with_}) and without ({without}): controllers, their changes and failed elections are "
            "of the first alone, all other figures of both."
        )


def chronology(data: Data, most: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield time and words of what happened to brokers, the first ``most`` of it, and how much more there is."""
    moments = data["chronology"]
    shown = moments if most is None or len(moments) <= most else moments[: most - 1]
    of = f" of {data['verdict']['asked']}" if data["verdict"]["asked"] else ""
    for moment in shown:
        yield moment["time"], _happened(moment, of)
    if rest := moments[len(shown) :]:
        yield rest[0]["time"], f"and {len(rest)} more until {rest[-1]['time']}"


def _happened(moment: Data, of: str) -> str:
    broker, kind = f"broker {moment['broker']}", moment["kind"]
    if kind == CONTROLLER:
        return f"controller {moment['old_broker']} → {moment['broker']}"
    if kind == BACK:
        return f"{broker} in an ISR{of} again" if of else f"{broker} back in an ISR"
    led_by_it, handed_over = moment["led"], moment["handed_over"]
    left = f"in no ISR{of} any more"
    if kind == GONE and not of:
        left = "stopped in a controlled way" if 0 < handed_over == led_by_it else "gone"
    led = f", {led_by_it} led by it" if led_by_it else ""
    if 0 < handed_over < led_by_it:
        led += f", {handed_over} of these handed over before"
    return f"{broker} {left}: {_count(moment['partitions'], 'partition')}{led}"


def verdict(data: Data) -> str:
    """Return the outage in a sentence or two; where the logs leave it open, that, and what was read (SCL-25X)."""
    totals, state, asked = data["totals"], data["verdict"]["state"], data["verdict"]["asked"]
    if totals["partitions"]:
        told = f"{_without_leader(data)} {_counts(data)}"
    elif data["logs"]["first"] is None and state != CANNOT_SAY:
        return "No line with a time: nothing to report."
    else:
        told = f"Nothing in these logs about {asked}." if asked else "The logs tell nothing about partitions."
    if state != CANNOT_SAY:
        return told
    read = f" What was read: {told}" if totals["partitions"] else ""
    return f"cannot say: {data['verdict']['reasons'][0]}.{read}"


def _counts(data: Data) -> str:
    totals, open_ = data["totals"], _is_bound(data)
    visible = data["visibility"]
    shrinks = _count(totals["isr_shrinks"], "ISR shrink", bound=open_ or not visible["leader_isr_changes"])
    unclean = f"{_count(totals['unclean'], 'unclean election')} (records may be lost), " if totals["unclean"] else ""
    decisions_bound = open_ or not visible["controllers"]
    controllers = "controller changes not visible"
    if visible["controllers"] or data["controllers"]:
        controllers = _count(max(len(data["controllers"]) - 1, 0), "controller change", bound=decisions_bound)
    changes = _count(totals["leader_changes"], "leader change", bound=open_ or totals["unseen"] > 0)
    failures = _count(totals["failed"], "failure", bound=decisions_bound)
    return f"{changes[0].upper()}{changes[1:]}, {unclean}{shrinks}, {failures}, {controllers}."


def tables(data: Data, *, still: str) -> Iterator[Table]:
    """Yield all tables; ``still`` follows how long a partition was without leader that is so at the end."""
    whole = data["verdict"]["state"] != CANNOT_SAY
    yield Table(
        *("controllers", "Controllers", ("Epoch", "Broker", "First heard", "Last heard", "Lines", "Told by")),
        [(c["epoch"], c["broker"], c["first"], c["last"], c["lines"], c["told_by"]) for c in data["controllers"]],
        texts=("First heard", "Last heard", "Told by"),
    )
    yield Table(
        *("brokers", "Brokers"),
        ("Broker", "Lines", "Leaderships lost", "Gained", "Left an ISR", "Came back", "Leads at the end"),
        [(b["broker"], b["lines"], *(bound(b[name], whole) for name in BROKER_EVENTS)) for b in data["brokers"]],
    )
    yield Table(
        *("partitions", "Partitions"),
        (
            *("Partition", "Without leader", "Longest", "Times", "Elections", "Leader changes", "ISR shrank", "Grew"),
            *("Unclean", "Not told", "Failed", "Ignored", "At the end", "ISR"),
        ),
        [_partition_row(p, still, data["verdict"]["state"]) for p in data["partitions"]],
        texts=("Partition", "At the end", "ISR"),
    )
    yield Table(
        *("minutes", "Busiest minutes", ("Minute", "Lines", "Facts")),
        [
            (m["minute"], m["lines"], ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in m["facts"].items()))
            for m in data["minutes"]
        ],
        texts=("Minute", "Facts"),
    )
    yield Table(
        *("clocks", "Clocks, beside the controller's"),
        ("Broker", "Controller", "Behind, at least", "Ahead, at most", "Pairs"),
        [(s["broker"], s["controller"], *_skew_bounds(s), s["pairs"]) for s in data["skew"] or ()],
    )
    yield Table(
        *("lines", "Lines", ("Class", "Number")),
        [(k.replace("_", " "), n) for k, n in data["lines"].items()],
        texts=("Class",),
    )


def bound(figure: object, whole: bool) -> object:
    """Return a figure as it may be shown: where the logs do not tell all, as a lower bound, and none as not visible."""
    return figure if whole else f"≥ {figure}" if figure else HIDDEN


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


def _is_bound(data: Data) -> bool:
    """Tell whether figures are lower bounds: lines could not be read, or the logs of some brokers are not here."""
    verdict = data["verdict"]
    return verdict["state"] == CANNOT_SAY or any(reason.startswith(NO_LOG_OF) for reason in verdict["reasons"])


def _without_leader(data: Data) -> str:
    totals, state = data["totals"], data["verdict"]["state"]
    at_least = "At least " * (_is_bound(data) or not data["visibility"]["offline"])
    without, still = totals["without_leader"], totals["still_without_leader"]
    if without:
        worst = data["partitions"][0]
        whole = state == COMPLETE
        none = "All have one at the end." if whole else "None is seen without one at the end."
        end = f"{still} still {'is' if still == 1 else 'are'} at the end." if still else none
        longest = f"{'at most' if whole else 'the longest'} {duration(totals['longest_leaderless_ms'])} at a time"
        return (
            f"{at_least}{without} of {in_number(totals['partitions'], 'partition was', 'partitions were')} without leader: "
            f"{duration(totals['leaderless_ms'])} in all, {longest}; "
            f"worst {worst['topic']}-{worst['partition']}. {end}"
        )
    all_ = in_number(totals["partitions"], "partition", "partitions")
    if not data["visibility"]["offline"]:
        return f"{all_}; whether any was without leader is not visible in these logs."
    if state == COMPLETE:
        return f"None of {all_} was without leader."
    return f"{all_}; none was seen without leader, but these logs do not tell all."


def _count(number: int, noun: str, *, bound: bool = False) -> str:
    plural = "" if number == 1 else "s"
    return f"at least {number} {noun}{plural}" if bound else f"{number or 'no'} {noun}{plural}"


def _partition_row(p: Data, still: str, state: str) -> tuple[object, ...]:
    never = "never" if state == COMPLETE else "none seen"

    def length(key: str) -> str:
        return HIDDEN if p[key] is None else duration(p[key]) if p["outages"] else never

    def shown(key: str) -> object:
        return HIDDEN if p[key] is None else bound(p[key], state != CANNOT_SAY)

    return (
        f"{p['topic']}-{p['partition']}",
        length("leaderless_ms") + still * p["leaderless_at_end"],
        length("longest_leaderless_ms"),
        *map(shown, ("outages", "elections", "leader_changes", "isr_shrinks", "isr_growths", "unclean", "unseen")),
        *map(shown, ("failed", "ignored")),
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
