"""A class-data archive of the classes Spark loads: mapped at once, instead of 8,000 classes read from jars and checked.

It halves the start of Spark. It is bound to one Java and the jars of one pyspark, takes 80 MB in the user's cache
directory and about 20 s to make, so it is made once, by a process of its own that outlives kt (``archive_maker``).
Without it, or when it is lost or damaged, only the start is slower.

Beside it lie ``.made`` (its size and time when it was made), ``.failed`` (the making failed, or is under way), ``.lock``
and ``.log``.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from kafkatool.core.java import Java
from kafkatool.core.statelog.spark.jvm import python_path, spark_jars

SWITCH = "KAFKATOOL_CLASS_DATA"
"""Environment variable: ``off`` neither uses nor makes an archive."""

RETRY_S = 24 * 3600
"""After a failure to make the archive it is not tried again for a day."""


def archive_path(java: Java) -> Path:
    """Return where the archive for that Java and the installed pyspark belongs."""
    files = [path for path in (java.home / "release", *spark_jars()) if path.exists()]
    digest = hashlib.sha256("\n".join([str(java.executable.resolve()), *map(_stamp, files)]).encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "kafkatool", f"spark-{digest}.jsa")


def usable(archive: Path) -> bool:
    """Tell if the archive is there, and as it was when it was made."""
    try:
        return seal_of(archive).read_text() == _stamp(archive) and os.environ.get(SWITCH) != "off"
    except OSError:
        return False


def discard(archive: Path) -> None:
    """Remove an archive that turned out to be of no use, and note the failure."""
    with suppress(OSError):
        seal_of(archive).unlink(missing_ok=True)
        archive.unlink(missing_ok=True)
        failure_mark(archive).touch()


def make_in_background(archive: Path) -> bool:
    """Start the making, unless it is switched off, under way or failed lately. Return if it was started."""
    if os.environ.get(SWITCH) == "off":
        return False
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if failure_mark(archive).exists() and time.time() - failure_mark(archive).stat().st_mtime < RETRY_S:
            return False
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with archive.with_suffix(".log").open("wb") as log:
            subprocess.Popen(
                [sys.executable, "-m", "kafkatool.core.statelog.spark.archive_maker"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": python_path()},
                start_new_session=True,
            )
    except OSError:  # a cache that cannot be written, or the lock is held: no archive, nothing worse
        return False
    return True


def seal(archive: Path) -> None:
    """Mark an archive as made, and as it is now."""
    seal_of(archive).write_text(_stamp(archive))


def seal_of(archive: Path) -> Path:
    """Return the file that tells what the archive was when it was made."""
    return archive.with_suffix(".made")


def failure_mark(archive: Path) -> Path:
    """Return the file that is there while the making is under way, and after it failed."""
    return archive.with_suffix(".failed")


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"
