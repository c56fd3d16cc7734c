"""The same result whatever does the work: one, two, four threads, and a Spark master with two workers of its own."""

import gzip
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from kafkatool.commands.logs.report_data import as_data
from kafkatool.core.java import find_java
from kafkatool.core.statelog.jobs.gathering import Logs, gather
from kafkatool.core.statelog.jobs.merge import merge, replacing
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.jobs.report import make_report
from kafkatool.core.statelog.jobs.timeline import make_timeline
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.sources.clocks import clocks
from kafkatool.core.statelog.sources.files import find_files, open_logs
from kafkatool.core.statelog.sources.spool import spool
from kafkatool.core.statelog.spark.jvm import LOGGING, jvm_options, spark_jars
from kafkatool.core.statelog.spark.parquet import write_parquet
from kafkatool.core.statelog.spark.pyspark_private import jvm
from kafkatool.core.statelog.spark.session import Spark
from tests.core.statelog.logs import VERSIONS, record, story
from tests.ports import free_port

DEADLINE_S = 300
HOST = "127.0.0.1"
LOCAL = ("local[1]", "local[2]", "local[4]")
CHUNK_BYTES = 500_000
"""Small, so that there are more tasks than workers."""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Make 7 MB of logs that overlap: four with ties, lines out of order and stack traces, and those of real brokers."""
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
        (directory / f"made-{number}.state-change.log").write_bytes(b"".join(text))
    for version in VERSIONS:
        for path in story(version):
            (directory / f"{version}-{path.stem}").write_bytes(gzip.decompress(path.read_bytes()))
    return directory


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Give a standalone master with two workers of one core each, each a JVM."""
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
@pytest.mark.spec("SCL-8", "SCL-16X", "SCL-17X", "SCL-18X")
def test_every_result_is_the_same_on_any_master(logs: Path, master: str, tmp_path: Path) -> None:
    results = {on: _results(on, logs, tmp_path / f"on-{number}") for number, on in enumerate((*LOCAL, master))}
    assert all(result == results[master] for result in results.values()), results
    found = results[master]
    assert (found.counts.records, found.counts.out_of_order > 100) == (found.rows_counts.records, True)
    assert found.counts.lines == sum(path.read_bytes().count(b"\n") for path in logs.iterdir())
    assert found.facts > 200
    assert found.rows > found.counts.records  # some records name several partitions


class Results(NamedTuple):
    """Digests of what each command would write, and how much that was."""

    text: str
    counts: Counts
    jsonl: str
    rows_counts: Counts
    rows: int
    parquet: str
    timeline: str
    facts: int
    report: str


def _results(master: str, logs: Path, directory: Path) -> Results:
    directory.mkdir()
    with spool() as own, Spark(master, own.directory) as spark:
        opened = open_logs(find_files(str(logs), None), own)
        zones = clocks(opened.sources, [])
        with replacing(directory / "merged") as output:
            merged = merge(opened.sources, Selection(), spark, own.directory, output=output)
            merged.write_to(output)
        (rows_directory := own.directory / "rows").mkdir()
        rows, number = merge_ordered(
            opened.sources, zones, Selection(), spark, rows_directory, as_rows=True, chunk_bytes=CHUNK_BYTES
        )
        jsonl = b"".join(part.read_bytes() for part in rows.parts)
        write_parquet(rows.parts, directory / "parquet", spark, utc=False)
        read = spark.with_context(lambda context: _read_parquet(context, directory / "parquet", directory / "read"))
        told = Logs(opened.sources, zones, own.directory)
        gathered = gather(told, Selection(), spark, opened.files, chunk_bytes=CHUNK_BYTES)
        facts = list(make_timeline(gathered, spark, by_time=False, with_ignored=True).items())
        report = make_report(gathered, spark, top=50)
    return Results(
        text=sha256((directory / "merged").read_bytes()).hexdigest(),
        counts=merged.counts,
        jsonl=sha256(jsonl).hexdigest(),
        rows_counts=rows.counts,
        rows=number,
        parquet=sha256("\n".join(sorted(read)).encode()).hexdigest(),
        timeline=sha256(orjson.dumps(facts)).hexdigest(),
        facts=len(facts),
        report=sha256(orjson.dumps(as_data(report, utc=False, with_skew=True))).hexdigest(),
    )


def _read_parquet(context: Any, dataset: Path, to: Path) -> list[str]:
    """Return the dataset's rows as JSON, written by the JVM."""
    session = jvm(context).org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    session.read().format("parquet").load(dataset.as_uri()).toJSON().write().text(to.as_uri())
    return [line for part in to.glob("part-*") for line in part.read_text().splitlines()]


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
