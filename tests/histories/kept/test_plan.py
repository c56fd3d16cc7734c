"""A plan that was written is read as the same plan, and each of its steps has a line in words."""

import itertools
from pathlib import Path

import pytest

from tests.faults.schedule import steps
from tests.faults.world import BROKERS
from tests.histories.clients.client import Cell
from tests.histories.kept.plan import WORKERS, Plan, read, told, written

_PLAN = Plan(
    8, Cell("subscribe", "transactional", cleanup="compact"), 300, tuple(itertools.islice(steps(8, BROKERS), 40))
)


@pytest.mark.spec("HIS-48")
@pytest.mark.parametrize("plan", [_PLAN, Plan(1, Cell("assign", "plain"), 1, (), (3, 7), 0.5, "2.8.2", True, True)])
def test_a_plan_is_read_as_it_was_written(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "plan").write_bytes(written(plan))
    assert read(tmp_path / "plan") == plan


@pytest.mark.spec("HIS-48")
def test_words_tell_each_step_and_who_is_there() -> None:
    first, cell, workers, *lines = told(_PLAN)
    assert first == "seed 8 on ours: 300 operations"
    assert "via subscribe" in cell and "guarantee transactional" in cell and "cleanup compact" in cell
    assert workers == f"workers {', '.join(map(str, range(WORKERS)))} of {WORKERS}; 3 s between steps"
    assert lines == [f"step {number}: {step}" for number, step in enumerate(_PLAN.steps)]
    control, _, workers = told(
        Plan(1, Cell("assign", "plain"), 1, (), (3, 7), kafka="2.8.2", frames=True, flushed=True)
    )
    assert control == "seed 1 on Kafka 2.8.2: 1 operations, frames late and lost, flushed"
    assert workers.startswith("workers 3, 7 of ")
