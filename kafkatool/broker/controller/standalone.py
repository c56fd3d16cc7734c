"""A controller that is no broker: it takes over a cluster of brokers of any Kafka from 0.10.2 on, and hands it back.

It is in ``/controller`` under an id of its own that no broker has, and in no list of brokers. So whoever looks for the
controller among the brokers does not find it: clients cannot send it CreateTopics and the like (tools that write to
ZooKeeper do their work), and a broker that stops finds nobody to move its leaders away first; they move when it is gone.
"""

import dataclasses
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from kafkatool.broker.controller.controller import Controller
from kafkatool.broker.controller.hearing import check_heard, check_may_rule
from kafkatool.broker.controller.unclean_default import NAME as UNCLEAN
from kafkatool.broker.controller.unclean_default import ask_brokers
from kafkatool.broker.registration.controlled_stop import LONGEST_WITHOUT_ZOOKEEPER_MS
from kafkatool.broker.registration.registration import generate_broker_id
from kafkatool.broker.registration.zookeeper_login import node_acls, session_security
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.state_change_log import StateChangeLog
from kafkatool.core.errors import RefusedError, StartGivenUpError, ZooKeeperError
from kafkatool.core.model.values import join_ids
from kafkatool.core.security.zookeeper_security import OPEN, ZooKeeperSecurity
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokersZnode, TopicsZnode


def controller_config(properties: Mapping[str, str]) -> BrokerConfig:
    """Read the settings of a controller beside the brokers, from server.properties' names and texts. Raises ConfigError.

    Where they name no listener, as they need not, one stands for the kind that the brokers are to be told at (SEC-39).
    """
    name = properties.get("inter.broker.listener.name") or properties.get("security.inter.broker.protocol")
    if name and "listeners" not in properties:
        properties = {**properties, "listeners": f"{name}://127.0.0.1:9092"}
    return BrokerConfig.from_properties(properties)


class StandaloneController:
    """A controller with a ZooKeeper session of its own. ``start`` and ``stop`` once each; a context manager."""

    def __init__(
        self,
        config: BrokerConfig | Mapping[str, str],
        *,
        broker_id: int | None = None,
        zookeeper_login: ZooKeeperSecurity = OPEN,
    ) -> None:
        """Make it from its settings, or from server.properties' names and texts. Raises ConfigError.

        ``broker_id`` None: a number that no broker ever gets (Z-11); ``broker.id`` is not read.
        """
        self._config = config = config if isinstance(config, BrokerConfig) else controller_config(config)
        security = session_security(config.properties, zookeeper_login)
        acls = node_acls(config.properties, security)
        self._zookeeper = ZooKeeper(
            config.zookeeper_connect,
            security=security,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            max_packet_bytes=config.kt_zookeeper_max_packet_bytes,
        )
        self._zookeeper.make_nodes_as(acls)
        self._state_change_log = StateChangeLog(config.own_log_dir / "state-change.log")
        self._controller: Controller | None = None
        self._given_up = False
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

        Whether unclean leaders may be elected is asked of the brokers, unless the settings say it. Raises RefusedError (no
        cluster there, the id is a broker's, brokers too new, or none to be asked), KafkatoolError, and StartGivenUpError
        after ``give_up_start``; then nothing is left running.
        """
        try:
            self._go_on()
            self._zookeeper.start()
            self._go_on()
            self._check()
            self._go_on()
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
        except ZooKeeperError:
            self.stop()
            self._go_on()  # it was given up, and that is why
            raise
        except BaseException:
            self.stop()
            raise

    def give_up_start(self) -> None:
        """Have a ``start`` under way on another thread, or to come, end where it is and raise StartGivenUpError."""
        self._given_up = True
        self._zookeeper.limit_waits(0)

    def _go_on(self) -> None:
        if self._given_up:
            raise StartGivenUpError("told to stop before it ruled")

    def stop(self) -> None:
        """Resign and end the session: ``/controller`` goes at once, and the brokers elect one of them (CTL-22)."""
        self._zookeeper.limit_waits(LONGEST_WITHOUT_ZOOKEEPER_MS)
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
        security, listener = self._config.inter_broker_security, self._config.inter_broker_listener_name
        client_id = f"controller-{self.broker_id}"
        check_may_rule(self._zookeeper, self._zookeeper.children(TopicsZnode.PATH) or ())
        check_heard(brokers.values(), listener, security, client_id=client_id)
        if not self._config.properties.get(UNCLEAN, "").strip():
            allowed = ask_brokers(brokers.values(), listener, security, client_id=client_id)
            self._config = dataclasses.replace(self._config, unclean_leader_election_enable=allowed)
