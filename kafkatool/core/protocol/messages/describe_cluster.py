"""DescribeCluster (key 60), version 0, flexible: brokers and controller (KIP-700).

Source: Kafka 2.8.0 message/DescribeCluster*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, message


@message
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """Asks for the live brokers."""

    include_cluster_authorized_operations: bool = False


@message
class DescribeClusterBroker:
    """A live broker and its endpoint on the listener the request came in on."""

    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None


@message
class DescribeClusterResponse:
    """``controller_id`` -1: not known. Operations are bits, -2**31 where not asked for."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    cluster_id: str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -(2**31)


API = Api(60, "DescribeCluster", 0, 0, DescribeClusterRequest, DescribeClusterResponse, flexible_from=0)
