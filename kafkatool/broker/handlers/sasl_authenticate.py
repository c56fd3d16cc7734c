"""SaslAuthenticate (key 36), versions 0-2, where no login is under way: refused (SEC-62)."""

from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.protocol.messages import sasl_authenticate as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 2), asks=())
def handle(request: wire.SaslAuthenticateRequest, call: Call) -> wire.SaslAuthenticateResponse:
    """Refuse it, in Kafka's words, also where there was no login; the connection stays."""
    return wire.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
