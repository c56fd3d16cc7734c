"""``kt logs timeline``: what happened to a partition, one line for each fact (SCL-17X, SCL-19X)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import orjson

from kafkatool.commands.logs.session import (
    EXIT_CODES,
    Uri,
    asked_about,
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
from kafkatool.commands.shared.output import Output, document_text
from kafkatool.commands.shared.printable import as_json, one_line, say
from kafkatool.core.errors import UsageError
from kafkatool.core.model.values import in_number
from kafkatool.core.statelog.history.timeline import FINAL, Item
from kafkatool.core.statelog.history.verdict import CANNOT_SAY
from kafkatool.core.statelog.jobs.timeline import Timeline, make_timeline
from kafkatool.core.statelog.lines.forms import KRAFT

EXAMPLES: Final = (
    "kt logs timeline --logs collected/ --topic orders --partition 0",
    "kt logs timeline --logs collected/ --by-time --end-time '2026-11-21 09:29:00,000'",
    "kt logs timeline --logs collected/ --topic orders --output json | jq '.items[] | select(.fact == \"offline\")'",
)
NOTES: Final = (
    "A fact that several brokers told is one line; at its end, in brackets, who told it and how many milliseconds later "
    "than the time of the line, each by its own clock (c4: broker 4 as controller). The last line of a partition tells "
    "how it stands at the end of the logs, or at --end-time.",
    "Successive leaders and in-sync replicas are put in order by epochs, not by clocks. An epoch that jumps proves "
    "changes that these logs do not tell: they are counted where they lie.",
    "Where the logs leave it open what happened, the first line says so (as JSON: verdict).",
    EXIT_CODES,
)
COLUMNS: Final = (
    *("time", "topic", "partition", "fact", "old_leader", "leader", "leader_epoch", "isr", "changed", "old_replicas"),
    *("replicas", "controller", "controller_epoch", "decided_by_leader", "reason", "count", "until"),
    *(
        "unclean",
        "handed_over",
        "partition_epoch",
        "topic_id",
        "leader_recovery_state",
        "adding_replicas",
        "removing_replicas",
        "mode",
    ),
    "witnesses",
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
    "gap": "not told",
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
def timeline(
    names: str | None,
    logs_regex: str | None,
    zones: tuple[str, ...],
    master: str,
    settings: dict[str, str],
    by_time: bool,
    ignored: bool,
    out_path: Path | Uri | None,
    strict: bool,
    out: Output,
    **filters: Any,
) -> int:
    """What happened to a partition, as facts: each once, with all brokers that told it."""
    selection = make_selection(**filters)
    wanted = wanted_logs(names, logs_regex)
    if isinstance(out_path, Uri):
        raise UsageError(f"--out {out_path}: a timeline is written here; name a file")
    with log_session(wanted, master, zones, settings=settings) as session:
        gathered = session.gather(selection)
        facts = make_timeline(gathered, by_time=by_time, with_ignored=ignored)
        with output(out_path) as file:
            out.shown = True
            for text in _written(facts, out, asked_about(selection)):
                file.write(text)
    session.tell_warnings()
    if not facts.partitions:
        session.tell_unnamed(gathered)
    counts = gathered.overview.counts
    partitions = in_number(facts.partitions, "partition", "partitions")
    lines, files = in_number(counts.lines, "line", "lines"), in_number(session.opened.files, "file", "files")
    unknown = f", {counts.unknown_form} of unknown form" if counts.unknown_form else ""
    say(f"{partitions}, from {lines} in {files}{unknown}", err=True)
    return session.exit_code(counts.unknown_form, strict=strict)


def _first_lines(facts: Timeline, asked: str | None) -> Iterator[str]:
    """Yield what must be known before the facts are read; nothing where the logs tell all (SCL-25X)."""
    verdict = facts.verdict
    nothing = f"nothing in these logs about {asked or 'any partition'}"
    if verdict.state == CANNOT_SAY:
        yield f"cannot say: {verdict.reasons[0]}" + (f"; read: {nothing}" if not facts.partitions else "")
    elif not facts.partitions:
        yield f"{nothing[0].upper()}{nothing[1:]}"
    yield from verdict.reasons[verdict.state == CANNOT_SAY :]


def _written(facts: Timeline, out: Output, asked: str | None) -> Iterator[bytes]:
    """Yield the answer in pieces: it may be larger than memory."""
    items = facts.items()
    verdict = {"state": facts.verdict.state, "reasons": facts.verdict.reasons, "asked": asked}
    match out.form:
        case "text":
            yield from (f"{one_line(line)}\n".encode() for line in _first_lines(facts, asked))
            for item in items:
                yield f"{one_line(line_of(item))}\n".encode()
        case "tsv":
            yield ("\t".join(c.upper() for c in (*COLUMNS, "error", "message")) + "\n").encode()
            for item in items:
                cells = [one_line(_witnesses(item) if c == "witnesses" else _cell(item[c])) for c in COLUMNS]
                yield ("\t".join((*cells, "", "")) + "\n").encode()
        case "yaml":
            yield f"tool: {out.tool}\ncluster_id: null\nitems:\n".encode()
            for item in items:
                yield f"{document_text([dict(item)], 'yaml')}\n".encode()
            yield f"errors: []\n{document_text({'verdict': verdict}, 'yaml')}\n".encode()
        case "json":
            yield b'{"tool":' + orjson.dumps(out.tool) + b',"cluster_id":null,"items":['
            for i, item in enumerate(items):
                yield (b"," if i else b"") + as_json(dict(item)).encode()
            yield b'],"errors":[],"verdict":' + as_json(verdict).encode() + b"}\n"


def line_of(item: Item) -> str:
    """Return a fact as one line."""
    name = f"{item['topic']}-{item['partition']}"
    told = _witnesses(item)
    words = WORDS[item["fact"]]
    return f"{item['time']}  {name:<20}  {words:<14}  {_description(item)}{f'  [{told}]' if told else ''}".rstrip()


def _description(item: Item) -> str:
    epoch, isr = f"leader epoch {item['leader_epoch']}", f"ISR {_list(item['isr'])}"
    leader, old, who = item["leader"], item["old_leader"], _decider(item)
    unclean = " (UNCLEAN: records may be lost)" if item["unclean"] else ""
    match item["fact"]:
        case "created":
            return f"replicas {_list(item['replicas'])}; {who}"
        case "first_seen":
            return f"{_leader(leader)}, {epoch}, {isr}{unclean}"
        case "gap":
            return f"{item['count']} change{'s' if item['count'] > 1 else ''} not in these logs"
        case "elected":
            change = f"{'none' if old is None else old} -> {leader}{' again' if old == leader else ''}"
            return f"{change}, {epoch}, {isr}{unclean}; {who}"
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
    if item["mode"] == KRAFT:
        return "told by replicas"
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
