"""WriteTxnMarkers (key 27), versions 0-1, 1 flexible: a coordinator has leaders end a transaction (KIP-98)."""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, message


@message
class WriteTxnMarkersTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class TxnMarker:
    """The end of one producer's transaction. ``coordinator_epoch`` fences former coordinators."""

    producer_id: Int64
    producer_epoch: Int16
    committed: bool
    topics: list[WriteTxnMarkersTopic]
    coordinator_epoch: Int32


@message
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    """Markers of any number of producers."""

    markers: list[TxnMarker]


@message
class WriteTxnMarkersResponsePartition:
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16 = 0


@message
class WriteTxnMarkersResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[WriteTxnMarkersResponsePartition]


@message
class WriteTxnMarkersResponseMarker:
    """The outcomes of one producer's markers."""

    producer_id: Int64
    topics: list[WriteTxnMarkersResponseTopic]


@message
class WriteTxnMarkersResponse:
    """It has no throttle time."""

    markers: list[WriteTxnMarkersResponseMarker]


API = Api(27, "WriteTxnMarkers", 0, 1, WriteTxnMarkersRequest, WriteTxnMarkersResponse, flexible_from=1)
