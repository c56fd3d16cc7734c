"""``kt reassign --generate``: a plan, and what it means, on stderr for people, as further items for programs (RSN-29X).

stdout stays the five lines that scripts parse (RSN-4).
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kafkatool.commands.reassign.modes import Mode
from kafkatool.commands.reassign.rows import COLUMNS, items
from kafkatool.commands.shared.byte_sizes import byte_size
from kafkatool.commands.shared.options import parse_broker_ids, read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.operations.reassignment import proposal
from kafkatool.core.operations.reassignment.proposal import Proposal, Strategy
from kafkatool.core.operations.reassignment.status import Status
from kafkatool.core.planner.consequences import BrokerConsequences, broker_consequences, reason
from kafkatool.core.planner.plan_files import (
    CURRENT_ASSIGNMENT,
    PROPOSED_ASSIGNMENT,
    PartitionName,
    parse_topics_to_move,
    plan_json,
    read_text,
    write_file,
)

EXPLAINED_COLUMNS: Final = (
    *("reason", "copies_to"),
    *("broker", "replicas_before", "replicas_after", "leaders_before", "leaders_after"),
    *("incoming", "outgoing", "copied_bytes"),
)
MANY_BROKERS: Final = 40  # of which --explain alone shows those that do not change


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate(Mode):
    """The flags of ``--generate``."""

    REQUIRED = ("topics_to_move_json_file", "broker_list")
    LACKING = (
        "If --generate option is used, command must include both --topics-to-move-json-file and --broker-list options"
    )

    topics_to_move_json_file: str
    broker_list: str
    disable_rack_aware: bool
    strategy: str | None
    exclude_brokers: str | None
    replication_factor: int | None
    explain: bool
    out_file: Path | None

    def carry_out(self) -> int:
        """Propose a plan for the topics of the file; write nothing but the file of the plan."""
        brokers = parse_broker_ids(self.broker_list, "--broker-list")
        if twice := sorted({b for b in brokers if brokers.count(b) > 1}):
            raise RefusedError(f"Broker list contains duplicate entries: {join_ids(twice)}")
        exclude = parse_broker_ids(self.exclude_brokers, "--exclude-brokers") if self.exclude_brokers else ()
        source = self.topics_to_move_json_file
        topics = parse_topics_to_move(read_text(source, sys.stdin), source)
        with self.session() as zk:
            found = proposal.generate(
                zk,
                topics,
                brokers,
                rack_aware=not self.disable_rack_aware,
                rng=random.SystemRandom(),
                strategy=Strategy(self.strategy or Strategy.KAFKA),
                exclude=exclude,
                replication_factor=self.replication_factor,
            )
            cluster_id = None if self.out.is_text else read_cluster_id(zk)
        if self.replication_factor is None and self.strategy != Strategy.MINIMAL:
            for topic in found.uneven_topics:
                self.out.note(
                    f"partitions of {topic} have different numbers of replicas; all are planned with partition 0's"
                )
        if self.out_file is not None:
            write_file(self.out_file, plan_json(found.proposed))
        sizes = _sizes(found) if self.explain or self.out.is_text else None
        rows = broker_consequences(found.current, found.proposed, found.targets, sizes)
        if self.out.is_text:
            self.out.lines(
                [CURRENT_ASSIGNMENT, plan_json(found.current), "", PROPOSED_ASSIGNMENT, plan_json(found.proposed)]
            )
            self._note_consequences(found, rows)
            return 0
        moves = items(found.proposed, found.current, Status.PENDING)
        if self.explain:
            moves = [{**i, **_reason_fields(found, p)} for i, p in zip(moves, found.proposed, strict=True)]
            moves += [asdict(row) for row in rows]
        self.out.show(Answer((), moves, (*COLUMNS, *(EXPLAINED_COLUMNS if self.explain else ())), cluster_id))
        return 0

    def _note_consequences(self, found: Proposal, rows: Sequence[BrokerConsequences]) -> None:
        """Tell at a glance what the plan will do; beside the answer, which scripts parse."""
        if self.explain:
            for text in _partition_lines(found, self.name_of):
                self.out.note(text)
        for text in _broker_lines(rows, all_brokers=self.explain):
            self.out.note(text)
        self.out.note(_total_line(found, rows))


def _sizes(found: Proposal) -> dict[TopicPartition, int]:
    # The wire protocol: other modes start without it.
    from kafkatool.core.operations.reassignment.replica_sizes import read_sizes

    return read_sizes(found.brokers.values(), found.current)


def _partition_lines(found: Proposal, name_of: PartitionName) -> Iterator[str]:
    """Yield a line for each partition that changes: old, new, why."""
    for partition, to in found.proposed.items():
        before = found.current[partition]
        if (why := reason(before, to, found.targets)) is not None:
            yield f"{name_of(partition)}: {join_ids(before)} -> {join_ids(to)}  {why}"


def _broker_lines(rows: Sequence[BrokerConsequences], *, all_brokers: bool) -> list[str]:
    """Return a table: replicas and preferred leaders before and after, replicas that come and go, bytes where known."""
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


def _total_line(found: Proposal, rows: Sequence[BrokerConsequences]) -> str:
    """Return ``3 of 9 partitions change, 2 replicas to copy (10 MiB)``."""
    changing = sum(found.current[p] != to for p, to in found.proposed.items())
    known = [row.copied_bytes for row in rows if row.incoming]
    size = f" ({byte_size(sum(b for b in known if b is not None))})" if known and None not in known else ""
    return f"{changing} of {len(found.proposed)} partitions change, {found.copies} replicas to copy{size}"


def _reason_fields(found: Proposal, partition: TopicPartition) -> dict[str, Any]:
    """Return what --explain adds to a partition's item."""
    before, to = found.current[partition], found.proposed[partition]
    return {"reason": reason(before, to, found.targets), "copies_to": [b for b in to if b not in before]}


def _changes(row: BrokerConsequences) -> bool:
    return bool(row.incoming or row.outgoing) or row.leaders_before != row.leaders_after
