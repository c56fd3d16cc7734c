"""The ZooKeeper session: pipelined reads, conditional writes, transactions, one-shot watches; kazoo's one user.

What it adds to kazoo:

- A reply lost with the connection is resolved by reading what is there (Z-40), so a write returns its true outcome.
- kazoo forgets all watches when the connection drops, though the session lives on. Here they fire as ``reconnected``
  once the same session is back: whoever watches reads again and misses nothing (Z-43). An expiry drops them.
- Oversized packets are refused before they are sent (COM-10X): the server answers them by closing the connection.
- Many requests at once cost little more than their bytes: `zookeeper_pipeline`, `zookeeper_reads`.
- A server that accepts a connection and never answers it does not cost the session: `zookeeper_handshake`.
"""

import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from kazoo import exceptions as kz
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import Callback, KazooState
from kazoo.retry import KazooRetry

from kafkatool.core.errors import (
    ChrootMissingError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    NoPermissionError,
    NotEmptyError,
    SessionExpiredError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from kafkatool.core.zookeeper.bulk_reads import BulkRead
from kafkatool.core.zookeeper.bulk_reads import Node as Node
from kafkatool.core.zookeeper.connect_string import split_connect
from kafkatool.core.zookeeper.handshake import Handshake
from kafkatool.core.zookeeper.operations import ANY_VERSION as ANY_VERSION
from kafkatool.core.zookeeper.operations import Check as Check
from kafkatool.core.zookeeper.operations import Create as Create
from kafkatool.core.zookeeper.operations import Delete as Delete
from kafkatool.core.zookeeper.operations import Op as Op
from kafkatool.core.zookeeper.operations import SetData as SetData
from kafkatool.core.zookeeper.operations import shows
from kafkatool.core.zookeeper.pipeline import Pipeline
from kafkatool.core.zookeeper.server_version import MultiRead

T = TypeVar("T")
log = logging.getLogger(__name__)

DEFAULT_MAX_PACKET_BYTES = 1_048_575  # ZooKeeper's jute.maxbuffer
_TURN_S = 1.0  # of waiting, before it is asked whether there is still time
_IMPATIENT_S, _CLOSE_S = 1.0, 5.0  # for an answer, and for the end of the session, once there is no more time to wait
_NEVER = float("inf")
_TOGETHER = 256  # nodes read by one request; fewer than a quarter of that are not worth asking whether it is known
_CREATE_BYTES, _SET_BYTES, _TRANSACTION_BYTES = 47, 20, 110  # what a packet adds to path and data (COM-10X)


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"  # no connection, the session may live on
    EXPIRED = "expired"  # told before the next session is used


class WatchEvent(NamedTuple):
    """Why a watch fired: created, deleted, changed, children, or reconnected (anything may have changed)."""

    kind: str
    path: str


Watch = Callable[[WatchEvent], None]


class TransactionError(ZooKeeperError):
    """A transaction was refused as a whole: ``index`` is the operation that failed, ``cause`` why."""

    def __init__(self, index: int, cause: ZooKeeperError) -> None:
        super().__init__(str(cause), now=cause.now)
        self.index = index
        self.cause = cause


class _UnknownRequestError(ZooKeeperError):
    """The server is too old for it."""


_ERRORS: dict[type[Exception], tuple[type[ZooKeeperError], str]] = {
    kz.NoNodeError: (NoNodeError, "no znode {}"),
    kz.NodeExistsError: (NodeExistsError, "znode {} exists already"),
    kz.BadVersionError: (VersionConflictError, "znode {} was changed by somebody else meanwhile"),
    kz.NotEmptyError: (NotEmptyError, "znode {} still has children"),
    kz.NoAuthError: (NoPermissionError, "no permission for znode {}: its ACL does not allow this"),
    kz.UnimplementedError: (_UnknownRequestError, "the ZooKeeper server does not know this request ({})"),
    kz.SessionExpiredError: (SessionExpiredError, "the ZooKeeper session expired ({})"),
    kz.ConnectionLoss: (ConnectionLostError, "the connection to ZooKeeper was lost ({})"),
    kz.ConnectionClosedError: (ConnectionLostError, "the connection to ZooKeeper was closed ({})"),
    KazooTimeoutError: (ConnectionLostError, "ZooKeeper did not answer in time ({})"),
}


def _translate(error: BaseException, path: str) -> ZooKeeperError:
    for known, (ours, text) in _ERRORS.items():
        if isinstance(error, known):
            return ours(text.format(path))
    return ZooKeeperError(f"ZooKeeper: {type(error).__name__} on {path}: {error}")


def _node(answer: tuple[bytes | None, Any]) -> Node:
    data, stat = answer
    return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.ctime)


class ZooKeeper:
    """One session, kept over reconnects, replaced after an expiry. Thread-safe; watches run on its callback thread.

    Time-outs are in milliseconds. ``create_chroot`` is for brokers; tools never create it (Z-2).
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 30_000,
        connection_timeout_ms: int = 30_000,
        create_chroot: bool = False,
        max_packet_bytes: int = DEFAULT_MAX_PACKET_BYTES,
    ) -> None:
        self.connect = connect
        self._hosts, self._chroot = split_connect(connect)
        self._session_timeout = session_timeout_ms / 1000
        self._timeout = connection_timeout_ms / 1000
        self._create_chroot = create_chroot
        self._max_packet_bytes = max_packet_bytes
        self._listeners: list[Callable[[SessionState], None]] = []
        self._lock = threading.Lock()
        self._interrupted: list[tuple[Watch, str]] = []  # watches whose connection dropped
        self._connected = False
        self._expiries = 0
        self._closing = False
        self._impatient_from = _NEVER  # see limit_waits
        self._client = self._make_client()
        self._pipeline = Pipeline(self._client)
        self._multi_read = MultiRead(self._client)
        self._client.add_listener(self._on_state)

    def _make_client(self) -> KazooClient:
        client = KazooClient(
            hosts=self._hosts,
            timeout=self._session_timeout,
            handler=SequentialThreadingHandler(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, ignore_expire=False),
            logger=logging.getLogger("kafkatool.core.zookeeper.kazoo"),
        )
        client._connection._invoke = Handshake(client._connection._invoke)
        return client

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Connect. Raises ZooKeeperUnavailableError, ChrootMissingError."""
        try:
            self._start()
            if self._create_chroot and self._chroot:
                self._client.ensure_path(self._chroot)
            self._client.chroot = self._chroot
            if self._chroot and self._client.exists("/") is None:
                raise ChrootMissingError(
                    f"ZooKeeper at {self._hosts} has no path {self._chroot}: check the chroot of {self.connect!r}; "
                    "brokers create it at their first start"
                )
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        try:
            self._client.start(timeout=self._timeout)
            self._pipeline.started()
        except KazooTimeoutError as e:
            raise ZooKeeperUnavailableError(
                f"ZooKeeper at {self._hosts} did not answer within {self._timeout:g} s: "
                "is it running, is the address right?"
            ) from e

    def limit_waits(self, total_ms: int) -> None:
        """Wait no longer than that from now on, on whichever thread, for a ZooKeeper that is gone: it is to be closed.

        Afterwards what needs a connection fails at once where there is none, and soon where it is not answered.
        """
        self._impatient_from = time.monotonic() + total_ms / 1000

    def close(self) -> None:
        """End the session; its ephemeral nodes go at once. Safe to call twice."""
        self._closing = True
        if self._impatient_from == _NEVER:
            self._end_session()
            return
        ending = threading.Thread(target=self._end_session, name="zookeeper-close", daemon=True)
        ending.start()
        ending.join(_CLOSE_S)
        if ending.is_alive():
            log.warning("ZooKeeper at %s does not take leave: the session ends by itself", self._hosts)

    def _end_session(self) -> None:
        self._client.stop()
        self._client.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def session_id(self) -> int:
        """The current session's id, 0 while there is none; a node of ours has it as ``ephemeral_owner``."""
        return self._client._session_id or 0

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        """``listener`` runs on the connection's thread: it must not call this object, only note the state."""
        self._listeners.append(listener)

    def _on_state(self, state: str) -> None:
        if self._closing:
            return
        fire: list[tuple[Watch, str]] = []
        with self._lock:
            self._connected = state == KazooState.CONNECTED
            if state != KazooState.SUSPENDED:
                fire, self._interrupted = self._interrupted, []
            if state == KazooState.LOST:
                self._expiries += 1
        told = {
            KazooState.CONNECTED: SessionState.CONNECTED,
            KazooState.SUSPENDED: SessionState.SUSPENDED,
            KazooState.LOST: SessionState.EXPIRED,
        }[state]
        for listener in self._listeners:
            listener(told)
        if told is SessionState.CONNECTED:
            for watch, path in fire:
                event = WatchEvent("reconnected", path)
                self._client.handler.dispatch_callback(Callback("watch", watch, (event,)))

    def _wrap(self, watch: Watch | None, path: str) -> Callable[[], Callable[[Any], None] | None]:
        """What makes the watch for each attempt of a read: it belongs to the session that the attempt is made in.

        One per session: kazoo keeps a set, so that a node asked about twice still calls it once.
        """
        made: dict[int, Callable[[Any], None]] = {}

        def for_attempt() -> Callable[[Any], None] | None:
            if watch is None:
                return None
            expiries = self._expiries
            if expiries not in made:
                made[expiries] = self._fired(watch, path, expiries)
            return made[expiries]

        return for_attempt

    def _fired(self, watch: Watch, path: str, expiries: int) -> Callable[[Any], None]:
        """The watch as kazoo calls it; ``expiries`` tells its session."""

        def fired(event: Any) -> None:
            if event.type != "NONE":
                kind = {"CREATED": "created", "DELETED": "deleted", "CHANGED": "changed"}.get(event.type, "children")
                watch(WatchEvent(kind, path))
                return
            with self._lock:
                if expiries != self._expiries:
                    return
                if not self._connected:
                    self._interrupted.append((watch, path))
                    return
            watch(WatchEvent("reconnected", path))

        return fired

    # --- reads --------------------------------------------------------------------------------------------------

    def _wait(self, pending: Any, path: str) -> Any:
        late: Exception | None = None
        for turn_s in self._turns():
            try:
                return pending.get(timeout=turn_s)
            except KazooTimeoutError as e:
                late = e
            except kz.KazooException as e:
                raise _translate(e, path) from e
        assert late is not None
        raise _translate(late, path) from late

    def _is_back(self) -> bool:
        """Wait for a connection as long as for an answer; tell whether there is one, and time to ask again."""
        return time.monotonic() < self._impatient_from and any(
            self._client._live.wait(turn_s) for turn_s in self._turns()
        )

    def _turns(self) -> Iterator[float]:
        """Yield how long to wait at a time, all together the connection timeout, so that limit_waits is heeded meanwhile."""
        left_s = self._timeout
        while left_s > 0:
            patience_s = self._impatient_from - time.monotonic()
            if patience_s <= 0:
                yield min(left_s, _IMPATIENT_S) if self._connected else 0.0
                return
            turn_s = min(left_s, patience_s, _TURN_S)
            yield turn_s
            left_s -= turn_s

    def _read(self, request: Callable[[], Any], path: str) -> Any:
        """Ask again while the connection comes and goes; an expired session ends it. None: no such node."""
        while True:
            try:
                return self._wait(request(), path)
            except NoNodeError:
                return None
            except ConnectionLostError:
                if self._closing or not self._is_back():
                    raise

    def get(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node, or None. A watch on an absent node fires when it is created (Z-44)."""
        wrapped = self._wrap(watch, path)
        while True:
            answer = self._read(lambda: self._client.get_async(path, watch=wrapped()), path)
            if answer is not None:
                return _node(answer)
            if watch is None or self._read(lambda: self._client.exists_async(path, watch=wrapped()), path) is None:
                return None

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Names of the children, unsorted; None: no such node."""
        wrapped = self._wrap(watch, path)
        names: list[str] | None = self._read(lambda: self._client.get_children_async(path, watch=wrapped()), path)
        return names

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """All nodes in one pipelined pass, in order; absent ones are None (and not watched)."""

        def ask(path: str) -> Any:
            return self._client.get_async(path, watch=self._wrap(watch, path)())

        if watch is None:
            return self._nodes(paths)
        return [n and _node(n) for n in self._gather(paths, paths, ask)]

    def _nodes(self, paths: Sequence[str]) -> list[Node | None]:
        """Without watches: many of them in few requests, if the server knows such."""
        if len(paths) > _TOGETHER // 4 and self._multi_read.is_served():
            groups = [paths[start : start + _TOGETHER] for start in range(0, len(paths), _TOGETHER)]
            try:
                answers = self._gather(groups, [group[0] for group in groups], BulkRead(self._client).ask_together)
            except _UnknownRequestError:
                self._multi_read.refused()
            else:
                nodes = [answer for group in answers for answer in group]
                for path, node in zip(paths, nodes, strict=True):
                    if isinstance(node, kz.ZookeeperError):
                        raise _translate(node, path) from node
                return nodes
        return self._gather(paths, paths, BulkRead(self._client).ask)

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The children of each path in one pipelined pass, in order."""
        return self._gather(paths, paths, self._client.get_children_async)

    def _gather(self, asked: Sequence[T], paths: Sequence[str], ask: Callable[[T], Any]) -> list[Any]:
        """What each is answered, None where there is no node; what a lost connection took is asked for again.

        ``paths`` name them in errors.
        """
        answers: list[Any] = [None] * len(asked)
        missing: Sequence[int] = range(len(asked))
        while missing:
            with self._pipeline.held():
                pending = [(index, ask(asked[index])) for index in missing]
            lost: dict[int, ConnectionLostError] = {}
            for index, request in pending:
                try:
                    answers[index] = self._wait(request, paths[index])
                except NoNodeError:
                    pass
                except ConnectionLostError as e:
                    lost[index] = e
            if lost and (self._closing or not self._is_back()):
                raise next(iter(lost.values()))
            missing = list(lost)
        return answers

    # --- writes -------------------------------------------------------------------------------------------------

    def _check_size(self, path: str, size_bytes: int, taken_bytes: int = 0) -> None:
        """Refuse a packet over the limit, unless ZooKeeper has taken one of ``taken_bytes`` before."""
        if size_bytes > max(self._max_packet_bytes, taken_bytes):
            raise ZnodeTooLargeError(
                f"writing znode {path} needs a packet of {size_bytes} bytes, over ZooKeeper's limit of "
                f"{self._max_packet_bytes} bytes (--zk-max-bytes, a broker's kt.zookeeper.max.packet.bytes): use smaller "
                "batches"
            )

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Exclusive create; returns the path made. Raises NodeExistsError, NoNodeError (no parent)."""
        self._check_size(path, len(self._chroot) + len(path) + len(data) + _CREATE_BYTES)
        while True:
            try:
                return str(
                    self._wait(
                        self._client.create_async(
                            path, data, ephemeral=ephemeral, sequence=sequential, makepath=make_parents
                        ),
                        path,
                    )
                )
            except ConnectionLostError:
                if sequential:  # one that was made after all is harmless: it notifies twice
                    if self._closing or not self._is_back():
                        raise
                    continue
                node = self.get(path)
                if node is None:
                    continue
                if node.data == data and node.ephemeral_owner == (self.session_id if ephemeral else 0):
                    return path
                raise NodeExistsError(f"znode {path} exists already") from None

    def set(self, path: str, data: bytes, version: int) -> int:
        """Write on that version; returns the new one. Raises NoNodeError, VersionConflictError."""
        self._check_size(path, len(self._chroot) + len(path) + len(data) + _SET_BYTES)
        while True:
            try:
                return int(self._wait(self._client.set_async(path, data, version), path).version)
            except ConnectionLostError:
                node = self.get(path)
                if node is None:
                    raise NoNodeError(f"no znode {path}") from None
                if version != ANY_VERSION and node.version == version + 1 and node.data == data:
                    return node.version
                if version != ANY_VERSION and node.version != version:
                    raise VersionConflictError(f"znode {path} was changed by somebody else meanwhile") from None

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNodeError, VersionConflictError, NotEmptyError."""
        while True:
            try:
                self._wait(self._client.delete_async(path, version), path)
                return
            except ConnectionLostError:
                if self.get(path) is None:
                    return

    def commit(self, ops: Sequence[Op]) -> list[int | None]:
        """All or nothing; one entry per operation, the new version for SetData. Raises TransactionError."""
        while True:
            try:
                return self._outcome(self._wait(self._submit(ops), "a transaction"), ops)
            except ConnectionLostError:
                if self._was_committed(ops):
                    return [op.version + 1 if isinstance(op, SetData) else None for op in ops]

    def commit_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[int | None] | TransactionError]:
        """Several transactions in one pipelined pass, each all or nothing by itself."""
        with self._pipeline.held():
            pending = [self._submit(ops) for ops in transactions]
        outcomes: list[list[int | None] | TransactionError] = []
        for request, ops in zip(pending, transactions, strict=True):
            try:
                outcomes.append(self._outcome(self._wait(request, "a transaction"), ops))
            except TransactionError as e:
                outcomes.append(e)
            except ConnectionLostError:
                if self._was_committed(ops):
                    outcomes.append([op.version + 1 if isinstance(op, SetData) else None for op in ops])
                else:
                    try:
                        outcomes.append(self.commit(ops))
                    except TransactionError as e:
                        outcomes.append(e)
        return outcomes

    def _submit(self, ops: Sequence[Op]) -> Any:
        size_bytes, taken_bytes = _TRANSACTION_BYTES, 0
        transaction = self._client.transaction()
        for op in ops:
            size_bytes += len(self._chroot) + len(op.path) + _SET_BYTES
            match op:
                case Create(path, data, ephemeral):
                    transaction.create(path, data, ephemeral=ephemeral)
                    size_bytes += len(data) + _CREATE_BYTES - _SET_BYTES
                case SetData(path, data, version, replaces_bytes):
                    transaction.set_data(path, data, version)
                    size_bytes += len(data)
                    taken_bytes = max(taken_bytes, len(self._chroot) + len(path) + replaces_bytes + _SET_BYTES)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        if size_bytes > self._max_packet_bytes:
            largest = max(ops, key=lambda op: len(getattr(op, "data", b"")))
            self._check_size(largest.path, size_bytes, taken_bytes)
        return transaction.commit_async()

    @staticmethod
    def _outcome(results: list[Any], ops: Sequence[Op]) -> list[int | None]:
        for index, result in enumerate(results):
            # ZooKeeper marks the operations before the failing one RolledBack, those after it RuntimeInconsistency.
            if isinstance(result, Exception) and not isinstance(result, kz.RolledBackError):
                raise TransactionError(index, _translate(result, ops[index].path))
        return [r.version if isinstance(op, SetData) else None for r, op in zip(results, ops, strict=True)]

    def _was_committed(self, ops: Sequence[Op]) -> bool:
        """Whether a transaction whose reply was lost took effect (Z-40): then all its writes are there.

        One alone proves nothing: an empty node, for instance, is the same whoever made it.
        """
        made = {op.path for op in ops if isinstance(op, Create)}  # what is deleted to be made anew is there afterwards
        writes = [op for op in ops if not isinstance(op, Check) and not (isinstance(op, Delete) and op.path in made)]
        nodes = self.get_many([op.path for op in writes])
        return bool(writes) and all(shows(node, op) for node, op in zip(nodes, writes, strict=True))
