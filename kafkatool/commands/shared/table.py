"""A table as lines of text: what is a number stands to the right."""

from collections.abc import Sequence


def table_lines(rows: Sequence[Sequence[str]], *, left: Sequence[int] = ()) -> list[str]:
    """Return the rows, the first being the heading, with columns of even width; ``left``: those that are words."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
