"""The one ZooKeeper in memory: nodes, sessions, one-shot watches and transactions, for `Link`s that tests make.

It answers at once and fails nothing by itself. ``memory`` puts sessions on it that tests drive by hand,
``tests.simulation`` sessions whose requests, answers and connections are lost by chance.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from kafkatool.core.errors import NodeExistsError, NoNodeError, NotEmptyError, VersionConflictError, ZooKeeperError
from kafkatool.core.zookeeper.link import LinkWatch
from kafkatool.core.zookeeper.operations import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Node,
    Op,
    SetData,
    TransactionError,
)

Writer = TypeVar("Writer")


class Crash(BaseException):
    """The process at work was killed: unwinds its stack through everything that catches mere errors."""


class Watching(Protocol):
    """A client that has set watches."""

    def on_watch(self, watch: LinkWatch, kind: str) -> None:
        """Take note of a watch that has fired."""


Watches = dict[str, list[tuple[Watching, LinkWatch]]]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Ensemble(Generic[Writer]):
    """The tree that all sessions share. ``Writer`` is what tells ``written`` and ``committed`` who asked for a write."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, 0, 0)}
        self.zxid = 0
        self.sessions: set[int] = set()
        self._opened = 0
        self._children: dict[str, dict[str, None]] = {}
        self._made: dict[str, int] = {}  # children ever made: the number of the next sequential one
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._data_watches: Watches = {}
        self._child_watches: Watches = {}

    def written(self, writer: Writer, op: Op, before: bytes | None, after: bytes | None) -> None:
        """Take note of one write of a transaction, as soon as it took effect."""

    def committed(self, writer: Writer, ops: Sequence[Op]) -> None:
        """Take note of a whole transaction."""

    # --- sessions -------------------------------------------------------------------------------------------------

    def open_session(self) -> int:
        """Return the new session's id."""
        self._opened += 1
        self.sessions.add(self._opened)
        return self._opened

    def end_session(self, session: int, writer: Writer) -> None:
        """End the session; its ephemeral nodes go with it."""
        self.sessions.discard(session)
        for path in self._ephemerals.pop(session, {}):
            self.zxid += 1
            self._apply(Delete(path), writer, 0)

    def forget_watches(self, client: Watching) -> None:
        """Drop the watches of a client whose connection is gone."""
        for watches in (self._data_watches, self._child_watches):
            for path, watchers in list(watches.items()):
                left = [entry for entry in watchers if entry[0] is not client]
                if left:
                    watches[path] = left
                else:
                    del watches[path]

    def watching(self, path: str) -> list[tuple[Watching, LinkWatch]]:
        """Return who watches the node, there or not, or its children, and with what."""
        return [*self._data_watches.get(path, ()), *self._child_watches.get(path, ())]

    def watches_of(self, client: Watching) -> list[LinkWatch]:
        """Return all watches that the client has set."""
        paths = {*self._data_watches, *self._child_watches}
        return [watch for path in sorted(paths) for watcher, watch in self.watching(path) if watcher is client]

    # --- reads ----------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Node:
        """Return the node. Raises NoNodeError."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(f"no znode {path}")
        return node

    def children(self, path: str) -> list[str]:
        """Return the children's names. Raises NoNodeError."""
        self.get(path)
        return list(self._children.get(path, ()))

    def watch_data(self, path: str, client: Watching, watch: LinkWatch | None) -> bool:
        """Watch the node, there or not; tell whether the watch is new."""
        return self._watch(self._data_watches, path, client, watch)

    def watch_children(self, path: str, client: Watching, watch: LinkWatch | None) -> bool:
        """Watch the node's children; tell whether the watch is new."""
        return self._watch(self._child_watches, path, client, watch)

    @staticmethod
    def _watch(watches: Watches, path: str, client: Watching, watch: LinkWatch | None) -> bool:
        if watch is None:
            return False
        watchers = watches.setdefault(path, [])
        if any(w is watch for _, w in watchers):  # a set, as in kazoo
            return False
        watchers.append((client, watch))
        return True

    @staticmethod
    def _fire(watches: Watches, path: str, kind: str) -> None:
        for client, watch in watches.pop(path, ()):
            client.on_watch(watch, kind)

    # --- writes ---------------------------------------------------------------------------------------------------

    def commit(self, ops: Sequence[Op], writer: Writer, session: int = 0) -> list[int | None]:
        """Do all or nothing. Raises TransactionError; ``session`` will own what is ephemeral."""
        versions: dict[str, int | None] = {}  # as the operations before leave them; None: no such node
        named = [self._named(op) for op in ops]
        for index, op in enumerate(named):
            if (error := self._refusal(op, versions)) is not None:
                raise TransactionError(index, error)
        self.zxid += 1
        results = [self._apply(op, writer, session) for op in named]
        self.committed(writer, named)
        return results

    def write(self, op: Op, writer: Writer, session: int = 0) -> int | None:
        """Do one operation. Raises ZooKeeperError."""
        try:
            return self.commit([op], writer, session)[0]
        except TransactionError as e:
            raise e.cause from None

    def _named(self, op: Op) -> Op:
        if isinstance(op, Create) and op.sequential:
            return Create(self.next_in_sequence(op.path), op.data, op.ephemeral)
        return op

    def next_in_sequence(self, path: str) -> str:
        """Return the name of the next sequential node, of which ``path`` is the beginning."""
        return f"{path}{self._made.get(parent_of(path), 0):010d}"

    def _refusal(self, op: Op, versions: dict[str, int | None]) -> ZooKeeperError | None:
        """Return why the operation cannot be done; else note what it leaves."""
        path = op.path
        version = self._version(path, versions)
        if isinstance(op, Create):
            if version is not None:
                return NodeExistsError(f"znode {path} exists already")
            if self._version(parent_of(path), versions) is None:
                return NoNodeError(f"no znode {path}")
            versions[path] = 0
            return None
        if version is None:
            return NoNodeError(f"no znode {path}")
        if op.version not in (ANY_VERSION, version):
            return VersionConflictError(f"znode {path} was changed by somebody else meanwhile")
        if isinstance(op, SetData):
            versions[path] = version + 1
        elif isinstance(op, Delete):
            children = [f"{path}/{name}" for name in self._children.get(path, ())]
            children += [made for made in versions if parent_of(made) == path]
            if any(self._version(child, versions) is not None for child in children):
                return NotEmptyError(f"znode {path} still has children")
            versions[path] = None
        return None

    def _version(self, path: str, versions: dict[str, int | None]) -> int | None:
        if path in versions:
            return versions[path]
        node = self.nodes.get(path)
        return None if node is None else node.version

    def _apply(self, op: Op, writer: Writer, session: int) -> int | None:
        path = op.path
        match op:
            case Create(_, data, ephemeral):
                owner = session if ephemeral else 0
                self.nodes[path] = Node(data, 0, self.zxid, self.zxid, owner, 0)
                parent = parent_of(path)
                self._children.setdefault(parent, {})[path.rpartition("/")[2]] = None
                self._made[parent] = self._made.get(parent, 0) + 1
                if owner:
                    self._ephemerals.setdefault(owner, {})[path] = None
                self.written(writer, op, None, data)
                self._fire(self._data_watches, path, "created")
                self._fire(self._child_watches, parent, "children")
            case SetData(_, data, _):
                before = self.nodes[path]
                after = self.nodes[path] = before._replace(data=data, version=before.version + 1, mzxid=self.zxid)
                self.written(writer, op, before.data, data)
                self._fire(self._data_watches, path, "changed")
                return after.version
            case Delete():
                node = self.nodes.pop(path)
                self._children[parent_of(path)].pop(path.rpartition("/")[2])
                self._children.pop(path, None)
                self._made.pop(path, None)
                self._ephemerals.get(node.ephemeral_owner, {}).pop(path, None)
                self.written(writer, op, node.data, None)
                self._fire(self._data_watches, path, "deleted")
                self._fire(self._child_watches, path, "deleted")
                self._fire(self._child_watches, parent_of(path), "children")
            case Check():
                pass
        return None
