"""The ZooKeeper server of the simulation: nodes, sessions, one-shot watches, transactions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo import exceptions as kz

from kafkatool.core.zookeeper.session import ANY_VERSION, Check, Create, Delete, Op, SetData
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.client import Client

Watcher = Callable[[Any], None]


class Stat(NamedTuple):
    """What kazoo tells of a node."""

    version: int
    czxid: int
    mzxid: int
    ephemeralOwner: int  # noqa: N815  kazoo's name
    ctime: int


class ZNode:
    """One node; children by name."""

    __slots__ = ("children", "czxid", "data", "made", "mzxid", "owner", "version")

    def __init__(self, data: bytes, czxid: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.czxid = self.mzxid = czxid
        self.owner = owner
        self.children: dict[str, None] = {}
        self.made = 0  # children ever made: the number of the next sequential one

    @property
    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.owner, 0)


class Writer(NamedTuple):
    """Who asked for a write: the client, which part of its process, and the controller epoch it ruled by then."""

    client: "Client | None"
    part: str  # "controller", "broker" or "operator"
    epoch: int | None


OPERATOR = Writer(None, "operator", None)


def _error(kind: type[Exception]) -> Exception:
    return kind()


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Server:
    """The tree that all share. ``on_write(writer, op, before, after)`` is called behind each write of a transaction."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, ZNode] = {"/": ZNode(b"", 0, 0)}
        self.zxid = 0
        self.is_up = True
        self.sessions: dict[int, Client] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.on_write: Callable[[Writer, Op, bytes | None, bytes | None], None] = lambda *_: None
        self.after_transaction: Callable[[Writer], None] = lambda _: None
        self._session_numbers = 0
        self._data_watches: dict[str, list[tuple[Client, Watcher]]] = {}
        self._child_watches: dict[str, list[tuple[Client, Watcher]]] = {}

    # --- sessions -------------------------------------------------------------------------------------------------

    def open_session(self, client: "Client") -> int:
        self._session_numbers += 1
        self.sessions[self._session_numbers] = client
        return self._session_numbers

    def end_session(self, session: int) -> None:
        """Its ephemeral nodes go with it."""
        if self.sessions.pop(session, None) is None:
            return
        for path in self.ephemerals.pop(session, {}):
            self._apply(Delete(path), OPERATOR)

    def forget_watches(self, client: "Client") -> None:
        """Its connection is gone."""
        for watches in (self._data_watches, self._child_watches):
            for path, watchers in list(watches.items()):
                left = [entry for entry in watchers if entry[0] is not client]
                if left:
                    watches[path] = left
                else:
                    del watches[path]

    # --- reads ----------------------------------------------------------------------------------------------------

    def watch_data(self, path: str, client: "Client", watcher: Watcher) -> None:
        self._watch(self._data_watches, path, client, watcher)

    def watch_children(self, path: str, client: "Client", watcher: Watcher) -> None:
        self._watch(self._child_watches, path, client, watcher)

    @staticmethod
    def _watch(
        watches: dict[str, list[tuple["Client", Watcher]]], path: str, client: "Client", watcher: Watcher
    ) -> None:
        watchers = watches.setdefault(path, [])
        if all(w is not watcher for _, w in watchers):  # a set, as in kazoo
            watchers.append((client, watcher))
            client.watching(watcher)

    def _fire(self, watches: dict[str, list[tuple["Client", Watcher]]], path: str, kind: str) -> None:
        for client, watcher in watches.pop(path, ()):
            client.on_watch(watcher, kind)

    # --- writes ---------------------------------------------------------------------------------------------------

    def refusal(self, ops: Sequence[Op]) -> tuple[int, Exception] | None:
        """Which operation of the transaction cannot be done, and why."""
        made: set[str] = set()
        gone: set[str] = set()
        for index, op in enumerate(ops):
            error = self._refusal(op, made, gone)
            if error is not None:
                return index, error
        return None

    def _refusal(self, op: Op, made: set[str], gone: set[str]) -> Exception | None:
        node = self.nodes.get(op.path)
        exists = (node is not None or op.path in made) and op.path not in gone
        if isinstance(op, Create):
            parent = parent_of(op.path)
            if exists:
                return _error(kz.NodeExistsError)
            if (parent not in self.nodes and parent not in made) or parent in gone:
                return _error(kz.NoNodeError)
            made.add(op.path)
            return None
        if not exists:
            return _error(kz.NoNodeError)
        if node is not None and op.version not in (ANY_VERSION, node.version):
            return _error(kz.BadVersionError)
        if isinstance(op, Delete):
            gone.add(op.path)
            if node is not None and any(f"{op.path}/{c}" not in gone for c in node.children):
                return _error(kz.NotEmptyError)
        return None

    def commit(self, ops: Sequence[Op], writer: Writer) -> list[Any]:
        """All or nothing; results as kazoo's transactions give them, errors among them."""
        refused = self.refusal(ops)
        if refused is not None:
            index, error = refused
            return [kz.RolledBackError()] * index + [error] + [kz.RuntimeInconsistency()] * (len(ops) - index - 1)
        results = [self._apply(op, writer) for op in ops]
        self.after_transaction(writer)
        return results

    def write(self, op: Op, writer: Writer) -> Any:
        """One operation; raises kazoo's error."""
        (result,) = self.commit([op], writer)
        if isinstance(result, Exception):
            raise result
        return result

    def _apply(self, op: Op, writer: Writer) -> Any:
        match op:
            case Create(path, data, ephemeral):
                self.zxid += 1
                owner = writer.client.session if ephemeral and writer.client is not None else 0
                self.nodes[path] = ZNode(data, self.zxid, owner)
                parent = parent_of(path)
                self.nodes[parent].children[path.rpartition("/")[2]] = None
                self.nodes[parent].made += 1
                if owner:
                    self.ephemerals.setdefault(owner, {})[path] = None
                self._written(writer, op, None, data)
                self._fire(self._data_watches, path, "CREATED")
                self._fire(self._child_watches, parent, "CHILD")
                return path
            case SetData(path, data, _):
                self.zxid += 1
                node = self.nodes[path]
                before, node.data = node.data, data
                node.version += 1
                node.mzxid = self.zxid
                self._written(writer, op, before, data)
                self._fire(self._data_watches, path, "CHANGED")
                return node.stat
            case Delete(path, _):
                self.zxid += 1
                node = self.nodes.pop(path)
                del self.nodes[parent_of(path)].children[path.rpartition("/")[2]]
                if node.owner:
                    self.ephemerals.get(node.owner, {}).pop(path, None)
                self._written(writer, op, node.data, None)
                self._fire(self._data_watches, path, "DELETED")
                self._fire(self._child_watches, path, "DELETED")
                self._fire(self._child_watches, parent_of(path), "CHILD")
                return True
            case Check():
                return True

    def _written(self, writer: Writer, op: Op, before: bytes | None, after: bytes | None) -> None:
        self.world.count(op.path.encode())
        self.world.count(after or b"-")
        if self.world.trace is not None:
            who = writer.part if writer.client is None else f"{writer.part} {writer.client.name}"
            self.world.note("zookeeper  %s: %s = %s", who, op.path, "gone" if after is None else after.decode())
        self.on_write(writer, op, before, after)
