"""The client of controllers: they are told by DescribeCluster, and the active one is asked."""

from collections.abc import Iterator

import pytest

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.controllers import ControllerClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.errors import BrokerUnreachableError, NoControllerError, RefusedError, UnsupportedApiError
from kafkatool.core.protocol.messages import create_topics, describe_cluster
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.create_topics import CreateTopicsRequest
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.client.fake_broker import FakeBroker
from tests.core.client.fake_controller import FakeController

pytestmark = pytest.mark.spec("ADM-4")

SETTINGS = ClientSettings(client_id="kt-reassign", software_version="9.1", retry_backoff_ms=1)
NOTHING_MOVES = listing.ListPartitionReassignmentsResponse(topics=[])


@pytest.fixture
def controllers() -> Iterator[list[FakeController]]:
    """Three controllers that know each other; the second is active."""
    found = [FakeController(i, {listing.API: (0, 0)}) for i in (11, 12, 13)]
    for controller in found:
        controller.knows, controller.controller_id = list(found), 12
        controller.answers[listing.API.key] = lambda _: NOTHING_MOVES
    yield found
    for controller in found:
        controller.close()


def test_any_controller_tells_of_all_and_the_active_one_is_asked(controllers: list[FakeController]) -> None:
    with ControllerClient([controllers[2].address], SETTINGS) as client:
        assert sorted(client.brokers) == [11, 12, 13] and client.controller_id == 12 and client.cluster_id == "C"
        client.controller(listing.API, listing.ListPartitionReassignmentsRequest())
        client.any(listing.API, listing.ListPartitionReassignmentsRequest())
        with pytest.raises(UnsupportedApiError, match="kt reassign needs CreateTopics 0; controller 12 has none"):
            client.controller(create_topics.API, CreateTopicsRequest(topics=[], timeout_ms=1))
    asked = [(c.id, name) for c in controllers for name, _, _ in c.asked if name != "ApiVersions"]
    assert asked == [*[(12, "ListPartitionReassignments")] * 2, (13, "DescribeCluster")]
    assert [r.endpoint_type for n, _, r in controllers[2].asked if n == "DescribeCluster"] == [2]


def test_after_a_change_the_new_active_controller_is_asked(controllers: list[FakeController]) -> None:
    def refuses(_: object) -> object:
        for controller in controllers:
            controller.controller_id = 11
        return listing.ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])

    controllers[1].answers[listing.API.key] = refuses
    with ControllerClient([controllers[0].address], SETTINGS) as client:
        request = listing.ListPartitionReassignmentsRequest()
        assert client.controller(listing.API, request, codes=lambda a: [a.error_code]) == NOTHING_MOVES
    assert controllers[0].count(listing.API) == 1


def test_without_an_active_controller_nothing_is_written(controllers: list[FakeController]) -> None:
    for controller in controllers:
        controller.controller_id = -1
    settings = ClientSettings(retry_backoff_ms=1, retries=2)
    with (
        ControllerClient([c.address for c in controllers], settings) as client,
        pytest.raises(NoControllerError, match="no controller is elected; this request was not sent"),
    ):
        client.controller(listing.API, listing.ListPartitionReassignmentsRequest())


def test_brokers_and_older_controllers_are_told_from_controllers(controllers: list[FakeController]) -> None:
    with FakeBroker(1, {describe_cluster.API: (0, 2)}) as broker:
        refused = describe_cluster.DescribeClusterResponse(error_code=114, cluster_id="", brokers=[])
        broker.answers[describe_cluster.API.key] = lambda _: refused
        with pytest.raises(RefusedError, match=f"{broker.address} is a broker, no controller"):
            ControllerClient([broker.address], SETTINGS)
        broker.apis[describe_cluster.API] = (0, 0)
        with pytest.raises(RefusedError, match=r"is no controller of Kafka 3\.7 or later"):
            ControllerClient([broker.address], SETTINGS)
    with pytest.raises(BrokerUnreachableError, match=f"no controller answers: {broker.address}: refused"):
        ControllerClient([broker.address], SETTINGS)
    with pytest.raises(RefusedError, match=f"{controllers[0].address} is a controller, which tells nothing of brokers"):
        ClusterClient([controllers[0].address], SETTINGS)


@pytest.mark.spec("ADM-8")
def test_another_clusters_controllers_are_refused(controllers: list[FakeController]) -> None:
    with pytest.raises(RefusedError, match=r"--cluster-id is D, but the cluster at .* has id C"):
        ControllerClient([controllers[0].address], SETTINGS, cluster_id="D")
