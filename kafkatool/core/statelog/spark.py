"""Starts Spark for one job and ends it: no shell scripts, no SQL session, no web pages, nothing left behind.

The JVM is run directly with the class pyspark's launcher would end up running; that and what is switched off make the
start 2 to 3 s instead of 5 to 7 s. It runs while the caller still looks into its files: ``Spark.map`` waits for it.
With a ``local`` master every socket is on loopback and the JVM is killed at the end, since a clean stop takes a second
and all it would tidy is in our own directory. ``pyspark`` is imported here only, and only when a job is started.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.java import Java, find_java

Item = TypeVar("Item")
Result = TypeVar("Result")

START_TIMEOUT_S = 120
"""Longest time the JVM may take to come up; it needs 1 to 2 s, on an overloaded machine ten times that."""

POLL_S = 0.02
GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
HEAP = "-Xmx512m"  # the JVM only schedules: rows stay in the Python workers

_OPENED_PACKAGES = (  # as org.apache.spark.launcher.JavaModuleOptions of Spark 4
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
_EXCEPTION = re.compile(r"(?:Caused by: )?[\w.]*(?:Error|Exception)\b")
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


class SparkError(KafkatoolError):
    """Spark did not start, or a job of it failed for a reason that is not the job's own error."""


class Spark:
    """Spark from start to end, as a context manager. ``directory`` must be the caller's own: all files go there."""

    def __init__(self, master: str, directory: Path) -> None:
        """Starts the JVM and returns at once. JavaNotFoundError, SparkError."""
        self.master = master
        self.local = master.startswith("local")
        self._directory = directory
        self._log = directory / "spark.log"
        self._connection = directory / "gateway"
        self._context: Any = None
        self._jvm = self._launch(find_java())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def parallelism(self) -> int:
        """Tasks that run at the same time. Waits for the start."""
        return int(self._connected().defaultParallelism)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """``function`` of each item, one task each, results in the items' order; keep them small. SparkError.

        A KafkatoolError raised by ``function`` is raised here with its own text and as its own class.
        """
        if not items:
            return []
        from py4j.protocol import Py4JError

        context = self._connected()
        try:
            outcomes = context.parallelize(list(items), len(items)).map(_Guarded(function)).collect()
        except (Py4JError, OSError) as e:
            raise SparkError(f"Spark's job failed: {self._last_words()}") from e
        results: list[Result] = []
        for outcome in outcomes:
            if isinstance(outcome, KafkatoolError):
                raise outcome
            results.append(outcome)
        return results

    def with_context(self, action: Callable[[Any], Result]) -> Result:
        """``action`` of pyspark's SparkContext, for jobs that run in the JVM alone. Waits for the start. SparkError."""
        from py4j.protocol import Py4JError

        context = self._connected()
        try:
            return action(context)
        except (Py4JError, OSError) as e:
            raise SparkError(f"Spark's job failed: {self._last_words()}") from e

    def close(self) -> None:
        """Ends Spark. Safe to call twice."""
        context, self._context = self._context, None
        if context is not None:
            from pyspark.core.context import SparkContext

            updates, context._accumulatorServer = context._accumulatorServer, None
            updates.handle_error = lambda *_: None  # it would print that its connection ends with the JVM
            threading.Thread(target=updates.shutdown, daemon=True).start()  # it takes a second to notice
            if self.local:
                context._jsc = None  # stop() would wait for the JVM, which is killed below
            context.stop()
            if SparkContext._gateway is not None:
                SparkContext._gateway.close()
            SparkContext._gateway = SparkContext._jvm = None
        if self._jvm.stdin:
            self._jvm.stdin.close()  # the JVM would end by itself now, a second later
        self._jvm.kill()
        self._jvm.wait()

    def _launch(self, java: Java) -> subprocess.Popen[bytes]:
        package = find_spec("pyspark")
        if package is None or package.origin is None:
            raise SparkError("pyspark is not installed; `pip install pyspark`")
        logging = self._directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        command = [
            str(java.executable),
            *("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
            *("-Xshare:auto", HEAP, f"-Djava.io.tmpdir={self._directory}"),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
            *("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"),
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
            *(f"-D{key}={value}" for key, value in self._settings().items()),
            *("-cp", str(Path(package.origin).parent / "jars" / "*"), GATEWAY_CLASS),
        ]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # the JVM ends when this end is closed, however we end
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is ours to handle
            )

    def _settings(self) -> Mapping[str, str]:
        settings = {
            "spark.master": self.master,
            "spark.app.name": "kt logs",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(self._directory),
            "spark.shuffle.push.enabled": "false",
        }
        if self.local:
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return settings

    def _environment(self) -> dict[str, str]:
        """Without the user's Spark installation; with our package on the workers' path."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        ours = str(Path(__file__).parents[3])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
        environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(self._connection)
        if self.local:
            environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        return environment

    def _connected(self) -> Any:
        if self._context is None:
            self._context = self._connect()
        return self._context

    def _connect(self) -> Any:
        from py4j.protocol import Py4JError
        from pyspark.conf import SparkConf
        from pyspark.core.context import SparkContext

        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._connection.exists():  # written elsewhere and renamed: complete when it is there
            if self._jvm.poll() is not None or time.monotonic() > deadline:
                raise SparkError(f"Spark did not start: {self._last_words()}")
            time.sleep(POLL_S)
        told = self._connection.read_bytes()  # port, length of the secret, secret
        ours = {
            "PYSPARK_GATEWAY_PORT": str(int.from_bytes(told[:4], "big")),
            "PYSPARK_GATEWAY_SECRET": told[8 : 8 + int.from_bytes(told[4:8], "big")].decode(),
            "PYSPARK_PYTHON": sys.executable,
        }
        before = {key: os.environ.get(key) for key in ours}
        os.environ.update(ours)  # the only way to hand them to pyspark
        try:
            return SparkContext(conf=SparkConf(loadDefaults=False).setMaster(self.master).setAppName("kt logs"))
        except (Py4JError, OSError) as e:
            raise SparkError(f"Spark did not start: {self._last_words()}") from e
        finally:
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value

    def _last_words(self) -> str:
        """The last error in the JVM's log (an exception's own line, Python's or Java's, before others), on one line."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if _EXCEPTION.match(line)] or [line for line in lines if "ERROR" in line]
        return (telling or lines or ["it said nothing"])[-1]


class _Guarded:
    """Carries an error we raise on purpose through Spark as a value: as an exception it would be a Java stack trace."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, item: Any) -> Any:
        try:
            return self._function(item)
        except KafkatoolError as e:
            return e
        except OSError as e:
            return SparkError(f"{e.filename or 'temporary files (TMPDIR)'}: {e.strerror}")
