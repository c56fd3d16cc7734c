"""Run ``kt reassign …`` in this process against a test's ZooKeeper; the controller is played by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.planner.plan_files import plan_json
from tests.core.operations.reassignment.plans import plan

GOAL = {p: (3 - p % 2,) for p in range(9)}


def run(zk_connect: str, *args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(kt, ["reassign", "--zookeeper", zk_connect, *map(str, args)], input=stdin)


def plan_file(path: Path, moves: Mapping[int, Sequence[int]], topic: str = "t") -> Path:
    path.write_text(plan_json(plan(moves, topic)))
    return path
