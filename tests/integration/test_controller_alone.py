"""``kt controller start`` rules clusters of real Kafka: 0.10.2.2, 1.1.1 and 2.8.2, and hands them back.

One cluster per version, one story each: it takes the place of the real controller while a reassignment is under way,
does all of a controller's work under load, and gives the place back while another reassignment is under way.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.cluster_view import ClusterView, read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import real_kafka
from tests.compat.real_kafka import RealKafka
from tests.integration.load import Load, await_in_sync, check_records
from tests.steady import STEADY
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROTOCOLS: Final = {"0.10.2.2": "0.10.2", "1.1.1": "1.1", "2.8.2": "2.3"}
OURS: Final = 900
UNCLEAN: Final = "unclean.leader.election.enable"
WAIT_S: Final = 90
MOVED: Final = TopicPartition("moved", 0)


class OurController:
    """``kt controller start`` as a process."""

    def __init__(self, connect: str, directory: Path, options: Mapping[str, str]) -> None:
        self._connect = connect
        self._directory = directory
        self._options = [f"-o{k}={v}" for k, v in options.items()]
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def output(self) -> str:
        return (self._directory / "controller.out").read_text()

    def start(self, *flags: str) -> None:
        """Start it, as controller or waiting to be."""
        command = [sys.executable, "-m", "kafkatool", "controller", "start", "--zookeeper", self._connect]
        command += ["--broker-id", str(OURS), "--log-dir", str(self._directory), *self._options, *flags]
        with (self._directory / "controller.out").open("wb") as sink:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        eventually(self._runs, "our controller to run", WAIT_S)

    def _runs(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.output
        return f"controller {OURS} runs" in self.output

    def end(self, number: signal.Signals) -> int:
        """Send the signal; its exit code."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(number)
        return process.wait(WAIT_S)


class Cluster:
    """Real brokers 1 to 3, our controller, and what one asks them."""

    def __init__(self, kafka: RealKafka, ours: OurController, zk: ZooKeeper, directory: Path) -> None:
        self.kafka, self.ours, self.zk, self._directory = kafka, ours, zk, directory
        self.bootstrap = kafka.bootstrap

    def view(self, *topics: str) -> ClusterView:
        return read_cluster(self.zk, topics)

    def leaders(self, topic: str) -> list[int | None]:
        states = self.view(topic).states
        return [states[p].leader_and_isr.leader for p in sorted(states)]

    def epoch(self) -> int:
        node = self.zk.get("/controller_epoch")
        assert node is not None
        return int(node.data)

    def kt(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "kafkatool", *arguments, "--zookeeper", self.kafka.connect],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def reassign(self, moves: Mapping[TopicPartition, tuple[int, ...]], *flags: str) -> None:
        plan = self._directory / "plan.json"
        partitions = [{"topic": p.topic, "partition": p.partition, "replicas": r} for p, r in moves.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        self.kt("reassign", "--execute", "--force", "--reassignment-json-file", str(plan), *flags)

    def slowly_to(self, broker: int) -> None:
        """Begin to move `MOVED` there, at a rate that does not bring it about."""
        self.reassign({MOVED: (broker,)}, "--throttle", "1")
        eventually(lambda: len(self._replicas()) == 2, "the reassignment to be under way", WAIT_S)

    def is_moving(self) -> bool:
        return len(self._replicas()) == 2 and self.view().reassignment is not None

    def moves_on(self, broker: int) -> None:
        """Faster; returns when it is there, and nowhere else."""
        self.reassign({MOVED: (broker,)}, "--throttle", "100000000")
        eventually(lambda: self.view().reassignment is None, "the reassignment to be done", WAIT_S)
        assert self._replicas() == (broker,) and self.leaders(MOVED.topic) == [broker]
        old = self.kafka.data_directory(3 - broker) / f"{MOVED}"
        eventually(lambda: not old.exists(), "the old replica to be deleted", WAIT_S)

    def _replicas(self) -> tuple[int, ...]:
        return self.view(MOVED.topic).topics[MOVED.topic].assignment[0]

    def known_to_all(self, controller: int) -> bool:
        """Tell whether ZooKeeper and each broker name it."""
        if self.view().controller_id != controller:
            return False
        for port in self.kafka.ports.values():
            metadata = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}).list_topics(timeout=30)
            if metadata.controller_id not in (controller, -1):  # before 2.0 none is named that is no broker
                return False
        return True

    def await_a_broker_as_controller(self) -> None:
        eventually(lambda: self.view().controller_id in self.kafka.ports, "a broker to be controller", WAIT_S)


@pytest.fixture(params=real_kafka.versions(*PROTOCOLS))
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    version: str = request.param
    real_kafka.require(version)
    shared = {
        UNCLEAN: "false",
        "auto.leader.rebalance.enable": "false",
        "delete.topic.enable": "true",
        **STEADY,
    }
    protocol = PROTOCOLS[version]
    theirs = {
        **shared,
        "inter.broker.protocol.version": protocol,
        "log.message.format.version": protocol,
        "replica.fetch.max.bytes": "1000",  # so that a throttle of 1 byte per second holds
        "replica.fetch.response.max.bytes": "1000",
    }
    ours = dict(shared)
    if version != "0.10.2.2":  # which cannot be asked
        del ours[UNCLEAN]
    with (
        RealKafka(version, tmp_path / "real", options=theirs) as kafka,
        OurController(kafka.connect, tmp_path / "ours", ours) as controller,
        ZooKeeper(kafka.connect) as zk,
    ):
        yield Cluster(kafka, controller, zk, tmp_path)


@pytest.mark.spec("CTL-9", "CTL-10", "CTL-12", "CTL-22", "CTL-39", "CTL-71", "CTL-81", "CTL-98", "CTL-99", "CTL-102")
def test_it_rules_real_brokers_and_gives_them_back(cluster: Cluster) -> None:
    kafka, zk = cluster.kafka, cluster.zk
    create_topic(zk, MOVED.topic, {0: (1,)}, {})
    create_topic(zk, "dropped", {0: (1, 2), 1: (3, 1)}, {})
    await_in_sync(zk, [MOVED.topic, "dropped"], WAIT_S)
    filling = Load(cluster.bootstrap, MOVED.topic)
    filling.goes_on(2000, WAIT_S)
    filling.stop()

    # the real controller begins, ours goes on
    cluster.slowly_to(2)
    epoch = cluster.epoch()
    cluster.ours.start("--take-over")
    if kafka.version != "0.10.2.2":
        assert f"{UNCLEAN}=false, as brokers 1, 2, 3 have it" in cluster.ours.output
    assert cluster.epoch() == epoch + 1 and "deposed controller" in cluster.ours.output
    eventually(lambda: cluster.known_to_all(OURS), "all brokers to know our controller", WAIT_S)
    assert cluster.is_moving()
    cluster.moves_on(2)

    # clients look for the controller among the brokers, where it is not
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    (asked,) = admin.create_topics([NewTopic("asked", 1, 1)], request_timeout=2).values()
    with pytest.raises(KafkaException) as refused:
        asked.result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError._TIMED_OUT

    # a controller's work
    create_topic(zk, "data", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}, {"min.insync.replicas": "2"})
    await_in_sync(zk, ["data"], WAIT_S)
    assert cluster.leaders("data") == [1, 2, 3]
    load = Load(cluster.bootstrap, "data", records_per_step=5)
    try:
        load.goes_on(200, WAIT_S)
        kafka.kill_broker(1)
        eventually(lambda: 1 not in cluster.leaders("data"), "another leader", WAIT_S)
        load.goes_on(200, WAIT_S)
        kafka.start_broker(1)
        await_in_sync(zk, ["data"], WAIT_S)
        assert 1 not in cluster.leaders("data")
        cluster.kt("elect", "--topic", "data")
        assert cluster.leaders("data") == [1, 2, 3]
        load.goes_on(200, WAIT_S)
        # leaders stay: Kafka before 2.3 lets a producer wait 30 s for a leader that is taken away from its broker
        moves = {TopicPartition("data", p): replicas for p, replicas in enumerate([(1, 2), (2, 3), (3, 1)])}
        cluster.reassign(moves, "--wait", "--timeout", str(WAIT_S))
        assert cluster.view("data").topics["data"].assignment == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
        load.goes_on(200, WAIT_S)
        cluster.kt("topics", "delete", "--topic", "dropped")
        eventually(lambda: "dropped" not in cluster.view("dropped").topics, "the topic to be deleted", WAIT_S)

        # ours begins, a real controller goes on
        cluster.slowly_to(1)
        epoch = cluster.epoch()
        number = signal.SIGKILL if kafka.version == "1.1.1" else signal.SIGTERM
        assert cluster.ours.end(number) == (-9 if number == signal.SIGKILL else 0)
        cluster.await_a_broker_as_controller()
        eventually(lambda: cluster.epoch() == epoch + 1, "the epoch, which Kafka < 2.2 raises by itself later", WAIT_S)
        assert cluster.is_moving()
        cluster.moves_on(1)
        load.goes_on(200, WAIT_S)
    finally:
        load.stop()
    assert not load.errors
    check_records(cluster, "data", 3, load)  # type: ignore[arg-type]
