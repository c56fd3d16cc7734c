"""kt and Kafka's own tools leave the same behind on secured clusters: a short form of the whole table.

All rows, and the tables in docs/compatibility.md, are made by ``scripts/tool-matrix --write``.
"""

from pathlib import Path

import pytest

from tests.compat import real_kafka, secured_matrix
from tests.compat.request_matrix import differences
from tests.compat.request_rows import ROWS
from tests.compat.tool_rows import PHASES

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]


@pytest.mark.spec("SEC-16", "SEC-19", "SEC-28", "SEC-33", "SEC-112")
@pytest.mark.parametrize("cluster", secured_matrix.CLUSTERS)
def test_what_kt_does_behind_each_login_the_versions_tools_do(cluster: str, tmp_path: Path) -> None:
    real_kafka.require(cluster.partition("-")[0])
    columns = secured_matrix.compare(cluster, tmp_path, print, short=True)
    assert differences(columns) == []
    by_zookeeper = [row for phase in PHASES for row in phase if row.short and not row.kafka_only]
    rows = sum(row.short for row in ROWS) if cluster == secured_matrix.BY_REQUEST else len(by_zookeeper)
    assert [len(cells) for cells in columns.values()] == [rows] * {"1.1.1": 1, "2.8.2": 2, "3.9.1": 4}[cluster[:5]]
