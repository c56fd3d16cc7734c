"""DescribeCluster over a socket."""

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.core.protocol.messages.describe_cluster import (
    API,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.broker.handlers.served import broker_of, handler_context, live, update


def ask(cache: MetadataCache, *, operations: bool = False, version: int = 0, kind: int = 1) -> DescribeClusterResponse:
    request = DescribeClusterRequest(include_cluster_authorized_operations=operations, endpoint_type=kind)
    with broker_of({60: load_handlers()[60]}, handler_context(metadata_cache=cache)) as client:
        response = client.call(API, version, request)
    assert isinstance(response, DescribeClusterResponse)
    return response


@pytest.mark.spec("ADM-80")
@pytest.mark.parametrize("version", [0, 1])
def test_live_brokers_are_told_by_the_requests_listener_and_the_controller_by_its_id(version: int) -> None:
    cache = MetadataCache(1)
    cache.update(update(brokers=[live(1, "r1"), live(2), live(3, INNER=9)], controller=2))
    response = ask(cache, version=version)
    assert response.brokers == [
        DescribeClusterBroker(broker_id=1, host="h1", port=9001, rack="r1"),
        DescribeClusterBroker(broker_id=2, host="h2", port=9002),
    ]
    assert (response.error_code, response.error_message) == (0, None)
    assert (response.cluster_id, response.controller_id) == ("test-cluster", 2)


@pytest.mark.spec("ADM-80")
@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        (2, 114, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"),
        (3, 115, "Unsupported endpoint type 3"),
    ],
)
def test_who_asks_for_other_endpoints_is_told_that_there_are_none(kind: int, code: int, said: str) -> None:
    cache = MetadataCache(1)
    cache.update(update(brokers=[live(1)], controller=1))
    response = ask(cache, version=1, kind=kind)
    assert (response.error_code, response.brokers, response.controller_id) == (code, [], -1)
    assert response.error_message == said


@pytest.mark.spec("BRK-165", "ADM-80")
@pytest.mark.parametrize(("asked", "told"), [(True, 8096), (False, -(2**31))])
def test_authorized_operations_are_told_to_those_who_ask(asked: bool, told: int) -> None:
    assert ask(MetadataCache(1), operations=asked).cluster_authorized_operations == told


def test_before_the_controller_spoke_there_are_no_brokers_and_no_controller() -> None:
    response = ask(MetadataCache(1))
    assert (response.brokers, response.controller_id, response.cluster_id) == ([], -1, "test-cluster")
