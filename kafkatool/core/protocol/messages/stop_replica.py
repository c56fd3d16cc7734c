"""StopReplica (key 5), versions 0-2, 2 flexible: the controller takes replicas off a broker (BRK-109).

Versions from 1 on send the partitions grouped by topic; here they are one flat list in every version."""

from typing import Annotated, ClassVar

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import GroupedSince, Int16, Int32, Int64, Since, message


@message
class StopReplicaRequest(Request["StopReplicaResponse"]):
    """``delete_partitions`` holds for all partitions named; ``broker_epoch`` -1 is unchecked."""

    most_elements: ClassVar[int | None] = None  # as many as the cluster has
    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, Since(1)] = -1
    delete_partitions: bool
    partitions: Annotated[list[TopicPartition], GroupedSince(1)]


@message
class StopReplicaResponsePartition:
    """Outcome for one partition."""

    topic: str
    partition: Int32
    error_code: Int16 = 0


@message
class StopReplicaResponse:
    """``error_code``: the whole request was refused."""

    error_code: Int16 = 0
    partitions: list[StopReplicaResponsePartition]


API = Api(5, "StopReplica", 0, 2, StopReplicaRequest, StopReplicaResponse, flexible_from=2)
