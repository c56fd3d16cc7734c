"""A cluster on this machine: one ZooKeeper process and broker processes, for tests, laptops and ``kt cluster``."""

import contextlib
import errno
import os
import shlex
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kafkatool.broker.embedded import processes
from kafkatool.broker.embedded.broker_properties import broker_properties, check_options
from kafkatool.broker.embedded.cluster_files import (
    ClusterFiles,
    ClusterSpec,
    Usage,
    abandoned,
    is_half_removed,
    is_temporary,
    remove_directory,
)
from kafkatool.broker.embedded.cluster_processes import ClusterProcesses
from kafkatool.broker.embedded.ports import HOST, free_ports, is_free, require_free
from kafkatool.broker.embedded.slips import require_properties
from kafkatool.broker.embedded.status import ClusterStatus, broker_statuses
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import KafkatoolError, RefusedError, ZooKeeperError
from kafkatool.core.model.values import TopicPartition, join_ids

if TYPE_CHECKING:
    from kafkatool.broker.embedded.faults import Faults
    from kafkatool.broker.embedded.secured.certificates import Certificate, Validity
    from kafkatool.broker.embedded.secured.security import ClusterSecurity
    from kafkatool.broker.embedded.topics import ConfigValue
    from kafkatool.core.security.client_security import ClientSecurity
    from kafkatool.core.zookeeper.session import ZooKeeper

_TEMPORARY = "kafkatool-cluster-"
_READY_TIMEOUT_MS = 180_000  # a process that has ended is told at once; this is for machines that are busy
_CONNECTION_TIMEOUT_MS = 60_000
_STATUS_TIMEOUT_MS = 20_000
_LONG, _LINE_CHARACTERS = " with properties {", 200  # of a log's lines, those that say of a partition what all say
_PLAINTEXT = "plaintext"


class EmbeddedCluster:
    """ZooKeeper and ``brokers`` broker processes under ``directory``; a temporary one, removed at the end, if None.

    ``options`` are broker properties in Kafka's names; they win over the embedded defaults, which every broker's
    server.properties shows. ``name`` is that of the temporary directory, where several processes are to share it.
    ``port`` is the first broker's, the others follow; None picks free ones. ``adjust`` gets a broker's id and its
    properties at each start and returns those it is to have besides or instead. ``security``: ``ssl``, ``sasl_plaintext``
    or ``sasl_ssl``, in any case, with users admin and alice, whose ``passwords`` are random unless given (docs/testing.md).

    >>> with EmbeddedCluster(brokers=3) as cluster:
    ...     producer = Producer({"bootstrap.servers": cluster.bootstrap})
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        directory: Path | str | None = None,
        name: str | None = None,
        options: Mapping[str, str] | None = None,
        zookeeper_port: int | None = None,
        port: int | None = None,
        adjust: Callable[[int, Mapping[str, str]], Mapping[str, str]] | None = None,
        security: str = "plaintext",
        passwords: Mapping[str, str] | None = None,
    ) -> None:
        if brokers < 1:
            raise RefusedError(f"a cluster needs at least one broker, not {brokers}")
        if port and zookeeper_port and port <= zookeeper_port < port + brokers:
            raise RefusedError(
                f"port {zookeeper_port} is for ZooKeeper and broker {zookeeper_port - port + 1}: give another --port or "
                "--zookeeper-port"
            )
        check_options(options or ())
        self._temporary = directory is None
        self.files = ClusterFiles(Path(directory or _temporary(name)))
        self._wanted_brokers = brokers
        self._options = dict(options or {})
        self._zookeeper_port = zookeeper_port
        self._first_port = port
        self._adjust = adjust
        self._wanted_security = str(security).lower()
        self._passwords = dict(passwords or {})
        if self._wanted_security != _PLAINTEXT:
            self._made_security(self._wanted_security)  # refuses another word
        elif passwords:
            raise RefusedError("a cluster that is not secured has no users, and no passwords: say security='sasl_ssl'")
        self._processes = ClusterProcesses(self.files)
        self._broken = False  # a broker was ended here: replicas may be behind, though it runs again
        self._before_breaking: Callable[[], None] | None = None
        self._usage: Usage | None = None
        self._shared = self._is_let_go = False
        self._run: str | None = None

    @cached_property
    def faults(self) -> "Faults":
        """What is to go wrong, see docs/testing.md."""
        from kafkatool.broker.embedded.faults import Faults

        return Faults(self.files, self._processes.broker, self.zookeeper_session, self._have_turn)

    # --- the whole cluster --------------------------------------------------------------------------------------

    def up(self, *, owned: bool = True, offered: bool = False) -> Self:
        """Start everything; return when every broker is registered, has metadata of all, and a controller rules.

        ``owned``: the cluster is to end with this process, however that ends.
        ``offered``: kt's commands are to find it without being told.
        Raises RefusedError (running already, port taken), KafkatoolError (no space, a process ended); then
        nothing that this call started is left running.
        """
        with self._storage_errors():
            if self._temporary:
                _clear_leftovers(self.files.directory)
            usage = Usage(self.files.directory, temporary=self._temporary)
            try:
                with self.files.lock():
                    self._refuse_if_running(usage)
                    self._start_all(usage if owned else None, offered)
            finally:
                if self._usage is not usage:
                    usage.end()
        return self

    def share(self, *, before_breaking: Callable[[], None] | None = None) -> Self:
        """Use the cluster of the directory together with others: the first starts it, it ends with the last of them.

        ``before_breaking`` is called before this process does what the others notice: it ends a broker, or has a fault that
        meets more than the topic or client it names. It may wait until nobody is there whom that would disturb.
        """
        with self._storage_errors():
            if self._temporary:
                _clear_leftovers(self.files.directory)
            usage = Usage(self.files.directory, temporary=self._temporary)
            try:
                with self.files.lock(wait=True):
                    spec = self.files.load()
                    if usage.alone or spec is None or not spec.complete:
                        self._start_all(usage, offered=False)
                    self._usage, self._shared, self._before_breaking = usage, True, before_breaking
            finally:
                if self._usage is not usage:
                    usage.end()
        return self

    def down(self, *, gentle: bool = True, wait: bool = False) -> None:
        """End brokers, then ZooKeeper, where they run; data stays. What is shared goes on for the others.

        So does a cluster that somebody else has started in the directory since this one's was ended.

        ``wait``: for another process that starts or stops some of it, instead of KafkatoolError.
        """
        if self._is_let_go:
            self._processes.leave()
            return
        if self._shared:
            self._forget_faults(clear=True)
            self._processes.leave()
        else:
            with self._storage_errors(), self.files.lock(wait=wait):
                if self._is_mine():
                    self._end_all(gentle=gentle)
                else:
                    self._forget_faults()
                    self._processes.leave()
            self._processes.end_guardian()
        if self._usage is not None:
            self._usage.end()
        self._usage = self._run = None

    @property
    def is_nothing(self) -> bool:
        """Tell whether there is no cluster in the directory, nor anything that runs of one."""
        with self._storage_errors():
            return self.files.load() is None and not self._processes.left()

    def let_go(self) -> None:
        """Leave the cluster to its guardian, as a process does that is killed; nothing is started in it from here on."""
        self._is_let_go = True
        if self._usage is not None:
            self._usage.end()

    def restore(self) -> None:
        """End all faults, and start the brokers that do not run; return when every replica is in sync again.

        Else who ends the next broker could end the only one that has all records.
        """
        spec = self.files.require()
        absent = self.faults.settle(spec.ports)
        if not all(self._processes.broker(broker_id) for broker_id in spec.ports):
            with self._storage_errors(), self.files.lock(wait=True):  # others that share it may be about to do the same
                self._start_again([i for i in spec.ports if self._processes.broker(i) is None], spec)
            absent = True
        elif absent:
            self._wait_ready(spec, spec.ports)
        if absent or self._broken:
            self._wait_in_sync(spec)
        self._broken = False

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        configs: "Mapping[str, ConfigValue] | None" = None,
    ) -> str:
        """Make a topic, on up to three brokers unless said; return its name when every broker knows its leaders."""
        from kafkatool.broker.embedded.topics import create_topic

        if not isinstance(partitions, int):
            raise RefusedError(f"{partitions!r} is no number of partitions (kafka_topic names the topic itself)")
        ports = self.files.require().ports
        running = sum(self._processes.broker(broker_id) is not None for broker_id in ports)
        replicas = replication_factor or min(3, len(ports))
        security = self._client_security()
        create_topic(ports, name, partitions, replicas, configs or {}, expected=running, security=security)
        return name

    def fill_topic(self, name: str, megabytes: int) -> int:
        """Write so much into a topic, in records of 1 kB, where something is to be moved or lost; return their number."""
        from kafkatool.broker.embedded.topics import fill_topic

        return fill_topic(self.files.require().ports, name, megabytes, self._client_security())

    def create_offsets_topic(self) -> None:
        """Have the topic of the groups' offsets made: later on it cannot be while too few brokers run for its replicas."""
        from kafkatool.broker.embedded.topics import create_offsets_topic

        create_offsets_topic(self.files.require().ports, self._client_security())

    # --- security -----------------------------------------------------------------------------------------------

    @property
    def security(self) -> "ClusterSecurity":
        """Return certificates, users and files of a secured cluster. Raises RefusedError where it is none."""
        spec = self.files.require()
        if spec.security == _PLAINTEXT:
            raise RefusedError(
                "this cluster is not secured: start it with security='sasl_ssl', or kt cluster up --secure"
            )
        return self._made_security(spec.security)

    def client(self, kind: str, *, user: str = "admin", mechanism: str | None = None) -> Any:
        """Return what a client takes as its configuration, by the user and mechanism it is to log in with.

        ``kind``: ``confluent``, ``aiokafka``, ``kafka-python``: a dict; ``java``: the path of a properties file.
        ``mechanism``: ``PLAIN`` (the default), ``SCRAM-SHA-256``, ``SCRAM-SHA-512``; ``SSL``: the user's certificate.
        Where the cluster is open, anybody's.
        """
        if mechanism is None and self.files.require().security == _PLAINTEXT:
            from kafkatool.broker.embedded.secured.security import open_client

            return open_client(kind, self.bootstrap, self.files.directory)
        security = self.security
        wanted = mechanism or ("PLAIN" if security.has_login else "SSL")
        by_certificate = wanted == "SSL" and security.has_login
        return security.client(kind, user, wanted, self.bootstrap_ssl if by_certificate else self.bootstrap)

    @property
    def bootstrap_ssl(self) -> str:
        """Return ``host:port,…`` of the listeners for clients with a certificate."""
        spec = self.files.require()
        ports = spec.certificate_ports or (spec.ports if spec.security == "ssl" else {})
        return ",".join(f"{HOST}:{port}" for port in ports.values())

    def allow(
        self, user: str, operation: str, *, topic: str | None = None, group: str | None = None, prefixed: bool = False
    ) -> None:
        """Give a user a right, as in ``allow("alice", "Read", topic="orders")``; return when every broker goes by it."""
        from kafkatool.broker.embedded.secured.rights import allow, await_right

        security = self.security.as_admin()
        if (topic is None) == (group is None):
            raise RefusedError("allow needs a topic or a group, and not both")
        kind, name = ("Topic", topic) if topic is not None else ("Group", group)
        with self.zookeeper_session() as zk:
            right = allow(zk, f"User:{user}", operation, kind, str(name), prefixed=prefixed)
        await_right(self.files.require().ports.values(), right, security)

    def add_user(self, user: str, password: str | None = None) -> None:
        """Make a user who logs in by SCRAM, or give him another password; return when every broker lets him in."""
        from kafkatool.broker.embedded.secured.rights import await_user
        from kafkatool.broker.embedded.secured.security import SCRAM

        security = self.security
        if not security.has_login:
            raise RefusedError("users of a cluster with security='ssl' are certificates: certificate('CN=...')")
        security.add_user(user, password)
        self._write_credentials(security, [user])
        await_user(self.files.require().ports.values(), user, security.as_user(user, SCRAM[0]))

    def certificate(
        self,
        subject: str,
        *,
        expired: bool = False,
        not_yet_valid: bool = False,
        authority: str | None = None,
        names: Collection[str] = (),
    ) -> "Certificate":
        """Make a client's certificate, such as ``CN=bob``; expired, not yet valid or of another ``authority``: a bad one."""
        validity: Validity = "expired" if expired else "not yet" if not_yet_valid else "now"
        return self.security.certificate(subject, validity=validity, authority=authority, names=tuple(names))

    def _made_security(self, security: str) -> "ClusterSecurity":
        from kafkatool.broker.embedded.secured.security import ClusterSecurity

        return ClusterSecurity(self.files.directory, security, self._passwords)

    def _client_security(self, spec: ClusterSpec | None = None) -> "ClientSecurity | None":
        spec = spec or self.files.require()
        return None if spec.security == _PLAINTEXT else self._made_security(spec.security).as_admin()

    def _close_zookeeper(self) -> None:
        """Take from everybody else what a new ZooKeeper gives to all: to make nodes at its root."""
        from kafkatool.broker.embedded.secured.rights import OPEN_AT_FIRST
        from kafkatool.core.zookeeper.acls import OWN_NODES

        with self.zookeeper_session(timeout_ms=_READY_TIMEOUT_MS) as zk:
            for path in OPEN_AT_FIRST:
                zk.set_acls(path, OWN_NODES.of(path))

    def _write_credentials(self, security: "ClusterSecurity", users: Collection[str]) -> None:
        from kafkatool.core.operations.users import alter_user

        with self.zookeeper_session(timeout_ms=_READY_TIMEOUT_MS) as zk:
            for user in users:
                alter_user(zk, user, security.credentials(user))

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
        if self._temporary and not self._is_let_go:
            remove_directory(self.files.directory)

    @property
    def zookeeper(self) -> str:
        """Return the connect string of its ZooKeeper."""
        return f"{HOST}:{self.files.require().zookeeper_port}"

    def zookeeper_session(self, *, timeout_ms: int = _CONNECTION_TIMEOUT_MS) -> "ZooKeeper":
        """Make a session with its ZooKeeper, of a secured cluster logged in as its brokers are; ``with`` opens it."""
        from kafkatool.core.zookeeper.session import ZooKeeper

        spec = self.files.require()
        if spec.security == _PLAINTEXT:
            return ZooKeeper(self.zookeeper, connection_timeout_ms=timeout_ms)
        from kafkatool.core.zookeeper.acls import OWN_NODES

        login = self._made_security(spec.security).to_zookeeper()
        session = ZooKeeper(self.zookeeper, connection_timeout_ms=timeout_ms, security=login)
        session.make_nodes_as(OWN_NODES)
        return session

    @property
    def bootstrap(self) -> str:
        """Return ``host:port,…`` of all brokers, for a client's bootstrap.servers."""
        return ",".join(f"{HOST}:{port}" for port in self.files.require().ports.values())

    def status(self) -> ClusterStatus:
        """Look at addresses, processes and the controller. Raises RefusedError where no cluster was made, KafkatoolError."""
        with self._storage_errors():
            spec = self.files.require()
        from kafkatool.core.zookeeper.znodes import ControllerZnode

        controller = None
        if (self._processes.zookeeper or self._zookeeper(spec)).process():
            with contextlib.suppress(ZooKeeperError), self.zookeeper_session(timeout_ms=_STATUS_TIMEOUT_MS) as zk:
                node = zk.get(ControllerZnode.PATH)
                controller = ControllerZnode.decode(node.data) if node else None
        brokers = broker_statuses(spec, self.files, self._processes)
        runs = any(b.id == controller and b.pid for b in brokers)
        gauges = self.files.controller_gauges(controller) if controller is not None and runs else None
        security = None
        if spec.security != _PLAINTEXT:
            tls = f"{HOST}:{spec.zookeeper_tls_port}" if spec.zookeeper_tls_port else None
            security = self._made_security(spec.security).status(self.bootstrap_ssl or None, tls)
        place = str(self.files.directory)
        return ClusterStatus(place, self.zookeeper, self.bootstrap, controller, brokers, gauges, security)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return who leads the partition; None when nobody does. Raises RefusedError when no ZooKeeper runs."""
        from kafkatool.core.zookeeper.znodes import PartitionStateZnode

        of = TopicPartition(topic, partition)
        if is_free(self.files.require().zookeeper_port):
            raise RefusedError("the cluster is down: its ZooKeeper does not run")
        with self.zookeeper_session() as zk:
            node = zk.get(PartitionStateZnode.path(of))
        return PartitionStateZnode.decode(of, node.data).leader if node else None

    def log_ends(self) -> dict[Path, int]:
        """Return each broker's log, and how many bytes it has now."""
        return {path: path.stat().st_size for path in self._logs().values()}

    def last_words(self, lines: int, since: Mapping[Path, int] | None = None) -> dict[str, str]:
        """Return the end of each broker's log, by a title with its place: of what was written ``since`` these ends."""
        words = {
            f"Kafka broker {i}: {path}": processes.tail(path, lines, since=(since or {}).get(path, 0)).splitlines()
            for i, path in self._logs().items()
        }
        return {
            title: "\n".join(line[:_LINE_CHARACTERS] if _LONG in line else line for line in said)
            for title, said in words.items()
            if said
        }

    def _logs(self) -> dict[int, Path]:
        spec = self.files.load()
        return {i: path for i in (spec.ports if spec else ()) if (path := self.files.output(i)).exists()}

    # --- one broker ---------------------------------------------------------------------------------------------

    def kill_broker(self, broker_id: int) -> None:
        """End its process with SIGKILL, as a crash would. Raises RefusedError when it does not run."""
        self._end(broker_id, gentle=False)

    def stop_broker(self, broker_id: int) -> None:
        """End it with a controlled shutdown; returns when its process is gone."""
        self._end(broker_id, gentle=True)

    def start_broker(self, broker_id: int) -> None:
        """Start it again on the port it had; returns when it is registered and answers with metadata.

        Raises RefusedError: it runs already, or no ZooKeeper does.
        """
        spec = self.files.require()
        self._require(broker_id, spec)
        with self._storage_errors(), self.files.lock():
            if self._processes.broker(broker_id):
                raise RefusedError(f"broker {broker_id} runs already")
            if self._zookeeper(spec).process() is None:
                again = f"--brokers {len(spec.ports)} --dir {shlex.quote(str(self.files.directory))}"
                again += " --secure" * (spec.security != _PLAINTEXT)
                raise RefusedError(
                    f"broker {broker_id} cannot start: the ZooKeeper of this cluster does not run; start the whole cluster "
                    f"again: kt cluster up {again}"
                )
            self._start_again([broker_id], spec)

    # --- inside -------------------------------------------------------------------------------------------------

    def _is_mine(self) -> bool:
        """Tell whether the directory's cluster is that which was started here; who started none may end any."""
        spec = self.files.load()
        return self._run is None or spec is None or spec.run == self._run

    def _zookeeper(self, spec: ClusterSpec) -> ZooKeeperProcess:
        if spec.security == _PLAINTEXT:
            return ZooKeeperProcess(self.files.zookeeper, spec.zookeeper_port)
        security = self._made_security(spec.security)
        settings = security.zookeeper_settings(spec.zookeeper_tls_port)
        return ZooKeeperProcess(
            self.files.zookeeper, spec.zookeeper_port, settings=settings, login_file=security.login_file
        )

    def _require(self, broker_id: int, spec: ClusterSpec) -> None:
        if broker_id not in spec.ports:
            raise RefusedError(f"no broker {broker_id!r} in this cluster; it has {join_ids(spec.ports, ', ')}")

    def _end(self, broker_id: int, *, gentle: bool) -> None:
        spec = self.files.require()
        self._require(broker_id, spec)
        self._have_turn()
        if (running := self._processes.broker(broker_id)) is None:
            raise RefusedError(f"broker {broker_id} does not run")
        self._broken = True
        processes.end(running, gentle=gentle)
        self._processes.hold_ports([spec.ports[broker_id]])

    def _have_turn(self) -> None:
        """Wait until this process may break what it shares with others."""
        if self._before_breaking is not None:
            self._before_breaking()

    def _refuse_if_running(self, usage: Usage) -> None:
        spec = self.files.load()
        if spec is None and not self._temporary and (left := self._processes.left()):
            raise RefusedError(
                f"a cluster that was in {self.files.directory} runs on without its files (processes "
                f"{join_ids(sorted(one.pid for one in left), ', ')}): end it with kt cluster down, or name another --dir"
            )
        if spec is None or not spec.complete or (spec.owned and usage.alone):
            return
        running = join_ids((i for i in spec.ports if self._processes.broker(i)), ", ")
        if running or self._zookeeper(spec).process():
            raise RefusedError(
                f"a cluster runs in {self.files.directory} already (brokers {running or 'none'}): "
                "see kt cluster status, end it with kt cluster down, or name another --dir"
            )

    def _refuse_fewer(self) -> None:
        """Refuse to start without brokers that have replicas here: the others would miss those of them alone."""
        missing = [i for i in self.files.brokers_with_replicas() if i > self._wanted_brokers]
        if missing:
            directory = self.files.directory
            raise RefusedError(
                f"{directory} holds partitions of broker {join_ids(missing, ', ')}, which would not be started: start "
                f"{missing[-1]} brokers (--brokers {missing[-1]}), name another --dir, or wipe this one: "
                f"rm -r {shlex.quote(str(directory))}"
            )

    def _refuse_other_security(self) -> None:
        """Refuse to go on with nodes and files that were made for another security, or for none."""
        before = self.files.load()
        if before is None or before.security == self._wanted_security or not self.files.zookeeper.exists():
            return
        flag = "without --secure" if before.security == _PLAINTEXT else "with --secure"
        raise RefusedError(
            f"{self.files.directory} holds a cluster of security {before.security}, not {self._wanted_security}: start it "
            f"as it was ({flag}), name another --dir, or wipe this one: rm -r {shlex.quote(str(self.files.directory))}"
        )

    def _start_again(self, brokers: Collection[int], spec: ClusterSpec) -> None:
        """Start them side by side."""
        if self._is_let_go:
            raise KafkatoolError(f"the cluster of {self.files.directory} was let go: it ends")
        ports = [spec.ports[broker_id] for broker_id in brokers]
        for broker_id, port in zip(brokers, ports, strict=True):
            # Whoever killed it, the system may still be closing its sockets.
            require_free(port, f"broker {broker_id}", patience_ms=2000)
        self._processes.hold_ports(ports)
        for broker_id in brokers:
            self._spawn(broker_id, spec)
        self._wait_ready(spec, brokers)
        self._processes.let_ports_go(ports)
        if "faults" in vars(self):
            for broker_id in brokers:
                self.faults.renew(broker_id)

    def _start_all(self, usage: Usage | None, offered: bool) -> None:
        """Begin anew, whatever a killed cluster left; a guardian watches over one that somebody is to use.

        Should it fail, cluster.json is that of the run before, if there was one.
        """
        self._refuse_fewer()
        self._refuse_other_security()
        self._end_all(gentle=False)
        before = self.files.load()
        spec = self._make_spec(usage is not None)
        spec.offered = offered
        spec.run = self._run = uuid.uuid4().hex
        self.files.save(spec)
        self._processes.hold_ports(spec.all_ports())
        try:
            if usage is not None:
                self._processes.start_guardian(remove=self._temporary)
            secured = None if spec.security == _PLAINTEXT else self._made_security(spec.security)
            if secured is not None:
                secured.prepare()
            self._processes.zookeeper = zookeeper = self._zookeeper(spec).start()
            for broker_id in spec.ports:
                self._spawn(broker_id, spec)
            zookeeper.wait_ready()
            if secured is not None:
                self._close_zookeeper()
                if secured.has_login:
                    from kafkatool.broker.embedded.secured.security import USERS

                    self._write_credentials(secured, USERS)
            self._wait_ready(spec, spec.ports)
            spec.complete = True
            self.files.save(spec)
            self._processes.let_ports_go()
            zookeeper.have_archive_made()
        except BaseException:
            self._end_all(gentle=False)
            if before is not None:
                before.complete = False  # else another that waits to share it would take it for running
                self.files.save(before)
            if self._temporary:
                self._processes.leave()  # the guardian removes the directory, unless others that share it use it yet
            else:
                self._processes.end_guardian()
            raise
        self._usage = usage

    def _make_spec(self, owned: bool) -> ClusterSpec:
        """Check the ports given, keep those of the last run that are still free, pick the others."""
        brokers = {i: f"broker {i}" for i in range(1, self._wanted_brokers + 1)}
        given = {"ZooKeeper": self._zookeeper_port} if self._zookeeper_port else {}  # 0 leaves the choice to us
        if self._first_port:
            given |= {name: self._first_port + i - 1 for i, name in brokers.items()}
        for name, port in given.items():
            require_free(port, name)
        before = self.files.load()
        last: dict[str, int] = {}
        if before is not None:
            last = {name: before.ports[i] for i, name in brokers.items() if i in before.ports}
            last["ZooKeeper"] = before.zookeeper_port
        kept = {n: port for n, port in last.items() if port not in given.values() and is_free(port)} | given
        free = (p for p in free_ports(3 * (len(brokers) + 1)) if p not in kept.values())  # no more are kept than picked
        ports = {i: kept.get(name) or next(free) for i, name in brokers.items()}
        zookeeper_port = kept.get("ZooKeeper") or next(free)
        spec = ClusterSpec(zookeeper_port, ports, self._options, owned, security=self._wanted_security)
        if spec.security == "sasl_ssl":
            spec.certificate_ports = {i: next(free) for i in brokers}
        if spec.security.endswith("ssl"):
            spec.zookeeper_tls_port = next(free)
        return spec

    def _spawn(self, broker_id: int, spec: ClusterSpec) -> None:
        environment: Mapping[str, str] = {"KAFKA_OPTS": ""}  # a login of the user's is one for another ZooKeeper
        secured: Mapping[str, str] = {}
        if spec.security != _PLAINTEXT:
            security = self._made_security(spec.security)
            environment = security.environment
            secured = security.broker_properties(HOST, spec.ports[broker_id], spec.certificate_ports.get(broker_id))
        properties = broker_properties(broker_id, spec, self.files, secured)
        if self._adjust:
            properties |= require_properties(broker_id, self._adjust(broker_id, dict(properties)), properties)
        self.files.write_properties(broker_id, properties)
        self._processes.start_broker(broker_id, environment)

    def _wait_ready(self, spec: ClusterSpec, brokers: Collection[int]) -> None:
        """Wait until those brokers are registered and know all others, and a controller rules."""
        # Imported here, when the processes are under way: as much time as ZooKeeper takes to come up.
        from kafkatool.broker.embedded.readiness import wait_until_ready

        zookeeper = self.zookeeper_session()
        try:
            security = self._client_security(spec)
            wait_until_ready(
                zookeeper,
                spec.ports,
                brokers,
                _READY_TIMEOUT_MS,
                partial(self._processes.require_running, brokers),
                security,
            )
        except processes.ProcessEndedError:
            raise
        except KafkatoolError as e:
            raise KafkatoolError(f"{e}; see {self.files.directory}") from e

    def _wait_in_sync(self, spec: ClusterSpec) -> None:
        from kafkatool.broker.embedded.readiness import wait_until_in_sync

        wait_until_in_sync(self.zookeeper_session(), spec.ports, _READY_TIMEOUT_MS)

    def _forget_faults(self, *, clear: bool = False) -> None:
        if "faults" in vars(self):  # else there are none, and their module is not loaded for that
            if clear:
                self.faults.clear()
            self.faults.close()

    def _end_all(self, *, gentle: bool) -> None:
        self._forget_faults(clear=gentle)  # a broker that is frozen, or cut off, cannot stop in good order
        if (spec := self.files.load()) is not None:
            self._processes.end_all(spec, self._zookeeper(spec), gentle=gentle)
        self._processes.end_left(gentle=gentle)  # of files that somebody removed while it ran

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            why = "the disk is full" if e.errno == errno.ENOSPC else e.strerror
            raise KafkatoolError(f"cannot use cluster directory {self.files.directory}: {why}") from e


def _temporary(name: str | None) -> Path:
    """Choose a directory, which is not made yet."""
    return Path(tempfile.gettempdir()) / f"{_TEMPORARY}{name or os.urandom(6).hex()}"


def _clear_leftovers(own: Path) -> None:
    """Clear other temporary directories, whose users were killed, and their guardians too."""
    for directory in own.parent.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError, KafkatoolError):
            if directory == own or directory.stat().st_uid != os.getuid():
                continue
            if is_half_removed(directory):
                remove_directory(directory)
            if is_temporary(directory):
                with abandoned(directory) as is_left:
                    if is_left:
                        EmbeddedCluster(directory=directory).down(gentle=False)
                        remove_directory(directory)
