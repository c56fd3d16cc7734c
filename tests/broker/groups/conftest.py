"""A coordinator over a log of its own, which nobody leads yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.groups.test_coordinator import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "data")
    yield made
    made.close()
