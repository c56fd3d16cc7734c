"""The login of one connection on a SASL listener: table S, as data (SEC-62, 63, 68, 70).

It reads frames, before any handler does, and says what is to be done; sending, waiting and closing are the processor's.
Of all requests it knows three, and decodes no other.
"""

import enum
import logging
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafkatool.broker.security.mechanisms import Exchange, LoginRefusedError
from kafkatool.broker.security.principal import USER, Principal
from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.codec.types import Buffer, Chunk
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_response
from kafkatool.core.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkatool.core.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

log = logging.getLogger(__name__)

_START = struct.Struct(">hhi")  # api_key, api_version, correlation_id
_BARE = struct.Struct(">i")
_AGAIN_AFTER_S = 1.0  # SEC-70: new logins begin no faster
_VERSIONS, _HANDSHAKE, _AUTHENTICATE = api_versions.API, sasl_handshake.API, sasl_authenticate.API


class State(enum.Enum):
    """How far the login is."""

    FIRST = "nothing yet"
    VERSIONS = "ApiVersions was answered"
    TOKENS = "tokens are SaslAuthenticate"
    BARE_TOKENS = "tokens are bare frames"
    READY = "logged in"
    FAILED = "refused"


TAKEN: Mapping[State, tuple[Api, ...]] = {
    State.FIRST: (_VERSIONS, _HANDSHAKE),
    State.VERSIONS: (_HANDSHAKE,),
    State.TOKENS: (_AUTHENTICATE,),
    State.BARE_TOKENS: (),  # every frame is a token
    State.READY: (_HANDSHAKE,),  # a new login; all else is for the handlers
    State.FAILED: (),
}
"""The requests that bring the login further. Any other ends it."""

ANSWERED: Mapping[State, tuple[Api, ...]] = {State.TOKENS: (_VERSIONS, _HANDSHAKE)}
"""Those that end it with ILLEGAL_SASL_STATE in an answer of their own form; others do without an answer."""


class Verdict(enum.Enum):
    """What is to be done with the connection."""

    ANSWER = "answer, and read on"
    READY = "answer, and read on: it is logged in"
    REFUSE = "answer, if there is one, after a while; then close"
    SERVE = "the frame is a request for the handlers"
    CLOSE = "close at once"


class Step(NamedTuple):
    """What a frame led to; ``why`` is for the log."""

    verdict: Verdict
    answer: list[Chunk] | None = None
    why: str = ""


_SERVE = Step(Verdict.SERVE)


@dataclass(frozen=True, slots=True)
class SaslListener:
    """What the logins of one listener have in common."""

    name: str
    exchanges: Mapping[str, Callable[[], Exchange]]
    """What begins an exchange, by mechanism, in the order in which clients are told of them."""
    lifetimes_ms: Mapping[str, int]
    """For how long a login holds, by mechanism; 0, for ever (connections.max.reauth.ms)."""
    answer_versions: Callable[[ApiVersionsRequest, int], ApiVersionsResponse]
    """Answers ApiVersions in a version that is served."""
    answer_newer: Callable[[], ApiVersionsResponse]
    """Answers one that is not, in version 0."""
    clock: Callable[[], float] = time.monotonic


class Login:
    """One connection's. Used by its processor alone."""

    def __init__(self, listener: SaslListener) -> None:
        self._listener = listener
        self.state = State.FIRST
        self.principal: Principal | None = None
        self.mechanism = ""
        self._wanted = ""
        self._exchange: Exchange | None = None
        self._expires_at: float | None = None
        self._again_at = 0.0  # when a new login may begin
        self.user = ""
        """The user last claimed."""

    @property
    def mechanism_told(self) -> str:
        """Return the mechanism under way, for the log."""
        return self._wanted or "no mechanism"

    @property
    def expires(self) -> bool:
        """Tell whether it holds for some time only: then it sees every frame to come."""
        return self._expires_at is not None

    def take(self, frame: Buffer) -> Step:
        """Judge a whole frame. Raises nothing."""
        if self.state is State.BARE_TOKENS:
            return self._take_token(bytes(frame), None)
        if len(frame) < _START.size:
            return self._refuse("no request")
        key, version, correlation_id = _START.unpack_from(frame)
        if self.state is State.READY and key != _HANDSHAKE.key:
            expired = self._expires_at is not None and self._listener.clock() >= self._expires_at
            return Step(Verdict.CLOSE, why="its login has expired") if expired else _SERVE
        answered = ANSWERED.get(self.state, ())
        api = next((a for a in (*TAKEN[self.state], *answered) if a.key == key), None)
        if api is None:
            return self._refuse(f"request {key} instead of a login")
        if not api.min_version <= version <= api.max_version:
            if api is _VERSIONS and self.state is State.FIRST:  # it is told which versions there are, and asks again
                return Step(Verdict.ANSWER, encode_response(api, 0, correlation_id, self._listener.answer_newer()))
            return self._refuse(f"{api.name} in version {version}")
        try:
            _, offset = decode_header(api, frame)
            request = decode_request(api, version, frame, offset)
        except ProtocolError as e:
            return self._refuse(f"{api.name}: {e}")

        def encoded(response: Any) -> list[Chunk]:
            return encode_response(api, version, correlation_id, response)

        if api in answered:
            response = self._illegal_versions() if api is _VERSIONS else _illegal_handshake()
            return self._refuse(f"{api.name} in the middle of a login", encoded(response))
        if api is _VERSIONS:
            versions = self._listener.answer_versions(request, version)
            if not versions.error_code:
                self.state = State.VERSIONS
            return Step(Verdict.ANSWER, encoded(versions))
        if api is _HANDSHAKE:
            return self._take_handshake(request, version, encoded)
        return self._take_authenticate(request, encoded)

    @staticmethod
    def _illegal_versions() -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, api_keys=[])

    def _take_handshake(
        self, request: SaslHandshakeRequest, version: int, encoded: Callable[[Any], list[Chunk]]
    ) -> Step:
        if self.state is State.READY:
            now = self._listener.clock()
            if now < self._again_at:
                return Step(Verdict.ANSWER, encoded(_illegal_handshake()))
            self._again_at = now + _AGAIN_AFTER_S
        enabled = list(self._listener.exchanges)
        if request.mechanism not in enabled:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = encoded(SaslHandshakeResponse(error_code=code, mechanisms=enabled))
            return self._refuse(f"mechanism {request.mechanism!r} is not enabled", answer)
        self._wanted = request.mechanism
        self._exchange = self._listener.exchanges[request.mechanism]()
        self.state = State.TOKENS if version else State.BARE_TOKENS
        return Step(Verdict.ANSWER, encoded(SaslHandshakeResponse(error_code=0, mechanisms=enabled)))

    def _take_authenticate(self, request: SaslAuthenticateRequest, encoded: Callable[[Any], list[Chunk]]) -> Step:
        return self._take_token(bytes(request.auth_bytes), encoded)

    def _take_token(self, token: bytes, encoded: Callable[[Any], list[Chunk]] | None) -> Step:
        """Give a token to the mechanism; ``encoded`` None: answers are bare frames, refusals none."""
        assert self._exchange is not None
        try:
            if self.principal is not None and self._wanted != self.mechanism:
                text = f"Cannot change mechanisms during re-authentication from {self.mechanism}: {self._wanted}"
                raise LoginRefusedError(text, why="another mechanism at a new login")
            reply = self._exchange.take(token)
            if reply.user is not None:
                self._keep_principal(Principal(USER, reply.user))
        except LoginRefusedError as e:
            self.user = e.user
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(e), auth_bytes=b""
            )
            return self._refuse(e.why, encoded(response) if encoded else None)
        lifetime_ms = self._finish() if reply.user is not None else 0
        verdict = Verdict.ANSWER if reply.user is None else Verdict.READY
        if encoded is None:
            return Step(verdict, [_BARE.pack(len(reply.token)) + reply.token])
        response = SaslAuthenticateResponse(auth_bytes=reply.token, session_lifetime_ms=lifetime_ms)
        return Step(verdict, encoded(response))

    def _keep_principal(self, principal: Principal) -> None:
        if self.principal is not None and self.principal != principal:
            was, now = (f"{p.type}.{p.name}" for p in (self.principal, principal))
            text = f"Cannot change principals during re-authentication from {was}: {now}"
            raise LoginRefusedError(text, why="another user at a new login", user=principal.name)
        self.principal, self.mechanism, self.user = principal, self._wanted, principal.name

    def _finish(self) -> int:
        lifetime_ms = self._listener.lifetimes_ms.get(self.mechanism, 0)
        self._expires_at = self._listener.clock() + lifetime_ms / 1000 if lifetime_ms > 0 else None
        self._exchange = None
        self.state = State.READY
        return lifetime_ms

    def _refuse(self, why: str, answer: list[Chunk] | None = None) -> Step:
        self.state = State.FAILED
        self._exchange = None
        return Step(Verdict.REFUSE, answer, why)


def _illegal_handshake() -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
