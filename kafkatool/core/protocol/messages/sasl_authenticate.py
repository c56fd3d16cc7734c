"""SaslAuthenticate (key 36), versions 0-2, 2 flexible: a token of the login, and its answer (SEC-62; KIP-152, KIP-368)."""

from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int64, Since, message


@message
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    """The client's token."""

    auth_bytes: bytes


@message
class SaslAuthenticateResponse:
    """``session_lifetime_ms``: log in again before; 0, never. Only the answer that ends the login tells it."""

    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0


API = Api(36, "SaslAuthenticate", 0, 2, SaslAuthenticateRequest, SaslAuthenticateResponse, flexible_from=2)
