"""Real Apache Kafka in ZooKeeper mode on loopback, as a peer: jars from Maven Central, each broker a process.

Jars are kept in $KAFKA_PEER_HOME, else ~/.cache/kafkatool-compat, one directory per version. Tried: 0.10.2.2,
0.11.0.3, 1.1.1, 2.8.2, beside ours also the last of each minor release between; 3.6.1 and 3.9.1 for their logs; without
ZooKeeper 3.9.1 and 4.1.0.
"""

import base64
import gc
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from _pytest.mark.structures import ParameterSet

from kafkatool.core.client.addresses import Address
from kafkatool.core.client.connections import Connections
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.java import JavaNotFoundError, find_java
from kafkatool.core.operations.verification.replica_reader import layout_from_brokers
from tests.compat import class_archives
from tests.maven import dependency, fetched
from tests.ports import free_port
from tests.waiting import awaited

SCALA: Final = {
    "0.10.2.2": "2.12",
    "0.11.0.3": "2.12",
    "1.0.2": "2.12",
    "1.1.1": "2.12",
    "2.0.1": "2.12",
    "2.1.1": "2.12",
    "2.2.2": "2.12",
    "2.3.1": "2.12",
    "2.4.1": "2.12",
    "2.5.1": "2.12",
    "2.6.3": "2.12",
    "2.7.2": "2.12",
    "2.8.2": "2.13",
    "3.6.1": "2.13",
    "3.9.1": "2.13",
    "4.1.0": "2.13",
}
ZOOKEEPER_CLIENT: Final = dict.fromkeys(("2.0.1", "2.1.1", "2.2.2", "2.3.1"), "3.4.10")
"""Instead of their own, 3.4.13 and 3.4.14, which take no address that a Java from 14 on writes "host/<unresolved>:port"."""
BROKER: Final = "kafka.Kafka"
"""The class of a broker, and of a controller."""
START_TIMEOUT_S: Final = 300
STOP_TIMEOUT_S: Final = 180


def versions(*given: tuple[str, ...] | str) -> list[ParameterSet]:
    """Return parameters for these versions, or tuples that begin with one; all but 2.8 take their time with --all."""
    names = [name if isinstance(name, str) else name[0] for name in given]
    return [
        pytest.param(value, id=name, marks=[] if name == "2.8.2" else [pytest.mark.slowest])
        for value, name in zip(given, names, strict=True)
    ]


def require(version: str) -> None:
    """Skip the test, saying why, where real Kafka cannot run."""
    try:
        find_java()
    except JavaNotFoundError as e:
        pytest.skip(f"real Kafka {version} needs a Java: {e}")
    if not (_home(version) / "ok").exists() and shutil.which("mvn") is None:
        pytest.skip(f"real Kafka {version} needs Maven (mvn) to fetch its jars, or KAFKA_PEER_HOME to have them")


def _home(version: str) -> Path:
    root = os.environ.get("KAFKA_PEER_HOME")
    return (Path(root) if root else Path.home() / ".cache" / "kafkatool-compat") / version


def libraries(version: str) -> Path:
    """Return the directory of that Kafka's jars, fetched on first use."""
    wanted = [
        dependency("org.apache.kafka", f"kafka_{SCALA[version]}", version),
        dependency("org.apache.kafka", "kafka-tools", version),
        dependency("org.slf4j", "slf4j-log4j12", "1.7.30"),
        dependency("javax.xml.bind", "jaxb-api", "2.3.1"),
    ]
    if version in ZOOKEEPER_CLIENT:
        wanted.append(dependency("org.apache.zookeeper", "zookeeper", ZOOKEEPER_CLIENT[version]))
    return fetched(_home(version), wanted)


class RealKafka:
    """One ZooKeeper and brokers 1 to N of a Kafka version under ``directory``. A context manager: all ends with it."""

    def __init__(
        self, version: str, directory: Path, *, brokers: int = 3, options: Mapping[str, str] | None = None
    ) -> None:
        self.version = version
        self._directory = directory
        self._options = dict(options or {})
        self._own_options: dict[int, dict[str, object]] = {}
        self._zookeeper_port = free_port()
        self.ports = {broker: free_port() for broker in range(1, brokers + 1)}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self._zookeeper_port}"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def __enter__(self) -> Self:
        try:
            self._start_zookeeper()
            for broker in self.ports:
                self._spawn_broker(broker)
            for broker, port in self.ports.items():
                self._wait_port(f"broker-{broker}", port)
            self._wait_known(set(self.ports))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill everything: nothing under the directory is kept."""
        gc.collect()  # clients in cycles (a CliRunner's result holds its test's frame) would seek the dead cluster on
        for process in self._processes.values():
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        self._processes.clear()
        if class_archives.are_listed(self._directory):
            line = self._java_line(self.version, "384m")
            class_archives.make(self.version, libraries(self.version), self._directory, line)

    def stop_broker(self, broker: int) -> None:
        """Controlled shutdown; returns when the process has ended. AssertionError with where it stands if it does not."""
        process = self._processes[f"broker-{broker}"]
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"broker {broker} does not stop:\n{self._where_it_stands(broker)}") from None
        del self._processes[f"broker-{broker}"]

    def _where_it_stands(self, broker: int) -> str:
        """Return the stacks of the threads that end a broker, and of its main thread."""
        self._processes[f"broker-{broker}"].send_signal(signal.SIGQUIT)
        output = self._directory / f"broker-{broker}.out"

        def whole() -> str | None:
            text = output.read_text(errors="replace")
            return text if "JNI global refs" in text else None

        blocks = awaited(whole, "the stacks of a Java").split("\n\n")
        return "\n".join(block[:2000] for block in blocks if "hutdown" in block or '"main"' in block)

    def kill_broker(self, broker: int) -> None:
        """kill -9; its session is still there."""
        process = self._processes.pop(f"broker-{broker}")
        process.kill()
        process.wait(STOP_TIMEOUT_S)

    def start_broker(self, broker: int) -> None:
        """Start it again on its data and its port; returns when the others know it."""
        self._spawn_broker(broker)
        self._wait_port(f"broker-{broker}", self.ports[broker])
        self._wait_known({b for b in self.ports if f"broker-{b}" in self._processes})

    def configure(self, broker: int, options: Mapping[str, object]) -> None:
        """Tell that broker these, over what all are told; they hold from its next start on."""
        self._own_options[broker] = dict(options)

    def is_running(self, broker: int) -> bool:
        """Tell whether it was started, and neither stopped nor killed since."""
        return f"broker-{broker}" in self._processes

    def pid(self, broker: int) -> int:
        """Return the process that a running broker is."""
        return self._processes[f"broker-{broker}"].pid

    @contextmanager
    def without_broker(self, broker: int) -> Iterator[None]:
        """Stop the broker while the block runs."""
        self.stop_broker(broker)
        try:
            yield
        finally:
            self.start_broker(broker)

    def data_directory(self, broker: int) -> Path:
        """Return its one log directory."""
        return self._directory / f"broker-{broker}"

    def tool(self, main: str, *args: str, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
        """Run a tool of that Kafka, such as ``kafka.admin.TopicCommand``."""
        command = self.command(main, *args)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)

    def command(self, main: str, *args: str) -> list[str]:
        """Return the command line of such a tool."""
        return self._java(main, args, heap="256m")

    def _start_zookeeper(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "zookeeper.properties"
        config.write_text(
            f"dataDir={self._directory / 'zookeeper'}\nclientPort={self._zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\ntickTime=1000\nadmin.enableServer=false\n"
            "maxSessionTimeout=120000\n"  # not 20 ticks: who asks for a session that lasts, as tools do, gets it
            + self._zookeeper_lines()
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._spawn("zookeeper", self._java(main, [str(config)], heap="256m"))
        self._wait_port("zookeeper", self._zookeeper_port)

    def _zookeeper_lines(self) -> str:
        """Return what else its configuration holds."""
        return ""

    def _broker_options(self, broker: int) -> Mapping[str, object]:
        """Return what else that broker's properties hold."""
        return self._options

    def _spawn_broker(self, broker: int) -> None:
        properties = {
            "broker.id": broker,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker]}",
            "log.dirs": self.data_directory(broker),
            "zookeeper.connect": self.connect,
            "zookeeper.connection.timeout.ms": 120_000,  # a broker that starts ends where it takes longer
            "offsets.topic.num.partitions": 1,
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            **self._broker_options(broker),
            **self._own_options.get(broker, {}),
        }
        config = self._directory / f"broker-{broker}.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self._spawn(f"broker-{broker}", self._java(BROKER, [str(config)], heap="384m"))

    def _java(self, main: str, args: Sequence[str], *, heap: str) -> list[str]:
        where = libraries(self.version)
        if main == BROKER:
            faster = class_archives.options_of_a_broker(self.version, where, self._directory)
        else:
            faster = class_archives.options(self.version, where)
        return [*self._java_line(self.version, heap), *faster, main, *args]

    def _java_line(self, version: str, heap: str) -> list[str]:
        """Return the command line up to a class, and what makes that one start faster."""
        logging = self._directory / "log4j.properties"
        logging.write_text(
            "log4j.rootLogger=WARN, E\nlog4j.appender.E=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.E.Target=System.err\nlog4j.appender.E.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.E.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        )
        options = [
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Xmx{heap}",
            f"-Dlog4j.configuration=file:{logging}",
        ]
        return [str(find_java().executable), *options, "-cp", f"{libraries(version)}/*"]

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        with (self._directory / f"{name}.out").open("ab") as sink:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )

    def _wait_known(self, brokers: set[int]) -> None:
        """Until the controller has told each of those brokers about all of them: it listens before it is registered."""
        deadline = time.monotonic() + START_TIMEOUT_S
        for broker in brokers:
            while self._known_to(broker) != brokers:
                for each in brokers:
                    self._require_running(f"broker-{each}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"broker {broker} of Kafka {self.version} does not know brokers {brokers}")
                time.sleep(0.1)

    def _known_to(self, broker: int) -> set[int]:
        """Return the brokers it names; none while it is too busy to answer, as one that starts may be for 10 s."""
        try:
            with Connections() as connections:
                address = Address("127.0.0.1", self.ports[broker])
                return set(layout_from_brokers([address], lambda _: (), connections).addresses)
        except BrokerUnreachableError:
            return set()

    def _require_running(self, name: str) -> None:
        if (code := self._processes[name].poll()) is not None:
            raise RuntimeError(f"{name} ended with {code}: {(self._directory / f'{name}.out').read_text()[-4000:]}")

    def _wait_port(self, name: str, port: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            self._require_running(name)
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{name} of Kafka {self.version} did not listen on {port} in {START_TIMEOUT_S} s")


class KraftKafka(RealKafka):
    """The same without ZooKeeper: each node is broker and controller."""

    def __init__(
        self, version: str, directory: Path, *, brokers: int = 3, options: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(version, directory, brokers=brokers, options=options)
        self._controllers = {broker: free_port() for broker in self.ports}

    @property
    def controllers(self) -> str:
        """Return the controllers' addresses."""
        return ",".join(f"127.0.0.1:{port}" for port in self._controllers.values())

    def _start_zookeeper(self) -> None:
        """Format the nodes' directories instead."""
        random = bytes(1) + uuid.uuid4().bytes[1:]  # an id that began with "-" would be taken for a flag
        cluster_id = base64.urlsafe_b64encode(random).decode().rstrip("=")
        for broker in self.ports:
            config = self._write_properties(broker)
            done = self.tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config))
            if done.returncode:
                raise RuntimeError(f"format of Kafka {self.version}: {done.stdout}{done.stderr}")

    def _spawn_broker(self, broker: int) -> None:
        config = self._write_properties(broker)
        self._spawn(f"broker-{broker}", self._java(BROKER, [str(config)], heap="384m"))

    def _write_properties(self, broker: int) -> Path:
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._controllers.items())
        properties = {
            "process.roles": "broker,controller",
            "node.id": broker,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker]},CONTROLLER://127.0.0.1:{self._controllers[broker]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self.data_directory(broker),
            "offsets.topic.num.partitions": 1,
            "auto.create.topics.enable": "false",
            # one that is started again ends where it is not let in so long: a session that is still there keeps it out
            "initial.broker.registration.timeout.ms": START_TIMEOUT_S * 1000,
            **self._options,
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / f"broker-{broker}.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        return config

    def _known_to(self, broker: int) -> set[int]:
        """Return the brokers it names, by Kafka's own tool: from 4.0 on it speaks no version of the requests we send."""
        package = "kafka.admin" if self.version.startswith("3.") else "org.apache.kafka.tools"
        asked = (f"{package}.BrokerApiVersionsCommand", "--bootstrap-server", f"127.0.0.1:{self.ports[broker]}")
        return {int(node) for node in re.findall(r"\(id: (\d+) rack", self.tool(*asked).stdout)}
