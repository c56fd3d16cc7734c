"""Every member and contract used below pyspark's public surface, one message for each: read them for a new version."""

import inspect
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import daemon, java_gateway, worker
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from kafkatool.core.statelog.spark.jvm import GATEWAY_CLASS, OPENED_PACKAGES, spark_jars
from kafkatool.core.statelog.spark.pyspark_private import (
    CONNECTION_FILE,
    PORT,
    SECRET,
    by_number,
    bytes_rdd,
    driver_loader,
    java_bytes,
    java_context,
    java_new,
    java_rows,
    java_strings,
    jvm,
    serve_callbacks,
)
from kafkatool.core.statelog.spark.session import Spark


def test_a_context_has_the_members_that_are_used(spark: Spark) -> None:
    spark.with_context(_check)


def _check(context: Any) -> None:
    assert jvm(context).java.lang.Integer.valueOf(7) == 7, "SparkContext._jvm: the JVM's classes (there, parquet)"
    assert java_context(context).sc() is not None, "SparkContext._jsc: the JavaSparkContext (there, parquet, forget)"
    updates = context.__dict__.get("_accumulatorServer")
    assert updates is not None, "SparkContext._accumulatorServer: its thread is ended by forget()"
    assert callable(updates.handle_error), "_accumulatorServer.handle_error: silenced by connect()"
    assert callable(updates.shutdown), "_accumulatorServer.shutdown: called by forget()"
    for name in ("_gateway", "_jvm"):
        assert name in SparkContext.__dict__, f"SparkContext.{name}: of the class, taken back by forget()"
    assert callable(SparkContext.__dict__["_gateway"].close), "SparkContext._gateway.close: called by forget()"


@pytest.mark.slow
def test_bytes_pass_between_python_and_the_jvm_as_they_are(spark: Spark) -> None:
    def pass_both_ways(context: Any) -> list[bytes]:
        given = context.parallelize([b"\xff\n", b""], 2)
        java = java_bytes(given)  # RDD._reserialize, RDD._jrdd: a JavaRDD of byte arrays
        return list(bytes_rdd(context, java).collect())  # pyspark.core.rdd.RDD(jrdd, context, NoOpSerializer())

    assert spark.with_context(pass_both_ways) == [b"\xff\n", b""]


@pytest.mark.slow
def test_bytes_go_to_the_partition_that_is_named(spark: Spark) -> None:
    def bring_together(context: Any) -> list[list[bytes]]:
        given = [part for pair in ((2, b"c"), (0, b"a"), (2, b"d")) for part in (struct.pack("!q", pair[0]), pair[1])]
        return list(by_number(context, context.parallelize(given, 1), 3).glom().collect())

    assert spark.with_context(bring_together) == [[b"a"], [], [b"c", b"d"]], "PairwiseRDD: numbers and bytes in turn"


@pytest.mark.slow
def test_arrays_and_objects_of_the_jvm_can_be_made(spark: Spark) -> None:
    def make(context: Any) -> tuple[list[str], str]:
        of_class = jvm(context).java.lang.Class.forName("java.lang.StringBuilder")
        return list(java_strings(context, "a", "b")), str(java_new(context, of_class).append("c").toString())

    assert spark.with_context(make) == (["a", "b"], "c"), "SparkContext._gateway.new_array"


@pytest.mark.slow
def test_submission_loads_classes_by_a_loader_that_takes_more(spark: Spark) -> None:
    assert spark.with_context(driver_loader) is None, "its class is there, but not used: the JVM was run directly"
    (core,) = (jar for jar in spark_jars() if jar.name.startswith("spark-core_"))
    path = "org/apache/spark/deploy/SparkSubmit.class"
    assert b"org/apache/spark/util/MutableURLClassLoader" in zipfile.ZipFile(core).read(path), "driver_loader"


@pytest.mark.slow
def test_the_server_for_callbacks_is_started_once_for_a_gateway(spark: Spark) -> None:
    def port(context: Any) -> int:
        serve_callbacks(context)
        gateway = inspect.getattr_static(context, "_gateway")
        return int(gateway.get_callback_server().get_listening_port())

    assert spark.with_context(port) == spark.with_context(port), "java_gateway.ensure_callback_server_started"


@pytest.mark.slow
def test_a_data_frame_is_a_dataset_of_the_jvm(spark: Spark) -> None:
    rows = spark.with_context(lambda context: java_rows(SparkSession(context).range(3)))
    assert rows.count() == 3, "DataFrame._jdf"


def test_a_context_without_its_jvm_stops_at_once() -> None:
    dead: Any = SimpleNamespace(_jsc=None, _accumulatorServer=None)
    SparkContext.stop(dead)  # else forget() would wait for a JVM that is no more


@pytest.mark.parametrize("name", [CONNECTION_FILE, PORT, SECRET])
def test_the_launcher_still_uses_the_variable(name: str) -> None:
    source = inspect.getsource(java_gateway.launch_gateway)
    assert f'"{name}"' in source, f"pyspark.java_gateway: the JVM is told or found by ${name} (session, connect)"


def test_the_jvm_writes_port_and_secret_as_the_launcher_reads_them(tmp_path: Path) -> None:
    (tmp_path / "connection").write_bytes(struct.pack(">i", 4711) + struct.pack(">i", 6) + b"secret")
    with (tmp_path / "connection").open("rb") as connection:
        read: Callable[[Any], int] = java_gateway.read_int
        assert read(connection) == 4711, "the connection file: first its port, four bytes (connect)"
        assert java_gateway.UTF8Deserializer().loads(connection) == "secret", "then the secret's length and the secret"


def test_workers_are_forked_by_a_daemon_that_can_be_prepared() -> None:
    assert callable(daemon.manager), "pyspark.daemon.manager: what our daemon runs when it is ready"
    assert callable(worker.main), "pyspark.worker.main: loaded before the forks (daemon)"
    assert "pyspark.worker" in inspect.getsource(daemon), "pyspark.daemon: the workers it forks run pyspark.worker"


def test_the_jars_hold_the_class_that_is_run() -> None:
    (core,) = (jar for jar in spark_jars() if jar.name.startswith("spark-core_"))
    path = f"{GATEWAY_CLASS.replace('.', '/')}.class"
    assert path in zipfile.ZipFile(core).namelist(), f"{GATEWAY_CLASS}: run directly instead of by spark-submit (jvm)"


def test_the_jvm_is_given_every_package_that_sparks_launcher_opens() -> None:
    (launcher,) = (jar for jar in spark_jars() if jar.name.startswith("spark-launcher_"))
    options = zipfile.ZipFile(launcher).read("org/apache/spark/launcher/JavaModuleOptions.class")
    opened = set(re.findall(rb"--add-opens=java\.base/([\w.]+)=ALL-UNNAMED", options))
    missing = opened - {package.encode() for package in OPENED_PACKAGES}
    assert opened, "JavaModuleOptions: its options could not be read"
    assert not missing, f"OPENED_PACKAGES (jvm) lacks {missing}"
