"""One Spark for all tests here that need a real one: it takes seconds to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.core.statelog.spark import Spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Spark with two workers."""
    directory: Path = tmp_path_factory.mktemp("spark")
    with Spark("local[2]", directory) as started:
        yield started
