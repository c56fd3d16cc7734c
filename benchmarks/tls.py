"""What TLS and a login cost: produce and fetch over PLAINTEXT, SSL and SASL_SSL of one cluster of each kind (SEC-59).

Both kinds have the same certificate, an ECDSA key on P-256, and the same user of SCRAM; the client is librdkafka with the
same settings for both. No authorizer: rights are another matter.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.clusters import BROKERS, OPTIONS, Cluster, Kafka, Ours, wait_for, wait_ready
from benchmarks.figures import Figure, alternate
from benchmarks.throughput import LOADS, PARTITIONS, WARM_UP_ROUNDS, Load, consume, produce
from benchmarks.topics import delete_topic, make_topic
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.secured.certificates import Authority, Certificate, broker_names
from kafkatool.core.operations.users import alter_user, make_credential
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.ports import free_port

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
_MEASURED: Final = [load for load in LOADS if load.acks == "1"]
_MECHANISM: Final = "SCRAM-SHA-256"
_USER, _PASSWORD, _STORE = "alice", "alice-secret", "store-secret"


class Doors:
    """The listeners of one cluster: ports by protocol, what its brokers and its clients are told of them."""

    def __init__(self, authority: Authority, certificate: Certificate) -> None:
        self._authority = authority
        self._certificate = certificate
        self._ports = {broker: {p: free_port() for p in PROTOCOLS[1:]} for broker in range(1, BROKERS + 1)}

    def properties(self, broker: int, plaintext_port: int) -> dict[str, str]:
        """Return what server.properties of a broker says of them, theirs or ours."""
        ports = {"PLAINTEXT": plaintext_port, **self._ports[broker]}
        trusted = self._authority.directory / "trust.p12"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            "listeners": ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
            "ssl.keystore.location": str(self._certificate.keystore),
            "ssl.keystore.password": _STORE,
            "ssl.key.password": _STORE,
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.location": str(trusted),
            "ssl.truststore.password": _STORE,
            "ssl.truststore.type": "PKCS12",
            "sasl.enabled.mechanisms": _MECHANISM,
            f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config": module,
        }

    def client(self, cluster: Cluster, protocol: str) -> dict[str, str]:
        """Return how librdkafka gets in by that protocol."""
        if protocol == "PLAINTEXT":
            return {"bootstrap.servers": cluster.bootstrap}
        told = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{ports[protocol]}" for ports in self._ports.values()),
            "security.protocol": protocol,
            "ssl.ca.location": str(self._authority.directory / "ca.pem"),
        }
        login = {"sasl.mechanism": _MECHANISM, "sasl.username": _USER, "sasl.password": _PASSWORD}
        return told | login if protocol == "SASL_SSL" else told


class TlsOurs(Ours):
    """The embedded cluster with more listeners."""

    def __init__(self, directory: Path, doors: Doors) -> None:
        super().__init__(directory)
        self.doors = doors
        self._cluster = EmbeddedCluster(BROKERS, directory=directory, options=OPTIONS, adjust=self._with_doors)

    def _with_doors(self, broker: int, properties: Mapping[str, str]) -> Mapping[str, str]:
        return self.doors.properties(broker, int(properties["listeners"].rpartition(":")[2]))


class TlsKafka(Kafka):
    """Kafka with more listeners."""

    def __init__(self, directory: Path, doors: Doors) -> None:
        super().__init__(directory)
        self.doors = doors

    def _broker_options(self, broker: int) -> Mapping[str, object]:
        return {**super()._broker_options(broker), **self.doors.properties(broker, self.ports[broker])}


_Secured = TlsOurs | TlsKafka


def measure(directory: Path, rounds: int, share: float) -> list[Figure]:
    """Start both, measure ``share`` of each load's records by each protocol, and end both."""
    (directory / "authority").mkdir()
    authority = Authority.open(directory / "authority")
    certificate = authority.certificate("broker", "CN=broker", _STORE, names=broker_names())
    authority.write_truststore(authority.directory / "trust.p12", _STORE)
    ours = TlsOurs(directory / "ours-tls", Doors(authority, certificate))
    kafka = TlsKafka(directory / "kafka-tls", Doors(authority, certificate))
    try:
        for cluster in (ours, kafka):
            cluster.launch()
            wait_ready(cluster)
            _make_user(cluster)
        return _measure(ours, kafka, rounds, share)
    finally:
        ours.stop()
        kafka.stop()


def _measure(ours: _Secured, kafka: _Secured, rounds: int, share: float) -> list[Figure]:
    loads = [load._replace(records=int(load.records * share)) for load in _MEASURED]
    alternate(WARM_UP_ROUNDS, ours, kafka, lambda cluster, _: _run(cluster, loads[0], "SSL", "warm-up"))
    figures = []
    for load in loads:
        for protocol in PROTOCOLS:
            one = partial(_one_round, load=load, protocol=protocol)
            produced, consumed = alternate(rounds, ours, kafka, one)
            what = f"{load.title}, {protocol}"
            produce_title = f"produce {what}, acks={load.acks}"
            figures.append(Figure(produce_title, "records/s", *produced, more_is_better=True))
            figures.append(Figure(f"fetch {what}", "records/s", *consumed, more_is_better=True))
    return figures


def _one_round(cluster: _Secured, number: int, *, load: Load, protocol: str) -> Sequence[float]:
    return _run(cluster, load, protocol, f"load-{number}")


def _run(cluster: _Secured, load: Load, protocol: str, prefix: str) -> Sequence[float]:
    topic = f"{prefix}-{protocol.lower()}-{load.size_bytes}"
    client = cluster.doors.client(cluster, protocol)
    make_topic(cluster, topic, PARTITIONS, load.replication_factor)
    try:
        return produce(cluster, topic, load, client), consume(cluster, topic, load.records, client)
    finally:
        delete_topic(cluster, topic)


def _make_user(cluster: _Secured) -> None:
    from confluent_kafka.admin import AdminClient

    with ZooKeeper(cluster.connect) as zk:
        alter_user(zk, _USER, {_MECHANISM: make_credential(_MECHANISM, _PASSWORD.encode())})
    admin = AdminClient({**cluster.doors.client(cluster, "SASL_SSL"), "log_level": 0})

    def lets_in() -> bool:
        try:
            return len(admin.list_topics(timeout=2).brokers) == BROKERS
        except Exception:  # noqa: BLE001  # whatever that client says: the user may not be known yet
            return False

    wait_for(lets_in, f"{cluster.name}: {_USER} logs in")
