"""The composition of one broker: its parts, started in order and stopped in the opposite one (BRK-119, 126 to 128)."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from kafkatool.broker.administration.acls import AclAdmin
from kafkatool.broker.administration.configs import ConfigAdmin
from kafkatool.broker.administration.producer_ids import ProducerIds
from kafkatool.broker.administration.quotas import QuotaAdmin
from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.administration.users import UserAdmin
from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.handlers import api_versions
from kafkatool.broker.handlers.call import HandlerContext, Served, load_handlers
from kafkatool.broker.handlers.dispatch import Dispatcher
from kafkatool.broker.limits import FILE_NAME, Limit, Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.network.client_quotas import ClientQuotas, parse_entity
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.registration import controlled_stop
from kafkatool.broker.registration.identity import establish_identity
from kafkatool.broker.registration.registration import Registration, make_base_paths, with_real_address
from kafkatool.broker.registration.strays import find_strays, read_identities
from kafkatool.broker.registration.zookeeper_login import node_acls, session_security
from kafkatool.broker.replication.leading.under_replicated import GAUGE as UNDER_REPLICATED
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.gauges_file import GaugesFile
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.security.acl_following import AclFollower
from kafkatool.broker.security.authorizer import Authorizer
from kafkatool.broker.security.listeners import (
    ListenerSecurity,
    VersionAnswers,
    scram_mechanisms,
    secure_listeners,
    tell_of_expiries,
    warn_of_open_doors,
    warn_of_shared_places,
    with_stores_read_again,
)
from kafkatool.broker.security.mechanisms import ScramUsers
from kafkatool.broker.settings.config import BrokerConfig, parse_super_users
from kafkatool.broker.settings.dynamic import (
    DynamicConfig,
    in_force,
    read_broker_overrides,
    read_quota_entities,
)
from kafkatool.broker.settings.inter_broker import inter_broker_security
from kafkatool.broker.settings.overrides import TopicOverrides, topics_in
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.directories.log_manager import DirFailure, LogManager
from kafkatool.broker.storage.directories.meta_properties import write_meta_properties
from kafkatool.broker.transactions.coordinator import TransactionCoordinator
from kafkatool.broker.transactions.marker_writes import MarkerWrites
from kafkatool.core.errors import ConfigError, StartGivenUpError, TlsError, ZnodeFormatError, ZooKeeperError
from kafkatool.core.model.topic_names import OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.security.zookeeper_security import OPEN, ZooKeeperSecurity
from kafkatool.core.zookeeper.session import ZooKeeper, load_link
from kafkatool.core.zookeeper.znodes import ClusterIdZnode, ConfigZnode

log = logging.getLogger(__name__)

_DAY_MS: Final = 24 * 60 * 60 * 1000
EXPIRY_THREADS: Final = 2
"""One more than needed: a disk that hangs under one expiry does not hold up the others."""


class Broker:
    """A broker in this process; several may run side by side, they share nothing (BRK-128).

    ``start`` and ``stop`` may be called from any thread, repeatedly; also a context manager. Its parts are attributes
    made by the phases of a start, which stand below in their order.
    """

    def __init__(
        self,
        config: BrokerConfig | Mapping[str, str],
        *,
        log_prefix: str = "",
        zookeeper_login: ZooKeeperSecurity = OPEN,
    ) -> None:
        """Make it from its settings, or from server.properties' names and texts. Raises ConfigError.

        Threads are named by ``log_prefix``; by default most names start with ``broker-<id>``.
        """
        self._zookeeper_login = zookeeper_login
        self.config = config = config if isinstance(config, BrokerConfig) else BrokerConfig.from_properties(config)
        self.broker_id = config.broker_id
        self.failed = threading.Event()
        """Set when the broker cannot go on, as when its last log dir failed: stop it."""
        self._failure_listeners: list[Callable[[], object]] = []
        self._log_prefix = log_prefix
        self._lifecycle = threading.Lock()
        self._give_up_waiting = threading.Event()
        self._given_up = threading.Event()
        self._waits_of_start: list[Callable[[], object]] = []  # each call ends one wait of the start under way
        self.endpoints: tuple[Endpoint, ...] = ()
        """The listeners, with the ports they are bound to; empty before ``start``."""
        self._running = False
        self._listeners: Mapping[str, ListenerSecurity] = {}
        self.limits = Limits()
        self._count_under_replicated: Callable[[], int] = lambda: 0  # before the replicas are there
        self._stops: list[tuple[str, Callable[[], object]]] = []
        self._registration: Registration | None = None
        # Loaded here, not in the start, which a program's Ctrl-C may interrupt: a KeyboardInterrupt that meets an import
        # making dataclasses (exec of a text) has CPython end the process as killed by SIGINT, however well it was caught.
        load_link()
        self._handlers = load_handlers()

    @property
    def port(self) -> int:
        """Return the port of the first listener."""
        return self.endpoints[0].port

    @property
    def broker_epoch(self) -> int | None:
        """Return the czxid of this broker's registration (Z-8); None before the first."""
        return self._registration.broker_epoch if self._registration else None

    def gauges(self) -> dict[str, float]:
        """Return how often each of its limits was reached since its start (SEC-103), and the partitions that it leads with
        too few replicas in sync (ADM-75), as in ``broker-gauges.json``.
        """
        return {**self.limits.gauges(), UNDER_REPLICATED: float(self._count_under_replicated())}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Come up and serve.

        Raises KafkatoolError, OSError, and StartGivenUpError after ``give_up_start``; then whatever was started is
        stopped again.
        """
        with self._lifecycle:
            if self._running:
                return
            self.failed.clear()
            self._give_up_waiting.clear()
            try:
                self._start()
            except ZooKeeperError:
                self._stop_all()
                self._go_on()  # it was given up, and that is why
                raise
            except BaseException:
                self._stop_all()
                raise
            finally:
                self._waits_of_start.clear()
                self._given_up.clear()
            self._running = True

    def give_up_start(self) -> None:
        """Have the ``start`` under way on another thread, or the next one, undo what it has begun and raise.

        An exception thrown into it could not do that: it would come between any two steps, as between the start of a
        thread and the note that it runs.
        """
        self._given_up.set()
        for give_up in list(self._waits_of_start):
            give_up()

    def _go_on(self) -> None:
        if self._given_up.is_set():
            raise StartGivenUpError(f"broker {self.broker_id} was told to stop while it started")

    def _waits(self, give_up: Callable[[], object]) -> None:
        """Note what ends the wait that comes next, should the start be given up meanwhile."""
        self._waits_of_start.append(give_up)
        self._go_on()

    def stop(self, *, controlled: bool = True) -> None:
        """Move leaders away if ``controlled`` (and controlled.shutdown.enable), then go down, flushed."""
        with self._lifecycle:
            if not self._running:
                return
            self._running = False
            self._zookeeper.limit_waits(controlled_stop.LONGEST_WITHOUT_ZOOKEEPER_MS)
            if controlled and self.config.controlled_shutdown_enable:
                self._replica_manager.fetchers.leave()
                controlled_stop.ask_to_move_leaders(
                    self._zookeeper, self.config, self.broker_id, self.broker_epoch, self._give_up_waiting
                )
            self._stop_all()

    def on_failure(self, listener: Callable[[], object]) -> None:
        """Have ``listener`` called, on any thread, when ``failed`` is set; at once if it is."""
        self._failure_listeners.append(listener)
        if self.failed.is_set():
            listener()

    def read_stores_again(self) -> None:
        """Have new connections, to this broker and from it, use the keys and certificates that its stores hold now (SEC-61).

        Raises ConfigError, and changes nothing, where one cannot be used or brokers would not take this one's.
        """
        if not self._running:
            return  # they are read at the start
        config, mine = self.config, self.config.inter_broker_security
        listeners = with_stores_read_again(config, self._listeners)
        for endpoint in self._advertised:
            if endpoint.listener == config.inter_broker_listener_name and mine is not None and mine.tls is not None:
                renewed = inter_broker_security(config.properties, endpoint)
                context = listeners[endpoint.listener].context
                assert renewed is not None and renewed.tls is not None and context is not None
                from kafkatool.core.security.handshake import check_trust  # where there is TLS alone

                try:
                    check_trust(context, renewed.tls, endpoint.host)
                except TlsError as e:
                    raise ConfigError(
                        f"listener {endpoint.listener}: brokers would not take its certificate: {e}"
                    ) from e
                mine.tls = renewed.tls
        self._listeners = listeners
        self._sockets.use(listeners)

    def hurry(self) -> None:
        """Have a ``stop`` under way on another thread wait no longer for the controller."""
        self._give_up_waiting.set()

    def _stop_all(self) -> None:
        """Stop the parts in reverse of the start; one part's failure must not keep the others up."""
        while self._stops:
            what, stop = self._stops.pop()
            try:
                stop()
            except Exception:
                log.exception("stopping the %s of broker %d failed", what, self.broker_id)

    def _will_stop(self, what: str, stop: Callable[[], object]) -> None:
        self._stops.append((what, stop))

    # --- the phases of a start ------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Bring the parts up, each on those before it; they go down in the opposite order (BRK-119, 127)."""
        phases = (
            self._prepare,
            self._join_cluster,
            self._load_logs,
            self._bind,
            self._start_replicas,
            self._start_groups,
            self._start_transactions,
            self._start_controller,
            self._follow_configs,
            self._follow_acls,
            self._register,
            self._serve,
        )
        for phase in phases:
            self._go_on()
            phase()

    def _prepare(self) -> None:
        for directory in self.config.log_dirs:
            directory.mkdir(parents=True, exist_ok=True)
        if self.config.unclean_leader_election_enable:
            log.warning(
                "unclean.leader.election.enable=true, as the documents have it: when all in-sync replicas of a "
                "partition are gone, a replica that lacks acknowledged records may become leader, and they are lost"
            )
        warn_of_open_doors(self.config)
        self._scram_users = ScramUsers(scram_mechanisms(self.config))
        versions = VersionAnswers(api_versions.answer, api_versions.answer_newer)
        self._listeners = secure_listeners(self.config, self._scram_users, versions)
        warn_of_shared_places(self.config, self._listeners)
        self.limits = Limits()
        self._sockets = SocketServer(self.config, self._listeners, limits=self.limits)
        self._will_stop("connections", self._sockets.close)

    def _join_cluster(self) -> None:
        """Open the ZooKeeper session and find out which broker of which cluster this is."""
        config = self.config
        security = session_security(config.properties, self._zookeeper_login)
        acls = node_acls(config.properties, security)
        self._zookeeper = ZooKeeper(
            config.zookeeper_connect,
            security=security,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            create_chroot=True,
            max_packet_bytes=config.kt_zookeeper_max_packet_bytes,
        )
        self._zookeeper.make_nodes_as(acls)
        self._waits(lambda: self._zookeeper.limit_waits(0))
        self._zookeeper.start()
        self._will_stop("ZooKeeper session", self._zookeeper.close)
        make_base_paths(self._zookeeper)
        self.broker_id, self._cluster_id = establish_identity(self._zookeeper, config)
        self._name = self._log_prefix or f"broker-{self.broker_id}"

    def _load_logs(self) -> None:
        # Changes from here on come as notifications, which are followed from the first there is.
        self._broker_overrides = read_broker_overrides(self._zookeeper, self.broker_id)
        config = in_force(self.config, self._broker_overrides)
        self._scheduler = Scheduler(config.background_threads, f"{self._name}-scheduler")
        # Expiries read disks and send: not on the clock's thread, and not behind the background's work of seconds.
        expiries = Scheduler(EXPIRY_THREADS, f"{self._name}-expiry")
        self._timer = Timer(f"{self._name}-timer", lambda expire: expiries.submit(expire, "expiry"))
        gauges = self._gauges_file = GaugesFile(config.own_log_dir / FILE_NAME, self._timer, self.gauges)
        self._will_stop("gauges", gauges.write)
        self.limits.on_reached = gauges.changed
        gauges.write()
        self._overrides = TopicOverrides(self._zookeeper)
        self._overrides.preload(topics_in(config.log_dirs))
        self._log_manager = LogManager(
            config,
            self._overrides.of,
            self._scheduler,
            self._cluster_id,
            find_strays=lambda found: find_strays(self._zookeeper, self.broker_id, found),
            identities_of=lambda topics: read_identities(self._zookeeper, topics),
            go_on=self._go_on,
        )
        self._log_manager.load()  # a failure lets go of the dirs by itself; the shutdown below would call them clean
        self._will_stop("logs", self._log_manager.shutdown)
        self._will_stop("timer", self._timer.close)
        self._will_stop("expiries", expiries.shutdown)
        self._will_stop("background tasks", self._scheduler.shutdown)
        # The next start goes on with it.
        self._will_stop("erasing of deleted partitions", self._log_manager.stop_erasing)

    def _bind(self) -> None:
        self._sockets.bind(self._name)  # connections are accepted, and wait
        self.endpoints = self._sockets.endpoints

    def _start_replicas(self) -> None:
        self._metadata_cache = MetadataCache(self.broker_id)
        self._state_change_log = StateChangeLog(self.config.own_log_dir / "state-change.log")
        self._will_stop("state-change log", self._state_change_log.close)
        self._log_manager.start_tasks(self._scheduler)
        replicas = self._replica_manager = ReplicaManager(
            self.config,
            self.broker_id,
            self._log_manager,
            self._metadata_cache,
            self._zookeeper,
            self._scheduler,
            self._timer,
            self._state_change_log,
            lambda: self.broker_epoch,
            thread_prefix=self._log_prefix,
        )
        logs = self._log_manager
        logs.on_dir_failure(lambda path, lost: self.on_dir_failure(path, lost, logs.live_dirs, replicas.on_dir_failure))
        self._will_stop("replicas", replicas.shutdown)
        replicas.fetch_sessions.on_full = lambda: self.limits.reached(Limit.SESSION_PARTITIONS)
        replicas.appends.on_too_much = lambda partition, e: self.limits.reached(Limit.RECORDS, partition, e)
        self._count_under_replicated = lambda: replicas.under_replicated.count
        replicas.under_replicated.on_change = self._gauges_file.changed
        replicas.startup()

    def _start_groups(self) -> None:
        self._topic_admin = TopicAdmin(
            self._zookeeper, self.config, self.broker_id, self._metadata_cache, self._timer, limits=self.limits
        )
        self._will_stop("waiting topic requests", self._topic_admin.waiting.expire_all)
        self._groups = GroupCoordinator(
            self.config,
            self._replica_manager,
            self._metadata_cache,
            self._scheduler,
            count_partitions=lambda: self._topic_admin.count_partitions(OFFSETS_TOPIC),
            limits=self.limits,
        )
        self._will_stop("group coordinator", self._groups.shutdown)
        self._groups.startup()
        self._metadata_cache.add_listener(self._overrides.forget)

    def _start_transactions(self) -> None:
        groups = self._groups
        self._producer_ids = ProducerIds(self._zookeeper, self.broker_id)
        self._marker_writes = MarkerWrites(
            self.config,
            self._replica_manager,
            lambda end: groups.end_transaction(
                end.partition, end.producer_id, committed=end.committed, log_offset=end.log_offset
            ),
        )
        self._transactions = TransactionCoordinator(
            self.config,
            self.broker_id,
            self._replica_manager,
            self._metadata_cache,
            self._scheduler,
            self._timer,
            self._marker_writes,
            next_producer_id=self._producer_ids.next_id,
            count_partitions=lambda: self._topic_admin.count_partitions(TRANSACTION_TOPIC),
            find_deleted=self._topic_admin.find_deleted,
            limits=self.limits,
        )
        self._replica_manager.on_offline(self._on_partitions_stopped)
        self._will_stop("transaction coordinator", self._transactions.shutdown)
        self._transactions.startup()

    def _on_partitions_stopped(self, partitions: Collection[TopicPartition]) -> None:
        self._groups.on_partitions_stopped(partitions)
        self._transactions.on_partitions_stopped(partitions)

    def _start_controller(self) -> None:
        self._controller = Controller(
            self._zookeeper, config=self.config, broker_id=self.broker_id, state_change_log=self._state_change_log
        )
        self._will_stop("controller", self._controller.shutdown)
        self._controller.startup()

    def _follow_configs(self) -> None:
        """Read the configs that ZooKeeper has of clients and of this broker, and follow their changes (BRK-125)."""
        zookeeper, replicas = self._zookeeper, self._replica_manager
        quotas = self._client_quotas = ClientQuotas(self.config)

        def on_user(name: str, changed: Mapping[str, str]) -> None:
            quotas.put(parse_entity("users", name), changed)
            self._scram_users.put(name, changed)

        def on_topic(topic: str, changed: Mapping[str, str]) -> None:
            self._overrides.put(topic, changed)
            self._log_manager.update_topic_config(topic, changed)

        def on_broker(name: str, changed: Mapping[str, str]) -> None:
            if name == str(self.broker_id):
                replicas.on_broker_config(changed)
                self._broker_overrides = self._broker_overrides._replace(own=changed)
            elif name == ConfigZnode.DEFAULT:
                self._broker_overrides = self._broker_overrides._replace(default=changed)
            else:
                return
            config = in_force(self.config, self._broker_overrides)
            self._log_manager.update_defaults(config)
            self._replica_manager.reconfigure(config)
            self._scheduler.set_limit(config.background_threads)
            self._sockets.reconfigure(config)

        on_broker(str(self.broker_id), self._broker_overrides.own)

        self._dynamic_config = DynamicConfig(
            zookeeper,
            {
                "topics": on_topic,
                "brokers": on_broker,
                "clients": lambda name, changed: quotas.put(parse_entity("clients", name), changed),
                "users": on_user,
            },
            name=f"{self._name}-dynamic-config",
        )
        self._will_stop("dynamic config", self._dynamic_config.stop)
        self._dynamic_config.start()
        for (kind, entity), rates in read_quota_entities(zookeeper).items():
            if kind == "users":
                on_user(entity, rates)
            else:
                quotas.put(parse_entity(kind, entity), rates)

    def _follow_acls(self) -> None:
        """Read all ACLs, where an authorizer is asked for, and follow their changes (SEC-76 to 79)."""
        config = self.config
        self._authorizer: Authorizer | None = None
        self._acl_admin: AclAdmin | None = None
        if not config.authorizer_class_name:
            return
        super_users = parse_super_users(config.super_users)
        self._authorizer = Authorizer(super_users, allow_without_acl=config.allow_everyone_if_no_acl_found)
        acls = AclFollower(self._zookeeper, self._authorizer, name=f"{self._name}-acls")
        self._will_stop("ACLs", acls.stop)
        acls.start()
        self._acl_admin = AclAdmin(self._zookeeper, self._authorizer, acls, prefixed_allowed=config.speaks("2.0"))

    def _register(self) -> None:
        """Make this broker known to the cluster; from here on the controller counts on it."""
        config = self.config
        self._advertised = tuple(with_real_address(e, self.endpoints) for e in config.advertised_listeners)
        self._registration = Registration(
            self._zookeeper,
            BrokerInfo(self.broker_id, self._advertised, config.broker_rack),
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            on_new_session=self.before_registering_again,
        )
        self._will_stop("registration", self._registration.stop)
        self._waits(self._registration.stop_waiting)
        self._registration.start()
        self._go_on()
        for directory in self._log_manager.live_dirs:
            write_meta_properties(directory, self.broker_id, self._cluster_id)

    def _serve(self) -> None:
        context = HandlerContext(
            config=self.config,
            cluster_id=self._cluster_id,
            metadata_cache=self._metadata_cache,
            replica_manager=self._replica_manager,
            log_manager=self._log_manager,
            controller=self._controller,
            groups=self._groups,
            transactions=self._transactions,
            marker_writes=self._marker_writes,
            topic_admin=self._topic_admin,
            config_admin=ConfigAdmin(self._zookeeper, self.config, self.broker_id),
            producer_ids=self._producer_ids,
            zookeeper=self._zookeeper,
            timer=self._timer,
            client_quotas=self._client_quotas,
            authorizer=self._authorizer,
            acl_admin=self._acl_admin,
            user_admin=UserAdmin(self._zookeeper),
            quota_admin=QuotaAdmin(self._zookeeper),
            limits=self.limits,
        )
        handlers = self._handlers
        if self.config.kt_fault_socket is not None:
            handlers = self._serve_faults(self.config.kt_fault_socket)
        self._will_stop("request handlers", self._sockets.stop_serving)
        self._sockets.serve(
            Dispatcher(handlers, context), quick_apis=[key for key, one in handlers.items() if one.quick]
        )
        self._scheduler.schedule(
            "certificate-dates", lambda: tell_of_expiries(self.config), delay_ms=_DAY_MS, period_ms=_DAY_MS
        )
        log.info("broker %d serves %s", self.broker_id, ", ".join(f"{e.host}:{e.port}" for e in self._advertised))

    def _serve_faults(self, path: Path) -> Mapping[int, Served]:
        """Open the socket for a test's faults; return the handlers they are put among."""
        from kafkatool.broker.faults.control import FaultControl  # by a test's broker alone

        control = FaultControl(path, self._handlers, network=self._sockets, link=self._zookeeper.link)
        self._will_stop("faults", control.close)
        return control.handlers.table

    def before_registering_again(self) -> None:
        """Wait until the controller has resigned, and have configs followed anew, before a new session is used (CTL-19).

        Should it not get there in time, its old term can still write nothing: every write is bound to the controller epoch.
        """
        timeout_ms = self.config.zookeeper_session_timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._controller.has_resigned():
            if time.monotonic() > deadline:
                log.warning("the controller has not resigned in %d ms; going on", timeout_ms)
                break
            time.sleep(0.01)
        self._dynamic_config.new_session()
        self._set_strays_aside()

    def _set_strays_aside(self) -> None:
        """Drop what was moved away while this broker counted as dead: who was to tell it may be no controller any more.

        It would go on serving a topic that is gone, and refuse the next of that name, whose epochs begin anew; or, if that
        one is assigned here, have its replica begin with the records of the other.
        """
        if not self._is_own_cluster():
            log.critical("ZooKeeper does not hold cluster %s any more: no replica here is touched", self._cluster_id)
            return
        make_base_paths(self._zookeeper)  # a write: what is read behind it is not older, whatever server this is
        strays = self._log_manager.find_strays()
        if strays:
            self._replica_manager.control.set_aside(strays)
            self._on_partitions_stopped(strays)

    def _is_own_cluster(self) -> bool:
        """Tell whether ZooKeeper still says that it holds the cluster this broker is of. Raises ZooKeeperError."""
        node = self._zookeeper.get(ClusterIdZnode.PATH)
        try:
            return node is not None and ClusterIdZnode.decode(node.data) == self._cluster_id
        except ZnodeFormatError as e:
            log.warning("%s", e)
            return False

    def on_dir_failure(
        self, path: Path, lost: Sequence[TopicPartition], live_dirs: Sequence[Path], carry_on: DirFailure
    ) -> None:
        """Go on with the other log dirs, where there are any and the controller can be told (BRK-146, 159)."""
        if not live_dirs:
            log.critical("broker %d has no log dir left: %s was the last", self.broker_id, path)
        elif not self.config.speaks("1.0"):
            log.critical(
                "broker %d stops: log dir %s failed, and inter.broker.protocol.version=%s has no way to tell the "
                "controller",
                self.broker_id,
                path,
                self.config.inter_broker_protocol_version,
            )
        else:
            carry_on(path, lost)
            return
        self.failed.set()
        for listener in self._failure_listeners:
            listener()
