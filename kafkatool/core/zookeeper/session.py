"""The ZooKeeper session: pipelined reads, conditional writes, transactions, one-shot watches.

It adds to what carries its requests (``link``: kazoo's client, or the ensemble in memory of the tests):

- A reply lost with the connection is resolved by reading what is there (Z-40), so a write returns its true outcome.
- A dropped connection takes all watches with it, though the session lives on. Here they fire as ``reconnected`` once the
  same session is back: a watcher reads again and misses nothing (Z-43). An expiry drops them.
- Oversized packets are refused before they are sent (COM-10X): the server answers them by closing the connection.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from kafkatool.core.errors import (
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    VersionConflictError,
    ZnodeTooLargeError,
)
from kafkatool.core.zookeeper.kazoo_link import KazooLink
from kafkatool.core.zookeeper.link import Link, LinkWatch, Reply, UnknownRequestError
from kafkatool.core.zookeeper.link import SessionState as SessionState
from kafkatool.core.zookeeper.operations import ANY_VERSION as ANY_VERSION
from kafkatool.core.zookeeper.operations import Check as Check
from kafkatool.core.zookeeper.operations import Create as Create
from kafkatool.core.zookeeper.operations import Delete as Delete
from kafkatool.core.zookeeper.operations import Node as Node
from kafkatool.core.zookeeper.operations import Op as Op
from kafkatool.core.zookeeper.operations import SetData as SetData
from kafkatool.core.zookeeper.operations import TransactionError as TransactionError
from kafkatool.core.zookeeper.operations import shows

T = TypeVar("T")
Asked = TypeVar("Asked")

DEFAULT_MAX_PACKET_BYTES = 1_048_575  # ZooKeeper's jute.maxbuffer
_TOGETHER = 256  # nodes read by one request; fewer than a quarter of that are not worth asking whether it is known
_CREATE_BYTES, _SET_BYTES, _TRANSACTION_BYTES = 47, 20, 110  # what a packet adds to path and data (COM-10X)


class WatchEvent(NamedTuple):
    """Why a watch fired: created, deleted, changed, children, or reconnected (anything may have changed)."""

    kind: str
    path: str


Watch = Callable[[WatchEvent], None]


class ZooKeeper:
    """One session, kept over reconnects, replaced after an expiry. Thread-safe; watches run on its callback thread.

    Time-outs are in milliseconds. ``create_chroot`` is for brokers; tools never create it (Z-2). ``link`` is what requests
    go through, kazoo's client when left out.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 30_000,
        connection_timeout_ms: int = 30_000,
        create_chroot: bool = False,
        max_packet_bytes: int = DEFAULT_MAX_PACKET_BYTES,
        link: Link | None = None,
    ) -> None:
        self.connect = connect
        self._timeout = connection_timeout_ms / 1000
        self._create_chroot = create_chroot
        self._max_packet_bytes = max_packet_bytes
        self._listeners: list[Callable[[SessionState], None]] = []
        self._lock = threading.Lock()
        self._interrupted: list[tuple[Watch, str]] = []  # watches whose connection dropped
        self._connected = False
        self._expiries = 0
        self._closing = False
        self.link = KazooLink(connect, session_timeout_ms=session_timeout_ms) if link is None else link
        self.link.add_listener(self._on_state)

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Connect. Raises ZooKeeperUnavailableError, ChrootMissingError."""
        try:
            self.link.start(self._timeout, create_chroot=self._create_chroot)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End the session; its ephemeral nodes go at once. Safe to call twice."""
        self._closing = True
        self.link.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def session_id(self) -> int:
        """Return the current session's id, 0 while there is none; a node of ours has it as ``ephemeral_owner``."""
        return self.link.session_id

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Call ``listener`` on the connection's thread: it must not call this object, only note the state."""
        self._listeners.append(listener)

    def _on_state(self, state: SessionState) -> None:
        if self._closing:
            return
        fire: list[tuple[Watch, str]] = []
        with self._lock:
            self._connected = state is SessionState.CONNECTED
            if state is not SessionState.SUSPENDED:
                fire, self._interrupted = self._interrupted, []
            if state is SessionState.EXPIRED:
                self._expiries += 1
        for listener in self._listeners:
            listener(state)
        if state is SessionState.CONNECTED:
            for watch, path in fire:
                self.link.call_soon(functools.partial(watch, WatchEvent("reconnected", path)))

    def _wrap(self, watch: Watch | None, path: str) -> Callable[[], LinkWatch | None]:
        """Return what makes the watch for each attempt of a read: it belongs to the session that the attempt is made in.

        One per session: a link keeps a set, so that a node asked about twice still calls it once.
        """
        if watch is None:
            return lambda: None
        of_session = functools.cache(functools.partial(self._fired, watch, path))
        return lambda: of_session(self._expiries)

    def _fired(self, watch: Watch, path: str, expiries: int) -> LinkWatch:
        """Return the watch as the link calls it; ``expiries`` tells its session."""

        def fired(kind: str | None) -> None:
            if kind is not None:
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

    def _is_worth_asking_again(self) -> bool:
        """Wait for the next connection; tell whether it has come in time."""
        return not self._closing and self.link.wait_until_connected(self._timeout)

    def _read(self, request: Callable[[], Reply[T]]) -> T | None:
        """Ask again while the connection comes and goes; an expired session ends it. None: no such node."""
        while True:
            try:
                return request().get(self._timeout)
            except NoNodeError:
                return None
            except ConnectionLostError:
                if not self._is_worth_asking_again():
                    raise

    def get(self, path: str, watch: Watch | None = None) -> Node | None:
        """Return the node, or None. A watch on an absent node fires when it is created (Z-44)."""
        wrapped = self._wrap(watch, path)
        while True:
            node = self._read(lambda: self.link.get(path, wrapped()))
            if node is not None or watch is None or not self._read(lambda: self.link.exists(path, wrapped())):
                return node

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Return the names of the children, unsorted; None: no such node."""
        wrapped = self._wrap(watch, path)
        return self._read(lambda: self.link.children(path, wrapped()))

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Read all nodes in one pipelined pass, in order; absent ones are None (and not watched)."""
        if watch is not None:
            return self._gather(paths, lambda path: self.link.get(path, self._fired(watch, path, self._expiries)))
        if len(paths) > _TOGETHER // 4 and (ask := self.link.reads_together()) is not None:
            groups = [paths[start : start + _TOGETHER] for start in range(0, len(paths), _TOGETHER)]
            try:
                return [node for group in self._gather(groups, ask) for node in group or ()]
            except UnknownRequestError:
                pass  # the link asks that server no more
        return self._gather(paths, self.link.reads())

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read the children of each path in one pipelined pass, in order."""
        return self._gather(paths, lambda path: self.link.children(path, None))

    def _gather(self, asked: Sequence[Asked], ask: Callable[[Asked], Reply[T]]) -> list[T | None]:
        """Return the answer to each, None where there is no node; what a lost connection took is asked for again."""
        answers: list[T | None] = [None] * len(asked)
        missing: Sequence[int] = range(len(asked))
        while missing:
            with self.link.held():
                pending = [(index, ask(asked[index])) for index in missing]
            lost: dict[int, ConnectionLostError] = {}
            for index, reply in pending:
                try:
                    answers[index] = reply.get(self._timeout)
                except NoNodeError:
                    pass
                except ConnectionLostError as e:
                    lost[index] = e
            if lost and not self._is_worth_asking_again():
                raise next(iter(lost.values()))
            missing = list(lost)
        return answers

    # --- writes -------------------------------------------------------------------------------------------------

    def _check_size(self, path: str, size_bytes: int) -> None:
        if size_bytes > self._max_packet_bytes:
            raise ZnodeTooLargeError(
                f"writing znode {path} needs a packet of {size_bytes} bytes, over ZooKeeper's limit of "
                f"{self._max_packet_bytes} bytes (--zk-max-bytes): use smaller batches"
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
        """Make the node, exclusively; returns its path. Raises NodeExistsError, NoNodeError (no parent)."""
        self._check_size(path, len(self.link.chroot) + len(path) + len(data) + _CREATE_BYTES)
        while True:
            try:
                return self.link.create(
                    path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents
                ).get(self._timeout)
            except ConnectionLostError:
                if sequential:  # one that was made after all is harmless: it notifies twice
                    if not self._is_worth_asking_again():
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
        self._check_size(path, len(self.link.chroot) + len(path) + len(data) + _SET_BYTES)
        while True:
            try:
                return self.link.set(path, data, version).get(self._timeout)
            except ConnectionLostError:
                node = self.get(path)
                if node is None:
                    raise NoNodeError(f"no znode {path}") from None
                if version != ANY_VERSION and node.version == version + 1 and node.data == data:
                    return node.version
                if version != ANY_VERSION and node.version != version:
                    raise VersionConflictError(f"znode {path} was changed by somebody else meanwhile") from None

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the node on that version. Raises NoNodeError, VersionConflictError, NotEmptyError."""
        while True:
            try:
                self.link.delete(path, version).get(self._timeout)
                return
            except ConnectionLostError:
                if self.get(path) is None:
                    return

    def commit(self, ops: Sequence[Op]) -> list[int | None]:
        """Do all or nothing; returns one entry per operation, the new version for SetData. Raises TransactionError."""
        return self._outcome(self._submit(ops), ops)

    def commit_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[int | None] | TransactionError]:
        """Commit several transactions in one pipelined pass, each all or nothing by itself."""
        with self.link.held():
            pending = [self._submit(ops) for ops in transactions]
        outcomes: list[list[int | None] | TransactionError] = []
        for reply, ops in zip(pending, transactions, strict=True):
            try:
                outcomes.append(self._outcome(reply, ops))
            except TransactionError as e:
                outcomes.append(e)
        return outcomes

    def _outcome(self, reply: Reply[list[int | None]], ops: Sequence[Op]) -> list[int | None]:
        """Wait for a transaction's outcome; one that was lost before it took effect is committed again."""
        while True:
            try:
                return reply.get(self._timeout)
            except ConnectionLostError:
                if self._was_committed(ops):
                    return [op.version + 1 if isinstance(op, SetData) else None for op in ops]
            reply = self._submit(ops)

    def _submit(self, ops: Sequence[Op]) -> Reply[list[int | None]]:
        size_bytes = _TRANSACTION_BYTES + len(ops) * (len(self.link.chroot) + _SET_BYTES)
        for op in ops:
            size_bytes += len(op.path)
            if isinstance(op, Create):
                size_bytes += len(op.data) + _CREATE_BYTES - _SET_BYTES
            elif isinstance(op, SetData):
                size_bytes += len(op.data)
        self._check_size(ops[0].path if ops else "/", size_bytes)
        return self.link.commit(ops)

    def _was_committed(self, ops: Sequence[Op]) -> bool:
        """Tell whether a transaction whose reply was lost took effect (Z-40): then all its writes are there.

        One alone proves nothing: an empty node, for instance, is the same whoever made it.
        """
        made = {op.path for op in ops if isinstance(op, Create)}  # what is deleted to be made anew is there afterwards
        writes = [op for op in ops if not isinstance(op, Check) and not (isinstance(op, Delete) and op.path in made)]
        nodes = self.get_many([op.path for op in writes])
        return bool(writes) and all(shows(node, op) for node, op in zip(nodes, writes, strict=True))
