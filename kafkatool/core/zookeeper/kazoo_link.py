"""The link to a real ensemble, through kazoo; the only module that imports kazoo or knows its private members.

kazoo (2.10 to 2.11) is changed below its public surface, for three reasons:

- It wakes its thread with one byte per request, sends each by itself and reads each answer in two steps. With thousands
  of requests on the way the two threads take turns at the interpreter's lock, and a znode costs 0.2 to 0.4 ms. Here the
  thread is woken once, sends what is queued in one write, and reads what has arrived in one read: a tenth of it.
- A ZooKeeper that is just starting can accept a connection and then forget it: it neither answers nor closes (seen with
  3.9.5 in most of its starts, within some milliseconds after the port opens). kazoo waits for such an answer as long as
  the session may last, and by then it has lasted. A new attempt gets through at once.
- An interruption that comes while it wakes its thread is taken for the end of the session.

``tests/core/zookeeper/test_kazoo_members.py`` names each private member used, and fails when a new version lacks one.
"""

import contextlib
import functools
import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from kazoo import exceptions as kz
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.protocol.serialization import SASL, Auth
from kazoo.protocol.states import Callback, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Id

from kafkatool.core import errors
from kafkatool.core.security.handshake import shake_hands, why_tls_ended
from kafkatool.core.security.zookeeper_security import OPEN, ZooKeeperSecurity
from kafkatool.core.zookeeper.acls import OPEN_NODES, Acl, NodeAcls
from kafkatool.core.zookeeper.bulk_reads import BulkRead, NodeRead, NodesRead, Outcome, is_used_up, take_answers
from kafkatool.core.zookeeper.connect_string import split_connect
from kafkatool.core.zookeeper.link import LateError, LinkWatch, Reply, SessionState, UnknownRequestError
from kafkatool.core.zookeeper.operations import Check, Create, Delete, Node, Op, SetData, TransactionError
from kafkatool.core.zookeeper.server_version import MultiRead
from kafkatool.core.zookeeper.unreachable import brokers_instead, tls_instead

T = TypeVar("T")

_NOBODY = "127.0.0.1:1"  # nobody listens there
_FIRST_S = 2.0  # a session is asked for and opened within milliseconds; a quorum under load may need longer
_TURN_S = 0.2  # of waiting for the first connection, before it is asked whether that has become too late
_SOON_S = 0.7  # after which it is asked whether it speaks TLS
_SLOW_S = 3.0  # after which it is asked whether this is ZooKeeper at all
_NOTICED_S, _MOST_TAKEN = 1.0, 10  # for a session that somebody else ends to be missed here; so often it is tried
_MOST_REQUESTS = 256  # in one write, so that answers are read meanwhile and neither side's buffer fills
_CHUNK_BYTES = 1 << 18
_MANY = 64  # answers that are worth waiting for
_GATHER_S = 0.001
_LOGIN_S = 3.0  # for each answer of a login: a server without SASL gives none
_STEPS = 8  # of a login; a server without SASL answers each with nothing, without end
_TRIES = 2  # of a login that ends with the connection, or is not answered: so it is with a server that stops, or pauses
_AUTH = 100  # the type of the first kind of request that is numbered in another way

_ERRORS: dict[type[Exception], tuple[type[errors.ZooKeeperError], str]] = {
    kz.NoNodeError: (errors.NoNodeError, "no znode {}"),
    kz.NodeExistsError: (errors.NodeExistsError, "znode {} exists already"),
    kz.BadVersionError: (errors.VersionConflictError, "znode {} was changed by somebody else meanwhile"),
    kz.NotEmptyError: (errors.NotEmptyError, "znode {} still has children"),
    kz.NoAuthError: (errors.NoPermissionError, "{}"),
    kz.UnimplementedError: (UnknownRequestError, "the ZooKeeper server does not know this request ({})"),
    kz.SessionExpiredError: (errors.SessionExpiredError, "the ZooKeeper session expired ({})"),
    kz.ConnectionLoss: (errors.ConnectionLostError, "the connection to ZooKeeper was lost ({})"),
    kz.ConnectionClosedError: (errors.ConnectionLostError, "the connection to ZooKeeper was closed ({})"),
    kz.SessionClosedRequireSaslError: (
        errors.ZooKeeperRefusedError,
        "ZooKeeper demands a login ({}): give --zk-auth-file",
    ),
    KazooTimeoutError: (LateError, "ZooKeeper did not answer in time ({})"),
}
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
_ENDED = (KeeperState.AUTH_FAILED, KeeperState.CLOSED, KeeperState.EXPIRED_SESSION)  # nothing is queued then
_KINDS = {"NONE": None, "CREATED": "created", "DELETED": "deleted", "CHANGED": "changed"}  # any other: children


def _translate(error: BaseException, path: str) -> errors.ZooKeeperError:
    for known, (ours, text) in _ERRORS.items():
        if isinstance(error, known):
            return ours(text.format(path))
    return errors.ZooKeeperError(f"ZooKeeper: {type(error).__name__} on {path}: {error}")


class KazooLink:
    """A `Link`: kazoo's client, typed, with this package's nodes, operations and errors."""

    def __init__(self, connect: str, *, session_timeout_ms: int, security: ZooKeeperSecurity = OPEN) -> None:
        self._connect = connect
        self._hosts, self.chroot = split_connect(connect)
        self._security = security
        self.client = _Client(
            security=security,
            hosts=self._hosts,
            timeout=session_timeout_ms / 1000,
            handler=_Handler(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.01, backoff=1.5, max_delay=0.5, ignore_expire=False),
            logger=logging.getLogger("kafkatool.core.zookeeper.kazoo"),
        )
        self.wait_until_connected = self.client.wait_until_live
        self.held = self.client.connection.held
        self._multi_read = MultiRead(lambda: self.client.connection.connected)

    def start(self, timeout_s: float, *, create_chroot: bool, is_late: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout_s

        def connected_before(until: float) -> bool:
            while not self.client.wait_until_settled(max(0.0, min(_TURN_S, until - time.monotonic()))):
                if is_late() or time.monotonic() >= until:
                    return False
            return True

        self.client.start_async()
        if not connected_before(min(deadline, time.monotonic() + _SOON_S)):
            self._refuse_tls()
        if not connected_before(min(deadline, time.monotonic() + _SLOW_S)):
            if timeout_s > _SLOW_S and (brokers := brokers_instead(self._hosts)):
                raise errors.NotZooKeeperError(
                    f"not ZooKeeper, but Kafka: a broker answers at {', '.join(brokers)}. ZooKeeper's address is "
                    "zookeeper.connect in the brokers' server.properties (port 2181 as a rule)"
                )
            if not connected_before(deadline):
                if not is_late():
                    self._refuse_tls()  # it may have stood still when it was asked first
                raise errors.ZooKeeperUnavailableError(
                    f"ZooKeeper at {self._hosts} did not answer within {timeout_s:g} s: "
                    f"is it running, is the address right?{self.client.last_failure}"
                )
        if self.client.refusal is not None:
            raise errors.ZooKeeperRefusedError(self.client.refusal)
        if create_chroot and self.chroot:
            self.client.ensure_path(self.chroot)
        self.client.chroot = self.chroot
        if self.chroot and self.client.exists("/") is None:
            raise errors.ChrootMissingError(
                f"ZooKeeper at {self._hosts} has no path {self.chroot}: check the chroot of {self._connect!r}; "
                "brokers create it at their first start"
            )

    def _refuse_tls(self) -> None:
        """Raise ZooKeeperRefusedError where servers speak TLS and we do not."""
        if self._security.tls is None and (encrypted := tls_instead(self._hosts)):
            raise errors.ZooKeeperRefusedError(f"{', '.join(encrypted)} speaks TLS: give --zk-tls-config-file")

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def make_nodes_as(self, acls: NodeAcls) -> None:
        """Give the nodes that are made from now on these rights."""
        self.client.node_acls = acls

    def acls(self, path: str) -> Reply[list[Acl]]:
        """Ask who may do what with a node."""
        return _Reply(self.client.get_acls_async(path), path, _acls)

    def set_acls(self, path: str, acls: Sequence[Acl]) -> Reply[object]:
        """Say who may do what with a node."""
        return _Reply(self.client.set_acls_async(path, _kazoos(acls)), path, bool)

    def cut_off(self) -> None:
        """Lose the connection and find no server any more, as when the network is gone: the session runs out."""
        self.client.set_hosts(_NOBODY + self.chroot)
        self.client.drop()

    def rejoin(self) -> None:
        """Find the servers again."""
        self.client.set_hosts(self._hosts + self.chroot)

    def expire(self) -> None:
        """Have ZooKeeper end the session, as when it hears nothing for too long: somebody else takes it and leaves."""
        session, login = self.session_id, self.client.client_id
        for _ in range(_MOST_TAKEN):
            other = KazooClient(hosts=self._hosts, client_id=login)
            other.start()
            other.stop()
            other.close()
            noticed_by = time.monotonic() + _NOTICED_S
            while time.monotonic() < noticed_by:
                if self.session_id != session:
                    return
                time.sleep(0.01)
            # This client may have taken the session back before the other could end it.

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
        return functools.partial(NodeRead, BulkRead(self.client.call, self.chroot, self._error_of))

    def reads_together(self) -> Callable[[Sequence[str]], Reply[list[Node | None]]] | None:
        bulk = BulkRead(self.client.call, self.chroot, self._error_of)
        return functools.partial(NodesRead, bulk) if self._multi_read.is_served() else None

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
                    transaction.create(op.path, op.data, self.client.acl_of(op.path), op.ephemeral, op.sequential)
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


def _acls(answer: tuple[Sequence[Any], Any]) -> list[Acl]:
    return [Acl(acl.perms, acl.id.scheme, acl.id.id) for acl in answer[0]]


def _kazoos(acls: Sequence[Acl]) -> list[Any]:
    return [ACL(acl.rights, Id(acl.scheme, acl.id)) for acl in acls]


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
    last_zxid: int
    hosts: Sequence[tuple[str, int]]

    def __init__(self, *, security: ZooKeeperSecurity, **options: Any) -> None:
        self._is_logging_in = False
        self._held_back: Any = None  # the state to be told when the login is done
        self.was_live = False  # ever, login included
        self.refusal: str | None = None  # why there will be no session
        self._failures: dict[tuple[str, int], str] = {}
        self._settled = threading.Event()
        super().__init__(**options)
        self.security = security
        self.node_acls = OPEN_NODES
        self.connection = _Connection(self, self._connection.retry_sleeper, self.logger)
        self._connection = self.connection
        self.handler.tls = security.tls
        if security.login is not None and security.login.scheme == "digest":
            self.auth_data = {("digest", f"{security.login.user}:{security.login.password.reveal()}")}

    @property
    def last_failure(self) -> str:
        """Return what went wrong last, as the end of a sentence."""
        return "".join(f" ({text})" for text in list(self._failures.values())[-1:])

    def failed(self, host: str, port: int, reason: str) -> bool:
        """Note that this server does not take us; tell whether that is the end, as none does and none ever did."""
        self._failures[host, port] = reason
        if self.was_live or len(self._failures) < len(self.hosts):
            return False
        self.refusal = reason
        self._settled.set()
        return True

    def wait_until_settled(self, timeout_s: float) -> bool:
        """Wait for a connection, or for the reason why there is none; tell whether either has come."""
        return self._settled.wait(timeout_s)

    @contextlib.contextmanager
    def logging_in(self) -> Iterator[None]:
        """Tell nobody of the connection before the login is done, which the block does."""
        self._is_logging_in, self._held_back = True, None
        try:
            yield
        finally:
            self._is_logging_in = False
        if self._held_back is not None:
            self._session_callback(self._held_back)

    def _session_callback(self, state: Any) -> None:
        if state in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            if self._is_logging_in:
                self._held_back = state
                return
            self.was_live = True
            self._failures.clear()
        super()._session_callback(state)
        if self._live.is_set():
            self._settled.set()
        elif self.refusal is None:
            self._settled.clear()

    def acl_of(self, path: str) -> list[Any]:
        """Return what a new node gets; ``path`` is below the chroot."""
        return _kazoos(self.node_acls.of(path))

    def create_async(self, path: str, value: bytes = b"", acl: Any = None, *flags: Any, **options: Any) -> Any:
        """Make a node with what is its own."""
        return super().create_async(path, value, acl or self.acl_of(path), *flags, **options)

    def ensure_path_async(self, path: str, acl: Any = None) -> Any:
        """Make a node with its parents; each gets what is its own, not what the child gets, as kazoo would have it."""
        return super().ensure_path_async(path)

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

    def drop(self) -> None:
        """Break the connection, if there is one."""
        if (connected := self.connection.connected) is not None:
            with contextlib.suppress(OSError):  # broken already
                connected.shutdown(socket.SHUT_RDWR)

    def call(self, request: Any, answer: Any) -> None:
        """Queue a request with the place of its answer."""
        self._call(request, answer)

    def _call(self, request: Any, answer: Any) -> Any:
        """Queue a request and wake kazoo's thread, as kazoo does, but let an interruption through.

        kazoo takes whatever comes while it wakes the thread, Ctrl-C too, for the end of the session.
        """
        if self.client_state in _ENDED:
            return super()._call(request, answer)
        self._queue.append((request, answer))
        with contextlib.suppress(OSError):  # closed meanwhile
            if (wake_up := self.connection.wake_up) is not None:
                wake_up.send(b"\0")
                return None
        answer.set_exception(kz.ConnectionClosedError("Connection has been closed"))
        return None

    def wait_until_live(self, timeout_s: float) -> bool:
        """Wait for a connection; tell whether there is one."""
        return self._live.wait(timeout_s)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads and sockets; those with TLS are made here, by a context of ours (SEC-14)."""

    tls: ssl.SSLContext | None = None

    def create_connection(self, *, address: tuple[str, int], hostname: str, timeout: float, **options: Any) -> Any:
        """Connect to a server. Raises OSError, TlsError."""
        if self.tls is None:
            return super().create_connection(address=address, hostname=hostname, timeout=timeout, **options)
        raw = socket.create_connection(address, timeout)
        raw.settimeout(min(timeout, _LOGIN_S))
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return shake_hands(self.tls, raw, hostname.strip("[]"), f"{hostname}:{address[1]}")


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, with another way to send, to read and to be woken. All but ``held`` runs on kazoo's thread."""

    _socket: socket.socket | None
    _write_sock: Any
    _xid: int
    client: _Client

    def __init__(self, client: _Client, retry_sleeper: Any, logger: logging.Logger) -> None:
        super().__init__(client, retry_sleeper, logger=logger, sasl_options=_sasl_options(client.security))
        self._vain_logins = 0
        self._handshake = Handshake(super()._invoke)
        self._arrived_on: socket.socket | None = None
        self._arrived = b""
        self._position = 0
        self._holding = threading.local()

    @property
    def connected(self) -> socket.socket | None:
        """Return the socket, None while there is no connection."""
        return self._socket

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        """Connect and log in. A server that refuses is left; when all do, kazoo's loop ends by AuthFailedError."""
        client = self.client
        try:
            with client.logging_in():
                return super()._connect(host, hostip, port)
        except errors.TlsError as e:
            reason = str(e)
        except kz.AuthFailedError as e:
            reason = self._login_refused(host, port, e)
        except ConnectionDropped as e:
            cause = e.__context__
            if not isinstance(cause, ssl.SSLError) or client.security.tls is None:
                raise
            reason = why_tls_ended(cause, f"{host}:{port}")
        if client.failed(host, port, reason):
            raise kz.AuthFailedError
        raise ConnectionDropped(reason)

    def _login_refused(self, host: str, port: int, error: kz.AuthFailedError) -> str:
        login = self.client.security.login
        assert login is not None
        if isinstance(error, _NoAnswerError):
            return f"ZooKeeper at {host}:{port} does not answer a login: has it SASL?"
        if isinstance(error.__cause__, errors.ZooKeeperRefusedError):  # it did not come to an answer of the server's
            return f"no login to ZooKeeper at {host}:{port} as {login.user}: {error.__cause__}: check {login.source}"
        how = f"{login.user} (SASL {login.mechanism})" if login.scheme == "sasl" else f"{login.user} ({login.scheme})"
        return f"ZooKeeper at {host}:{port} refused the login of {how}: check {login.source}"

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        try:
            super()._authenticate_with_sasl(host, min(timeout, _LOGIN_S))
        except KazooTimeoutError as e:
            if self._is_worth_another_try():
                raise ConnectionDropped("no answer to a login") from e
            raise _NoAnswerError from e
        except kz.AuthFailedError as e:
            # ZooKeeper 3.4 says no in this way
            if isinstance(e.__cause__, ConnectionDropped) and self._is_worth_another_try():
                raise e.__cause__ from e
            raise

    def _is_worth_another_try(self) -> bool:
        """Count a login that came to nothing, without a word; tell whether that may be chance."""
        self._vain_logins += 1
        return self.client.was_live or self._vain_logins < _TRIES

    def _submit(self, request: Any, timeout: float, xid: Any = None) -> None:
        """Send a request; those of a login are logged nowhere, as kazoo would at debug level (SEC-42)."""
        if not isinstance(request, Auth | SASL):
            super()._submit(request, timeout, xid)
            return
        if isinstance(request, SASL) and xid > _STEPS:
            raise _NoAnswerError
        message = (xid or 0).to_bytes(4, signed=True) + request.type.to_bytes(4) + request.serialize()
        self._write(len(message).to_bytes(4) + message, timeout)

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

    @property
    def wake_up(self) -> Any:
        """Return what wakes kazoo's thread, None while there is none or it ends."""
        return self._write_sock

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


class _NoAnswerError(kz.AuthFailedError):  # type: ignore[misc]  # kazoo has no types
    """The server does not answer a token."""


def _sasl_options(security: ZooKeeperSecurity) -> Mapping[str, Any] | None:
    """Return what kazoo's login takes."""
    login = security.login
    if login is None or login.scheme != "sasl":
        return None
    options = {"mechanism": login.mechanism, "service": login.service}
    if login.tickets is None:
        return options | {"username": login.user, "password": login.password.reveal()}
    from puresasl import mechanisms

    from kafkatool.core.security.kerberos import GssapiMechanism

    mechanisms.mechanisms[login.mechanism] = GssapiMechanism  # its own knows no keytab, and an older library
    return options | {"principal": login.user, "tickets": login.tickets}


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
