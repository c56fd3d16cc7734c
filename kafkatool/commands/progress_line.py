"""One line of progress on stderr: rewritten in place on a terminal, one line per 10 s elsewhere (RSN-33X)."""

import sys
import time
from collections.abc import Callable

import click

INTERVAL_S = 10.0


class ProgressLine:
    """``note`` prints a whole line on stderr. Call ``show`` as often as there is news, ``end`` once."""

    def __init__(self, note: Callable[[str], None], *, interval_s: float = INTERVAL_S) -> None:
        self._note = note
        self._interval_s = interval_s
        self._in_place = sys.stderr.isatty()
        self._width = 0
        self._next = time.monotonic() + interval_s

    def show(self, text: str) -> None:
        """The newest text; off a terminal only when the last line is old enough."""
        if self._in_place:
            click.echo("\r" + text.ljust(self._width), nl=False, err=True)
            self._width = len(text)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self._interval_s
            self._note(text)

    def end(self) -> None:
        """Leave the terminal's line."""
        if self._in_place and self._width:
            click.echo(err=True)
