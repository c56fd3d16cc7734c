"""The broker most tests of replication work on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.replication.world import Clock, World, world


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    """Broker 1 with a clock moved by hand."""
    with world(tmp_path, clock=Clock()) as made:
        yield made
