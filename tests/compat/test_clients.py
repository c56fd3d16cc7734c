"""Every client of docs/clients.md does all of its row; scripts/client-matrix prints the same as a table."""

from pathlib import Path

import pytest

from tests.compat import client_matrix
from tests.compat.client_matrix import CELLS, Row
from tests.compat.client_programs import PREPARE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Return the matrix of the clients whose tests are to be run."""
    tests = [item for item in request.session.items if item.path == Path(__file__)]
    clients = [item.callspec.params["client"] for item in tests]  # type: ignore[attr-defined]
    return client_matrix.run(clients, tmp_path_factory.mktemp("clients"), print)


@pytest.mark.spec("BRK-1", "BRK-155", "BRK-156", "BRK-163", "BRK-164", "GRP-1", "GRP-13", "GRP-26", "GRP-47")
@pytest.mark.parametrize("client", PREPARE)
def test_a_client_with_its_defaults_writes_reads_shares_and_survives(rows: dict[str, Row], client: str) -> None:
    row = rows[client]
    if row.missing:
        pytest.skip(row.missing)
    assert row.cells == dict.fromkeys(CELLS, "ok")
