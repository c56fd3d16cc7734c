"""Faults of answers: the table of handlers, with a handler replaced while there is a fault for its API.

So a broker without a fault runs no line of this: its dispatcher finds the handlers that it would find without.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafkatool.broker.faults.rules import Counter, Rule, says
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import error_reply
from kafkatool.core.protocol.codec.schema import Array, fields_of
from kafkatool.core.protocol.messages import fetch, metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode

log = logging.getLogger(__name__)


class _HeldCall(Call):
    """The call as a handler gets it whose answer does not go out as it is; ``then`` gets it, None: none is wanted."""

    then: Callable[[Any], None]

    def respond(self, response: Any, *, throttle_time_ms: int = 0) -> None:
        """Give the answer to the fault."""
        if self._claim():
            self.then(response)

    def no_response(self) -> None:
        """Tell the fault that the client wants no answer."""
        if self._claim():
            self.then(None)


class _Fault:
    """A rule at work in this broker."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._held: dict[Call, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._counter = Counter(rule.counter)

    def hold(self, call: Call, at_end: Callable[[], None]) -> None:
        """Have something done for a request that has no answer yet, when the fault ends; at once if it has."""
        with self._lock:
            if not self._ended:
                self._held[call] = at_end
                return
        at_end()

    def release(self, call: Call) -> None:
        """Do now what would be done at the end; nothing if that was done."""
        with self._lock:
            at_end = self._held.pop(call, None)
        if at_end is not None:
            at_end()

    def end(self) -> None:
        """Send what was to be late; close what was left without an answer: those clients may come again."""
        with self._lock:
            self._ended = True
            held = list(self._held)
        for call in held:
            self.release(call)

    def takes(self) -> bool:
        """Count a request that meets the conditions; tell whether its turn is the fault's."""
        before = self._counter.next()
        rule = self.rule
        return before >= rule.skip and (rule.times is None or before < rule.skip + rule.times)


class FaultyHandlers:
    """The handlers of one broker and the faults among them. Faults come and go on any thread."""

    def __init__(self, handlers: Mapping[int, Served]) -> None:
        self._handlers = handlers
        self.table = dict(handlers)
        """What the dispatcher goes by; changed entry by entry, while it is read."""
        self._faults: dict[str, _Fault] = {}
        self._lock = threading.Lock()

    def add(self, name: str, rule: Rule) -> None:
        """Begin a fault; of those that meet one request, the first begun has it."""
        with self._lock:
            self._faults[name] = _Fault(rule)
            self._rebuild()

    def remove(self, name: str) -> None:
        """End a fault, if there is one of that name."""
        with self._lock:
            fault = self._faults.pop(name, None)
            self._rebuild()
        if fault is not None:
            fault.end()

    def _rebuild(self) -> None:
        for key, served in self._handlers.items():
            faults = [f for f in self._faults.values() if f.rule.apis is None or key in f.rule.apis]
            self.table[key] = dataclasses.replace(served, handle=partial(_handle, served, faults)) if faults else served


def _handle(served: Served, faults: list[_Fault], request: Any, call: Call) -> Any:
    """Serve a request with the first fault that it meets, or as ever."""
    for fault in faults:
        rule = fault.rule
        if not rule.concerns(call.header.client_id, request):
            continue
        if rule.topic is not None and served.api is fetch.API:
            if request.session_epoch > 0:  # it does not say what it is about: have it say so
                return fetch.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, topics=[])
            request = dataclasses.replace(request, session_id=0, session_epoch=-1)  # and go on saying so
        parts = rule.split(request)
        if parts is not None and fault.takes():
            log.warning("%s of %s meets a fault: %s", served.api.name, call.client_host, rule.action)
            return _answer(served, fault, call, request, *parts)
    return served.handle(request, call)


def _answer(served: Served, fault: _Fault, call: Call, request: Any, met: Any, rest: Any) -> Any:
    rule = fault.rule
    match rule.action:
        case "late":
            return _hold(served, call, request, lambda it: _later(fault, call, it))
        case "never":
            fault.hold(call, call.close)
            return _hold(served, call, request, lambda it: None) if rule.carried_out else None
        case "close":
            if rule.carried_out:
                return _hold(served, call, request, lambda it: call.close())
            call.close()
            return None
    if served.expects_answer is not None and not served.expects_answer(request):
        call.close()  # a client that reads no answers learns of it in no other way
        return None
    reply = _error_reply(served, rule, met)
    if reply is None:
        call.close()
        return None
    if rule.carried_out:
        rest = request
    elif rest is None and served.api is metadata.API and call.header.api_version > 0:
        rest = dataclasses.replace(request, topics=[])  # without brokers in the answer a client is lost
    return reply if rest is None else _hold(served, call, rest, lambda it: call.respond(_overlaid(rule, it, reply)))


def _error_reply(served: Served, rule: Rule, met: Any) -> Any:
    """Build the answer to the part that is met; None when that API's has no place for an error."""
    reply = error_reply(served.api.response, met, ErrorCode(rule.error))
    if hasattr(reply, "error_code") and (rule.topic is not None or served.api is fetch.API):
        # The error of partitions, which clients would take for one of the whole: of a fetch, of its session.
        of_parts = dataclasses.replace(reply, error_code=ErrorCode.NONE)
        reply = of_parts if says(of_parts, rule.error) else reply
    return reply if says(reply, rule.error) else None


def _overlaid(rule: Rule, response: Any, reply: Any) -> Any:
    """Return the response with what the reply says in place of what it says of the same."""
    parts = rule.split(response)
    rest = response if parts is None else parts[1]
    if rest is None:
        return reply
    lists = [f.name for f in fields_of(type(reply)) if isinstance(f.type, Array)]
    return dataclasses.replace(rest, **{name: (getattr(rest, name) or []) + getattr(reply, name) for name in lists})


def _hold(served: Served, call: Call, request: Any, then: Callable[[Any], None]) -> None:
    """Serve the request, its answer given to ``then``."""
    held = _HeldCall(**{field.name: getattr(call, field.name) for field in dataclasses.fields(call)})
    held.then = then
    response = served.handle(request, held)
    if response is not None:
        held.respond(response)


def _later(fault: _Fault, call: Call, response: Any) -> None:
    fault.hold(call, call.no_response if response is None else lambda: call.respond(response))
    call.context.timer.add(fault.rule.delay_ms, lambda: fault.release(call))
