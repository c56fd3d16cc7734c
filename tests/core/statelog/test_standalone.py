"""The same bytes whatever does the work: one, two, four threads, and a Spark master with two workers of its own."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from kafkatool.core.java import find_java
from kafkatool.core.statelog.files import find_files, open_logs
from kafkatool.core.statelog.jvm import LOGGING, jvm_options, spark_jars
from kafkatool.core.statelog.merge import merge, replacing
from kafkatool.core.statelog.selection import Counts, Selection
from kafkatool.core.statelog.spark import Spark
from kafkatool.core.statelog.spool import spool
from tests.core.statelog.logs import record
from tests.ports import free_port

DEADLINE_S = 300
HOST = "127.0.0.1"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Four logs of some 6 MB that overlap, with ties, lines out of order and stack traces."""
    directory = tmp_path / "logs"
    directory.mkdir()
    for number in range(4):
        text = []
        for at in range(12_000):
            moment = at * 5 - (40 if at % 97 == number else 0)
            stamp = f"2016-01-01 10:{moment // 60_000 % 60:02d}:{moment // 1000 % 60:02d},{moment % 1000:03d}"
            partition = f"orders-{at % 30}"
            text.append(
                record(stamp, f"[Broker id={number}] Handling stop replica (delete=true) for partition {partition}")
            )
            if at % 500 == 0:
                text.append(b"java.lang.X: y\n\tat kafka.Z(Z.scala:1)\n")
        (directory / f"state-change.log.{number}").write_bytes(b"".join(text))
    return directory


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers of one core each, each a JVM."""
    port, web = free_port(), free_port()
    url = f"spark://{HOST}:{port}"
    directory = tmp_path / "cluster"
    directory.mkdir()
    (directory / "log4j2.properties").write_text(LOGGING)
    processes = [_jvm(directory, "master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(web))]
    try:
        for number in range(2):
            more = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"))
            ports = ("--host", HOST, "--port", str(free_port()), "--webui-port", str(free_port()))
            processes.append(_jvm(directory, "worker.Worker", *more, *ports, url))
        _wait(lambda: _page(web).count('"state" : "ALIVE"') == 2)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(DEADLINE_S)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.spec("SCL-8")
def test_the_bytes_are_the_same_on_any_master(logs: Path, master: str, tmp_path: Path) -> None:
    results = {on: _merged(on, logs, tmp_path / "out") for on in ("local[1]", "local[2]", "local[4]", master)}
    assert len(set(map(str, results.values()))) == 1
    _, counts = results[master]
    assert (counts.records, counts.continuation_lines) == (48_000, 4 * 24 * 2)
    assert counts.out_of_order > 100


def _merged(master: str, logs: Path, out: Path) -> tuple[str, Counts]:
    with spool() as own, Spark(master, own.directory) as spark:
        opened = open_logs(find_files(str(logs), None), own)
        with replacing(out) as output:
            merged = merge(opened.sources, Selection(), spark, own.directory, output=output)
            merged.write_to(output)
    return sha256(out.read_bytes()).hexdigest(), merged.counts


def _jvm(directory: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    options = [*jvm_options(), "-Xmx256m", f"-Dlog4j2.configurationFile={(directory / 'log4j2.properties').as_uri()}"]
    command = [str(find_java().executable), *options, "-cp", ":".join(map(str, spark_jars()))]
    (core,) = (jar for jar in spark_jars() if jar.name.startswith("spark-core_"))  # spark-core_2.13-4.0.0.jar
    environment = os.environ | {
        "SPARK_LOCAL_IP": HOST,
        "SPARK_HOME": str(core.parents[1]),
        "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0],
        "PYSPARK_PYTHON": sys.executable,
    }
    with (directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*command, f"org.apache.spark.deploy.{name}", *arguments],
            stdout=log,
            stderr=log,
            env=environment,
        )


def _page(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/json/", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _wait(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.2)
