"""What a run was made of: the versions of all that took part, a line each."""

import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import confluent_kafka

import kafkatool
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.java import find_java
from tests.paths import ROOT

_GIT_S = 30


def versions(kafka: str = "") -> Iterator[str]:
    """Yield them; ``kafka``: of real Kafka, if that ran instead of our brokers."""
    yield f"kafkatool {kafkatool.__version__}, {_commit()}"
    yield f"brokers: Kafka {kafka}" if kafka else "brokers: ours; no Kafka took part"
    yield f"librdkafka {confluent_kafka.libversion()[0]}"
    for package in ("confluent-kafka", "kafka-python", "pyspark"):  # its jars hold the ZooKeeper of our clusters
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package} is not installed"
    yield f"Python {platform.python_version()}"
    yield f"Java {_java()}"
    yield f"kernel {platform.system()} {platform.release()} {platform.version()}, {platform.machine()}"
    yield f"{os.cpu_count()} processors"


def _commit() -> str:
    """Return which commit the code is of, and whether it was changed since."""
    said = []
    for asked in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        try:
            done = subprocess.run(
                ["git", "-C", str(ROOT), *asked], capture_output=True, text=True, timeout=_GIT_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return "of no commit"
        said.append(done.stdout.strip())
    return f"commit {said[0]}" + (", changed since" if said[1] else "")


def _java() -> str:
    try:
        java = find_java()
    except KafkatoolError:
        return "is not there"
    return f"{java.version} ({java.executable})"
