"""A double of kazoo's client for ``ZooKeeper``: the session code above it is the real one.

What breaks is below it: requests and replies are lost with the connection, sessions expire unseen, watches come late.
As kazoo does it: a drop fails what was sent, what is asked meanwhile waits for the next connection, be it of the same
session or of another.
"""

from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo import exceptions as kz
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from kafkatool.core.zookeeper.session import Check, Create, Delete, Node, Op, SetData, ZooKeeper, _node
from tests.simulation.server import Server, Watcher, Writer
from tests.simulation.world import Crash, World

if TYPE_CHECKING:
    from tests.simulation.process import Process

SESSION_TIMEOUT_MS = 6000
_STOPPED_ELECTING = 6  # as likely during an election: it is short, and two at a time are what it must withstand


class KazooEvent(NamedTuple):
    """What kazoo hands to a watch."""

    type: str


class Pending:
    """A request under way."""

    __slots__ = ("_client", "done", "error", "value")

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.done = False
        self.value: Any = None
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.done, self.error = True, error

    def get(self, timeout: float) -> Any:
        client = self._client
        if not self.done:
            client.world.run_until(lambda: self.done or not client.process.alive, client.world.now + timeout * 1000)
            client.alive_or_crash()
            if not self.done:
                raise KazooTimeoutError
        elif client.sent and client.sent[0] is self:
            client.sent.popleft()
        if self.error is not None:
            raise self.error
        return self.value


class _Live:
    def __init__(self, client: "Client") -> None:
        self._client = client

    def wait(self, timeout: float) -> bool:
        client = self._client
        client.world.run_until(lambda: client.connected or not client.process.alive, client.world.now + timeout * 1000)
        client.alive_or_crash()
        return client.connected


class _Handler:
    def __init__(self, client: "Client") -> None:
        self._client = client

    def dispatch_callback(self, callback: Any) -> None:
        self._client.call_soon(lambda: callback.func(*callback.args))


class _Transaction:
    def __init__(self, client: "Client") -> None:
        self._client = client
        self._ops: list[Op] = []

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        self._ops.append(Create(path, data, ephemeral))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._ops.append(SetData(path, data, version))

    def delete(self, path: str, version: int) -> None:
        self._ops.append(Delete(path, version))

    def check(self, path: str, version: int) -> None:
        self._ops.append(Check(path, version))

    def commit_async(self) -> Pending:
        client, ops, writer = self._client, self._ops, self._client.writer()
        return client.submit(lambda: client.server.commit(ops, writer))


class Client:
    """One per process. ``session`` is what the server knows it by, ``_session_id`` what it believes itself."""

    def __init__(self, world: World, server: Server, process: "Process") -> None:
        self.world = world
        self.server = server
        self.process = process
        self.name = str(process.id)
        self.part = "controller"  # which part of the process is calling
        self.session = 0
        self.connected = False
        self.closed = False
        self.sent: deque[Pending] = deque()  # and not yet taken note of
        self.chroot = ""
        self.handler = _Handler(self)
        # what the session object reaches into kazoo for; nothing of it is used without sockets
        self._connection = SimpleNamespace(_send_request=None, _read=None, _read_socket=None, _write_sock=None)
        self._session_id: int | None = None
        self._live = _Live(self)
        self._listeners: list[Callable[[str], None]] = []
        self._queue: deque[tuple[Pending, Callable[[], Any]]] = deque()
        self._watchers: dict[Watcher, None] = {}
        self._expired = False  # told so, and no new session yet
        self._drops = 0
        self.blocked_until = 0.0  # no connection before

    def writer(self) -> Writer:
        term = self.process.worker.term
        return Writer(self, self.part, term.context.epoch if self.part == "controller" and term else None)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, timeout: float) -> None:
        self.connect()
        self._live.wait(timeout)
        if not self.connected:
            raise KazooTimeoutError

    def stop(self) -> None:
        self.closed, self.connected = True, False
        self.server.forget_watches(self)
        self.server.end_session(self.session)

    def close(self) -> None:
        pass

    def exists(self, path: str) -> bool:
        return path in self.server.nodes

    def ensure_path(self, path: str) -> None:
        raise NotImplementedError("the simulation uses no chroot")

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    def alive_or_crash(self) -> None:
        if not self.process.alive:
            raise Crash

    def call_soon(self, callback: Callable[[], None]) -> None:
        """On the client's callback thread."""

        def call() -> None:
            if not self.process.alive or self.closed:
                return
            if self.process.stopped_until > self.world.now:
                self.world.after(self.process.stopped_until - self.world.now, call)
                return
            callback()

        self.world.soon(call, 2000.0 if self.world.random.random() < self.world.chances.slow else 5.0)

    # --- the connection -------------------------------------------------------------------------------------------

    def drop(self, for_ms: float) -> None:
        """The connection breaks; the server waits for the session timeout."""
        if not self.connected or self.closed:
            return
        if (wait := self.process.stopped_until - self.world.now) > 0:
            self.world.after(wait, lambda: self.drop(for_ms))
            return
        self.world.note("client %s loses ZooKeeper for %.0f ms", self.name, for_ms)
        self.connected = False
        self._drops += 1
        self.blocked_until = self.world.now + for_ms
        kept = self.world.random.randint(0, len(self.sent))  # replies that came before the end
        for pending in list(self.sent)[kept:]:
            pending.fail(kz.ConnectionLoss())
        self.sent.clear()
        self.server.forget_watches(self)
        self._tell(KazooState.SUSPENDED)
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher(KazooEvent("NONE"))
        self.expire_unless_back()
        self.world.after(for_ms, self.connect)

    def expire_unless_back(self) -> None:
        """The server's clock of this session runs."""
        session, drops = self.session, self._drops

        def expire() -> None:
            silent = not self.connected or not self.process.alive or self.process.stopped_until > self.world.now
            if silent and (drops == self._drops or not self.process.alive):
                if self.server.is_up:
                    self.expire(session)
                else:
                    self.world.after(SESSION_TIMEOUT_MS, expire)

        self.world.after(SESSION_TIMEOUT_MS, expire)

    def expire(self, session: int) -> None:
        """The server ends the session; the client does not know."""
        if session in self.server.sessions:
            self.world.note("session %d of %s expires", session, self.name)
            self.server.end_session(session)
            if self.connected:
                self.world.soon(lambda: self._cut_off(session), 300.0)

    def _cut_off(self, session: int) -> None:
        if self.session == session and self.connected:
            self.drop(1.0)

    def connect(self) -> None:
        if not self.process.alive or self.connected or self.closed:
            return
        wait = max(self.blocked_until, self.process.stopped_until) - self.world.now
        if wait > 0 or not self.server.is_up:
            self.world.after(max(wait, 100.0), self.connect)
            return
        if self._session_id is not None and self.session not in self.server.sessions:
            self._lose_session()
            return
        if self._session_id is None:
            self.session = self._session_id = self.server.open_session(self)
        self._drops += 1
        self.connected, self._expired = True, False
        self.world.note("client %s is connected, session %d", self.name, self.session)
        self._tell(KazooState.CONNECTED)
        while self._queue and self.connected:
            pending, operation = self._queue.popleft()
            self._execute(pending, operation)

    def _lose_session(self) -> None:
        self.world.note("client %s learns that session %d is over", self.name, self.session)
        self._session_id = None
        self._expired = self.world.random.random() < 0.5  # else it is about to connect again already
        self._tell(KazooState.LOST)
        queue, self._queue = self._queue, deque()
        for pending, _ in queue:
            pending.fail(kz.SessionExpiredError())
        self.world.soon(self.connect, 200.0)

    # --- requests -------------------------------------------------------------------------------------------------

    def submit(self, operation: Callable[[], Any]) -> Pending:
        """Ask the server; what may go wrong on the way goes wrong here."""
        self.alive_or_crash()
        chances = self.world.chances
        cut = False
        if chances.others_first:
            self._others_first()
            cut = self.world.random.random() < chances.cut
        pending = Pending(self)
        if self.closed:
            pending.fail(kz.ConnectionClosedError())
        elif self._expired:
            pending.fail(kz.SessionExpiredError())
        elif not self.connected:
            self._queue.append((pending, operation))
        elif self.session not in self.server.sessions:  # ended behind our back: the server hangs up
            self.sent.append(pending)
            self.drop(1.0)
            pending.fail(kz.ConnectionLoss())
        else:
            random = self.world.random
            if not cut or random.random() < 0.6:
                self._execute(pending, operation)
            if cut:
                long = random.random() < chances.expiry
                self.drop(random.uniform(4000, 12000) if long else random.uniform(1, 1500))
                pending.fail(kz.ConnectionLoss())
        return pending

    def _execute(self, pending: Pending, operation: Callable[[], Any]) -> None:
        self.sent.append(pending)
        try:
            pending.value = operation()
        except kz.KazooException as e:
            pending.error = e
        pending.done = True

    def _others_first(self) -> None:
        random, chances = self.world.random, self.world.chances
        chance = random.random()
        stopped = chances.stopped
        if self.part == "controller" and self.process.worker.term is None:
            stopped *= _STOPPED_ELECTING
        if chance < chances.others_first:
            if self.world.may_wait():
                for _ in range(random.randint(1, 6)):
                    self.world.step()
        elif chance < chances.others_first + stopped:
            if self.world.may_wait():
                self.process.stop_for(random.choice((200.0, 3000.0, 9000.0, 15000.0)))
                self.world.run_until(lambda: self.process.stopped_until <= self.world.now or not self.process.alive,
                                     self.process.stopped_until)  # fmt: skip
        elif chance < chances.others_first + stopped + chances.killed:
            self.process.kill()
        self.alive_or_crash()

    # --- watches --------------------------------------------------------------------------------------------------

    def watching(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def on_watch(self, watcher: Watcher, kind: str) -> None:
        """The server has sent it; it arrives later, or with the connection never."""
        drops = self._drops

        def arrive() -> None:
            if drops == self._drops and self._watchers.pop(watcher, self) is None:
                watcher(KazooEvent(kind))

        self.call_soon(arrive)

    # --- kazoo's calls --------------------------------------------------------------------------------------------

    def get_async(self, path: str, watch: Watcher | None = None) -> Pending:
        def get() -> Any:
            node = self.server.nodes.get(path)
            if node is None:
                raise kz.NoNodeError
            if watch is not None:
                self.server.watch_data(path, self, watch)
            return node.data, node.stat

        return self.submit(get)

    def exists_async(self, path: str, watch: Watcher | None = None) -> Pending:
        def exists() -> Any:
            node = self.server.nodes.get(path)
            if watch is not None:
                self.server.watch_data(path, self, watch)
            return node and node.stat

        return self.submit(exists)

    def get_children_async(self, path: str, watch: Watcher | None = None) -> Pending:
        def children() -> Any:
            node = self.server.nodes.get(path)
            if node is None:
                raise kz.NoNodeError
            if watch is not None:
                self.server.watch_children(path, self, watch)
            return list(node.children)

        return self.submit(children)

    def create_async(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False, makepath: bool = False
    ) -> Pending:
        writer = self.writer()

        def create() -> Any:
            full = path
            if sequence:
                full += f"{self.server.nodes[path.rpartition('/')[0]].made:010d}"
            return self.server.write(Create(full, data, ephemeral), writer)

        return self.submit(create)

    def set_async(self, path: str, data: bytes, version: int) -> Pending:
        writer = self.writer()
        return self.submit(lambda: self.server.write(SetData(path, data, version), writer))

    def delete_async(self, path: str, version: int) -> Pending:
        writer = self.writer()
        return self.submit(lambda: self.server.write(Delete(path, version), writer))

    def transaction(self) -> _Transaction:
        return _Transaction(self)


class SimulatedZooKeeper(ZooKeeper):
    """The real session object on the double."""

    def __init__(self, client: Client) -> None:
        self._double = client
        super().__init__("simulated:2181", session_timeout_ms=SESSION_TIMEOUT_MS, connection_timeout_ms=10_000)

    def _make_client(self) -> Any:
        return self._double

    def _nodes(self, paths: Sequence[str]) -> list[Node | None]:
        """Request by request: a bulk read lies below what is doubled, and would wait in real time."""
        return [answer and _node(answer) for answer in self._gather(paths, paths, self._double.get_async)]
