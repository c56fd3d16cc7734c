"""Addresses of brokers as people write them."""

import pytest

from kafkatool.core.client.addresses import Address, parse_addresses
from kafkatool.core.errors import UsageError


@pytest.mark.spec("ADM-2")
def test_names_and_numbers_are_taken_in_their_order() -> None:
    found = parse_addresses("kafka2:9092, kafka1:1,[::1]:65535,10.0.0.1:80")
    assert found == (Address("kafka2", 9092), Address("kafka1", 1), Address("::1", 65535), Address("10.0.0.1", 80))
    assert str(found[2]) == "[::1]:65535"


@pytest.mark.spec("ADM-2")
@pytest.mark.parametrize(
    "text", ["kafka1", "kafka1:", ":9092", "kafka1:0", "kafka1:65536", "kafka1:x", "::1:9092", "", "a:1,"]
)
def test_what_is_no_address_is_a_fault_of_usage(text: str) -> None:
    with pytest.raises(UsageError, match="--bootstrap-server: "):
        parse_addresses(text)
