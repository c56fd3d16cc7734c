"""The connections of a command, to brokers that end them, go away and come back."""

from collections.abc import Iterator

import pytest

from kafkatool.core.client.access import BrokerAccess
from kafkatool.core.client.addresses import Address
from kafkatool.core.client.connections import Connections
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import api_versions, metadata
from kafkatool.core.protocol.messages.metadata import MetadataRequest
from tests.core.client.fake_broker import OLD, FakeBroker

TIMEOUT_MS = 120_000
ACCESS = BrokerAccess(client_id="kt-brokers", software_version="9.1")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(1) as running:
        yield running


def ask(connections: Connections, address: Address) -> None:
    request = MetadataRequest(topics=[])
    connections.to(address, timeout_ms=TIMEOUT_MS).send(metadata.API, request, timeout_ms=TIMEOUT_MS)


@pytest.mark.spec("ADM-11")
def test_there_is_one_to_each_broker_which_names_the_software(broker: FakeBroker) -> None:
    with FakeBroker(2) as other, Connections(ACCESS) as connections:
        for _ in range(3):
            ask(connections, broker.address)
            ask(connections, other.address)
        assert list(connections.open) == [broker.address, other.address]
        assert connections.to(broker.address, timeout_ms=1) is connections.open[broker.address]
    for asked in (broker, other):
        assert asked.connections == 1 and asked.client_ids == {"kt-brokers"}
        assert [(name, version) for name, version, _ in asked.asked] == [("ApiVersions", 3), *[("Metadata", 12)] * 3]
        first = asked.asked[0][2]
        assert (first.client_software_name, first.client_software_version) == ("kt", "9.1")
    assert connections.open == {}


@pytest.mark.spec("ADM-5", "ADM-11")
@pytest.mark.parametrize(("says", "asked_in"), [({}, 0), ({api_versions.API: (0, OLD)}, OLD)], ids=["nothing", "which"])
def test_a_broker_that_does_not_know_the_version_is_asked_in_the_one_it_says_it_has_over_the_same(
    says: dict[Api, tuple[int, int]], asked_in: int
) -> None:
    with FakeBroker(2, says, newest_api_versions=OLD) as old, Connections(ACCESS) as connections:
        ask(connections, old.address)
        assert old.connections == 1
    asked = [(name, version) for name, version, _ in old.asked]
    assert asked == [("ApiVersions", 3), ("ApiVersions", asked_in), ("Metadata", 12)]


@pytest.mark.spec("ADM-11")
def test_one_that_the_broker_has_ended_is_made_anew_before_it_is_asked(broker: FakeBroker) -> None:
    with Connections(ACCESS) as connections:
        ask(connections, broker.address)
        for count in (2, 3):
            broker.drop_connections()
            ask(connections, broker.address)
            assert broker.connections == count
    assert broker.count(metadata.API) == 3, "each was sent once"


@pytest.mark.spec("ADM-3", "ADM-11")
@pytest.mark.parametrize(("max_idle_ms", "made"), [(0, 3), (-1, 1)])
def test_one_that_was_idle_for_too_long_is_made_anew(broker: FakeBroker, max_idle_ms: int, made: int) -> None:
    with Connections(ACCESS, max_idle_ms=max_idle_ms) as connections:
        for _ in range(3):
            ask(connections, broker.address)
    assert broker.connections == made


@pytest.mark.spec("ADM-11")
def test_what_is_closed_makes_none_that_last(broker: FakeBroker) -> None:
    connections = Connections(ACCESS)
    connections.close()
    with pytest.raises(BrokerUnreachableError):
        ask(connections, broker.address)
    assert connections.open == {}
