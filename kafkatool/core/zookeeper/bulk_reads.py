"""Reads of many znodes in one pass, without a lock, a condition and three tuples of kazoo's for each.

A controller reads a hundred thousand states, a tool ten thousand: with an ``AsyncResult`` each, Python's work is four
fifths of the time. Here a request is its own answer's place, whole answers are taken out of the buffer they came in
(``kazoo_link``), and who waits is woken once.

ZooKeeper from 3.6 on takes many reads in one request, which spares it what a request costs: 0.1 ms of CPU, a node 3 us.
"""

import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkatool.core.zookeeper.operations import Node

_LENGTH: Final = struct.Struct(">i")
_OPERATION: Final = struct.Struct(">i?i")  # before each of a request of several: its type, whether all is said, error
_REPLY: Final = struct.Struct(">iiqi")  # length of what follows, xid, zxid, error
_STAT: Final = struct.Struct(">qqq8xi8xq")  # czxid, mzxid, ctime, version, ephemeral owner, and what lies between them
_STAT_BYTES: Final = 68
_GET_DATA: Final = 4
_MULTI_READ: Final = 22
_FAILED: Final = -1  # in place of the type: what follows is an error's number
_NO_NODE: Final = -101
_ASK: Final = _OPERATION.pack(_GET_DATA, False, -1)
_ALL_SAID: Final = _OPERATION.pack(-1, True, -1)
_UNWATCHED: Final = b"\0"

Outcome = BaseException | int | None
"""Why there is no answer: kazoo's error, ZooKeeper's number of one, or None: it did not come in time."""


class BulkRead:
    """The reads of one pass: all are asked for, then each is got. A reader waits for the last of them.

    ``call`` is kazoo's way to queue a request with the place of its answer, ``error_of`` makes the error for a path.
    """

    def __init__(
        self, call: Callable[[Any, Any], object], chroot: str, error_of: Callable[[Outcome, str], BaseException]
    ) -> None:
        self._call, self._chroot, self.error_of = call, chroot, error_of
        self._last: _Read | None = None
        self._answers = 0
        self._woken = threading.Event()

    def ask(self, path: str) -> "NodeRead":
        """Queue the read of that node, without a watch."""
        request = self._last = NodeRead(self, path)
        self._call(request, request)
        return request

    def ask_together(self, paths: Sequence[str]) -> "NodesRead":
        """Queue the read of those nodes in one request, which the server must know (``server_version``)."""
        request = self._last = NodesRead(self, paths)
        self._call(request, request)
        return request

    def whole(self, path: str) -> bytes:
        """Return the path, below the chroot, as a request has it."""
        encoded = (self._chroot + path if path != "/" else self._chroot or path).encode()
        return _LENGTH.pack(len(encoded)) + encoded

    def answered(self, request: "_Read") -> None:
        """Note an answer, whatever it is. Called on kazoo's thread."""
        self._answers += 1
        if request is self._last:
            self._woken.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until the last is answered, which comes last; or until none has been for that long."""
        seen = -1
        while self._last is not None and not self._last.is_answered and seen != self._answers:
            seen = self._answers
            self._woken.wait(timeout_s)
            if self._woken.is_set():  # perhaps of one that was the last for a moment only
                self._woken.clear()
                seen = -1


class _Read:
    """One request, and what kazoo takes for its pending answer."""

    __slots__ = ("_outcome", "bulk", "is_answered", "path")

    watcher = None

    def __init__(self, bulk: BulkRead, path: str) -> None:
        self.bulk, self.path = bulk, path
        self._outcome: Any = None
        self.is_answered = False

    def set(self, outcome: Any) -> None:
        """Keep the answer. The first counts: kazoo may fail a request that it has failed already."""
        if not self.is_answered:
            self._outcome = outcome
            self.is_answered = True
            self.bulk.answered(self)

    set_exception = set

    def outcome(self, timeout_s: float) -> Any:
        """Wait for the answer and return it. Raises ZooKeeperError."""
        if not self.is_answered:
            self.bulk.wait(timeout_s)
        outcome = self._outcome
        if outcome is None or isinstance(outcome, BaseException):
            raise self.bulk.error_of(outcome, self.path)
        return outcome


class NodeRead(_Read):
    """The read of one node."""

    __slots__ = ()

    type = _GET_DATA

    def get(self, timeout_s: float, /) -> Node:
        """Wait for the node. Raises ZooKeeperError."""
        node: Node = self.outcome(timeout_s)
        return node

    def serialize(self) -> bytes:
        """Return the request's body."""
        return self.bulk.whole(self.path) + _UNWATCHED

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> Node:
        """Return the node whose data and stat begin there."""
        return _node(buffer, offset)[0]


class NodesRead(_Read):
    """The read of several nodes, each of which may be absent."""

    __slots__ = ("paths",)

    type = _MULTI_READ

    def __init__(self, bulk: BulkRead, paths: Sequence[str]) -> None:
        super().__init__(bulk, paths[0])
        self.paths = paths

    def get(self, timeout_s: float, /) -> list[Node | None]:
        """Wait for the nodes, in the order of the paths; None: no such node. Raises ZooKeeperError."""
        answers: list[Any] = self.outcome(timeout_s)
        for path, answer in zip(self.paths, answers, strict=True):
            if isinstance(answer, int):
                raise self.bulk.error_of(answer, path)
        return answers

    def serialize(self) -> bytes:
        """Return the request's body."""
        return b"".join(_ASK + self.bulk.whole(path) + _UNWATCHED for path in self.paths) + _ALL_SAID

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Node | int | None]:
        """Return the answers in the order of the paths; None: no such node, a number: ZooKeeper's, of an error."""
        answers: list[Node | int | None] = []
        while True:
            kind, all_said, _ = _OPERATION.unpack_from(buffer, offset)
            offset += _OPERATION.size
            if all_said:
                return answers
            if kind == _FAILED:
                (number,) = _LENGTH.unpack_from(buffer, offset)
                answers.append(None if number == _NO_NODE else number)
                offset += _LENGTH.size
            else:
                node, offset = _node(buffer, offset)
                answers.append(node)


def _node(buffer: bytes, offset: int) -> tuple[Node, int]:
    """Return the node whose data and stat begin there, and where they end."""
    start = offset + _LENGTH.size
    stat_at = start + max(0, _LENGTH.unpack_from(buffer, offset)[0])  # -1: no data
    czxid, mzxid, ctime_ms, version, owner = _STAT.unpack_from(buffer, stat_at)
    return Node(bytes(buffer[start:stat_at]), version, czxid, mzxid, owner, ctime_ms), stat_at + _STAT_BYTES


def take_answers(pending: deque[Any], buffer: bytes, position: int) -> tuple[int, int]:
    """Hand out the nodes that lie next in the buffer, as long as bulk reads wait for them.

    ``pending`` are kazoo's: request, place of the answer, xid. Returns where the nodes end, and the last zxid told, if any.
    Anything else (a ping, a watch event, an error, another kind of request, an answer in parts) is left to kazoo.
    """
    size, last_zxid = len(buffer), 0
    while pending and position + _REPLY.size <= size:
        request, _, xid = pending[0]
        length, answered_xid, zxid, error = _REPLY.unpack_from(buffer, position)
        end = position + _LENGTH.size + length
        if request.__class__ is not NodeRead or error or answered_xid != xid or end > size:
            break
        pending.popleft()
        if zxid > 0:
            last_zxid = zxid
        request.set(request.deserialize(buffer, position + _REPLY.size))
        position = end
    return position, last_zxid


def is_used_up(buffer: bytes, position: int) -> bool:
    """Tell whether no whole message lies in the buffer from there on."""
    left = len(buffer) - position
    return left < _LENGTH.size or left - _LENGTH.size < _LENGTH.unpack_from(buffer, position)[0]
