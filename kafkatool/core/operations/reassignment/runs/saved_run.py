"""The files of a plan's runs: the plan, which is locked, and beside it the way back and the state file (RSN-21X to 23X).

The state file is what a killed run needs to be continued. It is on the disk before the first write to ZooKeeper, and goes
when all is done and every throttle is as it was.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

import orjson

from kafkatool.core.errors import KafkatoolError, RefusedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.runs import run_lock
from kafkatool.core.planner.plan_files import (
    STDIN,
    Moves,
    PartitionName,
    parse_plan,
    plan_json,
    read_text,
    replace_file,
    write_file,
)

if TYPE_CHECKING:
    from kafkatool.core.operations.reassignment.submission import Submission
    from kafkatool.core.operations.reassignment.throttles import SavedThrottle

VERSION: Final = 1

PATIENCE_S: Final = 10.0
"""How long who cancels waits for who carries the plan out to let go of it, who looks for the mark every second."""

PAUSE_S: Final = 0.1
"""Between two looks at who holds the lock."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The progress of one batch: ``sent`` is noted before it is written to ZooKeeper, ``finished`` when it has ended."""

    partitions: int
    sent: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of one run of a plan. The bounds cut the same plan into the same batches again (RSN-20X)."""

    plan_sha256: str
    max_json_size: int
    batch_partitions: int
    batches: tuple[Batch, ...]
    throttles: tuple["SavedThrottle", ...] = ()
    earlier: tuple[str, ...] = ()  # topics that had the throttle of another plan when this one began
    cancelled: bool = False  # whoever follows this run sends no further batch (RSN-37X)

    @classmethod
    def of(cls, plan: Moves, prepared: "Submission") -> Self:
        """Return the state of a run that begins."""
        batches = tuple(Batch(len(batch)) for batch in prepared.batches)
        return cls(plan_hash(plan), prepared.max_bytes, prepared.max_count, batches, prepared.saved, prepared.earlier)

    @classmethod
    def of_ended(cls, plan: Moves, max_bytes: int, batch_partitions: int) -> Self:
        """Return the state of a run that has ended and is gone back from: nothing of it is to be sent."""
        return cls(plan_hash(plan), max_bytes, batch_partitions, (), cancelled=True)

    @property
    def rate(self) -> int | None:
        """Return the bytes per second and broker that the run moves under; None: unthrottled."""
        return next((int(rate) for t in self.throttles if t.entity_type == "brokers" for rate in t.set.values()), None)

    @property
    def finished(self) -> int:
        """Count the batches that have ended: always the first ones."""
        return sum(batch.finished for batch in self.batches)

    def with_batch(self, number: int, *, finished: bool) -> Self:
        """Note batch ``number``, from 0, as sent; all before it have finished."""
        changed = replace(self.batches[number], sent=True, finished=finished)
        return replace(self, batches=(*self.batches[:number], changed, *self.batches[number + 1 :]))

    def cancel(self) -> Self:
        """Return the state to be written for the run that goes on elsewhere."""
        return replace(self, cancelled=True)

    def resumed(self, left: Sequence[Moves]) -> Self:
        """Return the state with what has finished, and then the batches that are left to do."""
        batches = (*self.batches[: self.finished], *(Batch(len(batch)) for batch in left))
        return replace(self, batches=batches, cancelled=False)

    def write(self, path: Path) -> None:
        """Replace the file; it is on the disk when this returns. Raises RefusedError."""
        replace_file(path, orjson.dumps({"version": VERSION, **asdict(self)}, option=orjson.OPT_INDENT_2))

    @classmethod
    def read(cls, path: Path, plan: Moves) -> Self:
        """Read the file. Raises RefusedError: no such file, not a state file, that of another plan."""
        try:
            state = cls._from_json(orjson.loads(path.read_bytes()))
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
        from kafkatool.core.operations.reassignment.throttles import SavedThrottle

        if value["version"] != VERSION:
            raise ValueError(value["version"])
        return cls(
            str(value["plan_sha256"]),
            int(value["max_json_size"]),
            int(value["batch_partitions"]),
            tuple(Batch(**batch) for batch in value["batches"]),
            tuple(SavedThrottle(**saved) for saved in value["throttles"]),
            tuple(value.get("earlier", ())),  # files of earlier versions lack it
            bool(value["cancelled"]),
        )


def plan_hash(plan: Moves) -> str:
    """Hash the plan's content, whatever the file's layout."""
    import hashlib  # loads OpenSSL: who asks brokers starts without

    return hashlib.sha256(plan_json(plan).encode()).hexdigest()


def _way_back_json(plan: Moves, origin: Moves) -> str:
    return plan_json(origin, plan_sha256=plan_hash(plan))


def remove(path: Path) -> None:
    """Remove the file of a run that is over. Raises RefusedError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        raise RefusedError(f"cannot remove {path}: {e.strerror}") from e


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of the plan in file ``plan``; for one from stdin or a pipe (``<(…)``) they lie in the working directory.

    ``own_rollback``: a file for the way back other than the one beside the plan.
    """

    plan: str
    own_rollback: Path | None = None

    @property
    def state(self) -> Path:
        """Return the path of the state file."""
        return self._beside("state.json")

    @property
    def rollback(self) -> Path:
        """Return the path of the way back."""
        return self.own_rollback if self.own_rollback is not None else self._beside("rollback.json")

    def _beside(self, kind: str) -> Path:
        stem = "reassignment" if self._is_stream else self.plan.removesuffix(".json")
        return Path(f"{stem}.{kind}")

    @property
    def _locked(self) -> tuple[Path, Path | None]:
        return (Path(), None) if self._is_stream else (Path(self.plan), self._beside("lock"))

    @property
    def _is_stream(self) -> bool:
        return self.plan == STDIN or self.plan.startswith("/dev/")

    def alone(self) -> AbstractContextManager[None]:
        """Carry out the plan while the block runs, seen by others. Raises HeldError: another kt does."""
        return run_lock.held(*self._locked)

    def is_carried_out(self) -> bool:
        """Tell whether a kt that is seen from here sends this plan and follows it."""
        return any(run_lock.is_held(path) for path in self._locked if path is not None)

    def unfinished_run(self, plan: Moves) -> RunState | None:
        """Read the state of a run of this plan. None: there is none, or it is of another plan and says nothing here."""
        try:
            return RunState.read(self.state, plan)
        except RefusedError:
            return None

    def read_rollback(self, plan: Moves, stdin: TextIO, *, name_of: PartitionName) -> Moves:
        """Read the way back of ``plan`` (RSN-36X). Raises UsageError, and RefusedError: it is of another plan."""
        found = parse_plan(read_text(str(self.rollback), stdin), str(self.rollback), name_of=name_of)
        if strange := sorted(set(found).difference(plan)):
            names = ",".join(map(name_of, strange))
            raise RefusedError(f"{self.rollback} is not the rollback of this plan, which does not have {names}")
        return found

    def save_way_back(self, plan: Moves, origin: Moves) -> Path | None:
        """Save the way back of ``plan`` to ``origin`` (RSN-21X). Return where another that was there is kept, if any.

        It says whose it is: the next plan may have the same file, as all from stdin do. Raises RefusedError.
        """
        return write_file(self.rollback, _way_back_json(plan, origin))

    def has_way_back(self, plan: Moves) -> bool:
        """Tell whether a run of just this plan has saved the way back that is there."""
        if not self.rollback.is_file():
            return False
        try:
            saved = orjson.loads(self.rollback.read_bytes())
        except (OSError, ValueError):
            return False
        return isinstance(saved, dict) and saved.get("plan_sha256") == plan_hash(plan)

    def moved_from_way_back(
        self, plan: Moves, before: Moves, *, now: Moves, moving: Collection[TopicPartition], name_of: PartitionName
    ) -> frozenset[TopicPartition] | None:
        """Return what has moved since an earlier run of the plan saved the way back; None: what is saved holds no more.

        It holds where all that is to change is, as ``before`` tells, where that run found it, or on its way from there.
        That of another plan never does: it would undo what that one has moved.
        """
        if before == now and self._is_way_back(plan, before):  # nothing has moved: no need to take 10,000 lines apart
            return frozenset()
        saved = self.known_way_back(plan, name_of=name_of) if self.has_way_back(plan) else {}
        for p, to in plan.items():
            if p in moving:
                holds = p in saved and set(saved[p]) <= set(now[p])
            else:
                holds = now[p] == to or saved.get(p) == before.get(p)
            if not holds:
                return None
        return frozenset(p for p, back in saved.items() if back != now[p]) if saved else None

    def _is_way_back(self, plan: Moves, origin: Moves) -> bool:
        """Tell whether just that is what the file of the way back says, as ``save_way_back`` has written it."""
        try:
            return self.rollback.read_bytes() == f"{_way_back_json(plan, origin)}\n".encode()
        except OSError:
            return False

    def known_way_back(self, plan: Moves, *, name_of: PartitionName) -> Moves:
        """Read the way back if there is one of this plan; empty: none is known."""
        if not self.rollback.is_file():
            return {}
        try:
            return self.read_rollback(plan, sys.stdin, name_of=name_of)
        except KafkatoolError:
            return {}
