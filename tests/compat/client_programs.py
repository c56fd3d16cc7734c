"""The client programs of ``clients/``: fetched and built on first use, each then a command that starts it.

What is made is kept in $KAFKATOOL_CLIENTS, else ~/.cache/kafkatool-compat/clients, by the hash of what it is made from.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kafkatool.core.java import JavaNotFoundError, find_java
from tests.maven import COPY, dependency, one_maven, pom

SOURCES: Final = Path(__file__).parent / "clients"
BUILD_TIMEOUT_S: Final = 600
_OF_STREAMS: Final = ("StreamsProgram", "WordCount", "StreamsCopy")


class MissingError(Exception):
    """What the client needs is not on this machine."""


@dataclass(frozen=True, slots=True)
class Program:
    """A client program ready to run; see clients/README.md for its arguments."""

    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def tool(name: str, *also: Path) -> str:
    """Path of a tool of a toolchain, MissingError where it is absent."""
    found = shutil.which(name) or next((str(d / name) for d in also if (d / name).exists()), None)
    if found is None:
        raise MissingError(f"{name} is not installed")
    return found


def made(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Return the directory that ``make`` fills from the sources, made once; another process may be doing the same."""
    digest = hashlib.sha256(b"".join(s.read_bytes() for s in sources)).hexdigest()[:12]
    root = Path(os.environ.get("KAFKATOOL_CLIENTS") or Path.home() / ".cache" / "kafkatool-compat" / "clients")
    home = root / f"{name}-{digest}"
    if not home.exists():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=f"{name}-") as directory:
            work = Path(directory) / "work"
            work.mkdir()
            make(work)
            try:
                work.rename(home)
            except OSError:
                if not home.exists():  # else the other process was first
                    raise
    return home


def build(
    command: Sequence[str | Path], directory: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run a step of a toolchain there, MissingError with its words where it fails."""
    done = subprocess.run(
        [str(c) for c in command],
        cwd=directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise MissingError(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[:300]}")


def _python(module: str, *needed: str) -> Callable[[], Program]:
    def prepare() -> Program:
        if absent := [n for n in needed if find_spec(n) is None]:
            raise MissingError(f"Python packages {', '.join(absent)} are not installed")
        return Program((sys.executable, "-m", f"tests.compat.clients.{module}"))

    return prepare


def _kcat() -> Program:
    tool("kcat")
    return _python("kcat")()


def _compiled(library: str, version: str, *sources: Path) -> tuple[Path, Path]:
    """Fetch a library of Kafka's, compile the programs against it; return the Java and where classes and libs are."""
    try:
        java = find_java()
    except JavaNotFoundError as e:
        raise MissingError(str(e)) from e

    def fetch_and_compile(home: Path) -> None:
        javac = tool("javac", java.executable.parent)
        tool("mvn")
        (home / "pom.xml").write_text(pom([dependency("org.apache.kafka", library, version)]))
        with one_maven():
            build([*COPY, "-DoutputDirectory=libs"], home)
        build([javac, "-d", "classes", "-cp", "libs/*", *sources], home)

    prefix = "java" if library == "kafka-clients" else library
    return java.executable, made(f"{prefix}-{version}", sources, fetch_and_compile)


def _java(version: str) -> Callable[[], Program]:
    def prepare() -> Program:
        java, home = _compiled(
            "kafka-clients", version, *(SOURCES / "java" / name for name in ("Client.java", "Transactions.java"))
        )
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
        return Program((str(java), *options, "-cp", f"{home / 'classes'}:{home / 'libs'}/*", "Client"))

    return prepare


def word_count() -> Program:
    """Return the word count by Kafka Streams: BOOTSTRAP FROM TO APPLICATION DIRECTORY. Raises MissingError."""
    return _streams("WordCount")


def streams_copy() -> Program:
    """Return the copying by Kafka Streams, called as ``copy`` of the others is. Raises MissingError."""
    return _streams("StreamsCopy")


def _streams(name: str) -> Program:
    java, home = _compiled("kafka-streams", "3.9.1", *(SOURCES / "java" / f"{each}.java" for each in _OF_STREAMS))
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    return Program((str(java), *options, "-cp", f"{home / 'classes'}:{home / 'libs'}/*", name))


def _go() -> Program:
    go = tool("go", Path("/usr/local/go/bin"))
    source = SOURCES / "go"
    sources = [source / name for name in ("main.go", "transactions.go", "go.mod", "go.sum")]
    home = made("go", sources, lambda home: build([go, "build", "-o", home / "client", "."], source))
    return Program((str(home / "client"),))


def _node() -> Program:
    node, npm = tool("node"), tool("npm")
    source = SOURCES / "node"

    def install(home: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, home)
        build([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], home)

    home = made("node", [source / "package-lock.json"], install)
    return Program(
        (node, str(source / "client.cjs")),
        {"NODE_PATH": str(home / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )


PREPARE: Final[dict[str, Callable[[], Program]]] = {
    "confluent-kafka": _python("confluent", "confluent_kafka"),
    "kcat": _kcat,
    "java-2.8": _java("2.8.2"),
    "java-3.9": _java("3.9.1"),
    "java-4.1": _java("4.1.0"),
    "aiokafka": _python("aio", "aiokafka"),
    "kafka-python": _python("kafka_python", "kafka", "snappy", "lz4", "zstandard"),
    "franz-go": _go,
    "kafkajs": _node,
}
"""Client -> what gives its program; raises MissingError with the reason."""
