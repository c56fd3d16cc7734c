"""``kt reassign --generate``: a plan, and what it means, on stderr for people, as further items for programs (RSN-29X).

stdout stays the five lines that scripts parse (RSN-4), unless --out names a file for the plan.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkatool.commands.reassign.modes import Mode
from kafkatool.commands.reassign.rows import COLUMNS, items
from kafkatool.commands.shared.credentials import broker_access
from kafkatool.commands.shared.options import parse_broker_ids
from kafkatool.commands.shared.output import Answer
from kafkatool.commands.shared.plan_table import broker_lines, total_line
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.moves import Status
from kafkatool.core.model.values import TopicPartition, first_of, in_number, join_ids
from kafkatool.core.operations.reassignment import proposal
from kafkatool.core.operations.reassignment.proposal import Proposal
from kafkatool.core.planner.consequences import BrokerConsequences, broker_consequences, reason
from kafkatool.core.planner.plan_files import (
    CURRENT_ASSIGNMENT,
    PROPOSED_ASSIGNMENT,
    Moves,
    PartitionName,
    parse_topics_to_move,
    plan_json,
    read_text,
    write_file,
)
from kafkatool.core.planner.strategy import Strategy
from kafkatool.core.zookeeper.view import ClusterView

if TYPE_CHECKING:
    from concurrent.futures import Future

EXPLAINED_COLUMNS: Final = (
    *("reason", "copies_to"),
    *("broker", "replicas_before", "replicas_after", "leaders_before", "leaders_after"),
    *("incoming", "outgoing", "copied_bytes"),
)

SHOWN: Final = 10  # names of partitions in a note


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
        brokers, exclude = self.read_brokers()
        source = self.topics_to_move_json_file
        topics = parse_topics_to_move(read_text(source, sys.stdin), source)
        from kafkatool.core.zookeeper.cluster_view import read_cluster  # who asks brokers starts without it

        with self.session() as zk:
            view = read_cluster(zk, topics, states=False)
        return self.show(view, topics, brokers, exclude)

    def read_brokers(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the brokers to plan for, and those to leave out. Raises RefusedError: one is there twice."""
        brokers = parse_broker_ids(self.broker_list, "--broker-list")
        if twice := sorted({b for b in brokers if brokers.count(b) > 1}):
            raise RefusedError(f"Broker list contains duplicate entries: {join_ids(twice)}")
        exclude = parse_broker_ids(self.exclude_brokers, "--exclude-brokers") if self.exclude_brokers else ()
        return brokers, exclude

    def show(self, view: ClusterView, topics: Sequence[str], brokers: Sequence[int], exclude: Sequence[int]) -> int:
        """Plan for the cluster as it was read, and show that, with the sizes that brokers tell meanwhile."""
        # it needs the wire protocol: others start without it
        from concurrent.futures import ThreadPoolExecutor

        from kafkatool.core.operations.reassignment.replica_sizes import read_sizes

        access, unseen = broker_access(), self.out.unseen
        with ThreadPoolExecutor(1, thread_name_prefix="kt-sizes-of-plan") as asking:
            sizes = None
            if self.out.is_text or self.explain:
                sizes = asking.submit(read_sizes, view.brokers.values(), view.partitions(), access, unseen=unseen)
            found = proposal.propose(
                view,
                topics,
                brokers,
                rack_aware=not self.disable_rack_aware,
                rng=random.SystemRandom(),
                strategy=Strategy(self.strategy or Strategy.KAFKA),
                exclude=exclude,
                replication_factor=self.replication_factor,
            )
            self._show(found, view.cluster_id, sizes)
        return 0

    def _show(self, found: Proposal, cluster_id: str | None, sizes: "Future[dict[TopicPartition, int]] | None") -> None:
        self._note_moving(found)
        if self.replication_factor is None and self.strategy != Strategy.MINIMAL:
            for topic in found.uneven_topics:
                self.out.note(
                    f"partitions of {topic} have different numbers of replicas; all are planned with partition 0's"
                )
        if self.out_file is not None:
            write_file(self.out_file, plan_json(found.proposed))
        if self.out.is_text:
            self._show_plan(found)
        rows: Sequence[BrokerConsequences] = ()
        if sizes is not None:
            self.out.is_listing = True  # the plan is whole without the sizes
            rows = broker_consequences(found.current, found.proposed, found.targets, sizes.result())
        if self.out.is_text:
            self._note_consequences(found, rows)
            return
        moves = items(found.proposed, found.current, Status.PENDING)
        if self.explain:
            moves = [{**i, **_reason_fields(found, p)} for i, p in zip(moves, found.proposed, strict=True)]
            moves += [asdict(row) for row in rows]
        self.out.show(Answer((), moves, (*COLUMNS, *(EXPLAINED_COLUMNS if self.explain else ())), cluster_id))

    def _note_moving(self, found: Proposal) -> None:
        """Say which partitions are on the move, and what they are planned from."""
        before = "being moved; planned from the replicas before the move"
        to_come = "being moved, and nothing tells what was there before; planned from the replicas to come"
        for partitions, what in ((found.moving, before), (found.untold, to_come)):
            if partitions:
                self.out.note(f"{first_of(list(map(self.name_of, partitions)), SHOWN, ',')}: {what}")

    def _show_plan(self, found: Proposal) -> None:
        if self.out_file is None:
            self.out.lines(
                [
                    CURRENT_ASSIGNMENT,
                    self.plan_text(found.current),
                    "",
                    PROPOSED_ASSIGNMENT,
                    self.plan_text(found.proposed),
                ]
            )
        else:
            many = in_number(len(found.proposed), "partition", "partitions")
            self.out.line(f"{many} planned: {self.out_file}")

    def plan_text(self, moves: Moves) -> str:
        """Write a plan as it is shown."""
        return plan_json(moves)

    def _note_consequences(self, found: Proposal, rows: Sequence[BrokerConsequences]) -> None:
        """Tell at a glance what the plan will do; beside the answer, which scripts parse."""
        if self.explain:
            for text in _partition_lines(found, self.name_of):
                self.out.note(text)
        for text in broker_lines(rows, all_brokers=self.explain):
            self.out.note(text)
        self.out.note(total_line(found.current, found.proposed, rows))


def _partition_lines(found: Proposal, name_of: PartitionName) -> Iterator[str]:
    """Yield a line for each partition that changes: old, new, why."""
    for partition, to in found.proposed.items():
        before = found.current[partition]
        if (why := reason(before, to, found.targets)) is not None:
            yield f"{name_of(partition)}: {join_ids(before)} -> {join_ids(to)}  {why}"


def _reason_fields(found: Proposal, partition: TopicPartition) -> dict[str, Any]:
    """Return what --explain adds to a partition's item."""
    before, to = found.current[partition], found.proposed[partition]
    return {"reason": reason(before, to, found.targets), "copies_to": [b for b in to if b not in before]}
