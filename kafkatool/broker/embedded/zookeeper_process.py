"""A real ZooKeeper from the jars inside pyspark, as a process on loopback. Ready in about a second."""

import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import psutil

from kafkatool.broker.embedded import processes
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.java import find_java

_JARS = (
    "zookeeper-",
    "slf4j-api-",
    "commons-io-",
    "metrics-core-",
    "netty-",  # the quorum and TLS classes it links name netty's types
    "snappy-java-",
)
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_TICK_MS = 500  # a session may time out after two of them
# Quick to start, small to keep: no tuning compiler, no parallel collector.
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m", "-Djava.awt.headless=true")


def _class_path() -> str:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise KafkatoolError(
            "pyspark is not installed, and with it ZooKeeper's jars are missing: pip install kafkatool"
        )
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    return ":".join(str(j) for j in sorted(jars.glob("*.jar")) if j.name.startswith(_JARS))


class ZooKeeperProcess:
    """One standalone ZooKeeper under ``directory`` (zoo.cfg, data, its output), listening on 127.0.0.1.

    Data survives a restart.
    """

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.config = self.directory / "zoo.cfg"
        self.output = self.directory / "zookeeper.out"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start the process; it is not ready yet. Raises KafkatoolError when there is no Java."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write_text(
            f"dataDir={self.directory / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={_TICK_MS}\nmaxSessionTimeout={_TICK_MS * 120}\nmaxClientCnxns=0\n"
            "admin.enableServer=false\nautopurge.purgeInterval=1\nforceSync=no\n"
        )
        java = find_java()
        command = [str(java.executable), *_JVM, "-cp", _class_path(), _MAIN, str(self.config)]
        self._child = processes.spawn(command, self.output)
        return self

    def wait_ready(self, timeout_ms: int = 30_000) -> Self:
        """Wait until it serves (``srvr`` answers with its mode). Raises ProcessEndedError, KafkatoolError."""
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            if self._child is not None and (code := self._child.poll()) is not None:
                raise processes.ProcessEndedError("ZooKeeper", code, self.output)
            if self.answers():
                return self
            time.sleep(0.02)
        raise KafkatoolError(f"ZooKeeper did not serve on port {self.port} within {timeout_ms} ms; see {self.output}")

    def answers(self) -> bool:
        """Tell whether it is serving clients now."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                s.sendall(b"srvr")
                answer = b""
                while chunk := s.recv(4096):
                    answer += chunk
                return b"Mode:" in answer
        except OSError:
            return False

    def process(self) -> psutil.Process | None:
        """Find the running process, whoever started it, or None."""
        return processes.find(_MAIN, self.config)

    def stop(self, *, gentle: bool = True) -> None:
        """End it and wait until it is gone; nothing to do when it does not run."""
        if running := self.process():
            processes.end(running, gentle=gentle, timeout_ms=10_000)
        if self._child is not None:
            self._child.wait()
            self._child = None
