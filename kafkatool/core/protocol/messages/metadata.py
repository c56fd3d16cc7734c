"""Metadata (key 3), versions 0-12, 9 flexible: brokers, controller, topics and who leads them (BRK-114 to 117).

Topics are asked for by name here: ids are read since version 10 and not sent; who asks by id has no name to send.
"""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import NO_UUID, Int16, Int32, NullSince, Since, Until, Uuid, message


@message
class MetadataRequestTopic:
    """A topic asked about."""

    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    topic: Annotated[str | None, NullSince(10)]


@message
class MetadataRequest(Request["MetadataResponse"]):
    """All topics: None, but an empty list in version 0 (BRK-117)."""

    topics: Annotated[list[MetadataRequestTopic] | None, NullSince(1)]
    allow_auto_topic_creation: Annotated[bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[bool, Since(8)] = False


@message
class MetadataResponseBroker:
    """A live broker and its endpoint on the listener the request came in on."""

    node_id: Int32
    host: str
    port: Int32
    rack: Annotated[str | None, Since(1)] = None


@message
class MetadataResponsePartition:
    """``leader_id`` -1: none. ``replica_nodes`` in the order of the assignment."""

    error_code: Int16 = 0
    partition: Int32
    leader_id: Int32
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: Annotated[list[Int32], Since(5)] = field(default_factory=list)


@message
class MetadataResponseTopic:
    """``topic_authorized_operations``: BRK-165; the default says nobody asked."""

    error_code: Int16 = 0
    topic: str
    topic_id: Annotated[Uuid, Since(10)] = NO_UUID
    is_internal: Annotated[bool, Since(1)] = False
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Annotated[Int32, Since(8)] = -(2**31)


@message
class MetadataResponse:
    """``controller_id`` -1: not known."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: list[MetadataResponseBroker]
    cluster_id: Annotated[str | None, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = -(2**31)


API = Api(3, "Metadata", 0, 12, MetadataRequest, MetadataResponse, flexible_from=9)
