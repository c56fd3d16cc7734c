"""A cluster on this machine: one ZooKeeper process and broker processes, for tests, laptops and ``kt cluster``."""

import contextlib
import errno
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from kafkatool.broker.embedded import processes
from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec, this_process
from kafkatool.broker.embedded.ports import HOST, free_ports, is_free
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError, RefusedError, ZooKeeperError
from kafkatool.core.model.values import join_ids
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper

_METADATA_VERSION = 5
_READY_TIMEOUT_MS = 60_000
_OWN_PROPERTIES = ("broker.id", "listeners", "log.dirs", "log.dir", "kt.log.dir", "zookeeper.connect")


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of the cluster; ``pid`` is None while its process does not run."""

    id: int
    host: str
    port: int
    pid: int | None
    log_dirs: list[str]
    state_change_log: str


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The document of ``kt cluster status``; ``controller`` is None while there is none.

    ``controller_gauges``: those it wrote last, at ``timestamp_ms``; None when it does not run, or has written none.
    """

    directory: str
    zookeeper: str
    bootstrap: str
    controller: int | None
    brokers: list[BrokerStatus]
    controller_gauges: dict[str, float] | None


class EmbeddedCluster:
    """ZooKeeper and ``brokers`` broker processes under ``directory``; a temporary one, removed at the end, if None.

    ``options`` are broker properties in Kafka's names; they win over the embedded defaults, which every broker's
    server.properties shows. ``port`` is the first broker's, the others follow; None picks free ones. ``adjust`` gets a
    broker's id and its properties at each start and returns those it is to have besides or instead.

    >>> with EmbeddedCluster(brokers=3) as cluster:
    ...     producer = Producer({"bootstrap.servers": cluster.bootstrap})
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        directory: Path | None = None,
        options: Mapping[str, str] | None = None,
        zookeeper_port: int | None = None,
        port: int | None = None,
        adjust: Callable[[int, Mapping[str, str]], Mapping[str, str]] | None = None,
    ) -> None:
        if brokers < 1:
            raise RefusedError(f"a cluster needs at least one broker, not {brokers}")
        if own := [key for key in options or () if key in _OWN_PROPERTIES]:
            raise RefusedError(f"{', '.join(own)} of an embedded cluster's brokers cannot be set: the cluster sets it")
        self._temporary = directory is None
        self.files = ClusterFiles(directory or Path(tempfile.mkdtemp(prefix="kafkatool-")))
        self._wanted_brokers = brokers
        self._options = dict(options or {})
        self._zookeeper_port = zookeeper_port
        self._first_port = port
        self._adjust = adjust
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    # --- the whole cluster --------------------------------------------------------------------------------------

    def up(self, *, owned: bool = True) -> Self:
        """Start everything; return when every broker is registered, has metadata of all, and a controller rules.

        ``owned``: the cluster is to end with this process; the next ``up`` ends it if this process could not.
        Raises RefusedError (running already, port taken), KafkatoolError (no space, a process ended); then
        nothing that this call started is left running.
        """
        with self._storage_errors(), self.files.lock():
            self._refuse_if_running()
            self._end_all(gentle=False)
            spec = self._make_spec(owned)
            self.files.save(spec)
            try:
                self._zookeeper(spec).start()
                for broker_id in spec.ports:
                    self._spawn(broker_id, spec)
                self._zookeeper(spec).wait_ready()
                self._wait_ready(spec, spec.ports)
                spec.complete = True
                self.files.save(spec)
            except BaseException:
                self._end_all(gentle=False)
                raise
        return self

    def down(self, *, gentle: bool = True) -> None:
        """End brokers, then ZooKeeper, where they run; data stays."""
        with self.files.lock():
            self._end_all(gentle=gentle)

    def __enter__(self) -> Self:
        try:
            return self.up()
        except BaseException as e:  # there is no __exit__ after this
            if self._temporary:
                e.add_note(f"{self.files.directory} is removed; to keep its logs, give a directory")
            self._remove_temporary()
            raise

    def __exit__(self, *_: object) -> None:
        self.down(gentle=not self._temporary)
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.files.directory, ignore_errors=True)

    @property
    def zookeeper(self) -> str:
        """Return the connect string of its ZooKeeper."""
        return f"{HOST}:{self._spec().zookeeper_port}"

    @property
    def bootstrap(self) -> str:
        """Return ``host:port,…`` of all brokers, for a client's bootstrap.servers."""
        return ",".join(f"{HOST}:{port}" for port in self._spec().ports.values())

    def status(self) -> ClusterStatus:
        """Look at addresses, processes and the controller. Raises RefusedError where no cluster was made."""
        spec = self._spec()
        controller = None
        if self._zookeeper(spec).process():
            with contextlib.suppress(ZooKeeperError), ZooKeeper(self.zookeeper, connection_timeout_ms=5000) as zk:
                controller = read_cluster(zk, [], states=False).controller_id
        brokers = [
            BrokerStatus(
                broker_id,
                HOST,
                port,
                process.pid if (process := self._process(broker_id)) else None,
                [str(self.files.data(broker_id))],
                str(self.files.state_change_log(broker_id)),
            )
            for broker_id, port in spec.ports.items()
        ]
        runs = any(b.id == controller and b.pid for b in brokers)
        gauges = self.files.controller_gauges(controller) if controller is not None and runs else None
        return ClusterStatus(str(self.files.directory), self.zookeeper, self.bootstrap, controller, brokers, gauges)

    # --- one broker ---------------------------------------------------------------------------------------------

    def kill_broker(self, broker_id: int) -> None:
        """End its process with SIGKILL, as a crash would. Raises RefusedError when it does not run."""
        processes.end(self._running(broker_id), gentle=False)

    def stop_broker(self, broker_id: int) -> None:
        """End it with a controlled shutdown; returns when its process is gone."""
        processes.end(self._running(broker_id), gentle=True)

    def start_broker(self, broker_id: int) -> None:
        """Start it again on the port it had; returns when it is registered and answers with metadata."""
        spec = self._spec()
        self._require(broker_id, spec)
        with self._storage_errors(), self.files.lock():
            if self._process(broker_id):
                raise RefusedError(f"broker {broker_id} runs already")
            # Whoever killed it, the system may still be closing its sockets.
            self._check_free(spec.ports[broker_id], f"broker {broker_id}", patience_ms=2000)
            self._spawn(broker_id, spec)
            self._wait_ready(spec, [broker_id])

    # --- inside -------------------------------------------------------------------------------------------------

    def _spec(self) -> ClusterSpec:
        spec = self.files.load()
        if spec is None:
            raise RefusedError(f"no cluster in {self.files.directory}: start one with kt cluster up")
        return spec

    def _zookeeper(self, spec: ClusterSpec) -> ZooKeeperProcess:
        return ZooKeeperProcess(self.files.zookeeper, spec.zookeeper_port)

    def _process(self, broker_id: int) -> psutil.Process | None:
        return processes.find("kafkatool", self.files.properties(broker_id))

    def _require(self, broker_id: int, spec: ClusterSpec) -> None:
        if broker_id not in spec.ports:
            raise RefusedError(f"no broker {broker_id} in this cluster; it has {join_ids(spec.ports, ', ')}")

    def _running(self, broker_id: int) -> psutil.Process:
        self._require(broker_id, self._spec())
        process = self._process(broker_id)
        if process is None:
            raise RefusedError(f"broker {broker_id} does not run")
        return process

    def _refuse_if_running(self) -> None:
        spec = self.files.load()
        if spec is None or not spec.complete or spec.owner_is_gone():
            return
        running = join_ids((i for i in spec.ports if self._process(i)), ", ")
        if running or self._zookeeper(spec).process():
            raise RefusedError(
                f"a cluster runs in {self.files.directory} already (brokers {running or 'none'}): "
                "see kt cluster status, end it with kt cluster down, or name another --dir"
            )

    def _make_spec(self, owned: bool) -> ClusterSpec:
        """Check the ports given, keep those of the last run that are still free, pick the others."""
        before = self.files.load()
        free = free_ports(self._wanted_brokers + 1)

        def pick(given: int | None, last: int | None, what: str) -> int:
            if given is not None:
                self._check_free(given, what)
                return given
            return last if last and is_free(last) else next(free)

        ports = {}
        for i in range(1, self._wanted_brokers + 1):
            given = None if self._first_port is None else self._first_port + i - 1
            ports[i] = pick(given, before.ports.get(i) if before else None, f"broker {i}")
        zookeeper_port = pick(self._zookeeper_port, before.zookeeper_port if before else None, "ZooKeeper")
        return ClusterSpec(zookeeper_port, ports, self._options, this_process() if owned else None)

    def _check_free(self, port: int, what: str, patience_ms: int = 0) -> None:
        deadline = time.monotonic() + patience_ms / 1000
        while not is_free(port):
            if time.monotonic() >= deadline:
                raise RefusedError(
                    f"port {port} for {what} is taken on {HOST}: end what listens there or name another port"
                )
            time.sleep(0.02)

    def _spawn(self, broker_id: int, spec: ClusterSpec) -> None:
        properties = self._properties(broker_id, spec)
        if self._adjust:
            properties |= self._adjust(broker_id, properties)
        self.files.write_properties(broker_id, properties)
        command = [sys.executable, "-m", "kafkatool", "broker", "start", "--config"]
        self._children[broker_id] = processes.spawn(
            [*command, str(self.files.properties(broker_id))], self.files.output(broker_id)
        )

    def _properties(self, broker_id: int, spec: ClusterSpec) -> dict[str, str]:
        return {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{spec.ports[broker_id]}",
            "log.dirs": str(self.files.data(broker_id)),
            "kt.log.dir": str(self.files.logs(broker_id)),
            "zookeeper.connect": f"{HOST}:{spec.zookeeper_port}",
            "zookeeper.connection.timeout.ms": "30000",
            # Other than in production, for a cluster for tests and laptops:
            "zookeeper.session.timeout.ms": "3000",
            "delete.topic.enable": "true",
            "unclean.leader.election.enable": "false",
            "offsets.topic.replication.factor": str(min(3, len(spec.ports))),
            "offsets.topic.num.partitions": "10",
            "group.initial.rebalance.delay.ms": "0",
            "controlled.shutdown.retry.backoff.ms": "300",
            **spec.options,
        }

    def _wait_ready(self, spec: ClusterSpec, brokers: Collection[int]) -> None:
        """Wait until those brokers are registered and know all others, and a controller rules."""
        deadline = time.monotonic() + _READY_TIMEOUT_MS / 1000
        with ZooKeeper(f"{HOST}:{spec.zookeeper_port}") as zk:
            while what := _missing(zk, spec, brokers):
                for broker_id, child in self._children.items():
                    if (code := child.poll()) is not None and broker_id in brokers:
                        raise processes.ProcessEndedError(f"broker {broker_id}", code, self.files.output(broker_id))
                if time.monotonic() > deadline:
                    raise KafkatoolError(
                        f"after {_READY_TIMEOUT_MS} ms still waiting for {what}; see {self.files.directory}"
                    )
                time.sleep(0.02)

    def _end_all(self, *, gentle: bool) -> None:
        spec = self.files.load()
        if spec is None:
            return
        running = [p for i in spec.ports if (p := self._process(i))]
        processes.end(*running, gentle=gentle)
        for child in self._children.values():
            child.wait()
        self._children.clear()
        self._zookeeper(spec).stop(gentle=gentle)

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            why = "the disk is full" if e.errno == errno.ENOSPC else e.strerror
            raise KafkatoolError(f"cannot use cluster directory {self.files.directory}: {why}") from e


def _missing(zk: ZooKeeper, spec: ClusterSpec, brokers: Collection[int]) -> str | None:
    view = read_cluster(zk, [], states=False)
    if absent := set(brokers) - set(view.brokers):
        return f"brokers {sorted(absent)} to register"
    if view.controller_id is None:
        return "a controller to be elected"
    for broker_id in sorted(brokers):
        if not _knows(spec.ports[broker_id], set(view.brokers)):
            return f"broker {broker_id} to answer with metadata of all"
    return None


def _knows(port: int, brokers: set[int]) -> bool:
    try:
        with Connection(HOST, port, client_id="kt-cluster", timeout_ms=2000) as connection:
            answer = connection.send(metadata.API, _METADATA_VERSION, metadata.MetadataRequest(topics=[]))
    except BrokerUnreachableError:
        return False
    return brokers <= {b.node_id for b in answer.brokers} and answer.controller_id >= 0
