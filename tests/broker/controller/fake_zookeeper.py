"""An in-memory ZooKeeper with the interface of ``ZooKeeper``: versions, ephemerals, watches, transactions.

``Ensemble`` is the tree that all sessions share. Watches are called at once, on the writer's thread, as they only put
something into a queue. ``on_write`` sees every write after it took effect, and may raise ``Crash``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from kafkatool.core.errors import (
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    VersionConflictError,
    ZooKeeperError,
)
from kafkatool.core.zookeeper.session import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Node,
    Op,
    SessionState,
    SetData,
    TransactionError,
    Watch,
    WatchEvent,
    ZooKeeper,
)
from kafkatool.core.zookeeper.znodes import PERSISTENT_PATHS


class Crash(BaseException):
    """The process that was at work is no more."""


Undo = Callable[[], None]


@dataclass
class Ensemble:
    """The tree. ``transactions`` counts what was asked to be written; ``log`` names each node written."""

    nodes: dict[str, Node] = field(default_factory=lambda: {"/": Node(b"", 0, 0, 0, 0, 0)})
    zxid: int = 0
    sessions: int = 0
    watches: dict[tuple[str, str], list[tuple["FakeZooKeeper", Watch]]] = field(default_factory=dict)
    on_write: Callable[["FakeZooKeeper", Op], None] = lambda session, op: None
    transactions: int = 0

    def __post_init__(self) -> None:
        with FakeZooKeeper(self) as session:
            for path in PERSISTENT_PATHS:
                session.create(path, make_parents=True)

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return [
            p[len(prefix) :] for p in self.nodes if p.startswith(prefix) and "/" not in p[len(prefix) :] and p != "/"
        ]

    def fire(self, kind: str, watched: str, path: str) -> None:
        for session, watch in self.watches.pop((watched, path), []):
            if not session.expired:
                watch(WatchEvent(kind, path))


class FakeZooKeeper(ZooKeeper):
    """One session."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.expired = False
        self.crashed = False
        self._states: list[Callable[[SessionState], None]] = []
        self._new_session()

    def _new_session(self) -> None:
        self.ensemble.sessions += 1
        self._id = self.ensemble.sessions
        self.expired = False

    def start(self) -> Self:
        return self

    def close(self) -> None:
        self._end_session()

    @property
    def session_id(self) -> int:
        return self._id

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._states.append(listener)

    def _end_session(self) -> None:
        self.expired = True
        for watchers in self.ensemble.watches.values():
            watchers[:] = [(s, w) for s, w in watchers if s is not self]
        for path in [p for p, n in self.ensemble.nodes.items() if n.ephemeral_owner == self._id]:
            self._remove(path)

    def expire(self) -> None:
        """The server ends the session; the client has not heard of it."""
        self._end_session()

    def reconnect(self) -> None:
        """The client learns that its session is gone, and gets a new one."""
        for listener in self._states:
            listener(SessionState.EXPIRED)
        self._new_session()
        for listener in self._states:
            listener(SessionState.CONNECTED)

    def crash(self) -> None:
        """The process dies; the server notices at once."""
        self.crashed = True
        self._end_session()

    def _alive(self) -> None:
        if self.crashed:
            raise Crash
        if self.expired:
            raise SessionExpiredError("expired")

    # --- reads ---

    def _watch(self, kind: str, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self.ensemble.watches.setdefault((kind, path), []).append((self, watch))

    def get(self, path: str, watch: Watch | None = None) -> Node | None:
        self._alive()
        self._watch("data", path, watch)
        return self.ensemble.nodes.get(path)

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        self._alive()
        if path not in self.ensemble.nodes:
            return None
        self._watch("children", path, watch)
        return self.ensemble.children(path)

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return [self.get(p, watch if p in self.ensemble.nodes else None) for p in paths]

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return [self.children(p) for p in paths]

    # --- writes ---

    def _add(self, path: str, data: bytes, ephemeral: bool) -> None:
        self.ensemble.zxid += 1
        self.ensemble.nodes[path] = Node(
            data, 0, self.ensemble.zxid, self.ensemble.zxid, self._id if ephemeral else 0, 0
        )
        self.ensemble.fire("created", "data", path)
        self._parent_changed(path)

    def _remove(self, path: str) -> None:
        self.ensemble.zxid += 1
        del self.ensemble.nodes[path]
        self.ensemble.fire("deleted", "data", path)
        self.ensemble.fire("deleted", "children", path)
        self._parent_changed(path)

    def _parent_changed(self, path: str) -> None:
        self.ensemble.fire("children", "children", path.rpartition("/")[0] or "/")

    def _check(self, op: Op, made: set[str], gone: set[str]) -> ZooKeeperError | None:
        nodes = self.ensemble.nodes
        exists = (op.path in nodes or op.path in made) and op.path not in gone
        if isinstance(op, Create):
            parent = op.path.rpartition("/")[0] or "/"
            if exists:
                return NodeExistsError(op.path)
            if (parent not in nodes and parent not in made) or parent in gone:
                return NoNodeError(parent)
            made.add(op.path)
            return None
        if not exists:
            return NoNodeError(op.path)
        if op.version not in (ANY_VERSION, nodes[op.path].version):
            return VersionConflictError(op.path)
        if isinstance(op, Delete):
            gone.add(op.path)
            if any(f"{op.path}/{c}" not in gone for c in self.ensemble.children(op.path)):
                return NotEmptyError(op.path)
        return None

    def commit(self, ops: Sequence[Op]) -> list[int | None]:
        self._alive()
        self.ensemble.transactions += 1
        made: set[str] = set()
        gone: set[str] = set()
        for index, op in enumerate(ops):
            if error := self._check(op, made, gone):
                raise TransactionError(index, error)
        results: list[int | None] = []
        for op in ops:
            result = None
            match op:
                case Create(path, data, ephemeral):
                    self._add(path, data, ephemeral)
                case SetData(path, data, _):
                    node = self.ensemble.nodes[path]
                    result = node.version + 1
                    self.ensemble.zxid += 1
                    self.ensemble.nodes[path] = node._replace(data=data, version=result, mzxid=self.ensemble.zxid)
                    self.ensemble.fire("changed", "data", path)
                case Delete(path, _):
                    self._remove(path)
            results.append(result)
        for op in ops:
            if not isinstance(op, Check):
                self.ensemble.on_write(self, op)
        return results

    def commit_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[int | None] | TransactionError]:
        outcomes: list[list[int | None] | TransactionError] = []
        for ops in transactions:
            try:
                outcomes.append(self.commit(ops))
            except TransactionError as e:
                outcomes.append(e)
        return outcomes

    def _one(self, op: Op) -> int | None:
        try:
            return self.commit([op])[0]
        except TransactionError as e:
            raise e.cause from e

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        self._alive()
        parent = path.rpartition("/")[0]
        if make_parents and parent and parent not in self.ensemble.nodes:
            self.create(parent, make_parents=True)
        if sequential:
            path = f"{path}{self.ensemble.zxid:010d}"
        self._one(Create(path, data, ephemeral))
        return path

    def set(self, path: str, data: bytes, version: int) -> int:
        return self._one(SetData(path, data, version)) or 0

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._one(Delete(path, version))
