"""The files of a cluster directory: cluster.json, one folder for ZooKeeper, one for each broker.

cluster.json has what was asked for and whether ``up`` got through; the process table tells which processes live; the lock
on ``users`` tells whether a process is there that uses it.
"""

import contextlib
import fcntl
import os
import re
import shutil
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from kafkatool.broker.controller.gauges import FILE_NAME
from kafkatool.core.errors import KafkatoolError, RefusedError


@dataclass(slots=True)
class ClusterSpec:
    """The cluster of a directory. ``ports`` maps broker id to port.

    An owned cluster belongs to the processes that use it (``up --foreground``, a ``with`` block) and ends with the last.
    One that is ``offered`` is the default of kt's other commands (``running``); those of tests and programs are not.
    ``security``: what its listeners speak; ``certificate_ports``: those for clients with a certificate, beside SASL_SSL;
    ``zookeeper_tls_port``: where ZooKeeper speaks TLS, where there are certificates.
    ``run`` names this start of it, so that who started another one does not end it.
    """

    zookeeper_port: int
    ports: dict[int, int]
    options: dict[str, str] = field(default_factory=dict)
    owned: bool = False
    complete: bool = False
    offered: bool = False
    run: str = ""
    security: str = "plaintext"
    certificate_ports: dict[int, int] = field(default_factory=dict)
    zookeeper_tls_port: int | None = None

    def all_ports(self) -> list[int]:
        """Return each port where something of it listens."""
        brokers = (*self.ports.values(), *self.certificate_ports.values())
        return [port for port in (self.zookeeper_port, self.zookeeper_tls_port, *brokers) if port is not None]


_REPLICA = re.compile(r".+-\d+")
_USERS, _TEMPORARY = "users", "temporary"
_MADE_S = 60.0  # a directory that has no users' file for longer is not about to get one


class Usage:
    """This process's share in the use of a cluster: a shared lock, until ``end`` or the end of the process.

    Waits while the guardian clears up behind those who are gone. ``temporary``: the directory is this user's alone, and
    whoever finds it abandoned removes it.
    """

    def __init__(self, directory: Path, *, temporary: bool = False) -> None:
        self._spec = directory / "cluster.json"
        while True:
            directory.mkdir(mode=0o700 if temporary else 0o777, parents=True, exist_ok=True)
            try:
                if temporary:
                    (directory / _TEMPORARY).touch()
                self._fd = os.open(directory / _USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the directory was removed meanwhile
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._was_alone, self._left = True, self._identity()
            except BlockingIOError:
                self._was_alone, self._left = False, None
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            if os.fstat(self._fd).st_nlink:
                break
            os.close(self._fd)  # of a directory that was removed meanwhile
        _held.add(self)

    @property
    def alone(self) -> bool:
        """Tell whether nobody else used it when this began, nor has started it anew since then."""
        return self._was_alone and self._left == self._identity()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._spec.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def end(self) -> None:
        """Use it no more; once is enough."""
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # a child that was forked just now may have the descriptor still
        self.forget()

    def forget(self) -> None:
        """Let go of the descriptor, in a child that was forked: the lock is its parent's."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


@contextlib.contextmanager
def abandoned(directory: Path) -> Iterator[bool]:
    """Give whether a cluster was made there for processes that are all gone; if so, nobody begins to use it meanwhile."""
    try:
        users = (directory / _USERS).open("r+")
    except OSError:
        yield False
        return
    with users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = still_of(directory, users.fileno())
        except OSError:
            alone = False
        yield alone


def still_of(directory: Path, users: int) -> bool:
    """Tell whether the open file of users is the directory's, which may have been removed and made anew."""
    try:
        return os.path.samestat(os.fstat(users), (directory / _USERS).stat())
    except FileNotFoundError:
        return False


def is_temporary(directory: Path) -> bool:
    """Tell whether it was made to be removed; one that somebody chose is not, whatever its name."""
    return (directory / _TEMPORARY).exists()


def is_half_removed(directory: Path) -> bool:
    """Tell whether it is what somebody left who was killed before the first step of a start."""
    try:
        return (
            not (directory / _USERS).exists()
            and {p.name for p in directory.iterdir()} <= {_TEMPORARY}
            and time.time() - directory.stat().st_mtime > _MADE_S
        )
    except OSError:
        return False


def remove_directory(directory: Path) -> None:
    """Remove it, what shows that it is abandoned last: killed in the middle, the next one goes on."""
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name in (_USERS, _TEMPORARY):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    for name in (_USERS, _TEMPORARY):
        with contextlib.suppress(OSError):
            (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()  # not when somebody has begun to use it again


_held: "weakref.WeakSet[Usage]" = weakref.WeakSet()


def _forget_all() -> None:
    for usage in list(_held):
        usage.forget()


os.register_at_fork(after_in_child=_forget_all)  # it would share the lock, and hold it longer than this process


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

    def brokers_with_replicas(self) -> list[int]:
        """Return the ids, in order, of the brokers that have replicas of partitions here, whatever cluster.json says."""
        found = []
        for data in self.directory.glob("broker-*/data"):
            broker_id = data.parent.name.removeprefix("broker-")
            if broker_id.isdecimal() and any(_REPLICA.fullmatch(path.name) for path in data.iterdir()):
                found.append(int(broker_id))
        return sorted(found)

    @property
    def faults(self) -> Path:
        """Return the folder where brokers count what meets a fault."""
        return self.directory / "faults"

    def fault_socket(self, broker_id: int) -> Path:
        """Return where the broker is asked for faults."""
        return self.directory / f"broker-{broker_id}" / "faults.socket"

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
            for ports in ("ports", "certificate_ports"):
                value[ports] = {int(k): v for k, v in value.get(ports, {}).items()}
            return ClusterSpec(**value)
        except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None

    def require(self) -> ClusterSpec:
        """Read the spec. Raises RefusedError where no cluster was made."""
        if (spec := self.load()) is None:
            raise RefusedError(f"no cluster runs in {self.directory}: start it by kt cluster up, up() or a with block")
        return spec

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
    def lock(self, *, wait: bool = False) -> Iterator[None]:
        """Admit one ``up``, ``down`` or ``start`` at a time; the lock dies with its holder.

        Raises KafkatoolError when another has it, unless it is to ``wait``.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise KafkatoolError(
                    f"another kt is starting or stopping the cluster in {self.directory}: wait for it, then try again"
                ) from None
            try:
                yield
            finally:
                fcntl.flock(f, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor still
