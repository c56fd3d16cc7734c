"""A Spark standalone cluster on this machine whose workers share no directory with the driver or with each other.

Each worker has a mount namespace of its own, in which the driver's directories, our package and the other worker's
directory are empty, and a bare Python: nothing is installed in it.
"""

import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pytest

from kafkatool.core.java import find_java
from kafkatool.core.statelog.spark.jvm import LOGGING, jvm_options, spark_jars
from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import eventually

HOST = "127.0.0.1"
DEADLINE_S = 300
WORKERS = 2


def _unshare() -> list[str]:
    """Return the command that runs another one in a mount namespace of its own; skip where that is not allowed."""
    for command in (["unshare", "-m"], ["unshare", "-Urm"]):
        with suppress(OSError):
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
    pytest.skip("workers apart from each other need mount namespaces (unshare -m)")


class SparkCluster:
    """A master and two workers of one core each, below ``directory``. A context manager: all ends with it.

    ``hidden`` are the directories that no worker sees.
    """

    def __init__(self, directory: Path, hidden: Path) -> None:
        self._directory = directory
        self._unshare = _unshare()
        self._hidden = [hidden, ROOT / "kafkatool", ROOT / "tests"]
        self._port, self._web = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    @property
    def worker_processes(self) -> list[int]:
        """The processes of the workers, which start those of jobs."""
        return [process.pid for process in self._processes[1:]]

    @property
    def settings(self) -> dict[str, str]:
        """What a driver on this machine must tell Spark."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.shuffle.readHostLocalDisk": "false",  # the workers have one address, but not one disk
            "spark.pyspark.python": str(self._directory / "python" / "bin" / "python"),
        }

    def __enter__(self) -> "SparkCluster":
        self._directory.mkdir()
        (self._directory / "log4j2.properties").write_text(LOGGING)
        python = self._directory / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True, capture_output=True)
        web = ("--webui-port", str(self._web))
        try:
            self._start("master", "master.Master", ("--host", HOST, "--port", str(self._port), *web), [])
            for number in range(WORKERS):
                self.start_worker(number)
            eventually(lambda: self._alive() == WORKERS, "the workers", DEADLINE_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            _kill(process)

    def worker(self, number: int) -> Path:
        """Return the directory of a worker: Spark's files of jobs are in ``local``, executors' logs in ``work``."""
        return self._directory / f"worker-{number}"

    def start_worker(self, number: int, *, disk_bytes: int | None = None) -> None:
        """Start a worker; with ``disk_bytes`` all of Spark's own files on it share a disk of that size."""
        own = self.worker(number)
        own.mkdir(exist_ok=True)
        arguments = ("--cores", "1", "--memory", "1g", "--work-dir", str(own / "work"))
        ports = ("--host", HOST, "--port", str(free_port()), "--webui-port", str(free_port()), self.url)
        others = [self.worker(other) for other in range(WORKERS) if other != number]
        for other in others:
            other.mkdir(exist_ok=True)
        hide = [f"mount -t tmpfs none {shlex.quote(str(path))}" for path in (*self._hidden, *others)]
        if disk_bytes is not None:
            disk = shlex.quote(str(own / "local"))
            hide.append(f"mkdir -p {disk} && mount -t tmpfs -o size={disk_bytes} none {disk}")
        self._start(f"worker-{number}", "worker.Worker", (*arguments, *ports), hide)

    def kill_worker(self, number: int) -> None:
        """Kill a worker and what runs its tasks, as when its machine dies."""
        _kill(self._processes[1 + number])

    def revive_worker(self, number: int, *, disk_bytes: int | None = None) -> None:
        """Start a worker in the place of another, dead or not, and wait until the master knows of both."""
        _kill(self._processes[1 + number])
        eventually(lambda: self._alive() == WORKERS - 1, "the end of the worker before", DEADLINE_S)
        self.start_worker(number, disk_bytes=disk_bytes)
        self._processes[1 + number] = self._processes.pop()
        eventually(lambda: self._alive() == WORKERS, "the workers", DEADLINE_S)

    def _start(self, name: str, main: str, arguments: tuple[str, ...], mounts: list[str]) -> None:
        options = [*jvm_options(), "-Xmx256m", f"-Dlog4j2.configurationFile={self._directory}/log4j2.properties"]
        command = [str(find_java().executable), *options, "-cp", ":".join(map(str, spark_jars()))]
        command += [f"org.apache.spark.deploy.{main}", *arguments]
        if mounts:
            script = f"mount --make-rprivate / && {' && '.join(mounts)} && exec {shlex.join(command)}"
            command = [*self._unshare, "sh", "-c", script]
        (core,) = (jar for jar in spark_jars() if jar.name.startswith("spark-core_"))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK_", "PYSPARK_"))}
        environment = kept | {
            "SPARK_LOCAL_IP": HOST,
            "SPARK_HOME": str(core.parents[1]),
            "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0],
            "SPARK_LOCAL_DIRS": str(self._directory / name / "local"),
        }
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, cwd=self._directory, start_new_session=True
                )
            )

    def _alive(self) -> int:
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=10) as answer:
            return str(answer.read().decode()).count('"state" : "ALIVE"')
        return 0


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and all of its session: executors are children of their worker, Pythons of theirs."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
