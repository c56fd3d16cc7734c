"""A real Spark for the tests that need one. Not one for several: pyspark has one at a time in a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.core.statelog.spark.session import Spark


@pytest.fixture
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    """Give Spark with two workers."""
    directory: Path = tmp_path_factory.mktemp("spark")
    with Spark("local[2]", directory) as started:
        yield started
