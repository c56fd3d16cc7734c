"""A cluster of two real brokers and one of ours in one ZooKeeper, each a process that can be stopped and killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, NoNodeError
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages.api_versions import API as API_VERSIONS
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest
from kafkatool.core.zookeeper.acls import OWN_NODES
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.access import OPEN, Access
from tests.compat.real_kafka import RealKafka
from tests.compat.secured_kafka import SecuredKafka
from tests.integration.load import Load, await_in_sync, check_records, check_replicas_equal
from tests.ports import free_port
from tests.steady import STEADY, crash, stand_still
from tests.waiting import eventually

OURS: Final = 3
OFFSETS: Final = "__consumer_offsets"
WAIT_S: Final = 120
CONNECT_MS: Final = 5000


class OurBroker:
    """``kt broker start`` on its own directory and port; broker 3 where not said otherwise. A context manager."""

    def __init__(
        self,
        directory: Path,
        connect: str,
        options: Mapping[str, object],
        broker_id: int = OURS,
        *,
        port: int | None = None,
        access: Access = OPEN,
    ) -> None:
        self.broker_id = broker_id
        self.port = port or free_port()
        self.data = directory / "data"
        self.directory = directory
        self._connect = connect
        self.access = access
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.configure(options)

    def configure(self, options: Mapping[str, object]) -> None:
        """Write its properties; they hold from its next start on."""
        self.options = dict(options)
        properties = {
            "broker.id": self.broker_id,
            "zookeeper.connect": self._connect,
            "log.dirs": self.data,
            "kt.log.dir": self.directory / "logs",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            **options,
        }
        (self.directory / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in properties.items()))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when it listens and is registered."""
        self.spawn()
        with ZooKeeper(self._connect, security=self.access.zookeeper) as zk:
            eventually(lambda: self.is_up(zk), "our broker to be up", WAIT_S)

    def spawn(self) -> None:
        """Start the process; it may not be up yet."""
        command = [sys.executable, "-m", "kafkatool", "broker", "start", "--config"]
        with (self.directory / "broker.out").open("ab") as sink:
            self._process = subprocess.Popen(
                [*command, str(self.directory / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                env={**os.environ, **self.access.environment},
            )

    def is_up(self, zk: ZooKeeper) -> bool:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"ended with {code}: {self._said()}"
        try:  # the port is open, and the broker registered, a moment before it answers
            with self._connected() as connection:
                connection.send(API_VERSIONS, 0, ApiVersionsRequest())
        except BrokerUnreachableError:
            return False
        return self.broker_id in read_cluster(zk, [], states=False).brokers

    def _connected(self) -> Connection:
        security = self.access.brokers
        return Connection("127.0.0.1", self.port, client_id="test", timeout_ms=CONNECT_MS, security=security)

    def stop(self) -> None:
        """Controlled shutdown; returns when the process has ended. One that does not end is ours still, to be killed."""
        process = self._process
        assert process is not None
        process.terminate()
        code = process.wait(WAIT_S)
        self._process = None
        assert code == 0, f"ended with {code}: {self._said()}"

    def _said(self) -> str:
        return (self.directory / "broker.out").read_text()[-4000:]

    def kill(self) -> None:
        """kill -9, if it runs; its session is still there."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)
            self._process = None


class RealBrokers(RealKafka):
    """They are not the whole cluster, so whom they know is not to be waited for: the tests wait for replicas in sync."""

    def _wait_known(self, brokers: set[int]) -> None:
        return


@dataclass(frozen=True, slots=True)
class Mixed:
    """Real brokers 1 and 2, ours is 3. All are running between two tests."""

    real: RealKafka
    ours: OurBroker
    zk: ZooKeeper
    directory: Path
    access: Access = OPEN

    @property
    def bootstrap(self) -> str:
        return f"{self.real.bootstrap},127.0.0.1:{self.ours.port}"

    @property
    def zookeeper(self) -> str:
        return self.real.connect

    @property
    def knows_producers(self) -> bool:
        """Tell whether producers can be idempotent there: not before 0.11, whose records have no producer id."""
        return not self.real.version.startswith("0.10.")

    def create(
        self,
        topic: str,
        assignment: Mapping[int, tuple[int, ...]],
        *,
        min_in_sync: int = 2,
        configs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        create_topic(self.zk, topic, dict(assignment), {"min.insync.replicas": str(min_in_sync), **configs})
        await_in_sync(self.zk, [topic], WAIT_S)

    def create_transaction_topic(self, *theirs: int) -> None:
        """Create ``__transaction_state`` with one partition; ours is its preferred leader, then these."""
        configs = {"cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2"}
        create_topic(self.zk, TRANSACTION_TOPIC, {0: (OURS, *theirs)}, configs)
        await_in_sync(self.zk, [TRANSACTION_TOPIC, OFFSETS], WAIT_S)

    def leaders(self, topic: str) -> list[int | None]:
        states = read_cluster(self.zk, [topic]).states
        return [states[p].leader_and_isr.leader for p in sorted(states)]

    def brokers(self) -> set[int]:
        """Return those registered."""
        return set(read_cluster(self.zk, [], states=False).brokers)

    def controller(self) -> int | None:
        return read_cluster(self.zk, [], states=False).controller_id

    def reign(self, broker_id: int) -> None:
        """Have that broker become controller: the node is deleted until it wins the race."""

        def won() -> bool:
            if self.controller() == broker_id:
                return True
            with contextlib.suppress(NoNodeError):
                self.zk.delete("/controller")
            return False

        eventually(won, f"broker {broker_id} to be controller", WAIT_S)

    def stop(self, broker: int) -> None:
        """Controlled shutdown; returns when it is gone."""
        self.ours.stop() if broker == OURS else self.real.stop_broker(broker)
        self.await_gone(broker)

    def kill(self, broker: int) -> None:
        """kill -9; returns when it is gone."""
        self.kill_broker(broker)
        self.await_gone(broker)

    def kill_broker(self, broker: int) -> None:
        """kill -9; its session is still there."""
        self.ours.kill() if broker == OURS else self.real.kill_broker(broker)

    def crash(self, broker: int) -> None:
        """kill -9, and its session ends at once."""
        crash(self, self.zk, broker)

    @contextmanager
    def standing_still(self, broker: int) -> Iterator[None]:
        """Let a real broker do nothing while the block runs; it has to keep its session meanwhile (``LASTING``)."""
        pid = self.real.pid(broker)
        try:
            stand_still(pid)
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def await_gone(self, broker: int) -> None:
        """Wait until its session has ended and it is out of the ISRs: who is in sync after that is its successor."""

        def gone() -> bool:
            view = read_cluster(self.zk)
            isrs = [state.leader_and_isr.isr for state in view.states.values()]
            return broker not in view.brokers and all(broker not in isr or len(isr) == 1 for isr in isrs)

        eventually(gone, f"broker {broker} to be gone", WAIT_S)

    def start(self, broker: int, topics: Iterable[str]) -> None:
        """Returns when those topics are in sync again."""
        self.ours.start() if broker == OURS else self.real.start_broker(broker)
        await_in_sync(self.zk, topics, WAIT_S)

    @contextmanager
    def told(self, broker: int, options: Mapping[str, str], topics: Collection[str]) -> Iterator[None]:
        """Let the broker go by these options, too, while the block runs: it is stopped and started for it, and after it.

        Each time ``topics`` are in sync again.
        """
        usual = self.ours.options

        def go_by(more: Mapping[str, str]) -> None:
            self.stop(broker)
            if broker == OURS:
                self.ours.configure({**usual, **more})
            else:
                self.real.configure(broker, more)
            self.start(broker, topics)

        go_by(options)
        try:
            yield
        finally:
            go_by({})

    def ours_on_theirs(self, broker: int) -> OurBroker:
        """Return ours, not started, on a real broker's directory, port and number; that one is not to run meanwhile."""
        options = {**self.ours.options, "log.dirs": self.real.data_directory(broker)}
        port = self.real.ports[broker]
        return OurBroker(self.directory / f"ours-{broker}", self.zookeeper, options, broker, port=port)

    @contextmanager
    def theirs_on_ours(self) -> Iterator[None]:
        """Let the real brokers have one on the directory, port and number of ours, which is not to run meanwhile.

        It is started and ended in the block; what still runs after it is killed.
        """
        directory = self.real.data_directory(OURS)
        directory.symlink_to(self.ours.data)
        self.real.ports[OURS] = self.ours.port
        try:
            yield
        finally:
            if self.real.is_running(OURS):
                self.real.kill_broker(OURS)
            directory.unlink()
            del self.real.ports[OURS]

    def kt(self, *arguments: str) -> None:
        self.run_kt(*arguments, "--zookeeper", self.zookeeper)

    def run_kt(self, *arguments: str) -> None:
        """Run kt, which has to end well; again where it could ask nobody: for a login it waits ten seconds."""

        def well() -> bool:
            done = subprocess.run(
                [sys.executable, "-m", "kafkatool", *arguments],
                capture_output=True,
                text=True,
                timeout=2 * WAIT_S,
                check=False,
                env={**os.environ, **self.access.environment},
            )
            assert done.returncode == 0 or "no broker answers" in done.stderr, done.stdout + done.stderr
            return done.returncode == 0

        eventually(well, "a broker to answer kt", WAIT_S)

    def reassign(self, moves: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Through ``kt reassign``; returns when all are done."""
        plan = self.directory / "plan.json"
        partitions = [{"topic": p.topic, "partition": p.partition, "replicas": r} for p, r in moves.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        self.kt("reassign", "--execute", "--wait", "--timeout", str(WAIT_S), "--reassignment-json-file", str(plan))

    def check(self, topic: str, load: Load, *, once: bool) -> None:
        """Check that nothing is lost, or with ``once`` doubled or out of order; the replicas are equal to the byte."""
        await_in_sync(self.zk, [topic], WAIT_S)
        assignment = read_cluster(self.zk, [topic]).topics[topic].assignment
        check_records(self, topic, len(assignment), load, once=once)  # type: ignore[arg-type]
        for partition, replicas in assignment.items():
            eventually(lambda p=partition, r=replicas: self._equal(topic, p, r), "equal bytes", WAIT_S)  # type: ignore[misc]

    def _equal(self, topic: str, partition: int, replicas: Iterable[int]) -> bool:
        logs = [self._log(broker, topic, partition) for broker in replicas]
        return bool(logs[0]) and all(a == b for a, b in pairwise(logs))

    def _log(self, broker: int, topic: str, partition: int) -> bytes:
        data = self.ours.data if broker == OURS else self.real.data_directory(broker)
        return b"".join(s.read_bytes() for s in sorted((data / f"{topic}-{partition}").glob("*.log")))

    def check_replicas(self) -> None:
        """``kt replica-verify`` over all topics: as followers' fetches see them."""
        check_replicas_equal(self, self.access)  # type: ignore[arg-type]


class SecuredRealBrokers(SecuredKafka):
    """As RealBrokers, where nobody gets in without a login."""

    def _wait_known(self, brokers: set[int]) -> None:
        return


@contextmanager
def loaded(mixed: Mixed, topic: str, *, idempotent: bool = True) -> Iterator[Load]:
    """Load on the topic; in the end all is there, once where producers can see to that, and equal on each replica."""
    once = idempotent and mixed.knows_producers
    # Kafka before 1.0 knows only a producer's last batch: of several repeated at a change of leadership it answers that the
    # first is out of order, which is fatal to the producer (KAFKA-5494).
    in_flight = 1 if mixed.real.version.startswith("0.1") else 5
    load = Load(
        mixed.bootstrap,
        topic,
        idempotent=once,
        records_per_step=5,
        in_flight=in_flight,
        access=mixed.access,
    )
    try:
        load.goes_on(200, WAIT_S)
        yield load
        load.goes_on(100, WAIT_S)
    finally:
        load.stop()
    mixed.check(topic, load, once=once)


def _both(protocol: str) -> dict[str, str]:
    """Return what theirs and ours are told alike."""
    return {
        "inter.broker.protocol.version": protocol,
        "unclean.leader.election.enable": "false",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        **STEADY,
        "auto.leader.rebalance.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
    }


@contextmanager
def mixed_cluster(
    version: str, protocol: str, directory: Path, options: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Mixed]:
    """Kafka ``version`` and ours, all speaking the inter-broker ``protocol``; ``options`` are for all brokers."""
    both = {**_both(protocol), **options}
    theirs = {**both, "log.message.format.version": protocol}
    with (
        RealBrokers(version, directory / "real", brokers=2, options=theirs) as real,
        OurBroker(directory / "ours", real.connect, both) as ours,
        ZooKeeper(real.connect) as zk,
    ):
        yield _together(Mixed(real, ours, zk, directory))


@contextmanager
def secured_mixed_cluster(version: str, protocol: str, mechanism: str, directory: Path) -> Iterator[Mixed]:
    """Return the same where everything is secured: brokers among themselves by SASL_SSL and that mechanism.

    An authorizer on both, ZooKeeper with SASL, by TLS where it has that, and ACLs on its nodes.
    """
    both = {**_both(protocol), "sasl.mechanism.inter.broker.protocol": mechanism}
    theirs = {**both, "log.message.format.version": protocol}
    with SecuredRealBrokers(version, directory / "real", brokers=2, options=theirs) as real:
        port = free_port()
        options = {**real.secured_broker(port, free_port()), **both, "kt.jaas.config": real.jaas}
        with (
            OurBroker(directory / "ours", real.connect, options, port=port, access=real.access) as ours,
            ZooKeeper(real.connect, security=real.access.zookeeper) as zk,
        ):
            zk.make_nodes_as(OWN_NODES)
            yield _together(Mixed(real, ours, zk, directory, real.access))


def _together(mixed: Mixed) -> Mixed:
    eventually(lambda: len(mixed.brokers()) == 3, "all to be registered", WAIT_S)
    configs = {"cleanup.policy": "compact", "compression.type": "producer"}
    create_topic(mixed.zk, OFFSETS, {0: (OURS, 1, 2)}, configs)
    return mixed
