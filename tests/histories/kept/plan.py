"""What decides a run of real processes, as far as anything does: written down, read again, told in words."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from tests.faults.schedule import Fault, Step
from tests.histories.clients.client import Cell

WORKERS: Final = 24  # of which half wait for a leader that is away, most of the time


@dataclass(frozen=True, slots=True)
class Plan:
    """``workers`` are those who are there: each draws the same by its number, whoever else is.

    ``kafka``: the version of real Kafka that ran instead of our brokers, if one did.
    """

    seed: int
    cell: Cell
    operations: int
    steps: tuple[Step, ...]
    workers: tuple[int, ...] = tuple(range(WORKERS))
    pause_s: float = 3.0
    kafka: str = ""
    frames: bool = False
    flushed: bool = False

    @property
    def source(self) -> str:
        """Return whose brokers ran."""
        return f"Kafka {self.kafka}" if self.kafka else "ours"


def written(plan: Plan) -> bytes:
    """Return a plan as JSON."""
    return orjson.dumps({**asdict(plan), "cell": plan.cell._asdict()}, option=orjson.OPT_INDENT_2)


def read(file: Path) -> Plan:
    """Read a plan that was written."""
    given: dict[str, Any] = orjson.loads(file.read_bytes())
    steps = tuple(_step(step) for step in given["steps"])
    return Plan(**{**given, "cell": Cell(**given["cell"]), "steps": steps, "workers": tuple(given["workers"])})


def _step(given: dict[str, Any]) -> Step:
    return Step(tuple(Fault(**fault) for fault in given["faults"]), given["seconds"], given["settle"])


def told(plan: Plan) -> Iterator[str]:
    """Yield a plan in words, a line for each step."""
    others = [name for name, there in (("frames late and lost", plan.frames), ("flushed", plan.flushed)) if there]
    yield ", ".join((f"seed {plan.seed} on {plan.source}: {plan.operations} operations", *others))
    yield ", ".join(f"{name} {value}" for name, value in plan.cell._asdict().items())
    yield f"workers {', '.join(map(str, plan.workers))} of {WORKERS}; {plan.pause_s:g} s between steps"
    for number, step in enumerate(plan.steps):
        yield f"step {number}: {step}"
