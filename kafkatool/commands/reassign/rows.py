"""The answer of ``kt reassign``: an item and a line of text for each partition (RSN-12, RSN-35X); a throttle in words."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkatool.commands.shared.output import paint
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.model.values import in_number, join_ids
from kafkatool.core.planner.plan_files import Moves, PartitionName

if TYPE_CHECKING:
    from kafkatool.core.operations.reassignment.status import LeftThrottle

COLUMNS: Final = ("topic", "partition", "from", "to", "status")
COLOURS: Final = {Status.IN_PROGRESS: "yellow", Status.COMPLETED: "green", Status.FAILED: "red"}


def status_lines(moves: Sequence[Move], name_of: PartitionName) -> list[str]:
    """Return all ERROR lines first, then one line per partition (RSN-12)."""
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


def requested_lines(found: Iterable[Move]) -> list[str]:
    """Write how far partitions are, as Kafka's ``--verify`` by requests does (ADM-36)."""
    in_progress, completed = Status.IN_PROGRESS, Status.COMPLETED
    return [
        f"Reassignment of partition {m.partition} is still in progress."
        if m.status is in_progress
        else f"Reassignment of partition {m.partition} is completed."
        if m.status is completed
        else f"There is no active reassignment of partition {m.partition}, but replica set is {join_ids(m.current)} "
        f"rather than {join_ids(m.target)}."
        for m in found
    ]


def way_back_line(file: Path, *, saved: bool, kept: Path | None, moved: int) -> str:
    """Say where the way back is, who saved it, and where what was there before is kept."""
    if saved:
        return f"rollback plan: {file}" + (f"; the one of an earlier run is kept as {kept}" if kept else "")
    why = f"it has moved {in_number(moved, 'partition', 'partitions')}" if moved else "this run changes nothing"
    return f"rollback plan: {file}, as an earlier run saved it: {why}"


def left_throttle_text(left: "LeftThrottle") -> str:
    """Name the configs of a throttle, and whose they are."""
    return "; ".join(
        f"{' and '.join(configs)} of {entity}{'s' * (len(names) > 1)} {','.join(names)}"
        for entity, configs, names in left.configs
    )


def item(move: Move) -> dict[str, Any]:
    """Return the partition's item of the answer."""
    return {**move.partition._asdict(), "from": move.current, "to": move.target, "status": move.status}


def items(moves: Moves, current: Moves, status: Status) -> list[dict[str, Any]]:
    """Return the items of a plan whose changing partitions have ``status``."""
    return [item(Move(p, current[p], to, Status.NOOP if current[p] == to else status)) for p, to in moves.items()]


def unchanged_line(partitions: int, *, of_all: bool) -> str:
    """Say how much of a plan is in place already; Kafka's tools say that it was started."""
    what = in_number(partitions, "partition of the plan has", "partitions of the plan have")
    return f"{what} the planned replicas already{': nothing moves' if of_all else ''}"
