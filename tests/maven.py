"""Jars of Maven Central, fetched on first use: by one process at a time, as Maven's own store of them wants it."""

import fcntl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

COPY: Final = ("mvn", "-q", "-B", "dependency:copy-dependencies")
_LOCK: Final = Path.home() / ".cache" / "kafkatool-compat" / "maven.lock"
_TIMEOUT_S: Final = 600


@contextmanager
def one_maven() -> Iterator[None]:
    """Wait until no other process of the tests runs Maven, and have none begin."""
    _LOCK.parent.mkdir(parents=True, exist_ok=True)
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def dependency(group: str, artifact: str, version: str) -> str:
    """Write one artifact as a pom.xml names it."""
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
    )


def pom(dependencies: Sequence[str]) -> str:
    """Write the pom.xml of a project that has these dependencies and nothing else."""
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>compat</groupId><artifactId>compat</artifactId><version>1</version>"
        f"<dependencies>{''.join(dependencies)}</dependencies></project>"
    )


def fetched(home: Path, dependencies: Sequence[str]) -> Path:
    """Return the directory of these jars, and of what they need at run time: ``libs`` below ``home``, made once."""
    libraries, ok = home / "libs", home / "ok"
    if not ok.exists():
        home.mkdir(parents=True, exist_ok=True)
        with one_maven():
            if not ok.exists():  # else the one before us was about the same
                (home / "pom.xml").write_text(pom(dependencies))
                command = [*COPY, f"-DoutputDirectory={libraries}", "-DincludeScope=runtime"]
                done = subprocess.run(
                    command, cwd=home, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
                )
                if done.returncode:
                    raise RuntimeError(
                        f"Maven fetched not all that {home} is for: {done.stdout[-2000:]}{done.stderr[-500:]}"
                    )
                ok.touch()
    return libraries
