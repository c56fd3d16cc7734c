"""SaslHandshake and SaslAuthenticate in the bytes that a real 2.8.2 read and wrote (golden/secure-wire-2.8.2.txt)."""

import pytest

from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import encode_request, encode_response
from kafkatool.core.protocol.messages import sasl_authenticate, sasl_handshake
from kafkatool.core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkatool.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

ALICE = b"\0alice\0alice-secret"
REQUESTS = [
    (sasl_handshake.API, 1, 2, SaslHandshakeRequest(mechanism="PLAIN"), "001100010000000200026b740005504c41494e"),
    (
        sasl_authenticate.API,
        0,
        3,
        SaslAuthenticateRequest(auth_bytes=ALICE),
        "002400000000000300026b740000001300616c69636500616c6963652d736563726574",
    ),
    (
        sasl_authenticate.API,
        2,
        2,
        SaslAuthenticateRequest(auth_bytes=ALICE),
        "002400020000000200026b74001400616c69636500616c6963652d73656372657400",
    ),
]
RESPONSES = [
    (
        sasl_handshake.API,
        1,
        2,
        SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"]),
        "000000020000000000030005504c41494e000d534352414d2d5348412d353132000d534352414d2d5348412d323536",
    ),
    (sasl_authenticate.API, 0, 3, SaslAuthenticateResponse(), "000000030000000000000000"),
    (sasl_authenticate.API, 1, 2, SaslAuthenticateResponse(), "0000000200000000000000000000000000000000"),
    (
        sasl_authenticate.API,
        2,
        2,
        SaslAuthenticateResponse(session_lifetime_ms=4000),
        "0000000200000001010000000000000fa000",
    ),
]


@pytest.mark.parametrize("case", REQUESTS, ids=lambda c: f"{c[0].name}-{c[1]}")
def test_requests(case: tuple[Api, int, int, SaslHandshakeRequest, str]) -> None:
    api, version, correlation_id, message, expected = case
    assert encode_request(api, version, correlation_id, "kt", message)[4:].hex() == expected


@pytest.mark.parametrize("case", RESPONSES, ids=lambda c: f"{c[0].name}-{c[1]}")
def test_responses(case: tuple[Api, int, int, SaslHandshakeResponse, str]) -> None:
    api, version, correlation_id, message, expected = case
    assert b"".join(encode_response(api, version, correlation_id, message))[4:].hex() == expected  # type: ignore[arg-type]
