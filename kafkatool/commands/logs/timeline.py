"""``kt logs timeline``: what happened to a partition, one line for each fact (SCL-17X, SCL-19X)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import orjson

from kafkatool.commands.logs.session import (
    EXIT_CODES,
    input_options,
    log_session,
    make_selection,
    out_option,
    output,
    selection_options,
    strict_option,
    wanted_logs,
)
from kafkatool.commands.shared.options import KtCommand, output_option
from kafkatool.commands.shared.output import Output
from kafkatool.core.statelog.history.timeline import FINAL, Item
from kafkatool.core.statelog.jobs.timeline import make_timeline

EXAMPLES: Final = (
    "kt logs timeline --logs collected/ --topic orders --partition 0",
    "kt logs timeline --logs collected/ --by-time --end-time '2026-11-21 09:29:00,000'",
    "kt logs timeline --logs collected/ --topic orders --output json | jq '.items[] | select(.fact == \"offline\")'",
)
NOTES: Final = (
    "A fact that several brokers told is one line; at its end, in brackets, who told it and how many milliseconds later "
    "than the time of the line, each by its own clock (c4: broker 4 as controller). The last line of a partition tells "
    "how it stands at the end of the logs, or at --end-time.",
    "Successive leaders and in-sync replicas are put in order by epochs, not by clocks.",
    EXIT_CODES,
)
COLUMNS: Final = (
    *("time", "topic", "partition", "fact", "old_leader", "leader", "leader_epoch", "isr", "changed", "old_replicas"),
    *("replicas", "controller", "controller_epoch", "decided_by_leader", "reason", "count", "until", "witnesses"),
)
WORDS: Final = {
    "created": "created",
    "first_seen": "first seen",
    "elected": "leader elected",
    "offline": "OFFLINE",
    "isr_shrunk": "ISR shrunk",
    "isr_grown": "ISR grown",
    "reassigned": "reassigned",
    "disk_failed": "DISK FAILED",
    "failed": "FAILED",
    "ignored": "ignored",
    "deletion_started": "being deleted",
    "deleted": "deleted",
    FINAL: "at the end",
}


@click.command("timeline", cls=KtCommand, examples=EXAMPLES, columns=COLUMNS, notes=NOTES)
@input_options
@selection_options
@click.option("--by-time", is_flag=True, help="All partitions in one order of time, not one after the other.")
@click.option("--ignored", is_flag=True, help="Also requests that brokers ignored as stale (mostly harmless).")
@out_option
@strict_option
@output_option
@click.pass_context
def timeline(
    ctx: click.Context,
    /,
    names: str | None,
    logs_regex: str | None,
    zones: tuple[str, ...],
    master: str,
    by_time: bool,
    ignored: bool,
    out_path: Path | None,
    strict: bool,
    out: Output,
    **filters: Any,
) -> None:
    """What happened to a partition, as facts: each once, with all brokers that told it."""
    selection = make_selection(**filters)
    wanted = wanted_logs(names, logs_regex)
    with log_session(wanted, master, zones) as session:
        gathered = session.gather(selection)
        facts = make_timeline(gathered, session.spark, by_time=by_time, with_ignored=ignored)
        with output(out_path) as file:
            out.shown = True
            for text in _written(facts.items(), out):
                file.write(text)
    session.tell_warnings()
    counts = gathered.overview.counts
    if not facts.partitions:
        click.echo("kt: the logs tell nothing about such a partition", err=True)
    unknown = f", {counts.unknown_form} of unknown form" if counts.unknown_form else ""
    click.echo(
        f"{facts.partitions} partitions, from {counts.lines} lines in {session.opened.files} files{unknown}", err=True
    )
    if session.opened.broken or (strict and counts.unknown_form):
        ctx.exit(1)


def _written(items: Iterator[Item], out: Output) -> Iterator[bytes]:
    """Yield the answer in pieces: it may be larger than memory."""
    match out.form:
        case "text":
            for item in items:
                yield f"{line_of(item)}\n".encode("utf-8", "surrogateescape")
        case "tsv":
            yield ("\t".join(c.upper() for c in (*COLUMNS, "error", "message")) + "\n").encode()
            for item in items:
                cells = [_witnesses(item) if c == "witnesses" else _cell(item[c]) for c in COLUMNS]
                yield ("\t".join((*cells, "", "")) + "\n").encode("utf-8", "surrogateescape")
        case _:
            yield b'{"tool":' + orjson.dumps(out.tool) + b',"cluster_id":null,"items":['
            for i, item in enumerate(items):
                yield (b"," if i else b"") + orjson.dumps(item)
            yield b'],"errors":[]}\n'


def line_of(item: Item) -> str:
    """Return a fact as one line."""
    name = f"{item['topic']}-{item['partition']}"
    told = _witnesses(item)
    words = WORDS[item["fact"]]
    return f"{item['time']}  {name:<20}  {words:<14}  {_description(item)}{f'  [{told}]' if told else ''}".rstrip()


def _description(item: Item) -> str:
    epoch, isr = f"leader epoch {item['leader_epoch']}", f"ISR {_list(item['isr'])}"
    leader, old, who = item["leader"], item["old_leader"], _decider(item)
    match item["fact"]:
        case "created":
            return f"replicas {_list(item['replicas'])}; {who}"
        case "first_seen":
            return f"{_leader(leader)}, {epoch}, {isr}"
        case "elected":
            return f"{'none' if old is None else old} -> {leader}{' again' if old == leader else ''}, {epoch}, {isr}; {who}"
        case "offline":
            return f"{f'leader {old} lost' if old is not None else 'leader lost'}; {who}"
        case "isr_shrunk" | "isr_grown":
            sign = "-" if item["fact"] == "isr_shrunk" else "+"
            changed = " ".join(f"{sign}{broker}" for broker in item["changed"])
            return f"{changed} -> {isr}; {f'by leader {leader}' if item['decided_by_leader'] else who}"
        case "reassigned":
            return f"replicas {_list(item['old_replicas'])} -> {_list(item['replicas'])}; {who}"
        case "failed" | "ignored" | "disk_failed":
            often = f" ({item['count']} times until {item['until'][11:]})" if item["count"] > 1 else ""
            return f"{item['reason']}{often}"
        case "final":
            state = item["reason"] or (
                _leader(leader) if item["leader_epoch"] is not None else "nothing told of its leader"
            )
            return state if item["leader_epoch"] is None or item["reason"] == "deleted" else f"{state}, {epoch}, {isr}"
        case _:
            return who


def _leader(leader: int | None) -> str:
    return "no leader" if leader is None else f"leader {leader}"


def _decider(item: Item) -> str:
    if item["controller"] is None:
        return "by a controller not heard"
    epoch = item["controller_epoch"]
    return f"by controller {item['controller']}" + (f" epoch {epoch}" if epoch is not None else "")


def _list(numbers: list[int] | None) -> str:
    return ",".join(map(str, numbers)) if numbers else "none" if numbers == [] else "unknown"


def _witnesses(item: Item) -> str:
    told = [f"{'c' if w['role'] == 'controller' else ''}{w['broker']} {w['late_ms']:+d}" for w in item["witnesses"]]
    return " ".join(told) + " ms" if told else ""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value).replace("\t", " ").replace("\n", " ")
