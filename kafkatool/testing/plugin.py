"""The pytest plugin: ``pip install kafkatool`` gives a test suite the fixture ``kafka_cluster``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkatool.broker.embedded.cluster import EmbeddedCluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kafka_cluster_brokers", "brokers of the fixture kafka_cluster (default 3)", default="3")


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> Iterator[EmbeddedCluster]:
    """Run a cluster for the whole test run; ``kafka_cluster.bootstrap`` is what clients want.

    The number of brokers comes from the ini option ``kafka_cluster_brokers``.
    """
    # Imported here: a plugin is loaded by every pytest run, also by those that start no cluster.
    from kafkatool.broker.embedded.cluster import EmbeddedCluster

    with EmbeddedCluster(brokers=int(pytestconfig.getini("kafka_cluster_brokers"))) as cluster:
        yield cluster
