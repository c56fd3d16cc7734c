"""The composition of one broker: its parts, started in order and stopped in the opposite one (BRK-119, 126 to 128)."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkatool.broker.administration.configs import ConfigAdmin
from kafkatool.broker.administration.producer_ids import ProducerIds
from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.handlers.call import HandlerContext
from kafkatool.broker.handlers.dispatch import Dispatcher
from kafkatool.broker.handlers.served import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.network.client_quotas import ClientQuotas, parse_entity
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.registration.controlled_stop import ask_to_move_leaders
from kafkatool.broker.registration.identity import establish_identity
from kafkatool.broker.registration.registration import Registration, make_base_paths, with_real_address
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.dynamic import DynamicConfig, read_overrides, read_quota_entities
from kafkatool.broker.settings.overrides import TopicOverrides, topics_in
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.directories.log_manager import DirFailure, LogManager
from kafkatool.broker.storage.directories.meta_properties import write_meta_properties
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper

log = logging.getLogger(__name__)


class Broker:
    """A broker in this process; several may run side by side, they share nothing (BRK-128).

    ``start`` and ``stop`` may be called from any thread, repeatedly; also a context manager. Its parts are attributes
    made by the phases of a start, which stand below in their order.
    """

    def __init__(self, config: BrokerConfig, *, log_prefix: str = "") -> None:
        """Name threads by ``log_prefix``; by default most names start with ``broker-<id>``."""
        self.config = config
        self.broker_id = config.broker_id
        self.failed = threading.Event()
        """Set when the broker cannot go on, as when its last log dir failed: stop it."""
        self._failure_listeners: list[Callable[[], object]] = []
        self._log_prefix = log_prefix
        self._lifecycle = threading.Lock()
        self._give_up_waiting = threading.Event()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._running = False
        self._stops: list[tuple[str, Callable[[], object]]] = []
        self._registration: Registration | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the listeners, with the ports they are bound to; empty before ``start``."""
        return self._endpoints

    @property
    def port(self) -> int:
        """Return the port of the first listener."""
        return self._endpoints[0].port

    @property
    def broker_epoch(self) -> int | None:
        """Return the czxid of this broker's registration (Z-8); None before the first."""
        return self._registration.broker_epoch if self._registration else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Come up and serve. Raises KafkatoolError, OSError; then whatever was started is stopped again."""
        with self._lifecycle:
            if self._running:
                return
            self.failed.clear()
            self._give_up_waiting.clear()
            try:
                self._start()
            except BaseException:
                self._stop_all()
                raise
            self._running = True

    def stop(self, *, controlled: bool = True) -> None:
        """Move leaders away if ``controlled`` (and controlled.shutdown.enable), then go down, flushed."""
        with self._lifecycle:
            if not self._running:
                return
            self._running = False
            if controlled and self.config.controlled_shutdown_enable:
                ask_to_move_leaders(
                    self._zookeeper, self.config, self.broker_id, self.broker_epoch, self._give_up_waiting
                )
            self._stop_all()

    def on_failure(self, listener: Callable[[], object]) -> None:
        """Have ``listener`` called, on any thread, when ``failed`` is set; at once if it is."""
        self._failure_listeners.append(listener)
        if self.failed.is_set():
            listener()

    def _fail(self) -> None:
        self.failed.set()
        for listener in self._failure_listeners:
            listener()

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
        self._prepare()
        self._join_cluster()
        self._load_logs()
        self._sockets.bind(self._name)  # connections are accepted, and wait
        self._endpoints = self._sockets.endpoints
        self._start_replicas()
        self._start_groups()
        self._start_controller()
        self._follow_configs()
        self._register()
        self._serve()

    def _prepare(self) -> None:
        for directory in self.config.log_dirs:
            directory.mkdir(parents=True, exist_ok=True)
        if self.config.unclean_leader_election_enable:
            log.warning(
                "unclean.leader.election.enable=true, as the documents have it: when all in-sync replicas of a "
                "partition are gone, a replica that lacks acknowledged records may become leader, and they are lost"
            )
        self._sockets = SocketServer(self.config)
        self._will_stop("connections", self._sockets.close)

    def _join_cluster(self) -> None:
        """Open the ZooKeeper session and find out which broker of which cluster this is."""
        config = self.config
        self._zookeeper = ZooKeeper(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            create_chroot=True,
        ).start()
        self._will_stop("ZooKeeper session", self._zookeeper.close)
        make_base_paths(self._zookeeper)
        self.broker_id, self._cluster_id = establish_identity(self._zookeeper, config)
        self._name = self._log_prefix or f"broker-{self.broker_id}"

    def _load_logs(self) -> None:
        config = self.config
        self._scheduler = Scheduler(config.background_threads, f"{self._name}-scheduler")
        # Expiries read disks and send: not on the clock's thread.
        self._timer = Timer(f"{self._name}-timer", self._scheduler.submit)
        self._overrides = TopicOverrides(self._zookeeper)
        self._overrides.preload(topics_in(config.log_dirs))
        self._log_manager = LogManager(config, self._overrides.of, self._scheduler, self._cluster_id)
        self._log_manager.load()  # a failure lets go of the dirs by itself; the shutdown below would call them clean
        self._will_stop("logs", self._log_manager.shutdown)
        self._will_stop("timer", self._timer.close)
        self._will_stop("background tasks", self._scheduler.shutdown)
        # The next start goes on with it.
        self._will_stop("erasing of deleted partitions", self._log_manager.stop_erasing)

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
        replicas.startup()

    def _start_groups(self) -> None:
        self._topic_admin = TopicAdmin(self._zookeeper, self.config, self._metadata_cache, self._timer)
        self._will_stop("waiting topic requests", self._topic_admin.waiting.expire_all)
        self._groups = GroupCoordinator(
            self.config,
            self._replica_manager,
            self._metadata_cache,
            self._scheduler,
            count_partitions=self._topic_admin.count_offsets_partitions,
        )
        self._replica_manager.on_offline(self._groups.on_partitions_stopped)
        self._will_stop("group coordinator", self._groups.shutdown)
        self._groups.startup()
        self._metadata_cache.add_listener(self._overrides.forget)

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

        def on_topic(topic: str, changed: Mapping[str, str]) -> None:
            self._overrides.put(topic, changed)
            self._log_manager.update_topic_config(topic, changed)

        def on_broker(name: str, changed: Mapping[str, str]) -> None:
            if name == str(self.broker_id):
                replicas.on_broker_config(changed)

        self._dynamic_config = DynamicConfig(
            zookeeper,
            {
                "topics": on_topic,
                "brokers": on_broker,
                "clients": lambda name, changed: quotas.put(parse_entity("clients", name), changed),
                "users": lambda name, changed: quotas.put(parse_entity("users", name), changed),
            },
            name=f"{self._name}-dynamic-config",
        )
        self._will_stop("dynamic config", self._dynamic_config.stop)
        self._dynamic_config.start()
        for (kind, entity), rates in read_quota_entities(zookeeper).items():
            quotas.put(parse_entity(kind, entity), rates)
        replicas.on_broker_config(read_overrides(zookeeper, "brokers", str(self.broker_id)))

    def _register(self) -> None:
        """Make this broker known to the cluster; from here on the controller counts on it."""
        config, controller, dynamic_config = self.config, self._controller, self._dynamic_config
        self._advertised = tuple(with_real_address(e, self._endpoints) for e in config.advertised_listeners)
        self._registration = Registration(
            self._zookeeper,
            BrokerInfo(self.broker_id, self._advertised, config.broker_rack),
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            on_new_session=lambda: _before_registering_again(controller, dynamic_config, config),
        )
        self._will_stop("registration", self._registration.stop)
        self._registration.start()
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
            topic_admin=self._topic_admin,
            config_admin=ConfigAdmin(self._zookeeper, self.config, self.broker_id),
            producer_ids=ProducerIds(self._zookeeper, self.broker_id),
            zookeeper=self._zookeeper,
            timer=self._timer,
            client_quotas=self._client_quotas,
        )
        handlers = load_handlers()
        self._will_stop("request handlers", self._sockets.stop_serving)
        self._sockets.serve(
            Dispatcher(handlers, context), quick_apis=[key for key, one in handlers.items() if one.quick]
        )
        log.info("broker %d serves %s", self.broker_id, ", ".join(f"{e.host}:{e.port}" for e in self._advertised))

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
        self._fail()


def _before_registering_again(controller: Controller, dynamic_config: DynamicConfig, config: BrokerConfig) -> None:
    """Wait until the controller has resigned, and have configs followed anew, before a new session is used (CTL-19).

    Should it not get there in time, its old term can still write nothing: every write is bound to the controller epoch.
    """
    deadline = time.monotonic() + config.zookeeper_session_timeout_ms / 1000
    while not controller.has_resigned():
        if time.monotonic() > deadline:
            log.warning("the controller has not resigned in %d ms; going on", config.zookeeper_session_timeout_ms)
            break
        time.sleep(0.01)
    dynamic_config.new_session()
