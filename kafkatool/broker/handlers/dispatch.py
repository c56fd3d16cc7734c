"""From a frame to its handler: versions are checked, bodies decoded, failures become replies (BRK-10, 11, 17, 155)."""

import logging
import struct
from collections.abc import Mapping
from typing import Any

from kafkatool.broker.handlers import Served
from kafkatool.broker.handlers.call import Call, HandlerContext
from kafkatool.broker.handlers.error_reply import code_of, error_reply
from kafkatool.broker.network.client_quotas import FETCH as FETCH_RATE
from kafkatool.broker.network.client_quotas import PRODUCE as PRODUCE_RATE
from kafkatool.broker.network.request_channel import Request
from kafkatool.core.errors import KafkatoolError, ProtocolError
from kafkatool.core.protocol.frames import RequestHeader, decode_header, decode_request
from kafkatool.core.protocol.messages.api_versions import API as API_VERSIONS
from kafkatool.core.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import API as FETCH
from kafkatool.core.protocol.messages.produce import API as PRODUCE

log = logging.getLogger(__name__)

_START = struct.Struct(">hhi")  # api_key, api_version, correlation_id: the same in every header version
_CONTROL = frozenset({4, 5, 6})  # LeaderAndIsr, StopReplica, UpdateMetadata


class Dispatcher:
    """Called on the handler threads with one request each. Raises nothing."""

    def __init__(self, served: Mapping[int, Served], context: HandlerContext) -> None:
        self._served = served
        self._context = context
        self._told_to_lower: set[str] = set()

    def __call__(self, request: Request) -> None:
        """Handle one request; its answer, now or later, goes to its connection."""
        connection, frame = request
        if len(frame) < _START.size:
            log.warning("closing %s: a request of %d bytes has no header", connection, len(frame))
            connection.end()
            return
        key, version, correlation_id = _START.unpack_from(frame)
        served = self._served.get(key)
        if served is None or not served.announced_min_version <= version <= served.max_version:
            if key == API_VERSIONS.key and version > API_VERSIONS.max_version:
                self._offer_version_0(request, correlation_id)
            else:
                self._refuse(request, key, version)
            return
        try:
            header, offset = decode_header(frame)
            message = decode_request(header, frame, offset)
        except ProtocolError as e:
            log.warning("closing %s: %s version %d cannot be read: %s", connection, served.api.name, version, e)
            connection.end()
            return
        call = Call(header, served.api, self._context, connection)
        quotas = self._context.client_quotas
        if quotas is not None and quotas.active:
            _charge(call, key, message, len(frame))
        if version < served.min_version:
            _reply_code(call, served, message, ErrorCode.UNSUPPORTED_VERSION)
            return
        try:
            response = served.handle(message, call)
            if response is not None:
                call.respond(response)
        except Exception as e:  # noqa: BLE001  the handler thread serves the next request, whatever this one did (BRK-17)
            self._fail(call, served, message, e)

    def _fail(self, call: Call, served: Served, message: object, error: Exception) -> None:
        if isinstance(error, KafkatoolError):
            log.warning("%s from %s failed: %s", served.api.name, call.client_host, error)
        else:
            log.exception("%s from %s failed", served.api.name, call.client_host)
        if not call.answered:
            _reply_code(call, served, message, code_of(error))

    def _refuse(self, request: Request, key: int, version: int) -> None:
        connection = request.connection
        if key in _CONTROL and version >= 0:
            if connection.remote_host not in self._told_to_lower:
                self._told_to_lower.add(connection.remote_host)
                log.error(
                    "the controller at %s sends request %d in version %d, which is not served: lower its "
                    "inter.broker.protocol.version to 2.3 (BRK-4)",
                    connection.remote_host,
                    key,
                    version,
                )
        else:
            log.warning("closing %s: request %d in version %d is not served", connection, key, version)
        connection.end()

    def _offer_version_0(self, request: Request, correlation_id: int) -> None:
        """A newer client asks for versions: tell it, in the oldest layout, which version of the question to use."""
        header = RequestHeader(API_VERSIONS.key, 0, correlation_id, None)
        own = ApiVersionsResponseKey(
            api_key=API_VERSIONS.key, min_version=API_VERSIONS.min_version, max_version=API_VERSIONS.max_version
        )
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
        Call(header, API_VERSIONS, self._context, request.connection).respond(answer)


def _charge(call: Call, key: int, message: Any, size_bytes: int) -> None:
    """What clients bring and take counts; followers have quotas of their own (BRK-22)."""
    if key == PRODUCE.key:
        call.charge(PRODUCE_RATE, size_bytes)
    elif key == FETCH.key and message.replica_id < 0:
        call.charge(FETCH_RATE, None)


def _reply_code(call: Call, served: Served, message: object, code: ErrorCode) -> None:
    if served.api.key == PRODUCE.key and getattr(message, "acks", None) == 0:
        call.close()  # a client that reads no answers learns of it in no other way
    else:
        call.respond(error_reply(served.api, message, code))
