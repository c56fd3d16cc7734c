"""DescribeUserScramCredentials (key 50), version 0, flexible: who has SCRAM credentials, and which (KIP-554).

Source: Kafka 2.8.2 message/DescribeUserScramCredentials*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, message

SCRAM_SHA_256, SCRAM_SHA_512 = 1, 2
"""Mechanisms on the wire."""


@message
class ScramUserName:
    """A user."""

    name: str


@message
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """``users`` None or empty: all that have any."""

    users: list[ScramUserName] | None = None


@message
class ScramCredentialInfo:
    """One credential, of which no secret is told."""

    mechanism: Int8
    iterations: Int32


@message
class DescribedScramUser:
    """The credentials of one user."""

    user: str
    error_code: Int16 = 0
    error_message: str | None = None
    credential_infos: list[ScramCredentialInfo]


@message
class DescribeUserScramCredentialsResponse:
    """``error_code``: nothing could be told at all."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    results: list[DescribedScramUser]


API = Api(
    50,
    "DescribeUserScramCredentials",
    0,
    0,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    flexible_from=0,
)
