"""The link to a real ensemble, through kazoo; the only module that imports kazoo or knows its private members.

kazoo (2.10 to 2.11) is changed below its public surface, for two reasons:

- It wakes its thread with one byte per request, sends each by itself and reads each answer in two steps. With thousands
  of requests on the way the two threads take turns at the interpreter's lock, and a znode costs 0.2 to 0.4 ms. Here the
  thread is woken once, sends what is queued in one write, and reads what has arrived in one read: a tenth of it.
- A ZooKeeper that is just starting can accept a connection and then forget it: it neither answers nor closes (seen with
  3.9.5 in most of its starts, within some milliseconds after the port opens). kazoo waits for such an answer as long as
  the session may last, and by then it has lasted. A new attempt gets through at once.

``tests/core/zookeeper/test_kazoo_members.py`` names each private member used, and fails when a new version lacks one.
"""

import contextlib
import functools
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kazoo import exceptions as kz
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import Callback, KazooState
from kazoo.retry import KazooRetry

from kafkatool.core import errors
from kafkatool.core.zookeeper.bulk_reads import BulkRead, NodeRead, Outcome, is_used_up, take_answers
from kafkatool.core.zookeeper.connect_string import split_connect
from kafkatool.core.zookeeper.link import LinkWatch, Reply, SessionState, UnknownRequestError
from kafkatool.core.zookeeper.operations import Check, Create, Delete, Node, Op, SetData, TransactionError
from kafkatool.core.zookeeper.server_version import MultiRead

T = TypeVar("T")

_FIRST_S = 2.0  # a session is asked for and opened within milliseconds; a quorum under load may need longer
_MOST_REQUESTS = 256  # in one write, so that answers are read meanwhile and neither side's buffer fills
_CHUNK_BYTES = 1 << 18
_MANY = 64  # answers that are worth waiting for
_GATHER_S = 0.001
_AUTH = 100  # the type of the first kind of request that is numbered in another way

_ERRORS: dict[type[Exception], tuple[type[errors.ZooKeeperError], str]] = {
    kz.NoNodeError: (errors.NoNodeError, "no znode {}"),
    kz.NodeExistsError: (errors.NodeExistsError, "znode {} exists already"),
    kz.BadVersionError: (errors.VersionConflictError, "znode {} was changed by somebody else meanwhile"),
    kz.NotEmptyError: (errors.NotEmptyError, "znode {} still has children"),
    kz.NoAuthError: (errors.NoPermissionError, "no permission for znode {}: its ACL does not allow this"),
    kz.UnimplementedError: (UnknownRequestError, "the ZooKeeper server does not know this request ({})"),
    kz.SessionExpiredError: (errors.SessionExpiredError, "the ZooKeeper session expired ({})"),
    kz.ConnectionLoss: (errors.ConnectionLostError, "the connection to ZooKeeper was lost ({})"),
    kz.ConnectionClosedError: (errors.ConnectionLostError, "the connection to ZooKeeper was closed ({})"),
    KazooTimeoutError: (errors.ConnectionLostError, "ZooKeeper did not answer in time ({})"),
}
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
_KINDS = {"NONE": None, "CREATED": "created", "DELETED": "deleted", "CHANGED": "changed"}  # any other: children


def _translate(error: BaseException, path: str) -> errors.ZooKeeperError:
    for known, (ours, text) in _ERRORS.items():
        if isinstance(error, known):
            return ours(text.format(path))
    return errors.ZooKeeperError(f"ZooKeeper: {type(error).__name__} on {path}: {error}")


class KazooLink:
    """A `Link`: kazoo's client, typed, with this package's nodes, operations and errors."""

    def __init__(self, connect: str, *, session_timeout_ms: int) -> None:
        self._connect = connect
        self._hosts, self.chroot = split_connect(connect)
        self.client = _Client(
            hosts=self._hosts,
            timeout=session_timeout_ms / 1000,
            handler=SequentialThreadingHandler(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, ignore_expire=False),
            logger=logging.getLogger("kafkatool.core.zookeeper.kazoo"),
        )
        self.wait_until_connected = self.client.wait_until_live
        self.held = self.client.connection.held
        self._multi_read = MultiRead(lambda: self.client.connection.connected)

    def start(self, timeout_s: float, *, create_chroot: bool) -> None:
        try:
            self.client.start(timeout=timeout_s)
        except KazooTimeoutError as e:
            raise errors.ZooKeeperUnavailableError(
                f"ZooKeeper at {self._hosts} did not answer within {timeout_s:g} s: "
                "is it running, is the address right?"
            ) from e
        if create_chroot and self.chroot:
            self.client.ensure_path(self.chroot)
        self.client.chroot = self.chroot
        if self.chroot and self.client.exists("/") is None:
            raise errors.ChrootMissingError(
                f"ZooKeeper at {self._hosts} has no path {self.chroot}: check the chroot of {self._connect!r}; "
                "brokers create it at their first start"
            )

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    @property
    def session_id(self) -> int:
        return self.client.session_id

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self.client.add_listener(lambda state: listener(_STATES[state]))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.client.handler.dispatch_callback(Callback("watch", callback, ()))

    def get(self, path: str, watch: LinkWatch | None) -> Reply[Node]:
        return _Reply(self.client.get_async(path, watch=watch and _Watcher(watch)), path, _node)

    def exists(self, path: str, watch: LinkWatch | None) -> Reply[bool]:
        return _Reply(self.client.exists_async(path, watch=watch and _Watcher(watch)), path, bool)

    def children(self, path: str, watch: LinkWatch | None) -> Reply[list[str]]:
        return _Reply(self.client.get_children_async(path, watch=watch and _Watcher(watch)), path, list)

    def reads(self) -> Callable[[str], Reply[Node]]:
        return BulkRead(self.client.call, self.chroot, self._error_of).ask

    def reads_together(self) -> Callable[[Sequence[str]], Reply[list[Node | None]]] | None:
        if not self._multi_read.is_served():
            return None
        return BulkRead(self.client.call, self.chroot, self._error_of).ask_together

    def _error_of(self, outcome: Outcome, path: str) -> BaseException:
        if isinstance(outcome, kz.UnimplementedError):
            self._multi_read.refused()
        if isinstance(outcome, BaseException):
            return _translate(outcome, path) if isinstance(outcome, kz.KazooException) else outcome
        return _translate(KazooTimeoutError() if outcome is None else kz.EXCEPTIONS[outcome](), path)

    def create(self, path: str, data: bytes, *, ephemeral: bool, sequential: bool, make_parents: bool) -> Reply[str]:
        pending = self.client.create_async(path, data, ephemeral=ephemeral, sequence=sequential, makepath=make_parents)
        return _Reply(pending, path, str)

    def set(self, path: str, data: bytes, version: int) -> Reply[int]:
        return _Reply(self.client.set_async(path, data, version), path, lambda stat: int(stat.version))

    def delete(self, path: str, version: int) -> Reply[object]:
        return _Reply(self.client.delete_async(path, version), path, bool)

    def commit(self, ops: Sequence[Op]) -> Reply[list[int | None]]:
        transaction = self.client.transaction()
        for op in ops:
            match op:
                case Create():
                    transaction.create(op.path, op.data, ephemeral=op.ephemeral)
                case SetData():
                    transaction.set_data(op.path, op.data, op.version)
                case Delete():
                    transaction.delete(op.path, op.version)
                case Check():
                    transaction.check(op.path, op.version)
        return _Reply(transaction.commit_async(), "a transaction", functools.partial(_versions, ops))


class _Reply(Generic[T]):
    """kazoo's pending answer, which ``convert`` makes one of ours. ``path`` is named in errors."""

    __slots__ = ("_convert", "_path", "_pending")

    def __init__(self, pending: Any, path: str, convert: Callable[[Any], T]) -> None:
        self._pending, self._path, self._convert = pending, path, convert

    def get(self, timeout_s: float, /) -> T:
        """Wait for the answer. Raises errors.ZooKeeperError."""
        try:
            answer = self._pending.get(True, timeout_s)
        except (kz.KazooException, KazooTimeoutError) as e:
            raise _translate(e, self._path) from e
        return self._convert(answer)


class _Watcher(NamedTuple):
    """A watch as kazoo calls it. Equal to any other of the same watch: kazoo keeps a set, and calls it once."""

    watch: LinkWatch

    def __call__(self, event: Any) -> None:
        self.watch(_KINDS.get(event.type, "children"))


def _node(answer: tuple[bytes | None, Any]) -> Node:
    data, stat = answer
    return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.ctime)


def _versions(ops: Sequence[Op], results: list[Any]) -> list[int | None]:
    """Return the new version for each SetData. Raises TransactionError."""
    for index, result in enumerate(results):
        # ZooKeeper marks the operations before the failing one RolledBack, those after it RuntimeInconsistency.
        if isinstance(result, Exception) and not isinstance(result, kz.RolledBackError):
            raise TransactionError(index, _translate(result, ops[index].path))
    return [r.version if isinstance(op, SetData) else None for r, op in zip(results, ops, strict=True)]


# --- below kazoo's public surface --------------------------------------------------------------------------------


class Handshake:
    """The time limit of kazoo's ``_invoke``, which sends a connection's first request and waits for its answer.

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


class _Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """kazoo's client, on a connection of ours, with the few of its private members that are needed."""

    _connection: Any
    _live: threading.Event
    _session_id: int | None
    _queue: deque[Any]  # request, place of its answer
    _pending: deque[Any]  # request, place of its answer, xid
    _data_watchers: dict[str, set[Any]]
    last_zxid: int

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.connection = _Connection(self, self._connection.retry_sleeper, self.logger)
        self._connection = self.connection

    @property
    def session_id(self) -> int:
        """Return the current session's id, 0 while there is none."""
        return self._session_id or 0

    @property
    def queue(self) -> deque[Any]:
        """Return the requests to be sent, each with the place of its answer."""
        return self._queue

    @property
    def pending(self) -> deque[Any]:
        """Return the requests sent and not answered, each with the place of its answer and its xid."""
        return self._pending

    @property
    def watch_count(self) -> int:
        """Return how many watches on nodes wait to fire."""
        return sum(map(len, self._data_watchers.values()))

    def call(self, request: Any, answer: Any) -> None:
        """Queue a request with the place of its answer."""
        self._call(request, answer)

    def wait_until_live(self, timeout_s: float) -> bool:
        """Wait for a connection; tell whether there is one."""
        return self._live.wait(timeout_s)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, with another way to send, to read and to be woken. All but ``held`` runs on kazoo's thread."""

    _socket: socket.socket | None
    _write_sock: Any
    _xid: int
    client: _Client

    def __init__(self, client: _Client, retry_sleeper: Any, logger: logging.Logger) -> None:
        super().__init__(client, retry_sleeper, logger=logger)
        self._handshake = Handshake(super()._invoke)
        self._arrived_on: socket.socket | None = None
        self._arrived = b""
        self._position = 0
        self._holding = threading.local()

    @property
    def connected(self) -> socket.socket | None:
        """Return the socket, None while there is no connection."""
        return self._socket

    def start(self) -> None:
        """Start kazoo's thread, which is woken as `_WakeUp` says."""
        super().start()
        if not isinstance(self._write_sock, _WakeUp):
            self._write_sock.setblocking(False)
            self._write_sock = _WakeUp(self._write_sock, self._holding)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Queue this thread's requests of the block, and wake kazoo's thread once, at its end."""
        self._holding.requests = 0
        try:
            yield
        finally:
            if self._holding.__dict__.pop("requests") and (wake_up := self._write_sock) is not None:
                with contextlib.suppress(OSError):  # closed meanwhile: kazoo fails what is queued
                    wake_up.send(b"\0")

    def wake(self) -> None:
        """Have kazoo's thread look for requests."""
        self._write_sock.send(b"\0")

    def _invoke(self, timeout: float, request: Any, xid: Any = None) -> Any:
        return self._handshake(timeout, request, xid)

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send all that is queued, at most `_MOST_REQUESTS`; what is special about a request stays kazoo's to know."""
        queue, pending = self.client.queue, self.client.pending
        message = bytearray()
        count = 0
        while len(queue) > 1 and count < _MOST_REQUESTS and 0 < getattr(queue[0][0], "type", 0) < _AUTH:
            request, answer = queue.popleft()
            self._xid = self._xid % 0x7FFFFFFF + 1
            body = request.serialize()
            message += (len(body) + 8).to_bytes(4) + self._xid.to_bytes(4) + request.type.to_bytes(4) + body
            pending.append((request, answer, self._xid))
            count += 1
        if count:
            self._write(message, connect_timeout)
        super()._send_request(read_timeout, connect_timeout)
        if len(queue):
            self.wake()

    def _read(self, length: int, timeout: float) -> bytes:
        """Read exactly that many bytes; what else has arrived with them is kept for the next call."""
        if self._socket is not self._arrived_on:
            self._arrived_on, self._arrived, self._position = self._socket, b"", 0
        start, end = self._position, self._position + length
        if end > len(self._arrived):
            missing = end - len(self._arrived)
            have = self._arrived[start:] + super()._read(missing, timeout)
            try:
                have += self._socket.recv(_CHUNK_BYTES)  # type: ignore[union-attr]  # it has just been read from
            except OSError:  # nothing more yet; a broken connection shows at the next read
                pass
            self._arrived, start, end = have, 0, length
        self._position = end
        return self._arrived[start:end]

    def _read_socket(self, read_timeout: float) -> Any:
        """Take all messages that have arrived: the socket would not tell again of those that were read along."""
        while True:
            outcome = super()._read_socket(read_timeout)
            if outcome is None:
                pending = self.client.pending
                self._position, zxid = take_answers(pending, self._arrived, self._position)
                if zxid:
                    self.client.last_zxid = zxid
                if is_used_up(self._arrived, self._position) and self._awaits_many(pending):
                    time.sleep(_GATHER_S)  # let them gather: each wake-up costs as much as ten answers
            if outcome is not None or self._position == len(self._arrived):
                return outcome

    def _awaits_many(self, pending: deque[Any]) -> bool:
        """Tell whether all is sent, and the next answers are those of a bulk read, and more than a few."""
        return not self.client.queue and len(pending) > _MANY and pending[0][0].__class__ is NodeRead


class _WakeUp:
    """The sending end of kazoo's wake-up sockets, silent while its thread queues several requests."""

    def __init__(self, socket: Any, holding: threading.local) -> None:
        self._socket = socket
        self._holding = holding

    def send(self, data: bytes) -> None:
        """Wake kazoo's thread, or count the request that is held back."""
        held = self._holding.__dict__
        if "requests" in held:
            held["requests"] += 1
        else:
            with contextlib.suppress(BlockingIOError):  # so full that the thread will wake
                self._socket.send(data)

    def close(self) -> None:
        """Give the descriptor back."""
        self._socket.close()
