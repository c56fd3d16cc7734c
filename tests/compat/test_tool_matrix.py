"""kt and Kafka's own tools leave the same behind, on our brokers and on real ones: a short form of the whole table.

All rows, and the table in docs/compatibility.md, are made by ``scripts/tool-matrix --write``.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from tests.compat import real_kafka, tool_matrix
from tests.compat.tool_matrix import SAME, VERSIONS, Columns, NoCommand
from tests.compat.tool_rows import PHASES
from tests.compat.tool_table import PAGE, table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with tool_matrix.our_cluster(tmp_path_factory.mktemp("ours")) as cluster:
        yield cluster


@pytest.mark.spec(
    "TOP-1", "TOP-2", "TOP-9", "TOP-10", "TOP-14", "TOP-15", "TOP-16", "TOP-17", "RSN-9", "RSN-12", "RSN-13", "RSN-14"
)
@pytest.mark.spec("ELE-3", "ELE-5", "ELE-7", "ASG-6", "CTL-70", "CTL-75", "CTL-91", "CTL-100")
@pytest.mark.parametrize("version", real_kafka.versions(*VERSIONS))
def test_what_kt_does_kafkas_tools_do_on_ours_and_on_theirs(
    version: str, ours: EmbeddedCluster, tmp_path: Path
) -> None:
    real_kafka.require(version)
    columns = tool_matrix.compare(version, ours, tmp_path, print, short=True)
    assert columns.differences() == []
    assert len(columns.kt_on_ours) == sum(row.short for phase in PHASES for row in phase)


def test_the_page_shows_every_row_and_no_difference() -> None:
    text = PAGE.read_text()
    rows = [row.title for phase in PHASES for row in phase]
    assert all(f"| {row} |" in text for row in rows) and "DIFFERS" not in text
    cells = dict.fromkeys(rows, SAME)
    found = {"1.1.1": Columns(cells, cells, {**cells, rows[0]: NoCommand("why")})}
    assert f"| {rows[0]} | same | same | - |" in table(found) and not found["1.1.1"].differences()
