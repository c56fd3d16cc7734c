"""A controller made of functions, of a cluster without ZooKeeper: a `FakeBroker` that serves no Metadata."""

from collections.abc import Mapping

from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import api_versions, describe_cluster, metadata
from kafkatool.core.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from tests.core.client.fake_broker import FakeBroker


class FakeController(FakeBroker):
    """Tells of the controllers it ``knows``, of which ``controller_id`` is active."""

    def __init__(self, controller_id: int, apis: Mapping[Api, tuple[int, int]] = {}) -> None:
        super().__init__(controller_id, {api_versions.API: (0, 4), describe_cluster.API: (0, 2), **apis})
        del self.apis[metadata.API]
        self.answers[describe_cluster.API.key] = self.describe_cluster

    def describe_cluster(self, request: describe_cluster.DescribeClusterRequest) -> DescribeClusterResponse:
        """Answer as Kafka 3.9.1 and 4.1.0 do: of brokers controllers tell nothing."""
        if request.endpoint_type != describe_cluster.CONTROLLERS:
            return DescribeClusterResponse(error_code=114, cluster_id="", brokers=[])
        known = [DescribeClusterBroker(broker_id=c.id, host=c.address.host, port=c.address.port) for c in self.knows]
        return DescribeClusterResponse(
            endpoint_type=describe_cluster.CONTROLLERS,
            cluster_id=self.cluster_id or "",
            controller_id=self.controller_id,
            brokers=known,
        )
