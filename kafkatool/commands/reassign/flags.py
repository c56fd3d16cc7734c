"""What the modes of ``kt reassign`` share: the flags after click, reading a plan, rows and status lines."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kafkatool.commands.shared.options import connect
from kafkatool.commands.shared.output import Output, paint
from kafkatool.core.model.values import join_ids
from kafkatool.core.operations.reassignment.requests import Move, Prepared, Status
from kafkatool.core.planner.plan_files import STDIN, Moves, PartitionName, parse_plan, read_text
from kafkatool.core.zookeeper.znodes import ConfigChangeZnode

COLUMNS: Final = ("topic", "partition", "from", "to", "status")
COLOURS: Final = {Status.IN_PROGRESS: "yellow", Status.COMPLETED: "green", Status.FAILED: "red"}
NUMBERED: Final = (ConfigChangeZnode.PREFIX,)


@dataclass(frozen=True, slots=True)
class Options:
    """The flags after click, one mode chosen."""

    zookeeper: str
    out: Output
    name_of: PartitionName
    cluster_id: str | None
    zk_max_bytes: int
    dry_run: bool
    topics_to_move_json_file: str | None
    broker_list: str | None
    disable_rack_aware: bool
    out_file: Path | None
    strategy: str | None
    exclude_brokers: str | None
    replication_factor: int | None
    explain: bool
    reassignment_json_file: str | None
    throttle: int | None
    skip_unchanged: bool
    force: bool
    rollback_file: Path | None
    rollback: bool
    wait: bool
    resume: bool
    timeout: float | None
    max_json_size: int | None
    batch_partitions: int | None
    preserve_throttles: bool


def status_lines(moves: Sequence[Move], name_of: PartitionName) -> list[str]:
    """All ERROR lines first, then one line per partition (RSN-12)."""
    errors = [
        f"ERROR: Assigned replicas ({join_ids(m.current)}) don't match the list of replicas for reassignment "
        f"({join_ids(m.target)}) for partition {name_of(m.partition)}"
        for m in moves
        if m.status is Status.FAILED
    ]
    ends = {
        Status.IN_PROGRESS: "is still in progress",
        Status.COMPLETED: "completed successfully",
        Status.FAILED: "failed",
        Status.PENDING: "has not been sent yet",
    }
    lines = [
        paint(f"Reassignment of partition {name_of(m.partition)} {ends[m.status]}", COLOURS.get(m.status))
        for m in moves
    ]
    return [paint(text, "red") for text in errors] + lines


def read_plan(o: Options) -> Moves:
    assert o.reassignment_json_file
    name = "stdin" if o.reassignment_json_file == STDIN else o.reassignment_json_file
    return parse_plan(read_text(o.reassignment_json_file, sys.stdin), name, name_of=o.name_of)


def session(o: Options) -> Any:
    return connect(o.zookeeper, cluster_id=o.cluster_id, zk_max_bytes=o.zk_max_bytes)


def item(move: Move) -> dict[str, Any]:
    topic, partition = move.partition
    return {
        "topic": topic,
        "partition": partition,
        "from": list(move.current),
        "to": list(move.target),
        "status": str(move.status),
    }


def items(moves: Moves, prepared: Prepared, status: Status) -> list[dict[str, Any]]:
    """Rows of a plan whose changing partitions have ``status``."""
    return [
        item(Move(p, prepared.current[p], to, Status.NOOP if prepared.current[p] == to else status))
        for p, to in moves.items()
    ]
