"""The login to a broker by SASL, on a connection that is already secured as its protocol asks (SEC-35).

ApiVersions first, which a broker answers before the login; SaslHandshake names the mechanism; then tokens, in
SaslAuthenticate or, below Kafka 1.0, as bare frames. Only then are other requests sent.
"""

from collections.abc import Callable
from typing import Final, NoReturn

from kafkatool.core.client.addresses import is_loopback
from kafkatool.core.client.closed_at_once import first_request
from kafkatool.core.errors import BrokerUnreachableError, LoginRefusedError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.security import scram
from kafkatool.core.security.client_security import PLAIN, ClientSecurity

_NO_HANDSHAKE: Final = "it answers no SaslHandshake: is the listener one of SASL?"


class BrokerLogin:
    """Logs in on one connection, and again when asked. Raises LoginRefusedError, BrokerUnreachableError.

    ``address`` is the peer's IP. ``ask`` sends a request and returns its answer, ``exchange`` a frame without its length.
    """

    def __init__(
        self,
        peer: str,
        address: str,
        security: ClientSecurity,
        ask: Callable[[Api, int, Request[object]], object],
        exchange: Callable[[bytes], Buffer],
    ) -> None:
        assert security.login is not None
        self._peer = peer
        self._address = address
        self._security = security
        self._login = security.login
        self._source = security.source
        self._ask = ask
        self._exchange = exchange
        self._versions: dict[int, int] = {}

    def run(self) -> int:
        """Log in; returns for how many milliseconds, 0: for ever."""
        if not self._versions:
            answer = self._first_answer()
            self._versions = {key.api_key: key.max_version for key in answer.api_keys}
            if sasl_handshake.API.key not in self._versions:
                raise BrokerUnreachableError(f"{self._peer}: {_NO_HANDSHAKE}")
        self._lifetime_ms = 0
        self._shake_hands()
        if self._login.mechanism == PLAIN:
            self._warn_of_readers()
            self._token(f"\0{self._login.user}\0{self._login.password.reveal()}".encode())
        else:
            self._scram()
        return self._lifetime_ms

    def _first_answer(self) -> api_versions.ApiVersionsResponse:
        with first_request(self._peer, encrypted=self._security.tls is not None):
            answer = self._ask(api_versions.API, 0, api_versions.ApiVersionsRequest())
        assert isinstance(answer, api_versions.ApiVersionsResponse)
        return answer

    def _shake_hands(self) -> None:
        version = min(self._versions[sasl_handshake.API.key], 1)
        answer = self._ask(
            sasl_handshake.API, version, sasl_handshake.SaslHandshakeRequest(mechanism=self._login.mechanism)
        )
        assert isinstance(answer, sasl_handshake.SaslHandshakeResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            there = ", ".join(answer.mechanisms)
            raise LoginRefusedError(self._peer, f"does not take {self._named} (33); it has {there}{self._where}")
        if answer.error_code:
            raise BrokerUnreachableError(f"{self._peer}: {_NO_HANDSHAKE} ({answer.error_code})")
        self._is_framed = version == 1

    def _warn_of_readers(self) -> None:
        """Tell that a password is about to go over a network as it is (SEC-34)."""
        if self._security.warn and self._security.protocol == "SASL_PLAINTEXT" and not is_loopback(self._address):
            text = f"the password of {self._login.user} goes to {self._peer} as it is, for all on the way to read"
            self._security.warn(f"{text}: PLAIN needs SASL_SSL ({self._security.source})")

    def _scram(self) -> None:
        first = scram.client_first(self._login.user, scram.make_nonce())
        try:
            server_first = self._token(scram.encode_client_first(first))
            password = self._login.password.reveal().encode()
            final = scram.client_final(scram.MECHANISMS[self._login.mechanism], password, first, server_first)
            scram.check_server_final(final, self._token(final.message))
        except scram.ScramError as e:
            raise LoginRefusedError(self._peer, f"cannot log in {self._named}: {e}{self._where}") from e

    def _token(self, token: bytes) -> bytes:
        """Send a token and return the broker's; a connection closed upon it is a refusal."""
        try:
            if not self._is_framed:
                return bytes(self._exchange(token))
            version = min(self._versions.get(sasl_authenticate.API.key, 0), 1)
            answer = self._ask(
                sasl_authenticate.API, version, sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
            )
        except BrokerUnreachableError as e:
            if isinstance(e.__cause__, TimeoutError | BlockingIOError):
                raise
            self._refused(str(e), e)
        assert isinstance(answer, sasl_authenticate.SaslAuthenticateResponse)
        if answer.error_code:
            self._refused(f"{answer.error_message or ErrorCode(answer.error_code).name} ({answer.error_code})", None)
        self._lifetime_ms = answer.session_lifetime_ms
        return answer.auth_bytes

    @property
    def _named(self) -> str:
        return f"{self._login.user} (SASL {self._login.mechanism})"

    @property
    def _where(self) -> str:
        return f": check {self._source}" if self._source else ""

    def _refused(self, reason: str, cause: Exception | None) -> NoReturn:
        why = f"refused the login of {self._named}: {reason}{self._where}"
        raise LoginRefusedError(self._peer, why) from cause
