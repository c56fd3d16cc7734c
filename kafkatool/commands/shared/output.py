"""The two streams of a command: the answer to stdout as text, JSON, YAML or TSV, everything else to stderr (COM-2, COM-4X).

Without a terminal there is neither colour nor progress. rich is imported only to draw a progress bar.

A command's function returns its exit code, None being 0; the root group in `main` ends the process with it. A command
that failed returns what `Output.failed` returns. A function below the command returns a value or raises a KafkatoolError,
which the command catches to tell it in Kafka's words, or leaves to the root group.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from kafkatool.commands.shared.printable import as_json, coloured, has_controls, one_line, say
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import KafkatoolError

if TYPE_CHECKING:
    from kafkatool.core.operations.requests.planned import PlannedRequest
    from kafkatool.core.zookeeper.session import Op

FORMATS: Final = ("text", "json", "yaml", "tsv")
CURRENT_OUTPUT: Final = "kafkatool.output"  # where the click context keeps the running command's Output
Item = Mapping[str, Any]

ProgressUpdate = Callable[[int, int], None]
"""Called with (done, total); cheap to call often."""


class Answer(NamedTuple):
    """One command's result in all forms: ``lines`` are the text, ``items`` with ``columns`` JSON, YAML and TSV.

    ``errors`` are items that failed, with ``error`` (a word) and ``message``. ``columns`` are keys of items; without
    them those that the command's help promises.
    """

    lines: Iterable[str]
    items: Sequence[Item]
    columns: Sequence[str] = ()
    cluster_id: str | None = None
    errors: Sequence[Item] = ()


def error_item(error: KafkatoolError, **about: Any) -> dict[str, Any]:
    """Return an entry of ``errors``: what it is about, the kind of error in snake case, its text."""
    name = type(error).__name__.removesuffix("Error")
    kind = "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))
    return {**about, "error": kind, "message": str(error)}


def paint(text: str, colour: str | None, *, err: bool = False) -> str:
    """Colour ``text`` for a terminal; not elsewhere, with NO_COLOR set (no-color.org) or on a dumb terminal."""
    stream = sys.stderr if err else sys.stdout
    if colour is None or not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return coloured(text, colour)


def document_text(document: Any, form: str) -> str:
    """Write a document as JSON, or as the same in YAML."""
    text = as_json(document)
    if form == "json":
        return text
    import yaml

    plain = json.loads(text)
    written: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    if has_controls(written):
        written = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False)
    return written.rstrip("\n")


class Output:
    """The command's two streams. ``tool`` is what JSON names: ``kt topics list``.

    ``columns`` are those of an answer that has none of its own.
    """

    def __init__(self, form: str = "text", *, tool: str = "kt", columns: Sequence[str] = ()) -> None:
        self.form = form
        self.tool = tool
        self.columns = columns
        self.unseen = Unseen()  # what brokers did not tell for want of rights
        self.is_listing = False  # whether the answer claims nothing of what it does not show
        self.shown = False  # whether a document was written, so that a later failure does not write a second one

    @property
    def is_text(self) -> bool:
        return self.form == "text"

    # --- stdout -------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Print a line of the answer as text, at once; nothing in the other forms."""
        if self.is_text:
            say(text)

    def show(self, answer: Answer) -> None:
        """Print the whole answer in the form that was asked for; once. What brokers left out is among its errors."""
        self.shown = True
        errors = [*answer.errors, *self._left_out(answer.errors)]
        match self.form:
            case "text":
                self.lines(answer.lines)
            case "json" | "yaml":
                document = {
                    "tool": self.tool,
                    "cluster_id": answer.cluster_id,
                    "items": list(answer.items),
                    "errors": errors,
                }
                say(document_text(document, self.form))
            case "tsv":
                columns = (*(answer.columns or self.columns), "error", "message")
                rows = [[c.upper() for c in columns]]
                rows += [[cell_text(item.get(c)) for c in columns] for item in (*answer.items, *errors)]
                say("\n".join("\t".join(row) for row in rows))

    def lines(self, lines: Iterable[str]) -> None:
        """Print many lines of text in one write; nothing in the other forms."""
        if self.is_text:
            say("".join(f"{line}\n" for line in lines), nl=False)

    def planned(
        self,
        ops: Iterable["Op"],
        *,
        sequential_paths: Sequence[str] = (),
        errors: Sequence[dict[str, Any]] = (),
        requests: Iterable["PlannedRequest"] = (),
    ) -> None:
        """Print what ``--dry-run`` would write (COM-6X). ``sequential_paths`` get a number from ZooKeeper.

        ``errors`` are of what could not be done, beside which the rest would be. ``requests`` go to brokers before.
        """
        items = [_request(r) for r in requests]
        items += [_planned(op, sequential_paths) for op in ops]
        lines = [" ".join(filter(None, (i["operation"], i["path"], i["value"]))) for i in items]
        self.show(Answer(lines, items, ("operation", "path", "value"), errors=errors))
        self.note("dry run: nothing was written")

    def planned_requests(
        self, requests: Iterable["PlannedRequest"], *, judged: bool = False, errors: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Print what ``--dry-run`` would ask brokers for (ADM-20). ``judged``: they were asked whether they would do it.

        ``errors`` are of what they would refuse.
        """
        planned = list(requests)
        items = [{"broker": r.broker, "api": r.api, "version": r.version, "fields": r.fields} for r in planned]
        lines = [
            f"{r.kind} {r.broker} {r.api} {r.version} {orjson.dumps(r.fields, default=list).decode()}" for r in planned
        ]
        rows = items if self.form != "tsv" else [{**i, "fields": orjson.dumps(i["fields"]).decode()} for i in items]
        self.show(Answer(lines, rows, ("broker", "api", "version", "fields"), errors=errors))
        self.note("dry run: nothing was changed; brokers were asked" if judged else "dry run: nothing was sent")

    def _left_out(self, told: Iterable[Item]) -> Iterator[Item]:
        """Yield an entry of ``errors`` for each thing that was left out and is not among those."""
        messages = {item["message"] for item in told}
        for found in self.unseen:
            if str(found.error) not in messages:
                yield {**error_item(found.error), "message": found.text}

    # --- stderr -------------------------------------------------------------------------------------------------

    def finish(self, code: int) -> int:
        """Say on stderr what brokers left out, at the end of a command that would end with ``code``; return its code.

        An answer that lacks something is 1 where it was 0, but for a list in which something may be missing.
        """
        for found in self.unseen:
            self.note(f"kt: {found.text}")
        lacking = any(not (found.only_maybe and self.is_listing) for found in self.unseen)
        return 1 if lacking and code == 0 else code

    def note(self, text: str) -> None:
        """Print a hint, count or warning of kt's own."""
        say(text, err=True)

    def failed(
        self, error: KafkatoolError, *, text: str | None = None, cluster_id: str | None = None, **about: Any
    ) -> int:
        """Print ``text`` (Kafka's words) on stdout, or an answer with only this error. Return the exit code.

        The hint what to do now goes to stderr: Kafka does not give it; nor does kt where it happened, but with ``--debug``.
        """
        import logging  # who succeeds starts without

        logging.getLogger(__name__).debug("%s", type(error).__name__, exc_info=error)
        self.line(text if text is not None else str(error))
        if error.now is not None:
            self.note(error.now)
        if not self.is_text:
            self.show(Answer((), (), self.columns or tuple(about), cluster_id, [error_item(error, **about)]))
        return 1

    @contextlib.contextmanager
    def progress(self, label: str) -> Iterator[ProgressUpdate]:
        """Draw a bar with an ETA on a terminal's stderr; call the yielded function with (done, total)."""
        if not sys.stderr.isatty():
            yield lambda done, total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def cell_text(value: Any) -> str:
    """Write a value as a cell of a row, which stays a row."""
    return one_line(_cell(value))


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ",".join(map(str, value))
        case dict():
            return ",".join(f"{k}={_cell(v).replace(',', ':') if isinstance(v, list) else v}" for k, v in value.items())
        case _:
            return str(value)


def _request(r: "PlannedRequest") -> dict[str, Any]:
    value = orjson.dumps(r.fields, default=list).decode()
    return {"operation": "request", "path": f"broker {r.broker} {r.api} {r.version}", "value": value}


def _planned(op: "Op", sequential_paths: Sequence[str]) -> dict[str, Any]:
    from kafkatool.core.zookeeper.session import Create, SetData

    operation = "create" if isinstance(op, Create) else "set" if isinstance(op, SetData) else type(op).__name__.lower()
    if op.path in sequential_paths:
        operation = "create sequential"
    value = op.data.decode(errors="replace") if isinstance(op, Create | SetData) else ""
    return {"operation": operation, "path": op.path, "value": value}
