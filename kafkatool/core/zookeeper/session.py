"""The ZooKeeper session: pipelined reads, conditional writes, transactions, one-shot watches.

It adds to what carries its requests (``link``: kazoo's client, or the ensemble in memory of the tests):

- A reply lost with the connection is resolved by reading what is there (Z-40), so a write returns its true outcome.
- A dropped connection takes all watches with it, though the session lives on. Here they fire as ``reconnected`` once the
  same session is back: a watcher reads again and misses nothing (Z-43). An expiry drops them.
- Oversized packets are refused before they are sent (COM-10X): the server answers them by closing the connection.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

from kafkatool.core.errors import (
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    NoPermissionError,
    VersionConflictError,
    ZnodeTooLargeError,
    ZooKeeperError,
)
from kafkatool.core.security.zookeeper_security import OPEN, ZooKeeperSecurity
from kafkatool.core.zookeeper.acls import ALL_RIGHTS, OPEN_NODES, Acl, NodeAcls
from kafkatool.core.zookeeper.link import LateError, Link, LinkWatch, Reply, UnknownRequestError
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

if TYPE_CHECKING:
    from kafkatool.core.zookeeper.kazoo_link import KazooLink

T = TypeVar("T")
Asked = TypeVar("Asked")
log = logging.getLogger(__name__)

DEFAULT_MAX_PACKET_BYTES = 1_048_575  # ZooKeeper's jute.maxbuffer
_TURN_S = 1.0  # of waiting, before it is asked whether there is still time
_IMPATIENT_S, _CLOSE_S = 1.0, 5.0  # for an answer, and for the end of the session, once there is no more time to wait
_NEVER = float("inf")
_NO_VERSION = 2**31 - 1  # that no node has
_PROBED_AT_ONCE = 500  # writes: far from the largest packet that a server takes
_TOGETHER = 256  # nodes read by one request; fewer than a quarter of that are not worth asking whether it is known
_CREATE_BYTES, _SET_BYTES, _TRANSACTION_BYTES = 47, 20, 110  # what a packet adds to path and data (COM-10X)


def load_link() -> "type[KazooLink]":
    """Import what carries sessions, and return it: commands that ask no ZooKeeper use this module without (ADM-60)."""
    from kafkatool.core.zookeeper.kazoo_link import KazooLink

    return KazooLink


class WatchEvent(NamedTuple):
    """Why a watch fired: created, deleted, changed, children, or reconnected (anything may have changed)."""

    kind: str
    path: str


Watch = Callable[[WatchEvent], None]


class _OrRefusal(Generic[T]):
    """A reply to which a refusal is an answer too."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Reply[T]) -> None:
        self._reply = reply

    def get(self, timeout_s: float, /) -> T | NoPermissionError:
        """Wait for it. Raises ZooKeeperError, but for a refusal."""
        try:
            return self._reply.get(timeout_s)
        except NoPermissionError as e:
            return e


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
        security: ZooKeeperSecurity = OPEN,
        link: Link | None = None,
    ) -> None:
        self.connect = connect
        self.security = security
        self.node_acls = OPEN_NODES
        """What the nodes get that are made."""
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
        if link is None:
            link = load_link()(connect, session_timeout_ms=session_timeout_ms, security=security)
        self.link: Link = link
        self.link.add_listener(self._on_state)

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Connect. Raises ZooKeeperUnavailableError, ChrootMissingError."""
        try:
            self.link.start(self._timeout, create_chroot=self._create_chroot, is_late=self._is_out_of_time)
        except BaseException:
            self.close()
            raise
        return self

    def limit_waits(self, total_ms: int) -> None:
        """Wait no longer than that from now on, on whichever thread, for a ZooKeeper that is gone: it is to be closed.

        Afterwards what needs a connection fails at once where there is none, and soon where it is not answered; so does
        a ``start`` under way.
        """
        self._impatient_from = time.monotonic() + total_ms / 1000

    def close(self) -> None:
        """End the session; its ephemeral nodes go at once. Safe to call twice."""
        self._closing = True
        if self._impatient_from == _NEVER:
            self.link.close()
            return
        ending = threading.Thread(target=self.link.close, name="zookeeper-close", daemon=True)
        ending.start()
        ending.join(_CLOSE_S)
        if ending.is_alive():
            log.warning("ZooKeeper at %s does not take leave: the session ends by itself", self.connect)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
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

    # --- rights ---------------------------------------------------------------------------------------------------

    def acls(self, path: str) -> list[Acl]:
        """Return who may do what with a node. Raises NoNodeError, NoPermissionError."""
        return self._repeated(lambda: self.link.acls(path))

    def set_acls(self, path: str, acls: Sequence[Acl]) -> None:
        """Say who may do what with a node. Raises NoNodeError, NoPermissionError."""
        self._repeated(lambda: self.link.set_acls(path, acls))

    def make_nodes_as(self, acls: NodeAcls) -> None:
        """Give the nodes that are made from now on these rights."""
        self.node_acls = acls
        self.link.make_nodes_as(acls)

    def get_where_permitted(self, paths: Sequence[str]) -> "list[Node | NoPermissionError | None]":
        """Read each node in one pipelined pass, or say that it may not be read; None: no such node."""
        return self._gather(paths, lambda path: _OrRefusal(self.link.get(path, None)))

    def acls_where_permitted(self, paths: Sequence[str]) -> "list[list[Acl] | NoPermissionError | None]":
        """Ask who may do what with each node in one pipelined pass, or say that it may not be asked; None: no such node."""
        return self._gather(paths, lambda path: _OrRefusal(self.link.acls(path)))

    def set_acls_where_permitted(
        self, acls: "Sequence[tuple[str, Sequence[Acl]]]"
    ) -> "list[object | NoPermissionError | None]":
        """Say who may do what with each node, in one pipelined pass; None: no such node."""
        return self._gather(acls, lambda one: _OrRefusal(self.link.set_acls(*one)))

    def children_where_permitted(self, paths: Sequence[str]) -> "list[list[str] | NoPermissionError | None]":
        """Read the children of each path in one pipelined pass, or say that they may not be read; None: no such node."""
        return self._gather(paths, lambda path: _OrRefusal(self.link.children(path, None)))

    def _with_owners(self, path: str) -> NoPermissionError:
        """Say whose the node is, or its parent where it is not there, and who this session is (SEC-24)."""
        session, said = self.security.identity, "its ACL does not allow this"
        for asked, what in ((path, "it"), (path.rpartition("/")[0] or "/", "its parent")):
            try:
                owners = sorted({acl.owner for acl in self.link.acls(asked).get(_TURN_S) if acl.rights == ALL_RIGHTS})
            except NoNodeError:
                continue
            except ZooKeeperError:
                break  # from 3.4.14 and 3.5.5 on who may not read a node does not see whose it is
            said = f"{what} belongs to {', '.join(owners) or 'nobody'}"
            break
        login = self.security.login
        if login is None:
            now = "log in by --zk-auth-file, or as Kafka's tools by KAFKA_OPTS"
        else:
            wrong = ", and a wrong password makes another identity" if login.scheme == "digest" else ""
            now = f"log in as who may; the login is from {login.source}{wrong}"
        return NoPermissionError(path, f"{said}, {session}", now=now)

    # --- reads --------------------------------------------------------------------------------------------------

    def _is_worth_asking_again(self) -> bool:
        """Wait for the next connection; tell whether it has come in time."""
        left_s = self._timeout
        while left_s > 0 and not self._closing and not self._is_out_of_time():
            turn_s = self._turn(left_s)
            if self.link.wait_until_connected(turn_s):
                return True
            left_s -= turn_s
        return False

    def _answer(self, reply: Reply[T]) -> T:
        """Wait for the answer: the connection timeout, unless there is less time left by then."""
        left_s = self._timeout
        while True:
            turn_s = self._turn(left_s)
            try:
                return reply.get(turn_s)
            except LateError:
                left_s -= turn_s
                if left_s <= 0 or self._is_out_of_time():
                    raise
            except NoPermissionError as e:
                raise self._with_owners(e.path) from e
            except TransactionError as e:
                if isinstance(e.cause, NoPermissionError):
                    raise TransactionError(e.index, self._with_owners(e.cause.path)) from e
                raise

    def _turn(self, left_s: float) -> float:
        """Return how long to wait before it is asked whether there is still time."""
        if self._is_out_of_time():
            return min(left_s, _IMPATIENT_S) if self._connected else 0.0
        return min(left_s, _TURN_S)

    def _is_out_of_time(self) -> bool:
        return time.monotonic() >= self._impatient_from

    def _read(self, request: Callable[[], Reply[T]]) -> T | None:
        """Ask again while the connection comes and goes; an expired session ends it. None: no such node."""
        while True:
            try:
                return self._answer(request())
            except NoNodeError:
                return None
            except ConnectionLostError:
                if not self._is_worth_asking_again():
                    raise

    def _repeated(self, request: Callable[[], Reply[T]]) -> T:
        """Ask again while the connection comes and goes, which does no harm to what is asked for."""
        while True:
            try:
                return self._answer(request())
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
                    answers[index] = self._answer(reply)
                except NoNodeError:
                    pass
                except ConnectionLostError as e:
                    if self._is_out_of_time():
                        raise
                    lost[index] = e
            if lost and not self._is_worth_asking_again():
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
        """Make the node, exclusively; returns its path. Raises NodeExistsError, NoNodeError (no parent)."""
        self._check_size(path, len(self.link.chroot) + len(path) + len(data) + _CREATE_BYTES)
        while True:
            try:
                return self._answer(
                    self.link.create(path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents)
                )
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
                return self._answer(self.link.set(path, data, version))
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
                self._answer(self.link.delete(path, version))
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

    def check_permitted(self, ops: Sequence[Op]) -> None:
        """Raise NoPermissionError where ZooKeeper would refuse one of those writes; nothing is written (SEC-25).

        They are sent as one transaction that cannot succeed: rights are tested before versions, member by member. Where
        something else stands in the way it is not told, and shows when the writes are made.
        """
        by_path = {op.path: replace(op, data=b"") if isinstance(op, Create | SetData) else op for op in ops}
        probed = list(by_path.values())
        for kinds in (probed[i : i + _PROBED_AT_ONCE] for i in range(0, len(probed), _PROBED_AT_ONCE)):
            try:
                self.commit([*kinds, Check("/", _NO_VERSION)])
            except TransactionError as e:
                if e.index < len(kinds) and isinstance(e.cause, NoPermissionError):
                    raise e.cause from e

    def _outcome(self, reply: Reply[list[int | None]], ops: Sequence[Op]) -> list[int | None]:
        """Wait for a transaction's outcome; one that was lost before it took effect is committed again."""
        while True:
            try:
                return self._answer(reply)
            except ConnectionLostError:
                if self._was_committed(ops):
                    return [op.version + 1 if isinstance(op, SetData) else None for op in ops]
            reply = self._submit(ops)

    def _submit(self, ops: Sequence[Op]) -> Reply[list[int | None]]:
        taken_bytes = 0
        size_bytes = _TRANSACTION_BYTES + len(ops) * (len(self.link.chroot) + _SET_BYTES)
        for op in ops:
            size_bytes += len(op.path)
            if isinstance(op, Create):
                size_bytes += len(op.data) + _CREATE_BYTES - _SET_BYTES
            elif isinstance(op, SetData):
                size_bytes += len(op.data)
                taken_bytes = max(taken_bytes, len(self.link.chroot) + len(op.path) + op.replaces_bytes + _SET_BYTES)
        if size_bytes > self._max_packet_bytes:
            largest = max(ops, key=lambda op: len(getattr(op, "data", b"")))
            self._check_size(largest.path, size_bytes, taken_bytes)
        return self.link.commit(ops)

    def _was_committed(self, ops: Sequence[Op]) -> bool:
        """Tell whether a transaction whose reply was lost took effect (Z-40): then all its writes are there.

        One alone proves nothing: an empty node, for instance, is the same whoever made it. The name of a sequential one is
        not known; the others tell of it.
        """
        made = {op.path for op in ops if isinstance(op, Create)}  # what is deleted to be made anew is there afterwards
        writes = [
            op
            for op in ops
            if not isinstance(op, Check)
            and not (isinstance(op, Delete) and op.path in made)
            and not (isinstance(op, Create) and op.sequential)
        ]
        nodes = self.get_many([op.path for op in writes])
        return bool(writes) and all(shows(node, op) for node, op in zip(nodes, writes, strict=True))
