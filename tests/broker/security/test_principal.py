"""Identities."""

import pytest

from kafkatool.broker.security.principal import ANONYMOUS, Principal


@pytest.mark.spec("SEC-72")
def test_a_principal_is_written_as_in_acls_and_compared_exactly() -> None:
    alice = Principal("User", "alice")
    assert str(alice) == "User:alice"
    assert alice == Principal("User", "alice")
    assert alice not in (Principal("User", "Alice"), Principal("user", "alice"), ANONYMOUS)
    assert str(ANONYMOUS) == "User:ANONYMOUS"
