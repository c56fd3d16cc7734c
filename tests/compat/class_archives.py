"""Class-data archives of real Kafka's JVMs: by one a start, of a broker or of a tool, takes two thirds of its CPU.

The first broker of a version writes down which classes it loads; when it has ended the archive is made of them, once for
that version and Java (`core.class_data`). Tools load most of the same classes.
"""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kafkatool.core import class_data
from kafkatool.core.java import find_java

_LIST: Final = "loaded-classes"


def options(version: str, libraries: Path) -> list[str]:
    """Return the options by which a JVM of that version starts faster, if an archive is there."""
    archive = _archive(version, libraries)
    return class_data.options(archive) if class_data.usable(archive) else []


def options_of_a_broker(version: str, libraries: Path, directory: Path) -> list[str]:
    """Return these; without an archive those by which the first broker of a directory writes its classes there."""
    known = options(version, libraries)
    if known or are_listed(directory):
        return known
    (directory / _LIST).touch()
    return [f"-XX:DumpLoadedClassList={directory / _LIST}"]


def are_listed(directory: Path) -> bool:
    """Tell whether a broker wrote its classes there."""
    return (directory / _LIST).exists()


def make(version: str, libraries: Path, directory: Path, java: Sequence[str]) -> None:
    """Make the archive, if there is none, of the classes that a broker wrote into the directory before it ended.

    ``java`` is the command line of a broker up to its class. Without an archive all is as it was, only slower.
    """

    def list_classes(_: Path, classes: Path) -> None:
        whole = (directory / _LIST).read_bytes().rpartition(b"\n")[0]  # it may have been killed amid a line
        classes.write_bytes(whole + b"\n")

    with suppress(OSError, subprocess.SubprocessError):
        class_data.make(_archive(version, libraries), list_classes, java)


def _archive(version: str, libraries: Path) -> Path:
    return class_data.archive_path(f"kafka-{version}", find_java(), sorted(libraries.glob("*.jar")))
