"""What stays of a run of real processes: of one that is not clean all there is, of any a line with its seed and verdict."""

import contextlib
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import orjson

from tests.histories.analyser.verdict import Verdict
from tests.histories.history import MalformedHistoryError
from tests.histories.kept.plan import Plan, told, written
from tests.histories.kept.versions import versions
from tests.histories.timeline import write_page

HISTORY: Final = "history.jsonl"
SCHEDULE: Final = "schedule.json"
VERDICT: Final = "verdict.txt"
DATA: Final = "data"


class Ending(Protocol):
    """What is to be ended of a run: its stage."""

    def down(self, keep: Path | None = None) -> None: ...


def register() -> Path:
    """Return the file of this user that has a line for each run."""
    return Path(tempfile.gettempdir()) / f"history-runs-{os.getuid()}.txt"


def leave(directory: Path, stage: Ending, plan: Plan, verdict: Verdict | None, *, everything: bool) -> None:
    """End the stage, and leave of the run what is to be left, ``everything`` or nothing, and its line in the register.

    The run may have ended in an exception that is on its way.
    """
    error = sys.exception()
    with contextlib.ExitStack() as steps:  # the last first, each whatever became of the others
        if everything:
            steps.callback(_write_page, directory, verdict)
            steps.callback(_write_words, directory, plan, verdict, error)
        else:
            steps.callback(shutil.rmtree, directory)
        steps.callback(_note, plan, verdict, error, directory if everything else None)
        steps.callback(stage.down, directory / DATA if everything else None)


def steps_begun(history: Path) -> int:
    """Return how many steps had begun, by the file of a run, however that ended."""
    numbers = [-1]
    for line in history.read_bytes().splitlines() if history.exists() else ():
        if b'"f":"fault"' in line:
            with contextlib.suppress(orjson.JSONDecodeError):  # torn
                step = orjson.loads(line)["value"]["step"]
                numbers += [step] if isinstance(step, int) else []
    return max(numbers) + 1


def _write_words(directory: Path, plan: Plan, verdict: Verdict | None, error: BaseException | None) -> None:
    """Write what was planned, what was found, and what took part."""
    (directory / SCHEDULE).write_bytes(written(plan))
    said: dict[str, Callable[[], Iterator[str]]] = {
        "schedule.txt": lambda: told(plan),
        VERDICT: lambda: _found(verdict, error),
        "versions.txt": lambda: versions(plan.kafka),
    }
    for name, lines in said.items():
        (directory / name).write_text("\n".join((*lines(), "")))


def _found(verdict: Verdict | None, error: BaseException | None) -> Iterator[str]:
    if verdict is not None:
        yield from verdict.lines()
    else:
        yield "the run did not end"
        yield from "".join(traceback.format_exception(error)).splitlines() if error is not None else ()


def _write_page(directory: Path, verdict: Verdict | None) -> None:
    with contextlib.suppress(MalformedHistoryError, FileNotFoundError):  # what is no history cannot be shown
        write_page(directory / HISTORY, directory / "timeline.html", verdict)


def _note(plan: Plan, verdict: Verdict | None, error: BaseException | None, kept: Path | None) -> None:
    """Write the run's line."""
    if verdict is None:
        outcome = f"did not end: {type(error).__name__}" if error is not None else "did not end"
    elif kinds := sorted({anomaly.kind for anomaly in verdict.unallowed}):
        outcome = f"not allowed: {', '.join(kinds)}"
    else:
        outcome = "; ".join(verdict.lines())
    words = next(told(plan)), f"{len(plan.steps)} steps", ", ".join(map(str, plan.cell)), outcome
    line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {'; '.join(words)}" + (f"; kept in {kept}" if kept else "")
    with register().open("a") as file:
        file.write(line + "\n")
