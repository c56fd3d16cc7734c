"""DescribeCluster over a socket."""

import pytest

from kafkatool.broker.handlers.describe_cluster import SERVED
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.core.protocol.messages.describe_cluster import (
    API,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.broker.handlers.served import broker_of, handler_context, live, update


def ask(cache: MetadataCache, *, operations: bool = False) -> DescribeClusterResponse:
    request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
    with broker_of({60: SERVED}, handler_context(metadata_cache=cache)) as client:
        response = client.call(API, 0, request)
    assert isinstance(response, DescribeClusterResponse)
    return response


def test_live_brokers_are_told_by_the_requests_listener_and_the_controller_by_its_id() -> None:
    cache = MetadataCache(1)
    cache.update(update(brokers=[live(1, "r1"), live(2), live(3, INNER=9)], controller=2))
    response = ask(cache)
    assert response.brokers == [
        DescribeClusterBroker(broker_id=1, host="h1", port=9001, rack="r1"),
        DescribeClusterBroker(broker_id=2, host="h2", port=9002),
    ]
    assert (response.error_code, response.error_message) == (0, None)
    assert (response.cluster_id, response.controller_id) == ("test-cluster", 2)


@pytest.mark.spec("BRK-165")
@pytest.mark.parametrize(("asked", "told"), [(True, 8096), (False, -(2**31))])
def test_authorized_operations_are_told_to_those_who_ask(asked: bool, told: int) -> None:
    assert ask(MetadataCache(1), operations=asked).cluster_authorized_operations == told


def test_before_the_controller_spoke_there_are_no_brokers_and_no_controller() -> None:
    response = ask(MetadataCache(1))
    assert (response.brokers, response.controller_id, response.cluster_id) == ([], -1, "test-cluster")
