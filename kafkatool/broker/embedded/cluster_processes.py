"""The processes of one cluster as one of its users has them: which run, which were started here, whose ports are held."""

import socket
import subprocess
from collections.abc import Collection, Mapping
from typing import Final

import psutil

from kafkatool.broker.embedded import processes
from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
from kafkatool.broker.embedded.ports import hold
from kafkatool.broker.embedded.zookeeper_process import MAIN, ZooKeeperProcess

PROGRAM: Final = "kafkatool"
_START: Final = (PROGRAM, "broker", "start", "--config")


class ClusterProcesses:
    """The brokers, ZooKeeper and the guardian of the cluster in a directory, whoever started them."""

    def __init__(self, files: ClusterFiles) -> None:
        self._files = files
        self._brokers: dict[int, subprocess.Popen[bytes]] = {}
        self._known: dict[int, psutil.Process] = {}
        self._held: dict[int, socket.socket | None] = {}  # ports of what does not run, or does not listen yet
        self._guardian: subprocess.Popen[bytes] | None = None
        self.zookeeper: ZooKeeperProcess | None = None
        """That which was started here."""

    def broker(self, broker_id: int) -> psutil.Process | None:
        """Find the process of a broker; None while it does not run."""
        known = self._known.get(broker_id)
        if known is not None and processes.lives(known):
            return known
        found = processes.find(PROGRAM, self._files.properties(broker_id))
        if found is not None:
            self._known[broker_id] = found
        return found

    # --- begin --------------------------------------------------------------------------------------------------

    def start_broker(self, broker_id: int, environment: Mapping[str, str]) -> None:
        """Start the process of a broker whose properties are written."""
        if (last := self._brokers.pop(broker_id, None)) is not None:
            last.wait()  # Python warns of a process nobody waited for, and in tests a warning may be an error
        self._brokers[broker_id] = child = processes.spawn(
            self.command(broker_id), self._files.output(broker_id), environment
        )
        self._known[broker_id] = psutil.Process(child.pid)

    def command(self, broker_id: int) -> list[str]:
        """Return what its process is started by; ``broker`` finds it by the last words."""
        return [*processes.PYTHON, "-m", *_START, str(self._files.properties(broker_id))]

    def start_guardian(self, *, remove: bool) -> None:
        """Start who ends the cluster when nobody uses it any more, and is to ``remove`` its directory, or not."""
        command = [*processes.PYTHON, "-m", "kafkatool.broker.embedded.guardian", str(self._files.directory)]
        self._guardian = processes.spawn(command + ["--remove"] * remove, self._files.directory / "guardian.log")

    def require_running(self, brokers: Collection[int]) -> None:
        """Raise ProcessEndedError if one of those brokers was started here and has ended."""
        for broker_id, child in self._brokers.items():
            if (code := child.poll()) is not None and broker_id in brokers:
                raise processes.ProcessEndedError(f"broker {broker_id}", code, self._files.output(broker_id))

    # --- ports --------------------------------------------------------------------------------------------------

    def hold_ports(self, ports: Collection[int]) -> None:
        """Have no other cluster take the ports of what is to start; it may listen there beside."""
        for port in ports:
            if port not in self._held:
                self._held[port] = hold(port)

    def let_ports_go(self, ports: Collection[int] | None = None) -> None:
        """Hold them no more; None: all."""
        for port in list(self._held if ports is None else ports):
            if (held := self._held.pop(port, None)) is not None:
                held.close()

    # --- end ----------------------------------------------------------------------------------------------------

    def end_all(self, spec: ClusterSpec, zookeeper: ZooKeeperProcess, *, gentle: bool) -> None:
        """End brokers, then ZooKeeper, which is ``zookeeper`` unless it was started here."""
        processes.end(*(p for i in spec.ports if (p := self.broker(i))), gentle=gentle)
        for child in self._brokers.values():
            child.wait()
        self._brokers.clear()
        self.let_ports_go()
        (self.zookeeper or zookeeper).stop(gentle=gentle)
        self.zookeeper = None

    def left(self) -> list[psutil.Process]:
        """Find what runs of clusters that were in the directory, whatever its files say by now."""
        return [*self._brokers_left(), *self._zookeepers_left()]

    def end_left(self, *, gentle: bool) -> None:
        """End those, ZooKeeper when the brokers have ended: without it they would wait for it."""
        processes.end(*self._brokers_left(), gentle=gentle)
        processes.end(*self._zookeepers_left(), gentle=gentle)

    def _brokers_left(self) -> list[psutil.Process]:
        return processes.started_in(self._files.directory, _START, r"broker-\d+/server\.properties")

    def _zookeepers_left(self) -> list[psutil.Process]:
        return processes.started_in(self._files.directory, [MAIN], r"zookeeper/zoo\.cfg")

    def end_guardian(self) -> None:
        """End who watches over the cluster, if it was started here: there is nothing left to watch over."""
        if self._guardian is not None:
            self._guardian.kill()
            self._guardian.wait()
        self._guardian = None

    def leave(self) -> None:
        """Have those that run on for others not be missed: Python warns of a process nobody waited for."""
        zookeeper = self.zookeeper.child if self.zookeeper is not None else None
        for child in (*self._brokers.values(), self._guardian, zookeeper):
            if child is not None and child.poll() is None:
                child.returncode = 0
        self._brokers.clear()
        self.let_ports_go()
        self._guardian = self.zookeeper = None
