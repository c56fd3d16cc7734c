"""Every client of docs/clients.md that has transactions does all of its row, on one broker and on three."""

from pathlib import Path

import pytest

from tests.compat import transaction_matrix
from tests.compat.client_matrix import Row
from tests.compat.transaction_matrix import CELLS, CLIENTS

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Return the matrix of the clients whose tests are to be run."""
    tests = [item for item in request.session.items if item.path == Path(__file__)]
    clients = [item.callspec.params["client"] for item in tests]  # type: ignore[attr-defined]
    return transaction_matrix.run_both(clients, tmp_path_factory.mktemp("clients"), print)


@pytest.mark.spec("TXN-101", "TXN-22", "TXN-29", "TXN-35", "TXN-40", "TXN-41", "TXN-42", "TXN-26", "TXN-27", "TXN-44")
@pytest.mark.spec("TXN-4", "TXN-65", "TXN-82", "TXN-86", "TXN-36", "TXN-91")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_its_defaults_commits_aborts_is_fenced_and_copies(rows: dict[str, Row], client: str) -> None:
    row = rows[client]
    if row.missing:
        pytest.skip(row.missing)
    assert row.cells == dict.fromkeys(CELLS, "ok")
