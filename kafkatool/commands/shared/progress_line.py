"""One line of progress on stderr: a bar on a terminal, a whole line per 10 s elsewhere (RSN-33X)."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkatool.commands.shared.printable import one_line

if TYPE_CHECKING:
    from rich.progress import Progress

INTERVAL_S = 10.0
BAR_WIDTH = 10


class ProgressLine:
    """The progress of one command: call ``show`` as often as there is news, ``end`` once.

    ``note`` prints a whole line on stderr.
    """

    def __init__(self, note: Callable[[str], None], *, interval_s: float = INTERVAL_S) -> None:
        self._note = note
        self._interval_s = interval_s
        self._next = time.monotonic() + interval_s
        self._bar = _bar() if sys.stderr.isatty() else None

    def show(self, text: str, share: float | None = None) -> None:
        """Show the newest text, and the share that is done, 0 to 1; off a terminal only when the last line is old."""
        if self._bar is not None:
            (task,) = self._bar.task_ids or (self._bar.add_task("", total=None),)
            self._bar.update(
                task, description=one_line(text), total=None if share is None else 1.0, completed=share or 0
            )
            self._bar.start()
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self._interval_s
            self._note(text)

    def end(self) -> None:
        """Leave the terminal's line, which keeps the last text; what is shown later begins a new one."""
        if self._bar is not None:
            self._bar.stop()


def duration(seconds: float | None) -> str:
    """Write a time as ``1:04`` or ``2:30:00``; None is ``unknown``."""
    if seconds is None:
        return "unknown"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _bar() -> "Progress":
    """Make a line that never wraps: on a narrow terminal its end is cut off."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    rest_of_the_line = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    text = TextColumn("{task.description}", markup=False, table_column=rest_of_the_line)
    # With its redirection rich would send to stderr what is written to stdout meanwhile, though that may be a file.
    return Progress(
        BarColumn(BAR_WIDTH),
        text,
        console=Console(stderr=True),
        expand=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
