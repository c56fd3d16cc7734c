"""How long an accepted connection may take to answer the session request: short at first, then longer and longer.

A ZooKeeper that is just starting can accept a connection and then forget it: it neither answers nor closes (seen with
3.9.5 in most of its starts, within some milliseconds after the port opens). kazoo waits for such an answer as long as
the session may last, and by then it has lasted. A new attempt gets through at once.
"""

from collections.abc import Callable
from typing import Any

_FIRST_S = 2.0  # a session is asked for and opened within milliseconds; a quorum under load may need longer


class Handshake:
    """Stands in for the ``_invoke`` of kazoo's connection, which sends a request and waits for its answer.

    The limit doubles with each attempt that fails, up to the one kazoo has set, and is small again after a success.
    """

    def __init__(self, invoke: Callable[[float, Any, Any], Any], first_s: float = _FIRST_S) -> None:
        self._invoke = invoke
        self._first_s = self._limit_s = first_s

    def __call__(self, timeout_s: float, request: Any, xid: Any = None) -> Any:
        limit_s = min(timeout_s, self._limit_s)
        self._limit_s = limit_s * 2
        answer = self._invoke(limit_s, request, xid)
        self._limit_s = self._first_s
        return answer
