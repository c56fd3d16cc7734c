"""A real ZooKeeper from the jars inside pyspark, as a process on loopback. Ready in a quarter of a second."""

import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

import psutil

from kafkatool.broker.embedded import processes
from kafkatool.core import class_data
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.java import Java, find_java
from kafkatool.core.java_properties import escape
from kafkatool.core.security.credential_files import make_private_directory

_JARS = (
    "zookeeper-",
    "slf4j-api-",
    "commons-io-",
    "metrics-core-",
    "netty-",  # the quorum and TLS classes it links name netty's types
    "snappy-java-",
)
LOGIN_CONFIG: Final = "java.security.auth.login.config"
MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_TICK_MS = 500  # a session may time out after two of them
_POLL_S = 0.005
# Quick to start, small to keep: no tuning compiler, no parallel collector, no file of counters; nor does it find out the
# limits of its container, which tell it nothing: its heap is said.
_JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx512m"),
    *("-Djava.awt.headless=true", "-XX:-CreateCoredumpOnCrash"),
    *(("-XX:-UseContainerSupport",) if sys.platform == "linux" else ()),  # the others do not know it
)
_ARCHIVE_MAKER = "kafkatool.broker.embedded.zookeeper_archive_maker"


def zookeeper_jars() -> list[Path]:
    """Return what ZooKeeper needs of pyspark's jars, in a fixed order. Raises KafkatoolError if there is no pyspark."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise KafkatoolError("pyspark is not installed, and with it ZooKeeper's jars are missing: pip install kafka-kt")
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    return sorted(j for j in jars.glob("*.jar") if j.name.startswith(_JARS))


def java_command(java: Java) -> list[str]:
    """Return the Java with ZooKeeper's options and class path, to which the main class is added."""
    return [str(java.executable), *_JVM, "-cp", ":".join(map(str, zookeeper_jars()))]


def archive_path(java: Java) -> Path:
    """Return where the class-data archive of ZooKeeper's JVM belongs (`core.class_data`): 19 MB, two seconds to make."""
    return class_data.archive_path("zookeeper", java, zookeeper_jars())


class ZooKeeperProcess:
    """One standalone ZooKeeper under ``directory`` (zoo.cfg, data, its output), listening on 127.0.0.1.

    Data survives a restart. It starts from a class-data archive where one has been made. ``settings`` are added to its
    configuration; ``login_file`` names who may log in (section Server).
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        settings: Mapping[str, str] = MappingProxyType({}),
        login_file: Path | None = None,
    ) -> None:
        self._settings = settings
        self._login_file = login_file
        self.directory = directory.absolute()
        self.port = port
        self.config = self.directory / "zoo.cfg"
        self.output = self.directory / "zookeeper.out"
        self.child: subprocess.Popen[bytes] | None = None
        """The process, where it is ours."""
        self._archive: Path | None = None

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start the process; it is not ready yet. Raises KafkatoolError when there is no Java."""
        java = find_java()
        archive = archive_path(java)
        self._archive = archive if class_data.usable(archive) else None
        self._launch(java)
        return self

    def _launch(self, java: Java) -> None:
        command = self.command(java, class_data.options(self._archive))
        self.child = processes.spawn(command, self.output, {"LC_ALL": "C.UTF-8"})  # by which Java names files

    def command(self, java: Java, options: Sequence[str]) -> list[str]:
        """Return the command that runs it, its JVM with those options besides; its configuration is written."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._login_file:
            make_private_directory(self.directory)  # its data has the users' credentials
        self.config.write_text(
            f"dataDir={escape(str(self.directory / 'data'))}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={_TICK_MS}\nmaxSessionTimeout={_TICK_MS * 120}\nmaxClientCnxns=0\n"
            "admin.enableServer=false\nautopurge.purgeInterval=1\nforceSync=no\n"
            + "".join(f"{name}={escape(value)}\n" for name, value in self._settings.items())
        )
        executable, *rest = java_command(java)
        crash = f"-XX:ErrorFile={self.directory / 'crash.log'}"  # not where the user happens to be
        login = [f"-D{LOGIN_CONFIG}={self._login_file}"] if self._login_file else []
        return [executable, *options, *login, crash, *rest, MAIN, str(self.config)]

    def wait_ready(self, timeout_ms: int = 120_000) -> Self:
        """Wait until it serves (``srvr`` answers with its mode). Raises ProcessEndedError, KafkatoolError.

        One that ends, perhaps of a damaged archive, is started once more, without.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        while time.monotonic() < deadline:
            if self.child is not None and (code := self.child.poll()) is not None:
                if self._archive is None:
                    raise processes.ProcessEndedError("ZooKeeper", code, self.output)
                class_data.discard(self._archive)
                self._archive = None
                self._launch(find_java())
            if self.answers():
                return self
            time.sleep(_POLL_S)
        raise KafkatoolError(f"ZooKeeper did not serve on port {self.port} within {timeout_ms} ms; see {self.output}")

    def have_archive_made(self) -> bool:
        """Have the archive made that this start lacked, in the background, for the next ones. Return if that began."""
        if self._archive is not None:
            return False
        maker = [*processes.PYTHON, "-m", _ARCHIVE_MAKER]
        return class_data.make_in_background(archive_path(find_java()), maker, processes.own_environment())

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
        if self.child is not None and self.child.poll() is None:
            return psutil.Process(self.child.pid)
        return processes.find(MAIN, self.config)

    def stop(self, *, gentle: bool = True) -> None:
        """End it and wait until it is gone; nothing to do when it does not run."""
        if running := self.process():
            processes.end(running, gentle=gentle, timeout_ms=10_000)
        if self.child is not None:
            self.child.wait()
            self.child = None
