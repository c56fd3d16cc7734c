"""Two clusters with one face: ours and Kafka's, three brokers each, all processes on loopback.

Kafka gets the JVM options of its own start scripts, not the frugal ones that the compatibility tests use. ZooKeeper
syncs to disk in neither cluster: our embedded one never does, and it is not the disk that is measured here.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import psutil

from kafkatool.broker.embedded import processes
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.protocol.messages import metadata
from tests.compat.real_kafka import KraftKafka, RealKafka

KAFKA_VERSION: Final = "2.8.2"
BROKERS: Final = 3
DEADLINE_S: Final = 180
"""How long anything waited for may take before the benchmark gives up."""

OPTIONS: Final = {
    "zookeeper.session.timeout.ms": "6000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
    "unclean.leader.election.enable": "false",
    "offsets.topic.num.partitions": "1",
}
_METADATA_VERSION: Final = 5
_CLIENT_TIMEOUT_MS: Final = 10_000

# bin/kafka-run-class.sh, bin/kafka-server-start.sh and bin/zookeeper-server-start.sh of Kafka 2.8.2.
_KAFKA_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
_KAFKA_HEAP: Final = {
    "kafka.Kafka": ("-Xmx1G", "-Xms1G"),
    "org.apache.zookeeper.server.quorum.QuorumPeerMain": ("-Xmx512M", "-Xms512M", "-Dzookeeper.forceSync=no"),
}
_KAFKA_TOOL_HEAP: Final = ("-Xmx256M",)
_KRAFT_HEAP: Final = ("-Xmx2500M", "-Xms1G")
"""With 10,000 partitions and the 1 GB of the scripts a node that is broker and controller soon does little but collect."""


class Cluster(Protocol):
    """What a measurement needs of a cluster. Brokers are 1 to BROKERS."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def connect(self) -> str: ...
    @property
    def ports(self) -> Mapping[int, int]: ...

    def launch(self) -> None:
        """Start ZooKeeper and brokers; they may not be ready yet."""

    def stop(self) -> None: ...

    def pid(self, broker_id: int) -> int: ...

    def kill(self, broker_id: int) -> None:
        """kill -9."""

    def restart(self, broker_id: int) -> None:
        """Start a killed broker again; it may not be ready yet."""


class Ours:
    """The embedded cluster, driven by kt."""

    name = "kafkatool"

    def __init__(self, directory: Path) -> None:
        self._cluster = EmbeddedCluster(BROKERS, directory=directory, options=OPTIONS)
        self._ports: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def connect(self) -> str:
        return self._cluster.zookeeper

    @property
    def ports(self) -> Mapping[int, int]:
        if not self._ports:
            self._ports = {b.id: b.port for b in self._cluster.status().brokers}
        return self._ports

    def launch(self) -> None:
        self._cluster.up()

    def stop(self) -> None:
        self._cluster.down(gentle=False)

    def pid(self, broker_id: int) -> int:
        return _pid("kafkatool", self._cluster.files.properties(broker_id))

    def kill(self, broker_id: int) -> None:
        self._cluster.kill_broker(broker_id)

    def restart(self, broker_id: int) -> None:
        self._cluster.start_broker(broker_id)


class Kafka(RealKafka):
    """Apache Kafka. ZooKeeper and brokers start at once, as ours do; :func:`wait_ready` asks both the same question."""

    name = f"Kafka {KAFKA_VERSION}"

    def __init__(self, directory: Path) -> None:
        super().__init__(KAFKA_VERSION, directory, brokers=BROKERS, options=OPTIONS)

    def launch(self) -> None:
        self._start_zookeeper()
        for broker_id in self.ports:
            self._spawn_broker(broker_id)

    def pid(self, broker_id: int) -> int:
        return _pid("kafka.Kafka", self._directory / f"broker-{broker_id}.properties")

    def kill(self, broker_id: int) -> None:
        psutil.Process(self.pid(broker_id)).kill()
        self.stop_broker(broker_id)  # collects the dead process

    def restart(self, broker_id: int) -> None:
        self._spawn_broker(broker_id)

    def _java(self, main: str, args: Sequence[str], *, heap: str) -> list[str]:
        kafka_heap = _KAFKA_HEAP.get(main, _KAFKA_TOOL_HEAP)
        return _by_kafkas_scripts(super()._java(main, args, heap=heap), kafka_heap)

    def _wait_port(self, name: str, port: int) -> None:
        """Not here: it would hold the brokers back until ZooKeeper listens."""


class Kraft(KraftKafka):
    """Apache Kafka without ZooKeeper; each node is broker and controller."""

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__(version, directory, brokers=BROKERS, options={"auto.leader.rebalance.enable": "false"})

    def _java(self, main: str, args: Sequence[str], *, heap: str) -> list[str]:
        kafka_heap = _KRAFT_HEAP if main == "kafka.Kafka" else _KAFKA_TOOL_HEAP
        return _by_kafkas_scripts(super()._java(main, args, heap=heap), kafka_heap)


def _by_kafkas_scripts(frugal: Sequence[str], heap: Sequence[str]) -> list[str]:
    """Return the command line with the JVM options of Kafka's start scripts in place of the tests' own."""
    class_path = frugal.index("-cp")
    definitions = [option for option in frugal[1:class_path] if option.startswith("-D")]
    options = (*_KAFKA_JVM, *heap, *definitions)
    return [frugal[0], *options, *frugal[class_path:]]


def wait_ready(cluster: Cluster) -> None:
    """Until every broker's own metadata names all brokers and a controller."""
    for broker_id in cluster.ports:
        wait_for(lambda b=broker_id: _knows_all(cluster, b), f"{cluster.name}: broker {broker_id} ready")  # type: ignore[misc]


def ask_metadata(cluster: Cluster, broker_id: int, topics: Sequence[str]) -> metadata.MetadataResponse:
    """Return what that broker tells clients. Raises BrokerUnreachableError."""
    asked = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic=t) for t in topics], allow_auto_topic_creation=False
    )
    port = cluster.ports[broker_id]
    with Connection(
        "127.0.0.1", port, client_id="benchmark", timeout_ms=_CLIENT_TIMEOUT_MS, security=None
    ) as connection:
        return connection.send(metadata.API, _METADATA_VERSION, asked)


def wait_for(what: Callable[[], bool], title: str, poll_s: float = 0.02) -> None:
    """Raises RuntimeError with ``title`` when it has not come true within DEADLINE_S."""
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{title}: not within {DEADLINE_S} s")
        time.sleep(poll_s)


def _knows_all(cluster: Cluster, broker_id: int) -> bool:
    try:
        answer = ask_metadata(cluster, broker_id, [])
    except BrokerUnreachableError:
        return False
    return {b.node_id for b in answer.brokers} == set(cluster.ports) and answer.controller_id >= 0


def _pid(program: str, properties: Path) -> int:
    process = processes.find(program, properties)
    if process is None:
        raise RuntimeError(f"the broker of {properties} does not run")
    return int(process.pid)
