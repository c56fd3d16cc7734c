"""How ``kt reassign --generate`` shows what its plan means: on stderr for people, as further items for programs (RSN-29X).

stdout stays the five lines that scripts parse (RSN-4).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from kafkatool.commands.shared.byte_sizes import byte_size
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.reassignment.requests import Proposal
from kafkatool.core.planner.consequences import BrokerFigures, broker_figures, reason
from kafkatool.core.planner.plan_files import PartitionName

EXPLAINED_COLUMNS: Final = (
    *("reason", "copies_to"),
    *("broker", "replicas_before", "replicas_after", "leaders_before", "leaders_after"),
    *("incoming", "outgoing", "copied_bytes"),
)
MANY_BROKERS: Final = 40  # of which --explain alone shows those that do not change


def figures(found: Proposal, sizes: Mapping[TopicPartition, int] | None) -> tuple[BrokerFigures, ...]:
    """``sizes`` of partitions in bytes; None: not asked."""
    return broker_figures(found.current, found.proposed, found.targets, sizes)


def partition_lines(found: Proposal, name_of: PartitionName) -> Iterator[str]:
    """A line for each partition that changes: old, new, why."""
    for partition, to in found.proposed.items():
        before = found.current[partition]
        if (why := reason(before, to, found.targets)) is not None:
            yield f"{name_of(partition)}: {join_ids(before)} -> {join_ids(to)}  {why}"


def broker_lines(rows: Sequence[BrokerFigures], *, all_brokers: bool) -> list[str]:
    """A table: replicas and preferred leaders before and after, replicas that come and go, bytes where known."""
    shown = rows if all_brokers or len(rows) <= MANY_BROKERS else [row for row in rows if _changes(row)]
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
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    if len(shown) < len(rows):
        lines.append(f"{len(rows) - len(shown)} brokers do not change (--explain shows them)")
    return lines


def total_line(found: Proposal, rows: Sequence[BrokerFigures]) -> str:
    """``3 of 9 partitions change, 2 replicas to copy (10 MiB)``."""
    changing = sum(found.current[p] != to for p, to in found.proposed.items())
    known = [row.copied_bytes for row in rows if row.incoming]
    size = f" ({byte_size(sum(b for b in known if b is not None))})" if known and None not in known else ""
    return f"{changing} of {len(found.proposed)} partitions change, {found.copies} replicas to copy{size}"


def partition_fields(found: Proposal, partition: TopicPartition) -> dict[str, Any]:
    """What --explain adds to a partition's item."""
    before, to = found.current[partition], found.proposed[partition]
    return {"reason": reason(before, to, found.targets), "copies_to": [b for b in to if b not in before]}


def broker_items(rows: Sequence[BrokerFigures]) -> list[dict[str, Any]]:
    """An item for each broker."""
    return [asdict(row) for row in rows]


def _changes(row: BrokerFigures) -> bool:
    return bool(row.incoming or row.outgoing) or row.leaders_before != row.leaders_after
