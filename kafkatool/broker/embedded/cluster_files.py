"""The files of a cluster directory: cluster.json, one folder for ZooKeeper, one for each broker.

cluster.json has what was asked for and whether ``up`` got through; the process table tells which processes live.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
import psutil

from kafkatool.broker.controller.gauges import FILE_NAME
from kafkatool.core.errors import KafkatoolError


@dataclass(slots=True)
class ClusterSpec:
    """The cluster of a directory. ``ports`` maps broker id to port; ``owner`` is (pid, start time) or None.

    An owned cluster belongs to a process (``up --foreground``, a ``with`` block) and ends with it.
    """

    zookeeper_port: int
    ports: dict[int, int]
    options: dict[str, str] = field(default_factory=dict)
    owner: tuple[int, float] | None = None
    complete: bool = False

    def owner_is_gone(self) -> bool:
        """Tell whether the owning process ended without ending the cluster."""
        if self.owner is None:
            return False
        pid, started = self.owner
        with contextlib.suppress(psutil.Error):
            return psutil.Process(pid).create_time() != started
        return True


def this_process() -> tuple[int, float]:
    """Return the owner entry of the calling process; its start time tells it from a later one with the same pid."""
    return os.getpid(), psutil.Process().create_time()


class ClusterFiles:
    """Paths inside a cluster directory and the two files that steer it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.zookeeper = self.directory / "zookeeper"
        self._spec = self.directory / "cluster.json"

    def properties(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}" / "server.properties"

    def data(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}" / "data"

    def logs(self, broker_id: int) -> Path:
        return self.directory / f"broker-{broker_id}" / "logs"

    def output(self, broker_id: int) -> Path:
        """Return the file of what the broker's process prints: its own log."""
        return self.directory / f"broker-{broker_id}" / "server.log"

    def state_change_log(self, broker_id: int) -> Path:
        return self.logs(broker_id) / "state-change.log"

    def controller_gauges(self, broker_id: int) -> dict[str, float] | None:
        """Read the gauges that broker's controller wrote last; None where there are none."""
        try:
            value: dict[str, float] = orjson.loads((self.logs(broker_id) / FILE_NAME).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        return value

    def load(self) -> ClusterSpec | None:
        """Read the spec; None where no cluster was made. A torn or foreign file counts as none."""
        try:
            value = orjson.loads(self._spec.read_bytes())
            value["ports"] = {int(k): v for k, v in value["ports"].items()}
            value["owner"] = value["owner"] and tuple(value["owner"])
            return ClusterSpec(**value)
        except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None

    def save(self, spec: ClusterSpec) -> None:
        """Write the spec, replaced by rename: a reader sees the old or the new one."""
        temporary = self._spec.with_suffix(".tmp")
        temporary.write_bytes(orjson.dumps(asdict(spec), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
        temporary.rename(self._spec)

    def write_properties(self, broker_id: int, properties: Mapping[str, str]) -> None:
        path = self.properties(broker_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.logs(broker_id).mkdir(exist_ok=True)
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Admit one ``up``, ``down`` or ``start`` at a time; the lock dies with its holder. Raises KafkatoolError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KafkatoolError(
                    f"another kt is starting or stopping the cluster in {self.directory}: wait for it, then try again"
                ) from None
            yield
