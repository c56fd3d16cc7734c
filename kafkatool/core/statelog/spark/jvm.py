"""The command line of Spark's JVM, run directly: what pyspark's launcher would end up running, without its scripts."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.java import Java

GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"
HEAP = ("-Xms128m", "-Xmx512m", "-Xmn48m")
"""The JVM only schedules, as rows stay in the Python workers: its garbage is collected early, and its memory stays small."""
UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""Classes are taken as they are."""

OPENED_PACKAGES = (  # as org.apache.spark.launcher.JavaModuleOptions of Spark 4
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
LOGGING = """\
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


def spark_jars() -> list[Path]:
    """Return pyspark's jars in a fixed order, which a class-data archive is bound to. SparkError if there is no pyspark."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise SparkError("pyspark is not installed; `pip install pyspark`")
    return sorted((Path(package.origin).parent / "jars").glob("*.jar"))


def python_path() -> str:
    """Return the PYTHONPATH on which the processes we start find kafkatool."""
    return os.pathsep.join(filter(None, (str(Path(__file__).parents[4]), os.environ.get("PYTHONPATH"))))


def jvm_options() -> list[str]:
    """Return the options of every JVM of ours: it lives for seconds, so what pays off later only is left out."""
    return [
        *("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
        "-XX:MetaspaceSize=128m",  # below it no collection of all garbage just because classes are loaded
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES),
        *("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"),
    ]


def gateway_command(
    java: Java, directory: Path, settings: Mapping[str, str], more: Sequence[str], *, local: bool
) -> list[str]:
    """Return the command that runs Spark's side of PySpark; write its logging's configuration into ``directory``.

    With a cluster it is Spark's own submission that runs it: that knows what YARN and Kubernetes need.
    """
    logging = directory / "log4j2.properties"
    logging.write_text(LOGGING)
    return [
        *(str(java.executable), *more, *jvm_options(), *HEAP, f"-Djava.io.tmpdir={directory}"),
        *(f"-XX:ErrorFile={directory / 'crash.log'}", "-XX:-CreateCoredumpOnCrash"),  # not where the user happens to be
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
        *(f"-D{key}={value}" for key, value in settings.items() if local),
        *("-cp", ":".join([*map(str, spark_jars()), *_configurations()])),
        *([GATEWAY_CLASS] if local else _submission(settings)),
    ]


def _submission(settings: Mapping[str, str]) -> list[str]:
    master, others = settings["spark.master"], [f"{k}={v}" for k, v in settings.items() if k != "spark.master"]
    return [SUBMIT_CLASS, "--master", master, *(word for s in others for word in ("--conf", s)), "pyspark-shell"]


def _configurations() -> list[str]:
    """Return the directories in which users keep what their Hadoop's file systems and YARN are."""
    named = (os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    return list(dict.fromkeys(directory for directory in named if directory))
