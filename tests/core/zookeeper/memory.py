"""Sessions on a ZooKeeper in memory: the real session object, on requests that are answered at once.

Watches are called at once, on the writer's thread, as they only put something into a queue.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kafkatool.core.errors import SessionExpiredError, ZooKeeperError
from kafkatool.core.zookeeper.acls import OPEN, Acl, NodeAcls
from kafkatool.core.zookeeper.link import LinkWatch, Reply, SessionState
from kafkatool.core.zookeeper.operations import Create, Delete, Node, Op, SetData
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import PERSISTENT_PATHS
from tests.core.zookeeper.ensemble import Crash, Ensemble, parent_of

T = TypeVar("T")


class MemoryEnsemble(Ensemble["MemoryLink"]):
    """``on_write`` sees each write of a transaction after all took effect, and may raise ``Crash``."""

    def __init__(self) -> None:
        super().__init__()
        self.on_write: Callable[[MemoryZooKeeper, Op], None] = lambda session, op: None
        with MemoryZooKeeper(self) as session:
            for path in PERSISTENT_PATHS:
                session.create(path, make_parents=True)

    def committed(self, writer: "MemoryLink", ops: Sequence[Op]) -> None:
        for op in ops:
            if isinstance(op, Create | SetData | Delete):
                self.on_write(writer.owner, op)


class _Answer(Generic[T]):
    def __init__(self, request: Callable[[], T]) -> None:
        self._error: ZooKeeperError | None = None
        try:
            self._value = request()
        except ZooKeeperError as e:
            self._error = e

    def get(self, timeout_s: float, /) -> T:
        if self._error is not None:
            raise self._error
        return self._value


class MemoryLink:
    """A `Link`: one session, which ends when the test says so."""

    chroot = ""

    def __init__(self, ensemble: MemoryEnsemble, owner: "MemoryZooKeeper") -> None:
        self.ensemble, self.owner = ensemble, owner
        self.session_id = ensemble.open_session()
        self.crashed = False
        self._listeners: list[Callable[[SessionState], None]] = []

    def start(self, timeout_s: float, *, create_chroot: bool, is_late: Callable[[], bool]) -> None: ...

    def close(self) -> None:
        self.ensemble.forget_watches(self)
        self.ensemble.end_session(self.session_id, self)

    def add_listener(self, listener: Callable[[SessionState], None], /) -> None:
        self._listeners.append(listener)

    def tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)

    def wait_until_connected(self, timeout_s: float) -> bool:
        return True

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def held(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def on_watch(self, watch: LinkWatch, kind: str) -> None:
        watch(kind)

    def _ask(self, request: Callable[[], T]) -> Reply[T]:
        if self.crashed:
            raise Crash

        def asked() -> T:
            if self.session_id not in self.ensemble.sessions:
                raise SessionExpiredError("expired")
            return request()

        return _Answer(asked)

    def get(self, path: str, watch: LinkWatch | None) -> Reply[Node]:
        def get() -> Node:
            node = self.ensemble.get(path)
            self.ensemble.watch_data(path, self, watch)
            return node

        return self._ask(get)

    def exists(self, path: str, watch: LinkWatch | None) -> Reply[bool]:
        def exists() -> bool:
            self.ensemble.watch_data(path, self, watch)
            return path in self.ensemble.nodes

        return self._ask(exists)

    def children(self, path: str, watch: LinkWatch | None) -> Reply[list[str]]:
        def children() -> list[str]:
            names = self.ensemble.children(path)
            self.ensemble.watch_children(path, self, watch)
            return names

        return self._ask(children)

    def reads(self) -> Callable[[str], Reply[Node]]:
        return lambda path: self.get(path, None)

    def reads_together(self) -> None:
        return None

    def acls(self, path: str) -> Reply[list[Acl]]:
        return self._ask(lambda: list(OPEN))

    def set_acls(self, path: str, acls: Sequence[Acl]) -> Reply[object]:
        return self._ask(lambda: True)

    def make_nodes_as(self, acls: NodeAcls) -> None:
        """Make open nodes all the same: nobody is refused here."""

    def create(self, path: str, data: bytes, *, ephemeral: bool, sequential: bool, make_parents: bool) -> Reply[str]:
        def create() -> str:
            if make_parents and parent_of(path) not in self.ensemble.nodes:
                self.create(parent_of(path), b"", ephemeral=False, sequential=False, make_parents=True).get(0)
            made = self.ensemble.next_in_sequence(path) if sequential else path
            self._write(Create(made, data, ephemeral))
            return made

        return self._ask(create)

    def set(self, path: str, data: bytes, version: int) -> Reply[int]:
        return self._ask(lambda: self._write(SetData(path, data, version)) or 0)

    def delete(self, path: str, version: int) -> Reply[object]:
        return self._ask(lambda: self._write(Delete(path, version)))

    def _write(self, op: Op) -> int | None:
        return self.ensemble.write(op, self, self.session_id)

    def commit(self, ops: Sequence[Op]) -> Reply[list[int | None]]:
        def commit() -> list[int | None]:
            return self.ensemble.commit(ops, self, self.session_id)

        return self._ask(commit)


class MemoryZooKeeper(ZooKeeper):
    """One session, with what may happen to it and to its process."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self.memory = MemoryLink(ensemble, self)
        super().__init__("memory:2181", link=self.memory)

    @property
    def nodes(self) -> dict[str, Node]:
        return self.memory.ensemble.nodes

    @property
    def crashed(self) -> bool:
        return self.memory.crashed

    def expire(self) -> None:
        """End the session at the server; the client has not heard of it."""
        self.memory.close()

    def reconnect(self) -> None:
        """Let the client learn that its session is gone, and get a new one."""
        self.memory.tell(SessionState.EXPIRED)
        self.memory.session_id = self.memory.ensemble.open_session()
        self.memory.tell(SessionState.CONNECTED)

    def crash(self) -> None:
        """Kill the process; the server notices at once."""
        self.memory.crashed = True
        self.memory.close()
