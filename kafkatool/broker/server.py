"""One broker, put together: what starts in which order, and what stops (BRK-119, 126 to 128)."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkatool.broker.administration.producer_ids import ProducerIds
from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.groups.coordinator import GroupCoordinator
from kafkatool.broker.handlers import QUICK, load_handlers
from kafkatool.broker.handlers.call import HandlerContext
from kafkatool.broker.handlers.dispatch import Dispatcher
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.network.client_quotas import ClientQuotas, parse_entity
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.broker.registration.controlled_stop import ask_to_move_leaders
from kafkatool.broker.registration.identity import establish_identity
from kafkatool.broker.registration.registration import Health, make_base_paths, with_real_address
from kafkatool.broker.registration.strays import find_strays
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.dynamic import DynamicConfig, read_overrides, read_quota_entities
from kafkatool.broker.settings.overrides import TopicOverrides, topics_in
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.directories.meta_properties import write_meta_properties
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.zookeeper.session import ZooKeeper

log = logging.getLogger(__name__)


class Broker:
    """A broker in this process; several may run side by side, they share nothing (BRK-128).

    ``start`` and ``stop`` may be called from any thread, repeatedly; also a context manager.
    """

    def __init__(self, config: BrokerConfig, *, log_prefix: str = "") -> None:
        """``log_prefix`` starts the names of this broker's threads; by default most start with ``broker-<id>``."""
        self.config = config
        self.failed = threading.Event()
        """Set when the broker cannot go on, as when its last log dir failed: stop it."""
        self._failure_listeners: list[Callable[[], object]] = []
        self._log_prefix = log_prefix
        self._lifecycle = threading.Lock()
        self._give_up_waiting = threading.Event()
        self._endpoints: tuple[Endpoint, ...] = ()
        self._running = False
        self._stops: list[tuple[str, Callable[[], object]]] = []
        self._health: Health | None = None
        self._zookeeper: ZooKeeper | None = None
        self.broker_id = config.broker_id

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The listeners, with the ports they are bound to; empty before ``start``."""
        return self._endpoints

    @property
    def port(self) -> int:
        """Port of the first listener."""
        return self._endpoints[0].port

    @property
    def broker_epoch(self) -> int | None:
        """The incarnation: czxid of this broker's registration (Z-8); None before the first."""
        return self._health.broker_epoch if self._health else None

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
            if controlled and self.config.controlled_shutdown_enable and self._zookeeper is not None:
                ask_to_move_leaders(
                    self._zookeeper, self.config, self.broker_id, self.broker_epoch, self._give_up_waiting
                )
            self._stop_all()

    def on_failure(self, listener: Callable[[], object]) -> None:
        """``listener`` is called, on any thread, when ``failed`` is set; at once if it is."""
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
        """In reverse of the start; one part's failure must not keep the others up."""
        while self._stops:
            what, stop = self._stops.pop()
            try:
                stop()
            except Exception:
                log.exception("stopping the %s of broker %d failed", what, self.broker_id)
        self._zookeeper = None

    def _will_stop(self, what: str, stop: Callable[[], object]) -> None:
        self._stops.append((what, stop))

    def _start(self) -> None:
        config = self.config
        for directory in config.log_dirs:
            directory.mkdir(parents=True, exist_ok=True)
        if config.unclean_leader_election_enable:
            log.warning(
                "unclean.leader.election.enable=true, as the documents have it: when all in-sync replicas of a "
                "partition are gone, a replica that lacks acknowledged records may become leader, and they are lost"
            )
        sockets = SocketServer(config)
        self._will_stop("connections", sockets.close)
        zookeeper = self._zookeeper = ZooKeeper(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            create_chroot=True,
        ).start()
        self._will_stop("ZooKeeper session", zookeeper.close)
        make_base_paths(zookeeper)
        self.broker_id, cluster_id = establish_identity(zookeeper, config)
        name = self._log_prefix or f"broker-{self.broker_id}"

        scheduler = Scheduler(config.background_threads, f"{name}-scheduler")
        timer = Timer(f"{name}-timer", scheduler.submit)  # expiries read disks and send: not on the clock's thread
        metadata_cache = MetadataCache(self.broker_id)
        overrides = TopicOverrides(zookeeper)
        overrides.preload(topics_in(config.log_dirs))
        log_manager = LogManager(
            config,
            overrides.of,
            scheduler,
            cluster_id,
            strays_among=lambda found: find_strays(zookeeper, self.broker_id, found),
        )
        log_manager.load()  # a failure lets go of the dirs by itself; the shutdown below would call them clean
        self._will_stop("logs", log_manager.shutdown)
        self._will_stop("timer", timer.close)
        self._will_stop("background tasks", scheduler.shutdown)
        self._will_stop("erasing of deleted partitions", log_manager.stop_erasing)  # which the next start goes on with

        sockets.bind(name)
        self._endpoints = sockets.endpoints
        own = BrokerInfo(
            self.broker_id,
            tuple(with_real_address(e, self._endpoints) for e in config.advertised_listeners),
            config.broker_rack,
        )

        state_change_log = StateChangeLog(config.own_log_dir / "state-change.log")
        self._will_stop("state-change log", state_change_log.close)
        log_manager.start_tasks(scheduler)
        replica_manager = ReplicaManager(
            config,
            self.broker_id,
            log_manager,
            metadata_cache,
            zookeeper,
            scheduler,
            timer,
            state_change_log,
            lambda: self.broker_epoch,
            thread_prefix=self._log_prefix,
        )
        log_manager.on_dir_failure = lambda path, lost: self._on_dir_failure(path, lost, log_manager, replica_manager)
        self._will_stop("replicas", replica_manager.shutdown)
        replica_manager.startup()
        topic_admin = TopicAdmin(zookeeper, config, metadata_cache, timer)
        self._will_stop("waiting topic requests", topic_admin.waiting.expire_all)
        groups = GroupCoordinator(
            config,
            replica_manager,
            metadata_cache,
            scheduler,
            count_partitions=topic_admin.count_offsets_partitions,
        )
        replica_manager.on_offline = groups.on_partitions_stopped
        self._will_stop("group coordinator", groups.shutdown)
        groups.startup()
        metadata_cache.add_listener(overrides.forget)

        controller = Controller(zookeeper, config=config, broker_id=self.broker_id, state_change_log=state_change_log)
        self._will_stop("controller", controller.shutdown)
        controller.startup()

        client_quotas = ClientQuotas(config)
        dynamic_config = DynamicConfig(
            zookeeper,
            self._config_changes(overrides, replica_manager, client_quotas),
            name=f"{name}-dynamic-config",
        )
        self._will_stop("dynamic config", dynamic_config.stop)
        dynamic_config.start()
        for (kind, entity), rates in read_quota_entities(zookeeper).items():
            client_quotas.put(parse_entity(kind, entity), rates)
        replica_manager.on_broker_config(read_overrides(zookeeper, "brokers", str(self.broker_id)))
        self._health = Health(
            zookeeper,
            own,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            on_new_session=lambda: _before_registering_again(controller, dynamic_config, config),
        )
        self._will_stop("registration", self._health.stop)
        self._health.start()
        for directory in log_manager.live_dirs:
            write_meta_properties(directory, self.broker_id, cluster_id)

        context = HandlerContext(
            config=config,
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            broker_epoch=lambda: self.broker_epoch,
            metadata_cache=metadata_cache,
            replica_manager=replica_manager,
            controller=controller,
            groups=groups,
            topic_admin=topic_admin,
            producer_ids=ProducerIds(zookeeper, self.broker_id),
            zookeeper=zookeeper,
            timer=timer,
            client_quotas=client_quotas,
            log_manager=log_manager,
        )
        self._will_stop("request handlers", sockets.stop_serving)
        sockets.serve(Dispatcher(load_handlers(), context), quick_apis=QUICK)
        log.info("broker %d serves %s", self.broker_id, ", ".join(f"{e.host}:{e.port}" for e in own.endpoints))

    def _config_changes(
        self, overrides: TopicOverrides, replica_manager: ReplicaManager, client_quotas: ClientQuotas
    ) -> Mapping[str, Callable[[str, Mapping[str, str]], None]]:
        """Who hears of which entity's configs (BRK-125)."""

        def on_topic(topic: str, changed: Mapping[str, str]) -> None:
            overrides.put(topic, changed)
            replica_manager.log_manager.update_topic_config(topic, changed)

        def on_broker(name: str, changed: Mapping[str, str]) -> None:
            if name == str(self.broker_id):
                replica_manager.on_broker_config(changed)

        return {
            "topics": on_topic,
            "brokers": on_broker,
            "clients": lambda name, changed: client_quotas.put(parse_entity("clients", name), changed),
            "users": lambda name, changed: client_quotas.put(parse_entity("users", name), changed),
        }

    def _on_dir_failure(
        self,
        path: Path,
        lost: Sequence[TopicPartition],
        log_manager: LogManager,
        replica_manager: ReplicaManager,
    ) -> None:
        """Go on with the other log dirs, where there are any and the controller can be told (BRK-146, 159)."""
        if not log_manager.live_dirs:
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
            replica_manager.on_dir_failure(path, lost)
            return
        self._fail()


def _before_registering_again(controller: Controller, dynamic_config: DynamicConfig, config: BrokerConfig) -> None:
    """What must be over, or begun, when a new session is first used.

    The controller has resigned (CTL-19). Should it not get there in time, its old term can still write nothing: every
    write is bound to the controller epoch.
    """
    deadline = time.monotonic() + config.zookeeper_session_timeout_ms / 1000
    while not controller.has_resigned():
        if time.monotonic() > deadline:
            log.warning("the controller has not resigned in %d ms; going on", config.zookeeper_session_timeout_ms)
            break
        time.sleep(0.01)
    dynamic_config.new_session()
