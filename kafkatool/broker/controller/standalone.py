"""A controller that is no broker: it takes over a cluster of brokers of any Kafka from 0.10.2 on, and hands it back.

It is in ``/controller`` under an id of its own that no broker has, and in no list of brokers. So whoever looks for the
controller among the brokers does not find it: clients cannot send it CreateTopics and the like (tools that write to
ZooKeeper do their work), and a broker that stops finds nobody to move its leaders away first; they move when it is gone.
"""

from types import TracebackType
from typing import Self

from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.registration.registration import generate_broker_id
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import RefusedError
from kafkatool.core.model.values import join_ids
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode


class StandaloneController:
    """A controller with a ZooKeeper session of its own. ``start`` and ``stop`` once each; a context manager."""

    def __init__(self, config: BrokerConfig, *, broker_id: int | None = None) -> None:
        """Make it. ``broker_id`` None: a number that no broker ever gets (Z-11); ``broker.id`` is not read."""
        self._config = config
        self._zookeeper = ZooKeeper(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        )
        self._state_change_log = StateChangeLog(config.own_log_dir / "state-change.log")
        self._controller: Controller | None = None
        self.broker_id = -1 if broker_id is None else broker_id
        """Its id as controller; -1 until ``start`` has found one."""

    @property
    def controller(self) -> Controller:
        """Return the controller itself; from ``start`` on."""
        assert self._controller is not None
        return self._controller

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self, *, take_over: bool = False) -> None:
        """Rule as soon as nobody else does; with ``take_over`` at once, in place of whoever rules now.

        Raises RefusedError (no cluster there, the id is a broker's, brokers too new), KafkatoolError; then nothing is
        left running.
        """
        try:
            self._zookeeper.start()
            self._check()
            if self.broker_id < 0:
                self.broker_id = generate_broker_id(self._zookeeper, self._config.reserved_broker_max_id)
            self._controller = Controller(
                self._zookeeper,
                broker_id=self.broker_id,
                config=self._config,
                state_change_log=self._state_change_log,
                alone=True,
            )
            self._controller.startup(take_over=take_over)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Resign and end the session: ``/controller`` goes at once, and the brokers elect one of them (CTL-22)."""
        if self._controller is not None:
            self._controller.shutdown()
        self._zookeeper.close()
        self._state_change_log.close()

    def _check(self) -> None:
        where = self._config.zookeeper_connect
        if self._zookeeper.children(BrokersZnode.PATH) is None:
            raise RefusedError(f"no Kafka cluster at {where}: {BrokersZnode.PATH} is missing; check the chroot")
        brokers = read_cluster(self._zookeeper, [], states=False).brokers
        if self.broker_id in brokers:
            raise RefusedError(
                f"{self.broker_id} is the id of a registered broker, which would take itself for the controller: "
                "choose an id that no broker has, or none"
            )
        too_new = sorted(b for b, info in brokers.items() if info.asks_for_isr_changes)
        if too_new:
            raise RefusedError(
                f"brokers {join_ids(too_new, ', ')} have inter.broker.protocol.version 2.7 or newer: they leave "
                "changes of the ISR to the controller, and this one does not serve them; 2.6 is the newest it can rule"
            )
