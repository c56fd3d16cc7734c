"""``meta.properties`` of a log dir, which names the owner of its data (BRK-124, BRK-149).

Source: Kafka 2.4.1 server/BrokerMetadataCheckpoint.scala.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kafkatool.broker.storage.checkpoint import sync_directory
from kafkatool.core.errors import ConfigError
from kafkatool.core.java_properties import load_properties

FILE = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner that the log dirs name; None where they name none."""

    broker_id: int | None = None
    cluster_id: str | None = None


def read_meta_properties(log_dirs: Iterable[Path]) -> MetaProperties:
    """Read what all dirs agree on; dirs without the file have no say. Raises ConfigError when two dirs differ."""
    broker_ids: dict[int, Path] = {}
    cluster_ids: dict[str, Path] = {}
    for directory in log_dirs:
        path = directory / FILE
        if not path.exists():
            continue
        given = load_properties(path)
        if given.get("version", "0") != "0":
            raise ConfigError(f"{path}: version={given['version']}, only 0 can be read")
        if (text := given.get("broker.id")) is not None:
            if not text.isdecimal():
                raise ConfigError(f"{path}: broker.id={text} is not a number")
            broker_ids.setdefault(int(text), path)
        if cluster := given.get("cluster.id"):
            cluster_ids.setdefault(cluster, path)
    for name, found in (("broker.id", broker_ids), ("cluster.id", cluster_ids)):
        if len(found) > 1:
            where = ", ".join(f"{value} in {path}" for value, path in found.items())
            raise ConfigError(f"log dirs belong to different owners: {name} {where}")
    return MetaProperties(next(iter(broker_ids), None), next(iter(cluster_ids), None))


def write_meta_properties(directory: Path, broker_id: int, cluster_id: str | None) -> None:
    """Make the file say so; comments and other keys stay. An unchanged one is left alone. Raises OSError, ConfigError."""
    path = directory / FILE
    before = load_properties(path) if path.exists() else {}
    wanted = before | {"version": "0", "broker.id": str(broker_id)}
    if cluster_id is not None:
        wanted["cluster.id"] = cluster_id
    if wanted == before:
        return
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    comments = [line for line in lines if line.lstrip().startswith(("#", "!"))]
    if not comments:
        comments = ["#", datetime.now(UTC).strftime("#%a %b %d %H:%M:%S UTC %Y")]
    beside = path.with_name(FILE + ".tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write("\n".join([*comments, *(f"{key}={value}" for key, value in wanted.items())]) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_directory(directory)
