"""The state file of a reassignment that kt follows: what a killed run needs to be continued (RSN-22X, RSN-23X).

It is on the disk before the first write to ZooKeeper, and goes when all is done and every throttle is as it was.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import orjson

from kafkatool.core.errors import RefusedError
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.planner.plan_files import Moves, plan_json, replace_file

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Progress of one batch: ``sent`` is noted before it is written to ZooKeeper, ``finished`` when it has ended."""

    partitions: int
    sent: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class RunState:
    """One run of a plan. The bounds cut the same plan into the same batches again (RSN-20X)."""

    plan_sha256: str
    max_json_size: int
    batch_partitions: int
    batches: tuple[Batch, ...]
    throttles: tuple[SavedThrottle, ...] = ()
    cancelled: bool = False  # whoever follows this run sends no further batch (RSN-37X)

    @property
    def finished(self) -> int:
        """Batches that have ended: always the first ones."""
        return sum(batch.finished for batch in self.batches)

    def with_batch(self, number: int, *, finished: bool) -> Self:
        """``number`` counts from 0; all before it have finished."""
        changed = replace(self.batches[number], sent=True, finished=finished)
        return replace(self, batches=(*self.batches[:number], changed, *self.batches[number + 1 :]))

    def cancel(self) -> Self:
        """To be written for the run that goes on elsewhere."""
        return replace(self, cancelled=True)

    def resumed(self, left: Sequence[Moves]) -> Self:
        """What has finished, and then the batches that are left to do."""
        batches = (*self.batches[: self.finished], *(Batch(len(batch)) for batch in left))
        return replace(self, batches=batches, cancelled=False)

    def write(self, path: Path) -> None:
        """Replace the file; it is on the disk when this returns. Raises RefusedError."""
        replace_file(path, orjson.dumps({"version": VERSION, **asdict(self)}, option=orjson.OPT_INDENT_2))

    @classmethod
    def read(cls, path: Path, plan: Moves) -> Self:
        """Raises RefusedError: no such file, not a state file, that of another plan."""
        try:
            value = orjson.loads(path.read_bytes())
            state = cls._from_json(value)
        except FileNotFoundError as e:
            raise RefusedError(f"nothing to resume: there is no {path}") from e
        except OSError as e:
            raise RefusedError(f"cannot read {path}: {e.strerror}") from e
        except (ValueError, KeyError, TypeError) as e:
            raise RefusedError(f"{path} is not a state file of kt reassign") from e
        if state.plan_sha256 != plan_hash(plan):
            raise RefusedError(f"{path} belongs to another plan: resume with the plan that was started")
        return state

    @classmethod
    def _from_json(cls, value: Mapping[str, Any]) -> Self:
        if value["version"] != VERSION:
            raise ValueError(value["version"])
        return cls(
            str(value["plan_sha256"]),
            int(value["max_json_size"]),
            int(value["batch_partitions"]),
            tuple(Batch(**batch) for batch in value["batches"]),
            tuple(SavedThrottle(**saved) for saved in value["throttles"]),
            bool(value["cancelled"]),
        )


def new_state(plan: Moves, cut: Sequence[Moves], bounds: tuple[int, int], saved: Sequence[SavedThrottle]) -> RunState:
    """Of a run that begins. ``cut``: the plan's batches within ``bounds`` (bytes, entries)."""
    return RunState(plan_hash(plan), *bounds, tuple(Batch(len(batch)) for batch in cut), tuple(saved))


def plan_hash(plan: Moves) -> str:
    """Of the plan's content, whatever the file's layout."""
    return hashlib.sha256(plan_json(plan).encode()).hexdigest()


def remove(path: Path) -> None:
    """When the run is over. Raises RefusedError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        raise RefusedError(f"cannot remove {path}: {e.strerror}") from e
