"""Spark as we start it: errors come back as ours, sockets are on loopback, nothing is left."""

import errno
import io
import os
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyspark
import pytest
from py4j import java_gateway
from py4j.clientserver import ClientServerConnection
from pyspark.errors.exceptions import captured

import kafkatool
from kafkatool.core.errors import RefusedError
from kafkatool.core.statelog.spark.jvm import SparkError, python_path
from kafkatool.core.statelog.spark.pyspark_private import jvm
from kafkatool.core.statelog.spark.session import LONGEST_SOCKET, SOCKET_NAME, Spark, _sockets


def refuse(item: int) -> int:
    if item == 3:
        raise RefusedError("three is refused")
    return item * 2


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def crash(item: int) -> float:
    return 1 / item


@pytest.mark.slow
def test_results_come_in_order_and_our_errors_as_they_are(spark: Spark) -> None:
    assert spark.parallelism == 2
    assert spark.map(refuse, [5, 4, 1]) == [10, 8, 2]
    assert spark.map(refuse, []) == []
    with pytest.raises(RefusedError, match="three is refused"):
        spark.map(refuse, [1, 3])
    with pytest.raises(SparkError, match="/no/such: No such file"):
        spark.map(read, ["/no/such"])


@pytest.mark.slow
def test_a_fault_of_ours_is_told_in_one_line(spark: Spark) -> None:
    with pytest.raises(SparkError, match="ZeroDivisionError") as caught:
        spark.map(crash, [0])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("with_sql", [False, True])
def test_a_worker_that_complains_of_a_failed_job_does_not_hide_why_it_failed(
    spark: Spark, with_sql: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that still writes to a JVM which has given it up; it comes to the log through a thread, at any time.

    ``with_sql``: there has been a SQL session in this process, as a notebook has, and pyspark has errors of its own.
    """
    if with_sql:
        monkeypatch.setattr(
            java_gateway, "get_return_value", captured.capture_sql_exception(java_gateway.get_return_value)
        )

    def failing(context: Any) -> None:
        jvm(context).java.lang.System.err.println("BrokenPipeError: [Errno 32] Broken pipe")
        jvm(context).java.lang.Integer.parseInt("none")

    with pytest.raises(SparkError, match=r'^Spark\'s job failed: java\.lang\.NumberFormatException: .*"none"$'):
        spark.with_context(failing)


def test_py4j_says_nothing_of_a_call_that_was_broken_off(spark: Spark, caplog: pytest.LogCaptureFixture) -> None:
    """As after Ctrl-C, when it cannot even take leave of the JVM."""
    (closed := socket.socket()).close()
    broken = SimpleNamespace(is_connected=True, stream=io.BytesIO(), socket=closed)
    ClientServerConnection.shutdown_socket(broken, 1, 2)
    assert broken.is_connected, "it could not"
    assert caplog.records == []


@pytest.mark.slow
@pytest.mark.spec("COM-3X")
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_that_py4j_lost_over_an_error_of_its_own_is_one_all_the_same(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    def broken_off(*_: object) -> list[object]:
        try:
            raise interrupt
        finally:
            raise BrokenPipeError

    monkeypatch.setattr(spark, "_collected", broken_off)
    with pytest.raises(interrupt):
        spark.map(refuse, [1])
    with pytest.raises(interrupt):
        spark.with_context(broken_off)


@pytest.mark.spec("SCL-8")
@pytest.mark.slow
def test_all_sockets_are_on_loopback(spark: Spark) -> None:
    spark.map(refuse, [1])
    jvm = psutil.Process(spark.process.pid)
    processes = [jvm, *jvm.children(recursive=True)]
    listening = [c.laddr.ip for p in processes for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} <= {"127.0.0.1", "::1"}


def test_the_processes_we_start_find_kafkatool() -> None:
    assert Path(kafkatool.__file__).parents[1] == Path(python_path().split(os.pathsep)[0])


def be_java(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "home" / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("master", "settings", "archived", "verified"),
    [
        ("local[1]", {}, False, False),
        ("local[1]", {}, True, True),
        ("local[1]", {"spark.jars": "theirs.jar"}, False, True),
        ("spark://127.0.0.1:1", {}, False, True),
    ],
)
def test_classes_are_taken_unverified_where_all_are_of_pyspark_and_no_archive_has_them(
    master: str,
    settings: dict[str, str],
    archived: bool,
    verified: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    be_java(f'[ -e {tmp_path}/words ] || echo "$@" > {tmp_path}/words', tmp_path, monkeypatch)
    monkeypatch.setattr("kafkatool.core.class_data.usable", lambda archive: archived)
    with Spark(master, tmp_path, settings=settings) as spark, pytest.raises(SparkError, match="did not start"):
        spark.map(refuse, [1])
    assert ("-XX:-BytecodeVerificationRemote" not in (tmp_path / "words").read_text().split()) == verified


def test_a_jvm_that_does_not_come_up_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    be_java("echo 'Error: no memory today' >&2", tmp_path, monkeypatch)
    with Spark("local[1]", tmp_path) as spark, pytest.raises(SparkError, match="did not start: Error: no memory today"):
        spark.map(refuse, [1])


@pytest.mark.spec("SCL-8")
@pytest.mark.slow
@pytest.mark.parametrize(("room", "as_files"), [(0, True), (-1, False)])
def test_workers_are_spoken_to_through_files_of_ours_where_a_name_has_room(room: int, as_files: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="kt-", dir="/tmp") as own:
        directory = Path(own).joinpath("x" * (LONGEST_SOCKET - SOCKET_NAME - len(own) - 1 - room))
        directory.mkdir()
        with Spark("local[1]", directory) as spark:
            assert spark.map(refuse, [1]) == [2]
            known = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
            assert bool(list(directory.glob(".*.sock"))) is (as_files and known)


@pytest.mark.spec("SCL-8")
def test_a_disk_that_takes_no_sockets_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoFile(socket.socket):
        def bind(self, address: object, /) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

    with tempfile.TemporaryDirectory(prefix="kt-", dir="/tmp") as own:
        assert _sockets(Path(own))["spark.python.unix.domain.socket.dir"] == own
        assert not list(Path(own).iterdir())
        monkeypatch.setattr(socket, "socket", NoFile)
        assert _sockets(Path(own)) == {"spark.python.unix.domain.socket.enabled": "false"}
