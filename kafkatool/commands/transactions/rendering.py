"""Tables and flags that the actions of ``kt transactions`` share."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from kafkatool.commands.shared.printable import one_line

F = TypeVar("F", bound=Callable[..., Any])


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table as kafka-transactions prints it: each column as wide as its widest, then a tab."""
    rows = [headers, *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["".join(f"{cell:{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def or_none(number: int | None) -> str:
    """Write a number as kafka-transactions does where there may be none."""
    return "None" if number is None else str(number)


def topic_option(*, required: bool) -> Callable[[F], F]:
    """Make ``--topic``; passes ``topic``."""
    return click.option("--topic", required=required, metavar="TOPIC", help="The topic.")


def partition_option(*, required: bool) -> Callable[[F], F]:
    """Make ``--partition``; passes ``partition``."""
    return click.option(
        "--partition", type=click.IntRange(min=0), required=required, metavar="N", help="The partition."
    )
