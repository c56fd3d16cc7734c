"""A running cluster changes over from PLAINTEXT to SASL_SSL, broker by broker, in Kafka's four steps (SEC-53).

The second listener; the brokers among themselves; the clients; the first listener closed. All the time an idempotent
producer with acks=all goes on, and after each restart all replicas are in sync again, whichever way each broker speaks.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from kafkatool.broker.embedded.secured.security import ADMIN, ClusterSecurity
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.access import OPEN, Access
from tests.compat import real_kafka
from tests.compat.mixed import OurBroker, RealBrokers
from tests.integration.load import Load, await_in_sync, check_records
from tests.ports import free_port
from tests.steady import STEADY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOST: Final = "127.0.0.1"
WAIT_S: Final = 120
BROKERS: Final = (1, 2, 3)
ASSIGNMENT: Final = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
BEFORE, SECOND_LISTENER, BETWEEN_BROKERS, FIRST_CLOSED = 0, 1, 2, 4
OPTIONS: Final = {
    **STEADY,
    "inter.broker.protocol.version": "2.3",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
}
_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class Steps:
    """What each broker is told in each step, and how clients get in by SASL_SSL."""

    security: ClusterSecurity
    plain: Mapping[int, int]
    secure: Mapping[int, int]

    def properties(self, broker: int, step: int) -> dict[str, object]:
        listeners = {"PLAINTEXT": self.plain[broker], "SASL_SSL": self.secure[broker]}
        if step == BEFORE:
            del listeners["SASL_SSL"]
        if step == FIRST_CLOSED:
            del listeners["PLAINTEXT"]
        found: dict[str, object] = {
            **OPTIONS,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "security.inter.broker.protocol": "PLAINTEXT" if step < BETWEEN_BROKERS else "SASL_SSL",
        }
        return found | (self._stores_and_logins() if step else {})

    def of_ours(self, broker: int, step: int) -> dict[str, object]:
        """Return the same, and where ours take brokers for brokers that changed over before or after them."""
        other = {SECOND_LISTENER: "SASL_SSL", BETWEEN_BROKERS: "PLAINTEXT"}.get(step)
        return self.properties(broker, step) | ({"kt.inter.broker.also.on": other} if other else {})

    def port(self, broker: int, step: int) -> int:
        """Return where it surely listens."""
        return (self.secure if step == FIRST_CLOSED else self.plain)[broker]

    def _stores_and_logins(self) -> dict[str, object]:
        password = self.security.password(ADMIN)
        stores = {"keystore": "broker.p12", "truststore": "trust.p12"}
        return {
            **{f"ssl.{kind}.location": self.security.directory / name for kind, name in stores.items()},
            **{f"ssl.{kind}.type": "PKCS12" for kind in stores},
            **{f"ssl.{kind}.password": self.security.password("store") for kind in (*stores, "key")},
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{_LOGIN} username="{ADMIN}" password="{password}" user_{ADMIN}="{password}";'
            ),
        }

    @property
    def access(self) -> Access:
        login = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.security.directory / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": self.security.password(ADMIN),
        }
        return Access(librdkafka=login, brokers=self.security.as_admin())


class RealOnes(RealBrokers):
    """Real brokers of a cluster that changes over; ``step`` is that of the next start."""

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__(version, directory, brokers=2)
        self.steps: Steps | None = None
        self.step = BEFORE

    def _broker_options(self, broker: int) -> Mapping[str, object]:
        assert self.steps is not None
        return self.steps.properties(broker, self.step)


@dataclass(frozen=True, slots=True)
class Changing:
    """Brokers 1 to 3, running: those that are not ``ours`` are ``real``."""

    zk: ZooKeeper
    steps: Steps
    ours: Mapping[int, OurBroker]
    real: RealOnes | None

    def bring_to(self, step: int, load: Load) -> None:
        """Stop and start one broker after the other, while the load goes on."""
        for broker in BROKERS:
            if broker in self.ours:
                self.ours[broker].stop()
            elif self.real is not None:
                self.real.stop_broker(broker)
            load.goes_on(100, WAIT_S)
            self._start(broker, step)
            await_in_sync(self.zk, seconds=WAIT_S)
            load.goes_on(100, WAIT_S)

    def _start(self, broker: int, step: int) -> None:
        port = self.steps.port(broker, step)
        if broker in self.ours:
            ours = self.ours[broker]
            ours.port, ours.access = port, self.steps.access if step == FIRST_CLOSED else OPEN
            ours.configure(self.steps.of_ours(broker, step))
            ours.start()
        elif self.real is not None:
            self.real.step, self.real.ports[broker] = step, port
            self.real.start_broker(broker)

    @staticmethod
    def bootstrap(ports: Mapping[int, int]) -> str:
        return ",".join(f"{HOST}:{port}" for port in ports.values())


@pytest.fixture(params=["ours alone", pytest.param("2.8.2", marks=pytest.mark.slowest)])
def changing(request: pytest.FixtureRequest, tmp_path: Path, zk_connect: str) -> Iterator[Changing]:
    security = ClusterSecurity(tmp_path, "sasl_ssl")
    security.prepare()
    real = None
    if request.param != "ours alone":
        real_kafka.require(request.param)
        real = RealOnes(request.param, tmp_path / "real")
        zk_connect = real.connect
    plain = {broker: free_port() for broker in BROKERS} | (real.ports if real else {})
    steps = Steps(security, plain, {broker: free_port() for broker in BROKERS})
    with ExitStack() as ends:
        if real:
            real.steps = steps
            ends.enter_context(real)
        ours = {
            b: OurBroker(tmp_path / f"ours-{b}", zk_connect, steps.of_ours(b, BEFORE), b, port=plain[b])
            for b in BROKERS
            if not real or b not in real.ports
        }
        for broker in ours.values():
            ends.enter_context(broker)
        zk = ends.enter_context(ZooKeeper(zk_connect, session_timeout_ms=60_000))
        yield Changing(zk, steps, ours, real)


@pytest.mark.spec("SEC-53", "SEC-50", "SEC-48")
def test_from_plaintext_to_sasl_ssl_while_it_runs(changing: Changing) -> None:
    steps = changing.steps
    for topic in ("before", "after"):
        create_topic(changing.zk, topic, ASSIGNMENT, {"min.insync.replicas": "2"})
    await_in_sync(changing.zk, seconds=WAIT_S)
    load = Load(changing.bootstrap(steps.plain), "before", idempotent=True, records_per_step=5)
    try:
        load.goes_on(200, WAIT_S)
        changing.bring_to(SECOND_LISTENER, load)
        changing.bring_to(BETWEEN_BROKERS, load)
        later = Load(
            changing.bootstrap(steps.secure), "after", idempotent=True, records_per_step=5, access=steps.access
        )
    finally:
        load.stop()
    try:
        later.goes_on(200, WAIT_S)
        changing.bring_to(FIRST_CLOSED, later)
    finally:
        later.stop()
    load.access = steps.access
    cluster = SimpleNamespace(bootstrap=changing.bootstrap(steps.secure))
    check_records(cluster, "before", len(ASSIGNMENT), load, once=True)  # type: ignore[arg-type]
    check_records(cluster, "after", len(ASSIGNMENT), later, once=True)  # type: ignore[arg-type]
    for broker in changing.ours.values():
        said = (broker.directory / "broker.out").read_text()
        assert "Traceback" not in said and "refused" not in said
