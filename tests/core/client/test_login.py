"""The login to a broker, request by request, against answers of the test's making."""

from dataclasses import replace

import pytest

from kafkatool.core.client.login import BrokerLogin
from kafkatool.core.errors import BrokerUnreachableError, LoginRefusedError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
from kafkatool.core.protocol.messages.api_versions import ApiVersionsResponseKey
from kafkatool.core.security import scram
from kafkatool.core.security.client_security import ClientSecurity, read_client_security

SALT = b"0123456789abcdef"
CREDENTIAL = scram.SCRAM_SHA_256.credential(b"geheim", salt=SALT, iterations=4096)


def security(mechanism: str) -> ClientSecurity:
    kind = "Plain" if mechanism == "PLAIN" else "Scram"
    jaas = f'x.{kind}LoginModule required username="alice" password="geheim";'
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return read_client_security(given, "client.properties")


class Broker:
    """Answers with the versions it has. ``closes``: it ends the connection instead of answering a token."""

    def __init__(self, handshake: int = 1, authenticate: int | None = 2) -> None:
        self.versions = {18: 3, 17: handshake} | ({} if authenticate is None else {36: authenticate})
        self.asked: list[tuple[str, int]] = []
        self.handshake = sasl_handshake.SaslHandshakeResponse(mechanisms=["PLAIN", "SCRAM-SHA-256"])
        self.refusal: tuple[int, str | None] = (0, None)
        self.closes = False
        self._first = b""

    def ask(self, api: Api, version: int, request: Request[object]) -> object:
        self.asked.append((api.name, version))
        if api.key == api_versions.API.key:
            keys = [ApiVersionsResponseKey(api_key=k, min_version=0, max_version=v) for k, v in self.versions.items()]
            return api_versions.ApiVersionsResponse(api_keys=keys)
        if api.key == sasl_handshake.API.key:
            return self.handshake
        assert isinstance(request, sasl_authenticate.SaslAuthenticateRequest)
        token = self.token(bytes(request.auth_bytes))
        code, message = self.refusal
        return sasl_authenticate.SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=token)

    def exchange(self, frame: bytes) -> bytes:
        self.asked.append(("bare", -1))
        return self.token(frame)

    def token(self, token: bytes) -> bytes:
        if self.closes:
            raise BrokerUnreachableError("h:1 closed the connection")
        if token.startswith(b"\0"):
            assert token == b"\0alice\0geheim"
            return b""
        if token.startswith(b"n,,"):
            self._read = scram.read_client_first(token)
            self._first = scram.server_first(self._read, "of-the-server", CREDENTIAL)
            return self._first
        return scram.verify(scram.SCRAM_SHA_256, CREDENTIAL, self._read, self._first, token)


def log_in(broker: Broker, mechanism: str = "PLAIN") -> int:
    return BrokerLogin("h:1", "127.0.0.1", security(mechanism), broker.ask, broker.exchange).run()


@pytest.mark.spec("SEC-34")
@pytest.mark.parametrize(
    ("address", "mechanism", "protocol", "is_told"),
    [
        ("192.0.2.1", "PLAIN", "SASL_PLAINTEXT", True),
        ("2001:db8::1", "PLAIN", "SASL_PLAINTEXT", True),
        ("127.0.0.1", "PLAIN", "SASL_PLAINTEXT", False),
        ("::1", "PLAIN", "SASL_PLAINTEXT", False),
        ("192.0.2.1", "SCRAM-SHA-256", "SASL_PLAINTEXT", False),
        ("192.0.2.1", "PLAIN", "SASL_SSL", False),
    ],
)
def test_a_password_that_goes_over_a_network_as_it_is_is_told_of(
    address: str, mechanism: str, protocol: str, is_told: bool
) -> None:
    told: list[str] = []
    broker = Broker()

    def warn(text: str) -> None:
        assert "SaslAuthenticate" not in dict(broker.asked), "before the password goes out"
        told.append(text)

    used = replace(security(mechanism), protocol=protocol, warn=warn)
    BrokerLogin("h:1", address, used, broker.ask, broker.exchange).run()
    text = "the password of alice goes to h:1 as it is, for all on the way to read: PLAIN needs SASL_SSL (client.properties)"
    assert told == [text] * is_told


@pytest.mark.spec("SEC-35")
@pytest.mark.parametrize(("mechanism", "tokens"), [("PLAIN", 1), ("SCRAM-SHA-256", 2)])
@pytest.mark.parametrize(
    ("broker", "handshake", "token"),
    [
        (Broker(), 1, ("SaslAuthenticate", 1)),
        (Broker(authenticate=0), 1, ("SaslAuthenticate", 0)),
        (Broker(handshake=0, authenticate=None), 0, ("bare", -1)),
    ],
    ids=["2.8", "2.0", "0.11"],
)
def test_versions_then_the_handshake_then_tokens_each_in_the_newest_form_that_both_know(
    mechanism: str, tokens: int, broker: Broker, handshake: int, token: tuple[str, int]
) -> None:
    broker.asked.clear()
    log_in(broker, mechanism)
    assert broker.asked == [("ApiVersions", 0), ("SaslHandshake", handshake), *[token] * tokens]


@pytest.mark.spec("SEC-35")
def test_a_refusal_tells_what_the_broker_has_or_says_and_so_does_a_close() -> None:
    where = "check client.properties"
    broker = Broker()
    broker.handshake = sasl_handshake.SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-512"])
    with pytest.raises(LoginRefusedError, match=rf"\(33\); it has GSSAPI, SCRAM-SHA-512: {where}"):
        log_in(broker)
    broker = Broker()
    broker.refusal = (58, "Authentication failed: Invalid username or password")
    with pytest.raises(
        LoginRefusedError, match=rf"alice \(SASL PLAIN\): {broker.refusal[1]} \(58\): {where}"
    ) as caught:
        log_in(broker)
    assert "geheim" not in str(caught.value)
    for closing in (Broker(), Broker(handshake=0, authenticate=None)):
        closing.closes = True
        with pytest.raises(LoginRefusedError, match=r"refused the login of alice \(SASL PLAIN\): h:1 closed"):
            log_in(closing)
