"""Spark for the length of one command: no shell scripts, no SQL session, no web pages, nothing left behind.

The JVM is run directly, with a class-data archive where one has been made (``archive``), and comes up in a thread of
its own while the caller still looks into its files. With a ``local`` master every socket is on loopback, or a file in our
own directory, which nobody else may enter; and the JVM is killed at the end, since a clean stop takes a second and all it
would tidy is in that directory. ``pyspark`` is imported only when a job is started.
"""

import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kafkatool.core import class_data
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.java import find_java
from kafkatool.core.statelog.spark.archive import archive_path, make_in_background
from kafkatool.core.statelog.spark.jvm import UNVERIFIED, SparkError, gateway_command, python_path
from kafkatool.core.statelog.spark.pyspark_private import (
    CONNECTION_FILE,
    connect,
    failures,
    forget,
    is_told_by_java,
    java_trace,
)
from kafkatool.core.statelog.spark.shares import shared_out

Item = TypeVar("Item")
Result = TypeVar("Result")

START_TIMEOUT_S = 120
"""Longest time the JVM may take to come up; it needs 1 to 2 s, on an overloaded machine ten times that."""

DEATH_S = 2
"""How long to wait for the end of a JVM that no longer answers, to tell a dead one from one that is in trouble."""

POLL_S = 0.01
PROGRESS_S = 0.2

EXECUTOR_MEMORY = "512m"
"""Of a cluster's JVMs, which read, shuffle and write; Spark's default of 1g would keep small workers from being used."""

EXECUTOR_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Of the same: the second compiler took more CPU than it saved, 5 s in each, as what they run most is copying."""

LEFT_OUT = {
    "spark.rpc.io.mode": "NIO",
    "spark.shuffle.io.mode": "NIO",
    "spark.broadcast.compress": "false",
    "spark.cleaner.referenceTracking": "false",
    "spark.log.structuredLogging.enabled": "false",
}
"""What costs a start some 0.1 s and is of no use to jobs of seconds: native libraries for sockets and compression, which
are unpacked first; a thread that tidies up; logs as JSON."""

LONGEST_SOCKET = 100
"""Bytes in the name of a socket that is a file, of which systems take 104 or more."""

SOCKET_NAME = 43
"""Bytes that Spark's own names of such sockets have, with the slash before."""

_EXCEPTION = re.compile(r"(?:Caused by: )?[\w.]*(?:Error|Exception)\b")
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,.*)?\])?")


def is_local(master: str) -> bool:
    """Tell if a master's name means this machine, whose disks its workers share."""
    return master.startswith("local")


class Spark(AbstractContextManager["Spark"]):
    """One run of Spark, as a context manager. ``directory`` must be the caller's own: all files go there.

    ``process`` is its JVM. ``announce`` may be set: then a missing class-data archive is made after the end, in the
    background, and announced. ``progress`` may be set: it is called with tasks done and tasks in all while a job runs.
    """

    announce: Callable[[str], None] | None = None
    progress: Callable[[int, int], None] | None = None

    def __init__(
        self,
        master: str,
        directory: Path,
        *,
        jvm_options: Sequence[str] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start the JVM and return at once; ``settings`` are Spark's, before ours. JavaNotFoundError, SparkError."""
        self.master = master
        self._given = settings
        self.local = is_local(master)
        self._directory = directory
        self._log = directory / "spark.log"
        self._connection = directory / "gateway"
        self._java = find_java()
        self._archive = archive_path(self._java)
        self._with_archive = not jvm_options and class_data.usable(self._archive)
        self.process = self._launch(jvm_options or self._class_options())
        self._closed = False
        for name in _PY4J_LOGS:
            logging.getLogger(name).addFilter(_not_of_py4j)
        self._context: Future[Any] = Future()
        self._starter = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._starter.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at the same time. Waits for the start unless the master's name says it."""
        named = _LOCAL.fullmatch(self.master)
        if named is None:
            return int(self._connected().defaultParallelism)
        return len(os.sched_getaffinity(0)) if named[1] == "*" else int(named[1] or 1)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return ``function`` of each item, in the items' order; keep results small. SparkError.

        A KafkatoolError raised by ``function`` is raised here with its own text and as its own class.
        """
        if not items:
            return []
        try:
            try:
                outcomes = self._collected(function, items)
            except failures() as e:
                _raise_interrupt(e)
                if not self._revived(e):
                    raise
                outcomes = self._collected(function, items)
        except failures() as e:
            _raise_interrupt(e)
            raise SparkError(f"Spark's job failed: {self._told_by(e)}") from e
        for outcome in outcomes:
            if isinstance(outcome, KafkatoolError):
                raise outcome
        return outcomes

    def _collected(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Any]:
        context = self._connected()
        shares = shared_out(items, self.parallelism)
        with self._progress_told(context, len(shares)):
            done: list[list[Any]] = context.parallelize(shares, len(shares)).map(partial(_each, function)).collect()
        return list(chain.from_iterable(done))

    def with_context(self, action: Callable[[Any], Result], *, tasks: int = 0) -> Result:
        """Return ``action`` of pyspark's SparkContext, which runs about so many tasks. Waits for the start. SparkError."""
        context = self._connected()
        try:
            with self._progress_told(context, tasks):
                return action(context)
        except failures() as e:
            _raise_interrupt(e)
            raise SparkError(f"Spark's job failed: {self._told_by(e)}") from e

    def stop_cleanly(self) -> None:
        """End Spark as Spark itself does, which takes a second; ``close`` must follow."""
        self._connected().stop()
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait()

    def close(self) -> None:
        """End Spark. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        came_up = self._context.done() and not self._context.exception()
        if came_up:  # while the JVM still listens: objects of it that are let go of tell it so
            if not self.local:
                self._connected().stop()  # the cluster must hear of it
            forget(self._connected())
        if self.process.stdin:
            self.process.stdin.close()  # the JVM would end by itself now, a second later
        self.process.kill()
        self.process.wait()
        self._starter.join()
        self.process.kill()  # another one, if it had just been launched
        self.process.wait()
        if not came_up:
            forget(None if self._context.exception() else self._connected())
        for name in _PY4J_LOGS:
            logging.getLogger(name).removeFilter(_not_of_py4j)
        if came_up and self.announce and not self._with_archive and make_in_background(self._archive):
            self.announce(f"making {self._archive} in the background, once: kt logs starts faster with it")

    def _class_options(self) -> list[str]:
        """Return how the JVM loads classes: from the archive, else from jars.

        Those of pyspark's own jars, where nobody named others, are not verified then: a first run starts sooner, and who
        makes the archive after it verifies them.
        """
        if self._with_archive:
            return class_data.options(self._archive)
        return [*class_data.options(None), *(UNVERIFIED if self.local and not self._given else ())]

    def _launch(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            return subprocess.Popen(
                gateway_command(self._java, self._directory, self._settings(), options, local=self.local),
                stdin=subprocess.PIPE,  # the JVM ends when this end is closed, however we end
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is ours to handle
            )

    def _start(self) -> None:
        try:
            try:
                context = self._connect()
            except SparkError as e:
                if not self._relaunched(e.__cause__):
                    raise
                forget(None)
                context = self._connect()
            self._context.set_result(context)
        except BaseException as e:  # noqa: BLE001 -- a thread's top: it is raised where the context is asked for
            self._context.set_exception(e)

    def _revived(self, error: Exception) -> bool:
        """Start Spark again, without the archive, if the JVM died in a job and perhaps of that. Return if it was started."""
        if not self._relaunched(error):
            return False
        forget(self._connected())
        self._context = Future()
        self._start()
        return True

    def _relaunched(self, error: BaseException | None) -> bool:
        """Launch another JVM, without the archive, if this one died: perhaps of a damaged one. Return if it was launched."""
        if not self._with_archive or self._closed or is_told_by_java(error):  # by a JVM that is well
            return False
        try:
            self.process.wait(DEATH_S)
        except subprocess.TimeoutExpired:
            return False
        class_data.discard(self._archive)
        self._with_archive = False
        self._connection.unlink(missing_ok=True)
        self.process = self._launch(self._class_options())
        return True

    @contextmanager
    def _progress_told(self, context: Any, tasks: int) -> Iterator[None]:
        """Tell the progress of the job's stage until the block ends."""
        if self.progress is None or not tasks:
            yield
            return
        ended = threading.Event()
        teller = threading.Thread(target=self._tell_progress, args=(context, tasks, ended), daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()
            self.progress(tasks, tasks)

    def _tell_progress(self, context: Any, tasks: int, ended: threading.Event) -> None:
        from py4j.protocol import Py4JError

        tracker = context.statusTracker()
        with suppress(Py4JError, OSError):  # the JVM is gone: the job itself tells why
            while self.progress and not ended.wait(PROGRESS_S):
                for stage in tracker.getActiveStageIds():
                    if info := tracker.getStageInfo(stage):
                        self.progress(info.numCompletedTasks, tasks)

    def _settings(self) -> Mapping[str, str]:
        settings = {
            "spark.master": self.master,
            "spark.app.name": "kt logs",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(self._directory),
            "spark.shuffle.push.enabled": "false",
            **LEFT_OUT,
        }
        if self.local:
            settings |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.python.daemon.module": "kafkatool.core.statelog.spark.daemon",
                "spark.executorEnv.PYTHONPATH": python_path(),
                **_sockets(self._directory),
            }
        else:
            settings |= {"spark.executor.memory": EXECUTOR_MEMORY, "spark.executor.extraJavaOptions": EXECUTOR_OPTIONS}
        return {**settings, **self._given}

    def _environment(self) -> dict[str, str]:
        """Return ours without the user's Spark installation; with our package on the path of workers here."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        if self.local:
            environment["PYTHONPATH"] = python_path()
        elif (configuration := os.environ.get("SPARK_CONF_DIR")) is not None:
            environment["SPARK_CONF_DIR"] = configuration
        environment[CONNECTION_FILE] = str(self._connection)
        if self.local:
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
            environment["SPARK_USER"] = "kt"  # a name for its own use; else Hadoop's login is loaded to find the user's
        return environment

    def _connected(self) -> Any:
        return self._context.result()

    def _await_gateway(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._connection.exists():  # written elsewhere and renamed: complete when it is there
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SparkError(f"Spark did not start: {self._last_words()}")
            time.sleep(POLL_S)

    def _connect(self) -> Any:
        from py4j.protocol import Py4JError

        self._await_gateway()
        try:
            return connect(self._connection, self.master, self._python())
        except (Py4JError, OSError) as e:
            raise SparkError(f"Spark did not start: {self._last_words()}") from e

    def _python(self) -> str:
        """Return the Python that workers run: ours where they are ours, else the one found there."""
        return self._given.get("spark.pyspark.python", sys.executable if self.local else "python3")

    def _told_by(self, error: Exception) -> str:
        """Return on one line why a job failed: what its exception came from; the log's last words if the JVM is gone.

        Not the log's before the exception: a worker that is let go of in the midst of its work complains there of that.
        """
        if is_told_by_java(error):
            with suppress(*failures()):  # its text may have to be fetched
                return _telling(java_trace(error))
        return self._last_words()

    def _last_words(self) -> str:
        """Return the last error in the JVM's log, on one line."""
        return _telling(self._log.read_text(errors="replace"))


def _telling(text: str) -> str:
    """Return the last line that begins with an exception, Python's or Java's; else the last error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if _EXCEPTION.match(line)] or [line for line in lines if "ERROR" in line]
    return (telling or lines or ["it said nothing"])[-1]


def _sockets(directory: Path) -> dict[str, str]:
    """Return the settings by which workers are spoken to through sockets that are files of ours (from Spark 4.1 on).

    Through TCP what a task is to do comes in several segments, of which one waits until the one before is acknowledged, and
    the other side puts that off by 40 ms. It stays so where a name is too long for a socket, or the disk takes none. No
    secret is exchanged through files: ``directory`` must be nobody else's.
    """
    as_files = len(os.fsencode(directory)) + SOCKET_NAME <= LONGEST_SOCKET and _takes_sockets(directory)
    settings = {"spark.python.unix.domain.socket.enabled": str(as_files).lower()}
    return settings | ({"spark.python.unix.domain.socket.dir": str(directory)} if as_files else {})


def _takes_sockets(directory: Path) -> bool:
    probe = directory / "socket"
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(probe))
    except OSError:
        return False
    probe.unlink()
    return True


def _raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt, if that is what the error came from: py4j may fail itself as it breaks a call off."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt | SystemExit):
            raise cause
        cause = cause.__context__


_PY4J_LOGS: Final = ("root", "py4j.clientserver", "py4j.java_gateway")  # each by itself: no filter is inherited


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Tell if a log record is not py4j's, which writes stack traces when the JVM dies or a call is interrupted.

    An error of ours tells that.
    """
    return "py4j" not in record.pathname


def _each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return what comes of each item, up to the first error."""
    outcomes = []
    for item in items:
        outcomes.append(_guarded(function, item))
        if isinstance(outcomes[-1], KafkatoolError):
            break
    return outcomes


def _guarded(function: Callable[[Any], Any], item: Any) -> Any:
    """Carry an error we raise on purpose through Spark as a value: as an exception it would be a Java stack trace."""
    try:
        return function(item)
    except KafkatoolError as e:
        return e
    except OSError as e:
        return SparkError(f"{e.filename or 'temporary files (TMPDIR)'}: {e.strerror}")
