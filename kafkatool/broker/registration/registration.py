"""A broker's place in ZooKeeper: base paths, cluster id, broker id, and the node that says it is alive.

BRK-119 to 124; Z-4, Z-9 to Z-11, Z-31. Source: Kafka 1.1.1 server/KafkaServer.scala, 0.10.2.1
server/KafkaHealthcheck.scala.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

from kafkatool.core.errors import (
    ConnectionLostError,
    KafkatoolError,
    NodeExistsError,
    SessionExpiredError,
    VersionConflictError,
    ZooKeeperError,
)
from kafkatool.core.model.values import BrokerInfo, Endpoint
from kafkatool.core.zookeeper.session import ANY_VERSION, Create, SessionState, TransactionError, ZooKeeper
from kafkatool.core.zookeeper.znodes import PERSISTENT_PATHS, BrokerZnode, ClusterIdZnode, SequenceIdZnode

log = logging.getLogger(__name__)

_RETRY_S = 0.2
_EXPIRY_DELAY_S = 5.0  # a killed broker's node lives on for up to a tick (2 s) more, and while ZooKeeper is held up


def make_base_paths(zookeeper: ZooKeeper) -> None:
    """Make the persistent nodes every cluster has (Z-4), in one pipelined pass; also where nothing is missing it writes."""
    paths = dict.fromkeys(path[:end] for path in PERSISTENT_PATHS for end in _ends_of_names(path))  # parents first
    for outcome in zookeeper.commit_many([[Create(path)] for path in paths]):
        if isinstance(outcome, TransactionError) and not isinstance(outcome.cause, NodeExistsError):
            raise outcome  # one that exists was made by an earlier broker, or by this one


def _ends_of_names(path: str) -> list[int]:
    return [i for i in range(1, len(path)) if path[i] == "/"] + [len(path)]


def get_or_create_cluster_id(zookeeper: ZooKeeper) -> str:
    """Return the cluster's id; the first broker makes it, also where the node is there without content (Z-31, Z-36)."""
    while True:
        node = zookeeper.get(ClusterIdZnode.PATH)
        if node is not None and (cluster_id := ClusterIdZnode.decode(node.data)) is not None:
            return cluster_id
        data = ClusterIdZnode.encode(ClusterIdZnode.generate())
        with contextlib.suppress(NodeExistsError, VersionConflictError):  # another broker was first: its id counts
            if node is None:
                zookeeper.create(ClusterIdZnode.PATH, data, make_parents=True)
            else:
                zookeeper.set(ClusterIdZnode.PATH, data, node.version)


def generate_broker_id(zookeeper: ZooKeeper, reserved_max_id: int) -> int:
    """Return an id above ``reserved_max_id`` that no broker got before (Z-11)."""
    return zookeeper.set(SequenceIdZnode.PATH, b"", ANY_VERSION) + reserved_max_id


def with_real_address(advertised: Endpoint, bound: tuple[Endpoint, ...]) -> Endpoint:
    """Fill in the bound port for port 0, the machine's name for an empty host (Z-9)."""
    port = advertised.port or next((e.port for e in bound if e.listener == advertised.listener), 0)
    return advertised._replace(host=advertised.host or socket.getfqdn(), port=port)


class Registration:
    """The registration of one broker, made again after each session expiry. Owns the node ``/brokers/ids/N``.

    ``on_new_session`` runs on the registration's own thread before the broker registers again.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        info: BrokerInfo,
        *,
        session_timeout_ms: int,
        on_new_session: Callable[[], None] = lambda: None,
    ) -> None:
        self._zookeeper = zookeeper
        self._info = info
        self._session_timeout_ms = session_timeout_ms
        self._on_new_session = on_new_session
        self._former_sessions: set[int] = set()
        self._expired = threading.Event()
        self._stopping = threading.Event()
        self._work = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"health-{info.id}", daemon=True)
        self.broker_epoch: int | None = None

    def start(self) -> None:
        """Register. Raises KafkatoolError when the id is in use (BRK-121)."""
        self._register()
        self._zookeeper.add_session_listener(self._on_session)
        self._thread.start()

    def stop_waiting(self) -> None:
        """Have ``start`` return, registered or not; it is to be stopped."""
        self._stopping.set()

    def stop(self) -> None:
        """Do not register again. The node goes with the session."""
        self.stop_waiting()
        self._work.release()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired.set()
        elif state is SessionState.CONNECTED and self._expired.is_set():
            self._work.release()

    def _run(self) -> None:
        while True:
            self._work.acquire()
            while self._expired.is_set() and not self._stopping.is_set():
                self._expired.clear()
                try:
                    log.info("a new ZooKeeper session: registering broker %d again", self._info.id)
                    self._on_new_session()
                    self._register()
                except (SessionExpiredError, ConnectionLostError) as e:
                    log.warning("registering broker %d was interrupted: %s", self._info.id, e)
                    self._expired.set()
                    self._stopping.wait(_RETRY_S)
                except Exception:  # whatever it is: a thread that ended here would leave the broker out for good
                    log.exception("broker %d could not register again; trying on", self._info.id)
                    self._expired.set()
                    self._stopping.wait(_RETRY_S)
            if self._stopping.is_set():
                return

    def _register(self) -> None:
        path = BrokerZnode.path(self._info.id)
        deadline = time.monotonic() + self._session_timeout_ms / 1000 + _EXPIRY_DELAY_S
        while True:
            try:
                data = BrokerZnode.encode(self._info, int(time.time() * 1000))
                self._zookeeper.create(path, data, ephemeral=True)
            except NodeExistsError:
                if not self._is_free_or_own(path):
                    if time.monotonic() > deadline:
                        raise KafkatoolError(
                            f"broker id {self._info.id} is in use: {path} belongs to another session; give this "
                            "broker another broker.id, or stop the other"
                        ) from None
                    if self._stopping.wait(_RETRY_S):
                        return
                    continue
            session = self._zookeeper.session_id
            node = self._zookeeper.get(path)
            if node is not None and node.ephemeral_owner == session:
                self._former_sessions.add(session)
                self.broker_epoch = node.czxid
                log.info("broker %d is registered, epoch %d", self._info.id, node.czxid)
                return

    def _is_free_or_own(self, path: str) -> bool:
        """Tell whether the node is of this session, or gone, or was a remnant of this broker's own earlier session."""
        node = self._zookeeper.get(path)
        if node is None or node.ephemeral_owner == self._zookeeper.session_id:
            return True
        if node.ephemeral_owner not in self._former_sessions:
            return False
        try:
            self._zookeeper.delete(path, node.version)
        except ZooKeeperError as e:
            log.info("the node of an earlier session of broker %d: %s", self._info.id, e)
        return True
