"""The same result whatever carries the job: files here, or a cluster that shares nothing with us and logs in HDFS alone."""

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.commands.logs.report_data import as_data
from kafkatool.core.java import find_java
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.statelog.jobs.carrier import Carrier, Logs, Parts
from kafkatool.core.statelog.jobs.gathering import gather
from kafkatool.core.statelog.jobs.here import Here
from kafkatool.core.statelog.jobs.merge import merge, plan_merge
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.jobs.report import make_report
from kafkatool.core.statelog.jobs.timeline import make_timeline
from kafkatool.core.statelog.lines.selection import Counts, Selection
from kafkatool.core.statelog.sources.clocks import clocks
from kafkatool.core.statelog.sources.files import OpenedLogs, find_files, open_logs
from kafkatool.core.statelog.sources.spool import spool
from kafkatool.core.statelog.spark.pyspark_private import jvm
from kafkatool.core.statelog.spark.session import Spark
from kafkatool.core.statelog.there.carrier import RemoteParts, There
from kafkatool.core.statelog.there.files import open_remote
from kafkatool.core.statelog.there.output import save
from kafkatool.core.statelog.there.workers import Workers
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.statelog.logs import NEWER, VERSIONS, record, story, written
from tests.core.statelog.there.cluster import HOST, WORKERS, SparkCluster
from tests.core.statelog.there.hdfs import Hdfs
from tests.paths import ROOT
from tests.waiting import eventually

CHUNK_BYTES = 300_000
"""Small, so that there are more tasks than workers."""

DEADLINE_S = 280
FULL_DISK_BYTES = 256 * 1024
"""Less than what the first round leaves for the second."""


class Elsewhere(NamedTuple):
    """A cluster, HDFS, the logs there and the same logs here; ``here`` is a directory that no worker sees."""

    cluster: SparkCluster
    hdfs: Hdfs
    logs: str
    copy: Path
    here: Path


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    with SparkCluster(there / "cluster", hidden=here) as cluster, Hdfs(there / "hdfs") as hdfs:
        copy = _make_logs(here / "logs")
        _add_our_own(copy, here / "brokers")
        yield Elsewhere(cluster, hdfs, hdfs.put(copy, "/logs"), copy, here)


def _make_logs(directory: Path) -> Path:
    """Make logs that overlap: four with ties, disorder, stack traces and bytes of no encoding; and those of real brokers."""
    directory.mkdir()
    for number in range(4):
        text = []
        for at in range(6_000):
            moment = at * 5 - (40 if at % 97 == number else 0)
            stamp = f"2016-01-01 10:{moment // 60_000 % 60:02d}:{moment // 1000 % 60:02d},{moment % 1000:03d}"
            said = f"[Broker id={number}] Handling stop replica (delete=true) for partition orders-{at % 30}"
            text.append(record(stamp, said))
            if at % 500 == 0:
                text.append(b"java.lang.X: \xff\xfe y\r\n\tat kafka.Z(Z.scala:1)\n" + b"\tat more\n" * 300)
        (directory / f"made-{number}.state-change.log").write_bytes(b"".join(text))
    whole = (directory / "made-3.state-change.log").read_bytes()
    (directory / "made-3.state-change.log").write_bytes(whole[40_000:])  # begins in the middle of a line
    (directory / "made-3.state-change.log.2016-01-01-09").write_bytes(gzip.compress(whole[:30_000]) + b"\0" * 20)
    (directory / "made-4.state-change.log.gz").write_bytes(gzip.compress(whole)[:9_000])  # cut
    for version in (*VERSIONS, *NEWER):
        for number, path in enumerate(story(version)):
            packed = path.read_bytes()  # some stay packed, under a name that does not say so
            data = packed if number % 2 else gzip.decompress(packed)
            (directory / f"{version}-{path.stem}").write_bytes(data)
    return directory


def _add_our_own(logs: Path, directory: Path) -> None:
    """Add the logs of brokers of ours, one of which was killed while it led."""
    with EmbeddedCluster(3, directory=directory) as cluster:
        with ZooKeeper(cluster.zookeeper) as zk:
            create_topic(zk, "ours", {p: (p % 3 + 1, (p + 1) % 3 + 1) for p in range(6)})
            eventually(lambda: len(_led(zk)) == 6, "leaders of all partitions", DEADLINE_S)
            cluster.kill_broker(2)
            eventually(lambda: len(_led(zk)) == 6 and 2 not in _led(zk), "other leaders", DEADLINE_S)
        written = [Path(broker.state_change_log) for broker in cluster.status().brokers]
    for number, log in enumerate(written):
        (logs / f"ours-{number}.state-change.log").write_bytes(log.read_bytes())


def _led(zk: ZooKeeper) -> list[int]:
    states = (state.leader_and_isr for state in read_cluster(zk).states.values())
    return [state.leader for state in states if state.leader is not None]


class Results(NamedTuple):
    """What each command would write."""

    text: bytes
    rows: bytes
    counts: Counts
    rows_counts: Counts
    number_of_rows: int
    timeline: bytes
    report: bytes
    warnings: tuple[str, ...]
    broken: tuple[str, ...]


def _results(opened: OpenedLogs, carrier: Carrier, text: Callable[[Logs], tuple[bytes, Counts]], name: str) -> Results:
    logs = Logs(opened.sources, clocks(opened.sources, []))
    merged = text(logs)
    rows = merge_ordered(logs, Selection(), carrier, as_rows=True, chunk_bytes=CHUNK_BYTES)
    gathered = gather(logs, Selection(), carrier, opened.files, chunk_bytes=CHUNK_BYTES)
    facts = list(make_timeline(gathered, by_time=True, with_ignored=True).items())
    report = as_data(make_report(gathered, top=50), utc=False, with_skew=True)

    def plain(data: object) -> bytes:
        return orjson.dumps(data).replace(name.encode(), b"")

    return Results(
        *(merged[0], written(rows.parts), merged[1], rows.counts, rows.rows),
        *(plain(facts), plain(report)),
        *(tuple(said.replace(name, "") for said in told) for told in (opened.warnings, opened.broken)),
    )


@pytest.fixture(scope="module")
def expected(elsewhere: Elsewhere) -> Results:
    """Give the results of the fast way, on this machine."""
    with spool() as own, Spark("local[2]", own) as spark:
        opened = open_logs(find_files(str(elsewhere.copy), None), own)

        def text(logs: Logs) -> tuple[bytes, Counts]:
            merged = merge(plan_merge(logs.sources, spark), Selection(), spark, own)
            return written(merged.parts), merged.counts

        return _results(opened, Here(spark, own), text, str(elsewhere.copy))


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.spec("SCL-1", "SCL-8", "SCL-9X", "SCL-11X", "SCL-12X", "SCL-16X", "SCL-17X", "SCL-18X", "SCL-22X")
def test_a_cluster_that_shares_nothing_with_us_gives_the_same(elsewhere: Elsewhere, expected: Results) -> None:
    hdfs = elsewhere.hdfs
    with spool() as own, Spark(elsewhere.cluster.url, own, settings=elsewhere.cluster.settings) as spark:
        workers = Workers(spark, own)
        opened = open_remote(workers, [elsewhere.logs], [])
        carrier = There(workers)

        def text(logs: Logs) -> tuple[bytes, Counts]:
            merged = merge_ordered(logs, Selection(), carrier, as_rows=False, chunk_bytes=CHUNK_BYTES)
            save(_remote(merged.parts), f"{hdfs.uri}/results/merged")
            return hdfs.read("/results/merged/part-*"), merged.counts

        found = _results(opened, carrier, text, elsewhere.logs)
        logs = Logs(opened.sources, clocks(opened.sources, []))
        rows = merge_ordered(logs, Selection(), carrier, as_rows=True, chunk_bytes=CHUNK_BYTES)
        save(_remote(rows.parts), f"{hdfs.uri}/results/rows", form="parquet")
        spark.with_context(lambda context: _as_json(context, f"{hdfs.uri}/results/rows", f"{hdfs.uri}/read"))
    assert found == expected
    assert len(expected.broken) == 1
    assert expected.counts.out_of_order > 100
    parquet = hdfs.read("/read/part-*").splitlines()
    assert sorted(map(_key, parquet)) == sorted(map(_key, expected.rows.splitlines()))
    assert hdfs.names("/results") == ["/results/merged", "/results/rows"], "and nothing else, hidden or not"


LOADING = """
import sys
from pyspark.sql import SparkSession
from kafkatool.statelog import register

register(spark := SparkSession.builder.getOrCreate())
rows = spark.read.format("kafka-state-change").load(sys.argv[1])
rows.drop("file", "file_number", "offset").write.mode("error").json(sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.spec("SCL-16X")
def test_a_session_on_the_cluster_loads_the_same_rows_by_the_name_of_the_format(
    elsewhere: Elsewhere, expected: Results
) -> None:
    settings = dict(elsewhere.cluster.settings) | {"spark.ui.enabled": "false", "spark.executor.memory": "512m"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"JAVA_HOME": str(find_java().executable.parents[1]), "SPARK_LOCAL_IP": HOST}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": settings["spark.pyspark.python"]}
    words = [f"--master {elsewhere.cluster.url}", *(f"--conf {name}={value}" for name, value in settings.items())]
    environment["PYSPARK_SUBMIT_ARGS"] = " ".join([*words, "pyspark-shell"])
    command = [sys.executable, "-c", LOADING, elsewhere.logs, f"{elsewhere.hdfs.uri}/loaded"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=elsewhere.here,
        env=environment,
        timeout=DEADLINE_S * 3,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    loaded = elsewhere.hdfs.read("/loaded/part-*").splitlines()
    assert sorted(map(_key, loaded)) == sorted(map(_key, expected.rows.splitlines()))


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.spec("SCL-8")
def test_a_worker_that_dies_in_the_middle_changes_nothing(elsewhere: Elsewhere, expected: Results) -> None:
    cluster, hdfs = elsewhere.cluster, elsewhere.hdfs
    dead: list[tuple[int, int]] = []
    with spool() as own, Spark(cluster.url, own, settings=cluster.settings) as spark:
        workers = Workers(spark, own)
        opened = open_remote(workers, [elsewhere.logs], [])

        def kill(done: int, tasks: int) -> None:
            if not dead and 0 < done < tasks:
                dead.append((done, tasks))
                cluster.kill_worker(1)

        logs = Logs(opened.sources, clocks(opened.sources, []))
        spark.progress = kill
        try:
            merged = merge_ordered(logs, Selection(), There(workers), as_rows=False, chunk_bytes=30_000)
            save(_remote(merged.parts), f"{hdfs.uri}/after/merged")
        finally:
            spark.progress = None
            cluster.revive_worker(1)
    assert dead, "the worker was killed between two tasks"
    assert hdfs.read("/after/merged/part-*") == expected.text
    assert merged.counts == expected.counts


DYING_DRIVER = """
import os, signal, sys, threading, time
from dataclasses import replace
from pathlib import Path
from kafkatool.core.statelog.jobs.carrier import Logs
from kafkatool.core.statelog.jobs.ordered_merge import merge_ordered
from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.spark.session import Spark
from kafkatool.core.statelog.there.carrier import There
from kafkatool.core.statelog.there.files import open_remote
from kafkatool.core.statelog.there.output import save
from kafkatool.core.statelog.there.workers import Workers

master, directory, logs, target, *settings = sys.argv[1:]
spark = Spark(master, Path(directory), settings=dict(setting.split("=", 1) for setting in settings))
workers = Workers(spark, Path(directory))
sources = open_remote(workers, [logs], []).sources
merged = merge_ordered(
    Logs(sources, (None,) * len(sources)), Selection(), There(workers), as_rows=False, chunk_bytes=300_000
)

def stall(number, pieces):
    if number == 5:
        time.sleep(3600)
    return pieces

def die(tracker):
    while not any(tracker.getStageInfo(stage).numCompletedTasks for stage in tracker.getActiveStageIds()):
        time.sleep(0.01)
    os.kill(spark.process.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)

tracker = spark.with_context(lambda context: context.statusTracker())
threading.Thread(target=die, args=(tracker,), daemon=True).start()
save(replace(merged.parts, pieces=merged.parts.pieces.mapPartitionsWithIndex(stall)), target)
"""


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.spec("SCL-8", "SCL-22X")
def test_a_driver_that_dies_while_workers_write_leaves_nothing_under_the_name(
    elsewhere: Elsewhere, expected: Results
) -> None:
    cluster, hdfs = elsewhere.cluster, elsewhere.hdfs
    (own := elsewhere.here / "driver").mkdir()
    target = f"{hdfs.uri}/driver/merged"
    settings = [f"{name}={value}" for name, value in cluster.settings.items()]
    command = [sys.executable, "-c", DYING_DRIVER, cluster.url, str(own), elsewhere.logs, target, *settings]
    died = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S * 3, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    (left,) = hdfs.names("/driver")
    assert left.startswith("/driver/.merged.") and left.endswith(".tmp")
    again = _kt_merge(elsewhere, target)
    assert "breaks off" in again.stderr and again.returncode == 1, "one of the logs is cut; the others are merged"
    assert hdfs.read("/driver/merged/part-*") == expected.text


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.spec("SCL-8", "SCL-22X")
def test_full_disks_of_workers_are_told_and_leave_nothing(elsewhere: Elsewhere, expected: Results) -> None:
    cluster, hdfs = elsewhere.cluster, elsewhere.hdfs
    target = f"{hdfs.uri}/full/merged"
    hdfs.shell("-mkdir", "/full")
    try:
        for number in range(WORKERS):
            cluster.revive_worker(number, disk_bytes=FULL_DISK_BYTES)
        failed = _kt_merge(elsewhere, target)
    finally:
        for number in range(WORKERS):
            cluster.revive_worker(number)
    assert failed.returncode == 1
    told = failed.stderr.splitlines()[-1]
    assert told.startswith("kt: Spark's job failed: ") and told.endswith("No space left on device"), failed.stderr
    assert hdfs.names("/full") == []
    again = _kt_merge(elsewhere, target)
    assert "breaks off" in again.stderr and again.returncode == 1, "one of the logs is cut; the others are merged"
    assert hdfs.read("/full/merged/part-*") == expected.text


def _kt_merge(elsewhere: Elsewhere, target: str) -> "subprocess.CompletedProcess[str]":
    settings = [word for s in elsewhere.cluster.settings.items() for word in ("--spark-conf", "=".join(s))]
    command = [sys.executable, "-m", "kafkatool", "logs", "merge", "--master", elsewhere.cluster.url, *settings]
    command += ["--logs", elsewhere.logs, "--out", target]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S * 3, check=False)


def _remote(parts: Parts) -> RemoteParts:
    assert isinstance(parts, RemoteParts)
    return parts


def _as_json(context: Any, dataset: str, to: str) -> None:
    session = jvm(context).org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    session.read().format("parquet").load(dataset).toJSON().write().text(to)


def _key(row: bytes) -> str:
    """Return a row without what is null, which Spark's JSON leaves out, with times in one form, as text that sorts."""
    values = {name: value for name, value in orjson.loads(row).items() if value is not None}
    values["time"] = values.get("time", "").rstrip("0").rstrip(".")
    return repr(sorted(values.items()))
