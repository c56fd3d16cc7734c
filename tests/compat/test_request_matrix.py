"""kt and the tools of Kafka 3.x and 4.x leave the same behind on real clusters: a short form of the whole table.

All rows, and the table in docs/compatibility.md, are made by ``scripts/tool-matrix --write``.
"""

from pathlib import Path

import pytest

from tests.compat import real_kafka, request_matrix
from tests.compat.request_matrix import CLUSTERS, NOT_THERE, SAME, differences, table
from tests.compat.request_rows import ROWS
from tests.compat.tool_table import PAGE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OFTEN = "4.1.0-kraft"


@pytest.mark.spec("ADM-22", "ADM-24", "ADM-25", "ADM-26", "ADM-27", "ADM-28", "ADM-30", "ADM-33", "ADM-34", "ADM-35")
@pytest.mark.spec("ADM-36", "ADM-38", "ADM-41", "ADM-45", "ADM-46", "ADM-17", "ADM-58")
@pytest.mark.parametrize(
    "cluster", [pytest.param(name, marks=[] if name == OFTEN else pytest.mark.slowest) for name in CLUSTERS]
)
def test_what_kt_does_the_versions_tools_do(cluster: str, tmp_path: Path) -> None:
    real_kafka.require(cluster.partition("-")[0])
    columns = request_matrix.compare(cluster, tmp_path, print, short=True)
    assert differences(columns) == []
    assert all(len(cells) == sum(row.short for row in ROWS) for cells in columns.values())


def test_the_page_shows_every_row_and_no_difference() -> None:
    text = PAGE.read_text()
    rows = [row.title for row in ROWS]
    assert all(f"| {row} |" in text for row in rows) and "DIFFERS" not in text
    cells = {**dict.fromkeys(rows, SAME), rows[0]: NOT_THERE, rows[1]: "exit: Kafka 1, kt 0"}
    assert f"| {rows[0]} | - |" in table({"kt": cells}) and f"| {rows[1]} | DIFFERS |" in table({"kt": cells})
    assert differences({"kt": cells}) == [f"kt: {rows[1]}: exit: Kafka 1, kt 0"]
