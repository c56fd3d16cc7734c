"""SaslHandshake (key 17), versions 0-1: a client names the mechanism by which it will log in (SEC-62; KIP-43).

After version 0 tokens are bare frames, after version 1 they are SaslAuthenticate. It never got flexible (KAFKA-9577)."""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, message


@message
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    """The mechanism, in capitals."""

    mechanism: str


@message
class SaslHandshakeResponse:
    """``mechanisms``: those that the listener has."""

    error_code: Int16 = 0
    mechanisms: list[str]


API = Api(17, "SaslHandshake", 0, 1, SaslHandshakeRequest, SaslHandshakeResponse)
