"""Logs of brokers that were just killed: what the timeline ends with is what ZooKeeper holds at that moment."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.statelog.history.facts import history_of
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.gathering import gather
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.sources.files import open_logs
from kafkatool.core.statelog.sources.spool import spool
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.real_kafka import BROKER, RealKafka, require, versions
from tests.core.statelog.logs import InProcess, observations_of
from tests.steady import STEADY
from tests.waiting import eventually

State = tuple[int | None, int | None, tuple[int, ...] | None]
DEADLINE_S = 180


class LoggingKafka(RealKafka):
    """Real Kafka whose brokers write state-change.log at TRACE."""

    def log(self, broker: int) -> Path:
        """That broker's log."""
        return self._directory / f"state-change.log.{broker}"

    def _java(self, main: str, args: Sequence[str], *, heap: str) -> list[str]:
        command = super()._java(main, args, heap=heap)
        if main != BROKER:
            return command
        broker = int(Path(args[0]).stem.removeprefix("broker-"))
        logging = self._directory / f"log4j-{broker}.properties"
        logging.write_text(
            "log4j.rootLogger=OFF\nlog4j.logger.state.change.logger=TRACE, T\n"
            f"log4j.appender.T=org.apache.log4j.FileAppender\nlog4j.appender.T.File={self.log(broker)}\n"
            "log4j.appender.T.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.T.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        return [f"-Dlog4j.configuration=file:{logging}" if "-Dlog4j" in word else word for word in command]


def told(logs: Sequence[Path], directory: Path) -> tuple[dict[str, State], Counts]:
    """Return how each partition stands by the logs, and the account of their lines."""
    with spool() as own:
        sources = open_logs(logs, own).sources
        gathered = gather(Logs(sources, (None,) * len(sources)), Selection(), Here(InProcess(), own), len(logs))
        states: dict[str, State] = {}
        for topic, partition, observations in observations_of(gathered):
            history = history_of(observations)
            states[f"{topic}-{partition}"] = (history.leader, history.leader_epoch, history.isr)
    return states, gathered.overview.counts


def held(connect: str) -> Mapping[str, State]:
    """Return how each partition stands in ZooKeeper."""
    with ZooKeeper(connect) as zk:
        states = read_cluster(zk).states
    return {
        f"{tp.topic}-{tp.partition}": (-1 if s.leader is None else s.leader, s.leader_epoch, s.isr)
        for tp, s in ((tp, state.leader_and_isr) for tp, state in states.items())
    }


def agree(connect: str, logs: Sequence[Path], directory: Path) -> None:
    """Waits until logs and ZooKeeper agree: a leader's ISR change is passed on, and so logged, some seconds later."""
    eventually(lambda: held(connect) == told(logs, directory)[0], "the logs to tell what ZooKeeper holds", DEADLINE_S)
    states, counts = told(logs, directory)
    assert states and counts.unknown_form == 0 and counts.orphan_lines == 0


@pytest.mark.slow
@pytest.mark.spec("CTL-117", "SCL-17X", "SCL-19X")
def test_our_own_brokers_logs_end_as_zookeeper_has_it(tmp_path: Path) -> None:
    with EmbeddedCluster(3, directory=tmp_path / "cluster", options=STEADY) as cluster:
        logs = [Path(broker.state_change_log) for broker in cluster.status().brokers]
        with ZooKeeper(cluster.zookeeper) as zk:
            create_topic(zk, "orders", {p: (p % 3 + 1, (p + 1) % 3 + 1, (p + 2) % 3 + 1) for p in range(6)})
            create_topic(zk, "clicks", {p: (p + 1,) for p in range(3)})
        eventually(lambda: len(held(cluster.zookeeper)) == 9, "all partitions to have a state", DEADLINE_S)
        eventually(lambda: all(log.exists() for log in logs), "each broker to have been told something", DEADLINE_S)
        agree(cluster.zookeeper, logs, tmp_path)
        cluster.kill_broker(2)
        eventually(
            lambda: not any(s[0] == 2 for n, s in held(cluster.zookeeper).items() if n.startswith("orders")),
            "others to lead",
            DEADLINE_S,
        )
        agree(cluster.zookeeper, logs, tmp_path)
        cluster.start_broker(2)
        full = {1, 2, 3}
        eventually(
            lambda: all(set(s[2] or ()) == full for n, s in held(cluster.zookeeper).items() if n.startswith("orders")),
            "broker 2 to be in sync again",
            DEADLINE_S,
        )
        agree(cluster.zookeeper, logs, tmp_path)


@pytest.mark.slow
@pytest.mark.spec("SCL-17X", "SCL-19X")
@pytest.mark.parametrize("version", versions("1.1.1", "2.8.2"))
def test_real_kafkas_fresh_logs_end_as_zookeeper_has_it(version: str, tmp_path: Path) -> None:
    require(version)
    with LoggingKafka(version, tmp_path / "kafka") as kafka:
        logs = [kafka.log(broker) for broker in kafka.ports]
        with ZooKeeper(kafka.connect) as zk:
            create_topic(zk, "orders", {p: (p % 3 + 1, (p + 1) % 3 + 1, (p + 2) % 3 + 1) for p in range(6)})
        eventually(lambda: len(held(kafka.connect)) == 6, "all partitions to have a state", DEADLINE_S)
        agree(kafka.connect, logs, tmp_path)
        kafka.stop_broker(2)
        eventually(lambda: not any(s[0] == 2 for s in held(kafka.connect).values()), "others to lead", DEADLINE_S)
        agree(kafka.connect, logs, tmp_path)
        kafka.start_broker(2)
        eventually(
            lambda: all(set(s[2] or ()) == {1, 2, 3} for s in held(kafka.connect).values()), "all in sync", DEADLINE_S
        )
        agree(kafka.connect, logs, tmp_path)
