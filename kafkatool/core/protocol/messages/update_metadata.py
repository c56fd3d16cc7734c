"""UpdateMetadata (key 6), versions 0-5: the controller tells every broker what clients may ask for (BRK-110 to 113).

Version 5 sends the partitions grouped by topic; here they are one flat list in every version."""

from dataclasses import field
from typing import Annotated, ClassVar

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import GroupedSince, Int16, Int32, Int64, Since, Until, message


@message
class UpdateMetadataPartition:
    """State of one partition. ``leader`` -1: none, -2: being deleted (BRK-112)."""

    topic: str
    partition: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: Annotated[list[Int32], Since(4)] = field(default_factory=list)


@message
class UpdateMetadataEndpoint:
    """A listener of a broker. The port stands before the host; ``security_protocol`` 0 is PLAINTEXT.

    Versions 1 and 2 have no listener name: it is that of the security protocol.
    """

    port: Int32
    host: str
    listener_name: Annotated[str, Since(3)] = ""
    security_protocol: Int16 = 0


@message
class UpdateMetadataBroker:
    """A live broker. Version 0 knows one PLAINTEXT endpoint: ``host`` and ``port``; later ones, ``endpoints``."""

    id: Int32
    host: Annotated[str, Until(0)] = ""
    port: Annotated[Int32, Until(0)] = -1
    endpoints: Annotated[list[UpdateMetadataEndpoint], Since(1)] = field(default_factory=list)
    rack: Annotated[str | None, Since(2)] = None


@message
class UpdateMetadataRequest(Request["UpdateMetadataResponse"]):
    """``controller_id`` below 0: none. ``broker_epoch``: the receiver's incarnation, -1 unchecked."""

    most_elements: ClassVar[int | None] = None  # as many as the cluster has
    controller_id: Int32
    controller_epoch: Int32
    broker_epoch: Annotated[Int64, Since(5)] = -1
    partition_states: Annotated[list[UpdateMetadataPartition], GroupedSince(5)]
    live_brokers: list[UpdateMetadataBroker]


@message
class UpdateMetadataResponse:
    """Refused (BRK-24, 25) or not."""

    error_code: Int16 = 0


API = Api(6, "UpdateMetadata", 0, 5, UpdateMetadataRequest, UpdateMetadataResponse)
