"""The way of a frame to its handler: versions are checked, bodies decoded, failures answered (BRK-10, 11, 17)."""

import logging
import struct
from collections.abc import Mapping
from typing import Any

from kafkatool.broker.handlers.authorization import NotPermittedError
from kafkatool.broker.handlers.call import Call, HandlerContext, Served
from kafkatool.broker.handlers.error_reply import code_of, error_reply
from kafkatool.broker.limits import Limit
from kafkatool.broker.network.connection import Connection
from kafkatool.broker.network.request_channel import Request
from kafkatool.core.errors import KafkatoolError, ProtocolError, TooManyElementsError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import RequestHeader, decode_header, decode_request
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)

_PARTITION_BYTES = 4  # of a request, at least
_START = struct.Struct(">hhi")  # api_key, api_version, correlation_id: the same in every header version
_ANY = Api(-1, "any", 0, 0, object, object)  # a header is read so far as all versions have it
_LONGEST_TOLD = 100  # characters of a client's id


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
        key, version, _ = _START.unpack_from(frame)
        served = self._served.get(key)
        first, last = served.versions if served is not None else (0, -1)
        if served is None or not first <= version <= last:
            self._refuse(connection, served, frame)
            return
        try:
            header, offset = decode_header(served.api, frame)
            message = decode_request(served.api, version, frame, offset)
        except TooManyElementsError as e:
            host = connection.remote_host
            self._context.limits.reached(Limit.ELEMENTS, connection, served.api.name, e, key=host)
            connection.end()
            return
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
        most = self._context.config.kt_max_partitions_per_request
        if len(frame) > most * _PARTITION_BYTES and (found := _partitions(served, message, call)) > most:
            told = (served.api.name, connection, found, most)
            self._context.limits.reached(Limit.PARTITIONS, *told, key=connection.remote_host)
            _reply_code(call, served, message, ErrorCode.INVALID_REQUEST, f"more than {most} partitions in one request")
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

    def _refuse(self, connection: Connection, served: Served | None, frame: bytearray) -> None:
        key, version, correlation_id = _START.unpack_from(frame)
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
            # A client that asks for the versions first sends none of these: this line is all that its owner learns.
            asked = f"request {key}" if served is None else served.api.name
            known = "" if served is None else ", versions {} to {} are".format(*served.versions)
            whose = _client_id(frame)
            log.warning("closing %s: %s in version %d%s is not served%s", connection, asked, version, whose, known)
        connection.end()


def _client_id(frame: bytearray) -> str:
    """Say whose request it is, where the header can be read: a client's id stands in the same place in every version."""
    try:
        client_id = decode_header(_ANY, frame)[0].client_id
    except ProtocolError:
        return ""
    return f" from client {client_id[:_LONGEST_TOLD]!a}" if client_id else ""


def _partitions(served: Served, message: Any, call: Call) -> int:
    """Return how many partitions a client names; of brokers that replicate there may be as many as they have (SEC-99)."""
    replica_id = getattr(message, "replica_id", -1)
    if served.from_controller or (replica_id >= 0 and call.is_of_follower(replica_id, asked=False)):
        return 0
    topics = getattr(message, "topics", None)
    return sum(len(getattr(topic, "partitions", None) or ()) for topic in topics) if isinstance(topics, list) else 0


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
