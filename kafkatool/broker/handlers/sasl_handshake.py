"""SaslHandshake (key 17), versions 0-1, where no login is due: on listeners without, and after one (SEC-62).

The login itself is ``broker/security/login``: no handler sees a request before it is done.
"""

from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.protocol.messages import sasl_handshake as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 1), asks=())
def handle(request: wire.SaslHandshakeRequest, call: Call) -> wire.SaslHandshakeResponse:
    """Refuse it; the connection stays."""
    return wire.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
