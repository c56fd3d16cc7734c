"""Three brokers, ours or Kafka's, that clients and each other reach through doors that know frames."""

import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol, Self

from confluent_kafka import Producer

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import real_kafka
from tests.histories.frames.doors import DooredKafka, Doors
from tests.histories.frames.record import Record
from tests.integration.load import await_in_sync, make_topic
from tests.steady import LASTING, crash

BROKERS: Final = 3
_OPTIONS: Final = {
    **LASTING,
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",  # no coordinator moves but where a rule makes it
}
_KAFKAS: Final = {
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "10",
}
_PATIENCE_S: Final = 180


class _Cluster(Protocol):
    """What is done to the brokers of either kind."""

    def kill_broker(self, broker: int, /) -> None: ...
    def stop_broker(self, broker: int, /) -> None: ...
    def start_broker(self, broker: int, /) -> None: ...


class Stage:
    """A cluster with doors, on which stories are told one after the other. A context manager."""

    source, version = "ours", ""

    def __init__(self) -> None:
        self.doors = Doors()
        self.numbers = itertools.count()  # of stories: each has topics of its own
        self._dead: list[int] = []
        self._lock = threading.Lock()  # held while a broker is ended or started

    def __enter__(self) -> Self:
        try:
            self._cluster, connect = self._up()
            self.zk = ZooKeeper(connect, session_timeout_ms=60_000, connection_timeout_ms=60_000).start()
        except BaseException:
            self._down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.zk.close()
        self._down()

    @property
    def bootstrap(self) -> str:
        return self.doors.bootstrap

    def make_topics(self, *topics: str, partitions: int) -> None:
        for topic in topics:
            make_topic(self.zk, topic, partitions, BROKERS)
        await_in_sync(self.zk, topics, _PATIENCE_S)

    def crash(self, broker: int) -> None:
        """Kill a broker; its session ends at once."""
        with self._lock:
            self._dead.append(broker)
            crash(self._cluster, self.zk, broker)

    def stop(self, broker: int) -> None:
        """Have a broker end in good order; returns when its process is gone."""
        with self._lock:
            self._dead.append(broker)
            self._cluster.stop_broker(broker)

    def mend(self) -> None:
        """Start what is dead; return when every replica is in sync again."""
        with self._lock:
            while self._dead:
                self._cluster.start_broker(self._dead.pop())
        await_in_sync(self.zk, seconds=_PATIENCE_S)

    def _up(self) -> tuple[_Cluster, str]:
        """Start the cluster; return it and where its ZooKeeper is."""
        raise NotImplementedError

    def _down(self) -> None:
        raise NotImplementedError


class Ours(Stage):
    """Our brokers."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._embedded = EmbeddedCluster(BROKERS, directory=directory, options=_OPTIONS, adjust=self._wire)

    @property
    def cluster(self) -> EmbeddedCluster:
        """Return it as it is behind the doors."""
        return self._embedded

    def _wire(self, broker: int, properties: Mapping[str, str]) -> Mapping[str, str]:
        return self.doors.listeners(broker, int(properties["listeners"].rpartition(":")[2]))

    def _up(self) -> tuple[_Cluster, str]:
        self._embedded.up()
        return self._embedded, self._embedded.zookeeper

    def _down(self) -> None:
        self._embedded.down(gentle=False)
        self.doors.close()


class Kafkas(Stage):
    """Real Kafka of a version, as a control."""

    source = "kafka"

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__()
        self.version = version
        options = {**_OPTIONS, **_KAFKAS}
        self._real = DooredKafka(self.doors, version, directory, brokers=BROKERS, options=options)

    def _up(self) -> tuple[_Cluster, str]:
        self._real.__enter__()
        return self._real, self._real.connect

    def _down(self) -> None:
        self._real.stop()
        self.doors.close()


@contextlib.contextmanager
def stage_with_a_key(
    kind: str, directory: Path, topic: str, values: Iterable[bytes], *, partitions: int = 1, partition: int = 0
) -> Iterator[Stage]:
    """Open three brokers, "ours" or a version of Kafka, with a record of their frames, and write those values into a key."""
    if kind != "ours":
        real_kafka.require(kind)
    with Ours(directory / "cluster") if kind == "ours" else Kafkas(kind, directory / "cluster") as stage:
        stage.doors.record = Record(directory / "frames.jsonl")
        stage.make_topics(topic, partitions=partitions)
        producer = Producer({"bootstrap.servers": stage.bootstrap, "acks": "all"})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(_PATIENCE_S) == 0
        yield stage
