"""The way of a frame to its handler: versions are checked, bodies decoded, failures answered (BRK-10, 11, 17)."""

import logging
import struct
from collections.abc import Mapping
from typing import Any

from kafkatool.broker.handlers.authorization import NotPermittedError
from kafkatool.broker.handlers.call import Call, HandlerContext, Served
from kafkatool.broker.handlers.error_reply import code_of, error_reply
from kafkatool.broker.network.connection import Connection
from kafkatool.broker.network.request_channel import Request
from kafkatool.core.errors import KafkatoolError, ProtocolError
from kafkatool.core.protocol.frames import RequestHeader, decode_header, decode_request
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

_START = struct.Struct(">hhi")  # api_key, api_version, correlation_id: the same in every header version


class Dispatcher:
    """The function that handler threads call with one request each. Raises nothing."""

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
        first, last = served.versions if served is not None else (0, -1)
        if served is None or not first <= version <= last:
            self._refuse(connection, served, key, version, correlation_id)
            return
        try:
            header, offset = decode_header(served.api, frame)
            message = decode_request(served.api, version, frame, offset)
        except ProtocolError as e:
            log.warning("closing %s: %s version %d cannot be read: %s", connection, served.api.name, version, e)
            connection.end()
            return
        call = Call(header, served, self._context, connection)
        if served.charge is not None and self._context.client_quotas.active:
            served.charge(message, call, len(frame))
        if served.between_brokers is not None and (why := _why_no_broker(served.between_brokers(message), call)):
            log.warning("%s from %s (%s) refused: %s", served.api.name, connection, call.principal, why)
            _reply_code(call, served, message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return
        try:
            if self._context.authorizer is not None:
                for step in served.asks:
                    message = step(message, call)
                    if message is None:
                        return
            response = served.handle(message, call)
            if response is not None:
                call.respond(response)
        except NotPermittedError as e:
            _reply_code(call, served, message, e.code, e.told)
        except Exception as e:
            if isinstance(e, KafkatoolError):
                log.warning("%s from %s failed: %s", served.api.name, call.client_host, e)
            else:
                log.exception("%s from %s failed", served.api.name, call.client_host)
            if not call.answered:
                _reply_code(call, served, message, code_of(e))

    def _refuse(
        self, connection: Connection, served: Served | None, key: int, version: int, correlation_id: int
    ) -> None:
        too_new = served if served is not None and version > served.versions[1] else None
        if too_new is not None and too_new.answer_newer is not None:
            header = RequestHeader(key, 0, correlation_id, None)
            Call(header, too_new, self._context, connection).respond(too_new.answer_newer())
            return
        if too_new is not None and too_new.from_controller:
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


def _why_no_broker(broker_id: int, call: Call) -> str:
    """Say why the peer is not believed to be that broker; empty: it is."""
    if not call.is_between_brokers:
        listener = call.listener
        return f"it came in on listener {listener} (where brokers change over, kt.inter.broker.also.on={listener} takes it)"
    return "" if call.is_broker(broker_id) else f"kt.inter.broker.principals names another for broker {broker_id}"


def _reply_code(call: Call, served: Served, message: Any, code: ErrorCode, told: str | None = None) -> None:
    if served.expects_answer is None or served.expects_answer(message):
        call.respond(error_reply(served.api.response, message, code, told))
    else:
        call.close()  # a client that reads no answers learns of it in no other way
