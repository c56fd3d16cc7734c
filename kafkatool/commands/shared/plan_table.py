"""What a plan means for brokers, as lines of text (RSN-29X)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kafkatool.commands.shared.byte_sizes import byte_size
from kafkatool.commands.shared.progress_line import duration
from kafkatool.commands.shared.table import table_lines
from kafkatool.core.model.values import in_number

if TYPE_CHECKING:
    from kafkatool.core.operations.reassignment.copy_progress import Share
    from kafkatool.core.planner.consequences import BrokerConsequences
    from kafkatool.core.planner.plan_files import Moves

MANY_BROKERS: Final = 40  # of which those that do not change are shown only if asked for
DAY_S: Final = 86_400
TOLD_FROM_S: Final = 60  # a throttle is kept on the average of some ten seconds: less than these may pass at once


def broker_lines(rows: "Sequence[BrokerConsequences]", *, all_brokers: bool) -> list[str]:
    """Return a table: replicas and preferred leaders before and after, replicas that come and go, bytes where known."""
    shown = rows
    if not all_brokers and len(rows) > MANY_BROKERS:
        shown = [row for row in rows if row.incoming or row.outgoing or row.leaders_before != row.leaders_after]
    if not shown:
        return []
    with_bytes = any(row.incoming and row.copied_bytes is not None for row in rows)
    table = [["broker", "replicas", "leaders", "in", "out", *(["bytes in"] if with_bytes else [])]]
    for row in shown:
        cells = [
            str(row.broker),
            f"{row.replicas_before} -> {row.replicas_after}",
            f"{row.leaders_before} -> {row.leaders_after}",
            str(row.incoming),
            str(row.outgoing),
        ]
        table.append([*cells, *([byte_size(row.copied_bytes)] if with_bytes else [])])
    lines = table_lines(table)
    if len(shown) < len(rows):
        same = in_number(len(rows) - len(shown), "broker does", "brokers do")
        lines.append(f"{same} not change (--explain shows them)")
    return lines


def total_line(current: "Moves", proposed: "Moves", rows: "Sequence[BrokerConsequences]") -> str:
    """Return ``3 of 9 partitions change, 2 replicas to copy (10 MiB)``; ``rows`` are those of all brokers."""
    changing = sum(current[p] != to for p, to in proposed.items())
    copies = sum(row.incoming for row in rows)
    known = [row.copied_bytes for row in rows if row.incoming]
    size = f" ({byte_size(sum(b for b in known if b is not None))})" if known and None not in known else ""
    all_ = in_number(len(proposed), "partition changes", "partitions change")
    return f"{changing} of {all_}, {in_number(copies, 'replica', 'replicas')} to copy{size}"


def throttled_line(share: "Share | None", throttle: int | None) -> str | None:
    """Say how long a move takes under its throttle; None: unthrottled, soon done, or nobody tells how much there is."""
    seconds = share.left_bytes / throttle if share is not None and throttle else 0
    if share is None or seconds < TOLD_FROM_S:
        return None
    time = duration(seconds) if seconds < DAY_S else in_number(round(seconds / DAY_S), "day", "days")
    line = f"under this throttle broker {share.broker} takes about {time} to copy {byte_size(share.left_bytes)}"
    return line if seconds < DAY_S else f"warning: {line}, and longer for what is written meanwhile"
