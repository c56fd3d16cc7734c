"""Kafka's admin tools and AdminClients of 2.8.2, 3.9.1 and 4.1.0, and others' in Go, administer a cluster of ours.

The rows are those of docs/admin-clients.md, which ``scripts/admin-matrix --write`` makes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from tests.compat import admin_matrix, real_kafka
from tests.compat.admin_matrix import IN_GO, VERSIONS
from tests.compat.admin_rows import ROWS
from tests.compat.admin_table import PAGE
from tests.compat.client_programs import MissingError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with admin_matrix.our_cluster(tmp_path_factory.mktemp("ours")) as cluster:
        yield cluster


@pytest.mark.spec("ADM-59", "ADM-61", "ADM-62", "ADM-64", "ADM-65", "ADM-66", "ADM-67", "ADM-77", "ADM-81", "ADM-80")
@pytest.mark.spec("ADM-82", "ADM-83", "ADM-84")
@pytest.mark.parametrize("version", real_kafka.versions(*VERSIONS))
def test_the_tools_and_the_admin_client_do_their_work(version: str, ours: EmbeddedCluster, tmp_path: Path) -> None:
    real_kafka.require(version)
    assert admin_matrix.differences(admin_matrix.played(version, ours, tmp_path, print)) == []


@pytest.mark.slowest
@pytest.mark.spec("ADM-61", "ADM-77", "ADM-84")
@pytest.mark.parametrize("program", IN_GO)
def test_programs_in_go_do_their_work(program: str, ours: EmbeddedCluster, tmp_path: Path) -> None:
    try:
        played = admin_matrix.played_in_go(program, ours, tmp_path, print)
    except MissingError as e:
        pytest.skip(f"{program}: {e}")
    assert admin_matrix.differences(played) == []


def test_the_page_shows_every_row_and_no_failure() -> None:
    text = PAGE.read_text()
    assert all(f"| {row.title} |" in text for row in ROWS) and "FAILS" not in text
    assert f"|  | {' | '.join(admin_matrix.COLUMNS)} |" in text
