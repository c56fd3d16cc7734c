"""LeaderAndIsr (key 4), versions 0-2: the controller tells a broker what to lead and what to follow (BRK-24 to 33).

Version 2 sends the partitions grouped by topic; here they are one flat list in every version."""

from typing import Annotated, ClassVar

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import GroupedSince, Int16, Int32, Int64, Since, message


@message
class LeaderAndIsrPartition:
    """State decided for one partition. ``controller_epoch`` is that of the decision, ``zk_version`` of the node."""

    topic: str
    partition: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    is_new: Annotated[bool, Since(1)] = False


@message
class LeaderAndIsrLiveLeader:
    """The address of a leader named in the request, on the inter-broker listener."""

    broker_id: Int32
    host: str
    port: Int32


@message
class LeaderAndIsrRequest(Request["LeaderAndIsrResponse"]):
    """``broker_epoch``: the receiver's incarnation, -1 unchecked (BRK-25)."""

    most_elements: ClassVar[int | None] = None  # as many as the cluster has
    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, Since(2)] = -1
    partition_states: Annotated[list[LeaderAndIsrPartition], GroupedSince(2)]
    live_leaders: list[LeaderAndIsrLiveLeader]


@message
class LeaderAndIsrResponsePartition:
    """Outcome for one partition (BRK-26)."""

    topic: str
    partition: Int32
    error_code: Int16 = 0


@message
class LeaderAndIsrResponse:
    """``error_code``: the whole request was refused (BRK-24, 25)."""

    error_code: Int16 = 0
    partitions: list[LeaderAndIsrResponsePartition]


API = Api(4, "LeaderAndIsr", 0, 2, LeaderAndIsrRequest, LeaderAndIsrResponse)
