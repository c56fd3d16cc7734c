"""ControlledShutdown (key 7), versions 0-2: a broker asks the controller to move its leaders away (BRK-34).

Version 0 has a request header without client id."""

from typing import Annotated

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, message


@message
class ControlledShutdownRequest(Request["ControlledShutdownResponse"]):
    """``broker_epoch``: the sender's incarnation, -1 unchecked."""

    broker_id: Int32
    broker_epoch: Annotated[Int64, Since(2)] = -1


@message
class ControlledShutdownResponse:
    """Partitions the broker still leads: empty when it may go."""

    error_code: Int16 = 0
    remaining_partitions: list[TopicPartition]


API = Api(7, "ControlledShutdown", 0, 2, ControlledShutdownRequest, ControlledShutdownResponse)
