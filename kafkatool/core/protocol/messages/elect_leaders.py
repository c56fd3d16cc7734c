"""ElectLeaders (key 43), versions 0-2, 2 flexible: have leaders elected (KIP-183, KIP-460).

Source: Kafka 2.8.2 message/ElectLeaders*.json.
"""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, message

PREFERRED, UNCLEAN = 0, 1
"""Types of elections."""


@message
class ElectLeadersTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[Int32]


@message
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """``topics`` None: all there are."""

    election_type: Annotated[Int8, Since(1)] = PREFERRED
    topics: list[ElectLeadersTopic] | None
    timeout_ms: Int32 = 60_000


@message
class ElectLeadersResponsePartition:
    """Outcome for one partition."""

    partition: Int32
    error_code: Int16 = 0
    error_message: str | None = None


@message
class ElectLeadersResponseTopic:
    """The partitions of one topic."""

    topic: str
    partitions: list[ElectLeadersResponsePartition]


@message
class ElectLeadersResponse:
    """One entry for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1)] = 0
    topics: list[ElectLeadersResponseTopic]


API = Api(43, "ElectLeaders", 0, 2, ElectLeadersRequest, ElectLeadersResponse, flexible_from=2)
