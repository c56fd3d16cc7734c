"""A real HDFS on loopback for tests: one NameNode and two DataNodes, from the jars of Maven Central."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import pytest

from kafkatool.core.java import find_java
from tests.maven import dependency, fetched
from tests.ports import free_port
from tests.waiting import eventually

VERSION = "3.4.1"
JACKSON = "2.12.7"  # what its own poms lead Maven to is older than its classes need
HOST = "127.0.0.1"
DEADLINE_S = 300
DATANODES = 2
_ARTIFACTS = ("hadoop-common", "hadoop-hdfs", "hadoop-hdfs-client")


def libraries() -> Path:
    """Return the directory of HDFS's jars, fetched on first use; skip where that is not possible."""
    root = os.environ.get("HDFS_PEER_HOME")
    home = (Path(root) if root else Path.home() / ".cache" / "kafkatool-compat") / f"hdfs-{VERSION}-{JACKSON}"
    if (home / "ok").exists():
        return home / "libs"
    if shutil.which("mvn") is None:
        pytest.skip("HDFS needs Maven (mvn) to fetch its jars, or HDFS_PEER_HOME to have them")
    jackson = dependency("com.fasterxml.jackson.core", "jackson-core", JACKSON)
    return fetched(home, [jackson, *(dependency("org.apache.hadoop", artifact, VERSION) for artifact in _ARTIFACTS)])


class Hdfs:
    """A NameNode and two DataNodes below ``directory``. A context manager: all ends with it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._libraries = libraries()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def uri(self) -> str:
        return f"hdfs://{HOST}:{self._port}"

    def __enter__(self) -> "Hdfs":
        conf = self._directory / "conf"
        conf.mkdir(parents=True)
        site = {
            "fs.defaultFS": self.uri,
            "dfs.namenode.name.dir": (self._directory / "name").as_uri(),
            "dfs.namenode.http-address": f"{HOST}:{free_port()}",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.threshold-pct": "0",
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.fs-limits.min-block-size": "1024",
            "dfs.permissions.enabled": "false",
            "dfs.replication": str(DATANODES),
            "dfs.blocksize": str(256 * 1024),  # so that a log of some size has several
        }
        for name in ("core-site.xml", "hdfs-site.xml"):
            (conf / name).write_text(_xml(site))
        for page in ("hdfs", "datanode"):  # the jars come without web pages, which the servers insist on
            (web := conf / "webapps" / page / "WEB-INF").mkdir(parents=True)
            (web / "web.xml").write_text("<web-app></web-app>")
        try:
            self._run("org.apache.hadoop.hdfs.server.namenode.NameNode", "-format", "-nonInteractive")
            self._start("namenode", "namenode.NameNode")
            for number in range(DATANODES):
                places = {"dfs.datanode.data.dir": (self._directory / f"data-{number}").as_uri()}
                for server in ("address", "ipc.address", "http.address"):
                    places[f"dfs.datanode.{server}"] = f"{HOST}:{free_port()}"
                options = [f"-D{key}={value}" for key, value in places.items()]
                self._start(f"datanode-{number}", "datanode.DataNode", *options)
            eventually(self._all_live, "the DataNodes", DEADLINE_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def put(self, local: Path, path: str) -> str:
        """Copy a file or directory there; return its URI."""
        self.shell("-put", str(local), path)
        return f"{self.uri}{path}"

    def read(self, path: str) -> bytes:
        """Return what the files have, one after the other; a pattern stands for its matches in order of names."""
        return self.shell("-cat", path)

    def names(self, path: str) -> list[str]:
        """Return the paths of all that is in a directory, hidden or not."""
        return self.shell("-ls", "-C", path).decode().split()

    def shell(self, *arguments: str) -> bytes:
        return self._run("org.apache.hadoop.fs.FsShell", *arguments).stdout

    def _all_live(self) -> bool:
        told = self._run("org.apache.hadoop.hdfs.tools.DFSAdmin", "-report", "-live", check=False).stdout
        return f"Live datanodes ({DATANODES})".encode() in told

    def _command(self, main: str, *arguments: str) -> list[str]:
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "nio")]
        options = ["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opened]
        path = f"{self._directory / 'conf'}:{self._libraries}/*"
        return [str(find_java().executable), *options, "-cp", path, main, *arguments]

    def _run(self, main: str, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
        done = subprocess.run(self._command(main, *arguments), capture_output=True, check=False, timeout=DEADLINE_S)
        assert not check or done.returncode == 0, done.stderr[-2000:].decode(errors="replace")
        return done

    def _start(self, name: str, server: str, *arguments: str) -> None:
        command = self._command(f"org.apache.hadoop.hdfs.server.{server}", *arguments)
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))


def _xml(properties: Mapping[str, str]) -> str:
    rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items())
    return f"<configuration>{rows}</configuration>"
