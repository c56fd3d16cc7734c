"""Every client of docs/clients.md does all of its row; scripts/client-matrix prints the same as a table."""

from pathlib import Path

import pytest

from tests.compat import client_matrix, secured_client_matrix
from tests.compat.client_matrix import CELLS, Row
from tests.compat.client_programs import PREPARE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    return client_matrix.run(chosen(request, "rows"), tmp_path_factory.mktemp("clients"), print)


@pytest.fixture(scope="module")
def secured_rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    return secured_client_matrix.run(chosen(request, "secured_rows"), tmp_path_factory.mktemp("clients"), print)


def chosen(request: pytest.FixtureRequest, fixture: str) -> list[str]:
    """Return the clients whose tests of that matrix are to be run."""
    tests = [item for item in request.session.items if item.path == Path(__file__)]
    return [item.callspec.params["client"] for item in tests if fixture in item.fixturenames]  # type: ignore[attr-defined]


@pytest.mark.spec("BRK-1", "BRK-155", "BRK-156", "BRK-163", "BRK-164", "GRP-1", "GRP-13", "GRP-26", "GRP-47", "ADM-82")
@pytest.mark.parametrize("client", PREPARE)
def test_a_client_with_its_defaults_writes_reads_shares_and_survives(rows: dict[str, Row], client: str) -> None:
    row = rows[client]
    if row.missing:
        pytest.skip(row.missing)
    assert row.cells == dict.fromkeys(CELLS, "ok")


@pytest.mark.slowest
@pytest.mark.timeout(2700)
@pytest.mark.spec("SEC-48", "SEC-56", "SEC-64", "SEC-65", "SEC-84", "SEC-85", "SEC-105", "SEC-107", "SEC-111")
@pytest.mark.parametrize("client", PREPARE)
def test_a_client_gets_in_by_each_way_and_survives(secured_rows: dict[str, Row], client: str) -> None:
    row = secured_rows[client]
    if row.missing:
        pytest.skip(row.missing)
    assert row.cells == dict.fromkeys(secured_client_matrix.CELLS, "ok")
