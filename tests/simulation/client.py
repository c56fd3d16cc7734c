"""A link of the simulation: ``ZooKeeper``'s requests on the ensemble in memory, with all that breaks below the session.

Requests and replies are lost with the connection, sessions expire unseen, watches come late. As kazoo does it: a drop
fails what was sent, what is asked meanwhile waits for the next connection, be it of the same session or of another.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkatool.core.errors import (
    ConnectionLostError,
    SessionExpiredError,
    ZooKeeperError,
    ZooKeeperUnavailableError,
)
from kafkatool.core.zookeeper.acls import OPEN, Acl, NodeAcls
from kafkatool.core.zookeeper.link import LateError, LinkWatch, SessionState
from kafkatool.core.zookeeper.session import Create, Delete, Node, Op, SetData, ZooKeeper
from tests.core.zookeeper.ensemble import Crash
from tests.simulation.server import OPERATOR, Server, Writer
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.life import Life

T = TypeVar("T")

SESSION_TIMEOUT_MS = 6000
_CONNECTION_TIMEOUT_MS = 10_000
_STOPPED_ELECTING = 6  # as likely during an election: it is short, and two at a time are what it must withstand


def connection_lost() -> ConnectionLostError:
    return ConnectionLostError("the connection to ZooKeeper was lost")


def expired() -> SessionExpiredError:
    return SessionExpiredError("the ZooKeeper session expired")


class Pending(Generic[T]):
    """A request under way. ``due``: the answer does not come before."""

    __slots__ = ("_client", "done", "due", "error", "value")

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.done = False
        self.due = 0.0
        self.value: T | None = None
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.done, self.error = True, error

    def get(self, timeout_s: float, /) -> T:
        client = self._client
        if self.due > client.world.now:
            client.world.run_until(lambda: not client.process.alive, self.due)
            client.alive_or_crash()
        if not self.done:
            client.world.run_until(lambda: self.done or not client.process.alive, client.world.now + timeout_s * 1000)
            client.alive_or_crash()
            if not self.done:
                raise LateError("ZooKeeper did not answer in time")
        elif client.sent and client.sent[0] is self:
            client.sent.popleft()
        if self.error is not None:
            raise self.error
        value: Any = self.value
        return value  # type: ignore[no-any-return]


class Client:
    """One per process. ``session`` is what the server knows it by, ``session_id`` what it believes itself."""

    chroot = ""

    def __init__(self, world: World, server: Server, process: "Life") -> None:
        self.world = world
        self.server = server
        self.process = process
        self.name = str(process.id)
        self.part = "controller"  # which part of the process is calling
        self.session = 0
        self.connected = False
        self.closed = False
        self.sent: deque[Pending[Any]] = deque()  # and not yet taken note of
        self.session_id = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._queue: deque[tuple[Pending[Any], Callable[[], Any]]] = deque()
        self._watches: dict[LinkWatch, None] = {}
        self._expired = False  # told so, and no new session yet
        self._drops = 0
        self.blocked_until = 0.0  # no connection before
        self.session_timeout_ms = SESSION_TIMEOUT_MS * world.pace

    def writer(self) -> Writer:
        term = self.process.worker.term
        return Writer(self, self.part, term.context.epoch if self.part == "controller" and term else None)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float, *, create_chroot: bool, is_late: Callable[[], bool]) -> None:
        self.connect()
        if not self.wait_until_connected(timeout_s):
            raise ZooKeeperUnavailableError("the simulated ZooKeeper does not answer")

    def close(self) -> None:
        self.closed, self.connected = True, False
        self.server.forget_watches(self)
        self.server.end_session(self.session, OPERATOR)

    def add_listener(self, listener: Callable[[SessionState], None], /) -> None:
        self._listeners.append(listener)

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)

    def wait_until_connected(self, timeout_s: float) -> bool:
        self.world.run_until(lambda: self.connected or not self.process.alive, self.world.now + timeout_s * 1000)
        self.alive_or_crash()
        return self.connected

    def held(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def alive_or_crash(self) -> None:
        if not self.process.alive:
            raise Crash

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run it on the client's callback thread."""

        def call() -> None:
            if not self.process.alive or self.closed:
                return
            if self.process.stopped_until > self.world.now:
                self.world.after(self.process.stopped_until - self.world.now, call)
                return
            callback()

        self.world.soon(call, 2000.0 * self.world.pace if self.world.random.random() < self.world.chances.slow else 5.0)

    # --- the connection -------------------------------------------------------------------------------------------

    def drop(self, for_ms: float) -> None:
        """Break the connection; the server waits for the session timeout."""
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
            pending.fail(connection_lost())
        self.sent.clear()
        self.server.forget_watches(self)
        self._tell(SessionState.SUSPENDED)
        watches, self._watches = self._watches, {}
        for watch in watches:
            watch(None)
        self.expire_unless_back()
        self.world.after(for_ms, self.connect)

    def expire_unless_back(self) -> None:
        """Start the server's clock of this session."""
        session, drops = self.session, self._drops

        def expire() -> None:
            silent = not self.connected or not self.process.alive or self.process.stopped_until > self.world.now
            if silent and (drops == self._drops or not self.process.alive):
                if self.server.is_up:
                    self.expire(session)
                else:
                    self.world.after(self.session_timeout_ms, expire)

        self.world.after(self.session_timeout_ms, expire)

    def expire(self, session: int) -> None:
        """End the session at the server; the client does not know."""
        if session in self.server.sessions:
            self.world.note("session %d of %s expires", session, self.name)
            self.server.end_session(session, OPERATOR)
            if self.connected:
                self.world.soon(lambda: self._cut_off(session), 300.0 * self.world.pace)

    def _cut_off(self, session: int) -> None:
        if self.session == session and self.connected:
            self.drop(1.0)

    def connect(self) -> None:
        if not self.process.alive or self.connected or self.closed:
            return
        wait = max(self.blocked_until, self.process.stopped_until) - self.world.now
        if wait > 0 or not self.server.is_up:
            self.world.after(max(wait, 100.0 * self.world.pace), self.connect)
            return
        if self.session_id and self.session not in self.server.sessions:
            self._lose_session()
            return
        if not self.session_id:
            self.session = self.session_id = self.server.open_session()
        self._drops += 1
        self.connected, self._expired = True, False
        self.world.note("client %s is connected, session %d", self.name, self.session)
        self._tell(SessionState.CONNECTED)
        while self._queue and self.connected:
            pending, operation = self._queue.popleft()
            self._execute(pending, operation)

    def _lose_session(self) -> None:
        self.world.note("client %s learns that session %d is over", self.name, self.session)
        self.session_id = 0
        self._expired = self.world.random.random() < 0.5  # else it is about to connect again already
        self._tell(SessionState.EXPIRED)
        queue, self._queue = self._queue, deque()
        for pending, _ in queue:
            pending.fail(expired())
        self.world.soon(self.connect, 200.0 * self.world.pace)

    # --- requests -------------------------------------------------------------------------------------------------

    def submit(self, operation: Callable[[], T]) -> Pending[T]:
        """Ask the server; what may go wrong on the way goes wrong here."""
        self.alive_or_crash()
        chances = self.world.chances
        cut = False
        if chances.others_first:
            self._others_first()
            cut = self.world.random.random() < chances.cut
        pending: Pending[T] = Pending(self)
        if self.closed:
            pending.fail(connection_lost())
        elif self._expired:
            pending.fail(expired())
        elif not self.connected:
            self._queue.append((pending, operation))
        elif self.session not in self.server.sessions:  # ended behind our back: the server hangs up
            self.sent.append(pending)
            self.drop(1.0)
            pending.fail(connection_lost())
        else:
            random = self.world.random
            if not cut or random.random() < 0.6:
                self._execute(pending, operation)
            if cut:
                long = random.random() < chances.expiry
                lasts = random.uniform(4000, 12000) if long else random.uniform(1, 1500)
                self.drop(lasts * self.world.pace)
                pending.fail(connection_lost())
        return pending

    def _execute(self, pending: Pending[T], operation: Callable[[], T]) -> None:
        self.sent.append(pending)
        try:
            pending.value = operation()
        except ZooKeeperError as e:
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
                self.process.stop_for(random.choice((200.0, 3000.0, 9000.0, 15000.0)) * self.world.pace)
                self.world.run_until(lambda: self.process.stopped_until <= self.world.now or not self.process.alive,
                                     self.process.stopped_until)  # fmt: skip
        elif chance < chances.others_first + stopped + chances.killed:
            self.process.kill()
        self.alive_or_crash()

    # --- watches --------------------------------------------------------------------------------------------------

    def on_watch(self, watch: LinkWatch, kind: str) -> None:
        """Take what the server has sent; it arrives later, or with the connection never."""
        drops = self._drops

        def arrive() -> None:
            if drops == self._drops and watch in self._watches:
                del self._watches[watch]
                watch(kind)

        self.call_soon(arrive)

    # --- what the session asks ------------------------------------------------------------------------------------

    def get(self, path: str, watch: LinkWatch | None) -> Pending[Node]:
        def get() -> Node:
            node = self.server.get(path)
            if watch is not None and self.server.watch_data(path, self, watch):
                self._watches[watch] = None
            return node

        return self.submit(get)

    def exists(self, path: str, watch: LinkWatch | None) -> Pending[bool]:
        def exists() -> bool:
            if watch is not None and self.server.watch_data(path, self, watch):
                self._watches[watch] = None
            return path in self.server.nodes

        return self.submit(exists)

    def children(self, path: str, watch: LinkWatch | None) -> Pending[list[str]]:
        def children() -> list[str]:
            names = self.server.children(path)
            if watch is not None and self.server.watch_children(path, self, watch):
                self._watches[watch] = None
            return names

        return self.submit(children)

    def reads(self) -> Callable[[str], Pending[Node]]:
        return lambda path: self.get(path, None)

    def reads_together(self) -> None:
        return None

    def acls(self, path: str) -> Pending[list[Acl]]:
        return self.submit(lambda: list(OPEN))

    def set_acls(self, path: str, acls: Sequence[Acl]) -> Pending[object]:
        return self.submit(lambda: True)

    def make_nodes_as(self, acls: NodeAcls) -> None:
        """Make open nodes all the same: nobody is refused here."""

    def create(self, path: str, data: bytes, *, ephemeral: bool, sequential: bool, make_parents: bool) -> Pending[str]:
        writer = self.writer()

        def create() -> str:
            made = self.server.next_in_sequence(path) if sequential else path
            self.server.write(Create(made, data, ephemeral), writer, self.session)
            return made

        return self.submit(create)

    def set(self, path: str, data: bytes, version: int) -> Pending[int]:
        writer = self.writer()
        return self.submit(lambda: self.server.write(SetData(path, data, version), writer) or 0)

    def delete(self, path: str, version: int) -> Pending[object]:
        writer = self.writer()
        return self.submit(lambda: self.server.write(Delete(path, version), writer))

    def commit(self, ops: Sequence[Op]) -> Pending[list[int | None]]:
        writer = self.writer()
        return self.submit(lambda: self.server.commit(ops, writer, self.session))


class SimulatedZooKeeper(ZooKeeper):
    """The real session object on the link."""

    def __init__(self, client: Client) -> None:
        timeout_ms = round(_CONNECTION_TIMEOUT_MS * client.world.pace)
        super().__init__("simulated:2181", connection_timeout_ms=timeout_ms, link=client)
