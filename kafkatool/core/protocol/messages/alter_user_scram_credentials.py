"""AlterUserScramCredentials (key 51), version 0, flexible: set and delete SCRAM credentials (KIP-554).

Source: Kafka 2.8.2 message/AlterUserScramCredentials*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, message


@message
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str
    mechanism: Int8


@message
class ScramCredentialUpsertion:
    """A credential to set. The salted password is as good as the password."""

    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


@message
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    """Each user is by itself."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@message
class AlteredScramUser:
    """Outcome for one user."""

    user: str
    error_code: Int16 = 0
    error_message: str | None = None


@message
class AlterUserScramCredentialsResponse:
    """One entry for each user."""

    throttle_time_ms: Int32 = 0
    results: list[AlteredScramUser]


API = Api(
    51,
    "AlterUserScramCredentials",
    0,
    0,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    flexible_from=0,
)
