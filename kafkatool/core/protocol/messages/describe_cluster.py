"""DescribeCluster (key 60), versions 0-2, flexible: brokers and controller (KIP-700, KIP-919, KIP-1073).

Source: Kafka 4.1.0 message/DescribeCluster*.json.
"""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, message

BROKERS, CONTROLLERS = 1, 2
"""Kinds of endpoints."""


@message
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """Asks for the live brokers; one to a KRaft controller for the controllers."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, Since(1)] = BROKERS
    include_fenced_brokers: Annotated[bool, Since(2)] = False


@message
class DescribeClusterBroker:
    """A live broker and its endpoint on the listener the request came in on."""

    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: Annotated[bool, Since(2)] = False


@message
class DescribeClusterResponse:
    """``controller_id`` -1: not known. Operations are bits, -2**31 where not asked for."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, Since(1)] = BROKERS
    cluster_id: str
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -(2**31)


API = Api(60, "DescribeCluster", 0, 2, DescribeClusterRequest, DescribeClusterResponse, flexible_from=0)
