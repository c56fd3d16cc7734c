"""A short fault run; the long one is scripts/fault-run."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.run import play
from tests.faults.schedule import steps
from tests.faults.world import BROKERS, World

_SEED = int(os.environ.get("KAFKATOOL_FAULT_SEED", "10553"))
_STEPS = int(os.environ.get("KAFKATOOL_FAULT_STEPS", "7"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "cluster")
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("BRK-48", "BRK-54", "BRK-58", "BRK-63", "BRK-66", "BRK-71", "BRK-91", "BRK-122", "BRK-137", "CTL-19")
def test_whatever_goes_wrong_nothing_acknowledged_is_lost_moved_or_there_twice(world: World) -> None:
    print(f"seed {_SEED}")
    play(world, itertools.islice(steps(_SEED, BROKERS), _STEPS))
