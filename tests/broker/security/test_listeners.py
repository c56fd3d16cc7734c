"""Which listeners are told of as open to everybody."""

import pytest

from kafkatool.broker.security.listeners import warn_of_open_doors
from tests.broker.network.raw_client import network_config


@pytest.mark.spec("SEC-52")
@pytest.mark.parametrize(
    ("listener", "client_auth", "is_open"),
    [
        ("SSL://192.0.2.1:9092", "required", False),
        ("SSL://192.0.2.1:9092", "none", True),
        ("SSL://192.0.2.1:9092", "NONE", True),
        ("SSL://192.0.2.1:9092", "requested", True),  # who has no certificate gets in as well
        ("PLAINTEXT://127.0.0.1:9092", "none", False),
        ("PLAINTEXT://localhost:9092", "none", False),
        ("PLAINTEXT://localhost.example.org:9092", "none", True),
        ("PLAINTEXT://127.example.org:9092", "none", True),
    ],
)
def test_a_listener_where_nobody_needs_to_prove_anything_is_warned_of(
    listener: str, client_auth: str, is_open: bool
) -> None:
    protocol = listener.partition(":")[0]
    given = {"listeners": listener, "security.inter.broker.protocol": protocol, "ssl.client.auth": client_auth}
    assert bool(warn_of_open_doors(network_config(**given))) == is_open
