"""A cluster whose every wire can be cut: each broker is reached, and reaches ZooKeeper, through a proxy of its own."""

import contextlib
import math
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from kafkatool.broker.embedded.ports import HOST
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.errors import NoNodeError
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode
from tests.faults.proxy import Proxy, broker_of
from tests.faults.schedule import CUT_OFF, Fault, Step
from tests.faults.torn import tear
from tests.histories.power.brokers import PoweredCluster
from tests.histories.power.control import Troubles
from tests.waiting import eventually

BROKERS = (1, 2, 3)
OPTIONS = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "6000",
    "controller.socket.timeout.ms": "6000",
    "log.segment.bytes": "300000",
}
_DISK = "300m"
_PATIENCE_S = 90
_STARVED_S = 2
_AHEAD_S = 1.0
_LEAP_S = 3600.0
_DRIFT = 0.2
_SLOW_SYNC_S = (0.1, 5.0)
_FAILING_WRITES = 200
_FAILING_WRITES_OF_ONE = 5  # of one partition's, of which fewer come
_RETIRED_S = 20.0  # for so long the writes to one partition are awaited that is to fail
FLUSHED = MappingProxyType({"log.flush.interval.messages": "1"})
"""Options of brokers that sync each batch before they answer: what they acknowledged a power cut of all leaves."""


class World:
    """Does the faults of a schedule to its cluster, and mends them; ``notes`` has what it could not do.

    ``door`` makes the proxy of a broker, by its number and its port.
    """

    def __init__(
        self,
        directory: Path,
        options: Mapping[str, str] = MappingProxyType({}),
        door: Callable[[int, int], Proxy] = lambda _, port: Proxy(port, broker_of),
    ) -> None:
        self._door = door
        self.doors: dict[int, Proxy] = {}  # through which the others reach this broker
        self.sessions: dict[int, Proxy] = {}  # through which it reaches ZooKeeper
        self.notes: list[str] = []
        self._mounted: list[Path] = []
        self.cluster = PoweredCluster(
            brokers=len(BROKERS), directory=directory, options={**OPTIONS, **options}, adjust=self._wire
        )

    def _wire(self, broker_id: int, properties: Mapping[str, str]) -> Mapping[str, str]:
        if broker_id not in self.doors:
            self.doors[broker_id] = self._door(broker_id, int(properties["listeners"].rpartition(":")[2]))
            self.sessions[broker_id] = Proxy(int(properties["zookeeper.connect"].rpartition(":")[2]))
        return {
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.doors[broker_id].port}",
            "zookeeper.connect": f"{HOST}:{self.sessions[broker_id].port}",
        }

    def up(self) -> None:
        """Start everything; where that fails nothing is left, as nobody has what could be ended."""
        try:
            for broker_id in BROKERS:
                data = self.cluster.files.data(broker_id)
                data.mkdir(parents=True)
                command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(data)]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    self._mounted.append(data)
                self.cluster.settle(broker_id)
            self.cluster.up()
            self.zk = ZooKeeper(self.cluster.zookeeper, session_timeout_ms=60_000, connection_timeout_ms=60_000).start()
        except BaseException:
            self.down()
            raise

    def down(self, before_data_goes: Callable[[], object] = lambda: None) -> None:
        """End everything, whatever state it is in.

        ``before_data_goes`` is called when no broker is at work any more; what was stored on small disks goes after it.
        """
        with contextlib.ExitStack() as ends:  # the last first, each whatever became of the others
            while self._mounted:
                ends.callback(subprocess.run, ["umount", "-l", str(self._mounted.pop())], check=False)
            ends.callback(before_data_goes)
            for proxy in (*self.doors.values(), *self.sessions.values()):
                ends.callback(proxy.close)
            ends.callback(self.cluster.down, gentle=False)
            if hasattr(self, "zk"):
                ends.callback(self.zk.close)

    # --- steps --------------------------------------------------------------------------------------------------

    def begin(self, step: Step) -> None:
        for fault in step.faults:
            self._begin(fault)

    def end(self, step: Step) -> None:
        """Wires first: what is started again must reach the others."""
        order = ("link", "isolate", "zookeeper", "expire", "freeze")
        for fault in sorted(step.faults, key=lambda f: order.index(f.kind) if f.kind in order else len(order)):
            self._end(fault)

    def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case "kill" | "tear":
                self.cluster.kill_broker(fault.broker)
                if fault.variant == "expired":
                    self._await_gone(fault.broker)
                if fault.kind == "tear":
                    tear(self.cluster.files.data(fault.broker), fault.variant, random.Random(fault.salt))
                    self.cluster.settle(fault.broker)
            case "power cut":
                self.cluster.kill_broker(fault.broker)
                if fault.variant == "expired":
                    self._await_gone(fault.broker)
                self.cluster.cut_power(fault.broker, random.Random(fault.salt))
            case "kill all" | "power cut all":
                for broker_id in BROKERS:
                    self.cluster.kill_broker(broker_id)
                if fault.kind == "power cut all":
                    for broker_id in BROKERS:
                        self.cluster.cut_power(broker_id, random.Random(f"{fault.salt} {broker_id}"))
            case "stop":
                self.cluster.stop_broker(fault.broker)
            case "freeze":
                os.kill(self._pid(fault.broker), signal.SIGSTOP)
                if fault.variant == CUT_OFF:
                    self.doors[fault.broker].cut()
                if fault.variant != "short":
                    self._await_gone(fault.broker)
            case "zookeeper":
                self._zookeeper().stop(gentle=False)
            case "expire":
                self.sessions[fault.broker].silence()
                self._await_gone(fault.broker)
            case "link":
                self._part(fault.broker, fault.other, fault.variant)
            case "isolate":
                for other in BROKERS:
                    if other != fault.broker:
                        self._part(fault.broker, other, fault.variant)
            case "disk":
                self._fill_disk(fault.broker)
            case "starve":
                self._starve(fault.broker, fault.variant)
            case "outrun":
                self._outrun(fault.broker, fault.other)
            case "slow disk" | "clock":
                self.cluster.trouble(fault.broker, troubles_of(fault))
            case "failing disk":
                self._fail_disk(fault)
            case "depose":
                with contextlib.suppress(NoNodeError):
                    self.zk.delete("/controller")

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case "kill" | "tear" | "stop" | "starve" | "outrun" | "power cut":
                self.cluster.start_broker(fault.broker)
            case "slow disk" | "clock":
                self.cluster.trouble(fault.broker, Troubles())
            case "failing disk":
                self.cluster.trouble(fault.broker, Troubles())
                self.cluster.start_broker(fault.broker)
            case "kill all" | "power cut all":
                for broker_id in BROKERS:
                    self.cluster.start_broker(broker_id)
            case "freeze":
                if fault.variant == CUT_OFF:
                    self.doors[fault.broker].heal()
                os.kill(self._pid(fault.broker), signal.SIGCONT)
                self._await_back(fault.broker)
            case "zookeeper":
                self._zookeeper().start().wait_ready()
            case "expire":
                self.sessions[fault.broker].heal(how=fault.healing)
                self._await_back(fault.broker)
            case "link":
                self._join(fault.broker, fault.other, fault)
            case "isolate":
                for other in BROKERS:
                    if other != fault.broker:
                        self._join(fault.broker, other, fault)
            case "disk":
                self._clear_disk(fault.broker)

    def _starve(self, broker_id: int, variant: str) -> None:
        """Kill a leader that no follower has fetched from for a while, without any of them leaving the in-sync set.

        Frozen followers have the answer to their last fetch in their sockets. Those that are cut off lack it, and the
        rest of the cluster goes on meanwhile.
        """
        others = [other for other in BROKERS if other != broker_id]
        frozen = [self._pid(other) for other in others] if variant == "frozen" else []
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        if not frozen:
            for other in others:
                self.doors[broker_id].cut(str(other))
        _pass_time(_STARVED_S)
        self.cluster.kill_broker(broker_id)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        for other in others:
            self.doors[broker_id].heal(str(other))

    def _outrun(self, broker_id: int, other: int) -> None:
        """Kill a broker a while after another one fell out of the in-sync sets, which then is there again."""

        def left_behind() -> bool:
            states = read_cluster(self.zk).states.values()
            return all(other not in s.leader_and_isr.isr for s in states if s.leader_and_isr.leader == broker_id)

        os.kill(self._pid(other), signal.SIGSTOP)
        eventually(left_behind, f"{other} to leave the sets that {broker_id} leads", _PATIENCE_S)
        _pass_time(_AHEAD_S)  # until then nothing was acknowledged: now records are that the other one lacks
        self.cluster.kill_broker(broker_id)
        os.kill(self._pid(other), signal.SIGCONT)

    # --- their parts --------------------------------------------------------------------------------------------

    def _part(self, here: int, there: int, variant: str) -> None:
        ways = [(here, there)] if variant.endswith("one way") else [(here, there), (there, here)]
        for speaker, listener in ways:
            door = self.doors[listener]
            (door.silence if variant.startswith("silent") else door.cut)(str(speaker))

    def _join(self, here: int, there: int, fault: Fault) -> None:
        for speaker, listener in ((here, there), (there, here)):
            self.doors[listener].heal(str(speaker), fault.healing)

    def _zookeeper(self) -> ZooKeeperProcess:
        return ZooKeeperProcess(self.cluster.files.zookeeper, int(self.cluster.zookeeper.rpartition(":")[2]))

    def _find_pid(self, broker_id: int) -> int | None:
        return next(b.pid for b in self.cluster.status().brokers if b.id == broker_id)

    def _pid(self, broker_id: int) -> int:
        pid = self._find_pid(broker_id)
        assert pid is not None, f"broker {broker_id} has ended by itself: {self.cluster.files.output(broker_id)}"
        return pid

    def _is_registered(self, broker_id: int) -> bool:
        return self.zk.get(BrokerZnode.path(broker_id)) is not None

    def _await_gone(self, broker_id: int) -> None:
        eventually(lambda: not self._is_registered(broker_id), f"the session of {broker_id} to end", _PATIENCE_S)

    def _await_back(self, broker_id: int) -> None:
        eventually(lambda: self._is_registered(broker_id), f"{broker_id} to register again", _PATIENCE_S)

    def _failing(self, fault: Fault) -> Troubles:
        """Draw from which write on the disk fails: of any, or of the partition that was written to last."""
        troubles = troubles_of(fault)
        logs = self.cluster.files.data(fault.broker).glob("*/*.log")
        newest = max(logs, key=lambda log: log.stat().st_mtime, default=None)
        if fault.variant != "a partition's" or newest is None:
            return troubles
        write = 1 + troubles.failing_write % _FAILING_WRITES_OF_ONE
        return troubles._replace(failing_write=write, failing_in=newest.parent.name)

    def _fail_disk(self, fault: Fault) -> None:
        self.cluster.trouble(fault.broker, self._failing(fault))
        any_from = time.monotonic() + _RETIRED_S

        def has_given_up() -> bool:
            nonlocal any_from
            if time.monotonic() > any_from:  # nobody writes to that partition any more
                self.cluster.trouble(fault.broker, troubles_of(fault))
                any_from = math.inf
            return self._find_pid(fault.broker) is None

        eventually(has_given_up, f"{fault.broker} to give up its failing disk", _PATIENCE_S)

    def _fill_disk(self, broker_id: int) -> None:
        data = self.cluster.files.data(broker_id)
        if data not in self._mounted:
            self.notes.append("no full disk: that needs the right to mount")
            return
        for size_bytes in (1 << 20, 1 << 12, 1):
            with (
                (data.parent / "data" / f"filling-{size_bytes}").open("wb", buffering=0) as f,
                contextlib.suppress(OSError),
            ):
                while f.write(bytes(size_bytes)) == size_bytes:
                    pass
        eventually(lambda: self._find_pid(broker_id) is None, f"{broker_id} to give up its full disk", _PATIENCE_S)

    def _clear_disk(self, broker_id: int) -> None:
        for filling in self.cluster.files.data(broker_id).glob("filling-*"):
            filling.unlink()
        if self._find_pid(broker_id) is None:
            self.cluster.start_broker(broker_id)


def troubles_of(fault: Fault) -> Troubles:
    """Draw what a broker suffers from its machine."""
    chance = random.Random(fault.salt)
    match fault.kind, fault.variant:
        case "slow disk", _:
            return Troubles(sync_s=chance.uniform(*_SLOW_SYNC_S))
        case "failing disk", _:
            return Troubles(failing_write=chance.randint(1, _FAILING_WRITES))
    leap_s = 0.0 if fault.variant == "drift" else chance.uniform(-_LEAP_S, _LEAP_S)
    drift = 0.0 if fault.variant == "leap" else chance.uniform(-_DRIFT, _DRIFT)
    return Troubles(leap_s=leap_s, drift=drift, since_s=time.monotonic())


def _pass_time(seconds: float) -> None:
    over = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > over, "time to pass", seconds + 60)
