"""The cluster in memory, and the client that asks it once, for every test of this room that needs no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.reassign.memory_cluster import Cluster, cluster_of_four


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of_four() as running:
        yield running


@pytest.fixture
def hurried(tmp_path: Path) -> Path:
    """Properties of a client that does not try again."""
    file = tmp_path / "client.properties"
    file.write_text("retries=0\n")
    return file
