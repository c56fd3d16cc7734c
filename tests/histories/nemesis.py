"""Where a workload runs, and what goes wrong there: our brokers with every fault, real Kafka with those of processes.

On both, frames are late or lost where their doors know them.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode
from tests.faults.proxy import Proxy, broker_of
from tests.faults.run import check_no_tracebacks
from tests.faults.schedule import BEFORE_THEM_IN_SYNC, Fault, Step, steps, steps_of
from tests.faults.world import BROKERS, FLUSHED, OPTIONS, World
from tests.histories.frames.doors import Doors
from tests.histories.frames.rules import draw
from tests.histories.kept.data import move_data
from tests.histories.kept.logging_kafka import LoggingDooredKafka, LoggingKafka
from tests.histories.writer import HistoryWriter
from tests.integration.load import await_in_sync, make_topic
from tests.waiting import eventually

_PATIENCE_S = 180
_CLIENT = "rdkafka"  # as librdkafka calls itself where nobody says otherwise
_MOST_WAITED_FOR = 20
_COMES_S = 15
_PROCESS_FAULTS = frozenset({"kill", "freeze", "stop"})
_OF_TWO = frozenset({"link", "outrun"})


class Stage(Protocol):
    """A cluster of three brokers that faults are done to. ``flushed``: they sync each batch before they answer."""

    source: str
    version: str
    flushed: bool
    doors: Doors | None  # such as know frames, if it has any

    @property
    def bootstrap(self) -> str: ...
    @property
    def zk(self) -> ZooKeeper: ...
    def plan(self, seed: int, kinds: Sequence[str] = ()) -> Iterator[Step]: ...
    def begin(self, step: Step) -> None: ...
    def end(self, step: Step) -> None: ...
    def down(self) -> None: ...


class OurStage:
    """Our brokers, reached through proxies, with all faults of a schedule."""

    source, version = "ours", ""

    def __init__(
        self,
        directory: Path,
        doors: Doors | None = None,
        *,
        flushed: bool = False,
        options: Mapping[str, str] = MappingProxyType({}),
        peer_of: Callable[[bytes], str] = broker_of,
    ) -> None:
        self.doors, self.flushed = doors, flushed
        options = {**options, **(FLUSHED if flushed else {})}
        door = (lambda _, port: Proxy(port, peer_of)) if doors is None else doors.make
        self._world = World(directory, options, door)
        self._world.up()

    @property
    def notes(self) -> Sequence[str]:
        """Return what could not be done to the brokers."""
        return self._world.notes

    @property
    def proxies(self) -> Sequence[Proxy]:
        """Return the brokers' doors, whether they know frames or not."""
        return list(self._world.doors.values())

    def check_logs(self) -> None:
        """Assert that brokers have told of every fault in a line, not with a stack."""
        check_no_tracebacks(self._world)

    @property
    def bootstrap(self) -> str:
        return self._world.cluster.bootstrap

    @property
    def zk(self) -> ZooKeeper:
        return self._world.zk

    def plan(self, seed: int, kinds: Sequence[str] = ()) -> Iterator[Step]:
        """Return the schedule of the seed, or one of these kinds alone (as ``steps_of`` takes them)."""
        return steps_of(seed, BROKERS, kinds) if kinds else steps(seed, BROKERS)

    def begin(self, step: Step) -> None:
        if any(fault.kind in BEFORE_THEM_IN_SYNC for fault in step.faults):
            await_in_sync(self.zk, seconds=_PATIENCE_S)
        self._world.begin(step)

    def end(self, step: Step) -> None:
        self._world.end(step)

    def down(self, keep: Path | None = None) -> None:
        """End it; what its brokers stored goes below ``keep``, if that is said."""
        files = self._world.cluster.files
        stored = {f"broker-{broker}": files.data(broker) for broker in BROKERS}
        stored["power"] = files.directory / "power"  # the notes of what was written, by which power is cut
        self._world.down(lambda: None if keep is None else move_data(stored, keep))


class KafkaStage:
    """Real Kafka, as a control: brokers are killed, stopped and frozen."""

    source = "kafka"

    def __init__(
        self,
        version: str,
        directory: Path,
        doors: Doors | None = None,
        *,
        flushed: bool = False,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.version, self.doors, self.flushed = version, doors, flushed
        options = {
            **OPTIONS,
            **(FLUSHED if flushed else {}),
            "default.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "10",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
            **options,
        }
        brokers = len(BROKERS)
        self._kafka = (
            LoggingKafka(version, directory, brokers=brokers, options=options)
            if doors is None
            else LoggingDooredKafka(doors, version, directory, brokers=brokers, options=options)
        )
        self._kafka.__enter__()
        self.zk = ZooKeeper(self._kafka.connect, session_timeout_ms=60_000, connection_timeout_ms=60_000).start()

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    def plan(self, seed: int, kinds: Sequence[str] = ()) -> Iterator[Step]:
        """Return the steps of the same seed that are of processes alone."""
        drawn = steps_of(seed, BROKERS, kinds) if kinds else steps(seed, BROKERS)
        return (step for step in drawn if {f.kind for f in step.faults} <= _PROCESS_FAULTS)

    def begin(self, step: Step) -> None:
        for fault in step.faults:
            if fault.kind == "freeze":
                os.kill(self._kafka.pid(fault.broker), signal.SIGSTOP)
            else:
                (self._kafka.kill_broker if fault.kind == "kill" else self._kafka.stop_broker)(fault.broker)

    def end(self, step: Step) -> None:
        for fault in step.faults:
            if fault.kind == "freeze":
                os.kill(self._kafka.pid(fault.broker), signal.SIGCONT)
        for fault in step.faults:
            if fault.kind != "freeze":
                self._await_unregistered(fault.broker)
                self._kafka.start_broker(fault.broker)

    def _await_unregistered(self, broker: int) -> None:
        """Wait until the session of a killed broker is over: Kafka 2.8 does not start beside its own registration."""
        path = BrokerZnode.path(broker)
        eventually(lambda: self.zk.get(path) is None, f"{path} to go", _PATIENCE_S)

    def down(self, keep: Path | None = None) -> None:
        """End it; what its brokers stored goes below ``keep``, if that is said."""
        self.zk.close()
        self._kafka.stop()
        if self.doors is not None:
            self.doors.close()
        if keep is not None:
            move_data({f"broker-{broker}": self._kafka.data_directory(broker) for broker in BROKERS}, keep)


def play(stage: Stage, step: Step, number: int, writer: HistoryWriter) -> None:
    """Do a step's faults for as long as they last, and mend them; both are lines of the history.

    Where all brokers lose their power, the second one says before which line they were down: so much may be lost.
    """
    kinds = list(map(_told, step.faults))
    writer.write("nemesis", "info", "fault", {"step": number, "begins": True, "faults": kinds})
    stage.begin(step)
    down = {"down": writer.count} if any(fault.kind == "power cut all" for fault in step.faults) else {}
    over = time.monotonic() + step.seconds
    eventually(lambda: time.monotonic() > over, "time to pass", step.seconds + 60)
    stage.end(step)
    writer.write("nemesis", "info", "fault", {"step": number, "begins": False, "faults": kinds, **down})
    if step.settle:
        await_in_sync(stage.zk, seconds=_PATIENCE_S)


def _told(fault: Fault) -> str:
    """Return a fault's kind, and whom it befalls."""
    return f"{fault.kind} {fault.broker}" + (f"-{fault.other}" if fault.kind in _OF_TWO else "")


def meddle(doors: Doors, chance: random.Random, number: int, writer: HistoryWriter, stop: threading.Event) -> None:
    """Have one request of the clients held up, late, or its answer lost; returns when that is over, or does not come."""
    seen = doors.record.count(_CLIENT) if doors.record is not None else {}
    if not seen:
        return
    rule = draw(chance, {kind: min(count, _MOST_WAITED_FOR) for kind, count in seen.items()})
    what = {"step": f"frame {number}", "faults": [str(rule)]}
    writer.write("nemesis", "info", "fault", {**what, "begins": True})
    armed = doors.rules.add(rule)
    over = time.monotonic() + _COMES_S
    while not (armed.done.wait(0.05) or stop.is_set() or time.monotonic() > over):
        pass
    doors.rules.clear()
    writer.write("nemesis", "info", "fault", {**what, "begins": False, "met": armed.met.is_set()})


def settle(stage: Stage) -> None:
    """Wait until every replica is in sync again."""
    await_in_sync(stage.zk, seconds=_PATIENCE_S)


def create_topic(stage: Stage, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Make a topic, however long that takes while faults are at work."""

    def created() -> bool:
        with contextlib.suppress(KafkatoolError, AssertionError):
            make_topic(stage.zk, topic, partitions, configs=configs)
            return True
        return False

    eventually(created, f"topic {topic} to be made", _PATIENCE_S)
