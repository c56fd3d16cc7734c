"""A cluster of Kafka's brokers and ours, each of which dies or stops, and comes back as the one or the other.

Whoever comes back goes on with the directory, the port and the number of who was there before, whichever kind that was.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.mixed import OFFSETS, OURS, Mixed, OurBroker, mixed_cluster
from tests.faults.schedule import Step, steps_of
from tests.faults.world import BROKERS
from tests.histories.frames.doors import Doors
from tests.integration.load import await_in_sync

_PROTOCOL: Final = "2.3"
_KINDS: Final = ("kill", "stop")
_WAIT_S: Final = 300


class MixedStage:
    """Brokers 1 and 2 are Kafka's and 3 is ours, at first."""

    source: str = "mixed"
    flushed: bool = False
    doors: Doors | None = None

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self._ends = ExitStack()
        options = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
        self._mixed: Mixed = self._ends.enter_context(mixed_cluster(version, _PROTOCOL, directory, options))
        self.bootstrap = self._mixed.bootstrap
        self._at_work = {OURS: self._mixed.ours}
        self._known = dict(self._at_work)
        configs = {"cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2"}
        create_topic(self.zk, TRANSACTION_TOPIC, {0: (OURS, 2, 1)}, configs)
        await_in_sync(self.zk, (OFFSETS, TRANSACTION_TOPIC), _WAIT_S)

    @property
    def zk(self) -> ZooKeeper:
        return self._mixed.zk

    def plan(self, seed: int, kinds: Sequence[str] = ()) -> Iterator[Step]:
        """Return steps of one broker each: it dies by kill -9 or stops, and comes back."""
        return steps_of(seed, BROKERS, kinds or _KINDS)

    def begin(self, step: Step) -> None:
        for fault in step.faults:
            self._leave(fault.broker, gently=fault.kind == "stop")

    def end(self, step: Step) -> None:
        """Return when all is in sync; now and then all leaders and coordinators go to where they are preferred."""
        for fault in step.faults:
            self._come(fault.broker, ours=fault.salt % 2 == 0)
            await_in_sync(self.zk, seconds=_WAIT_S)
            if fault.salt % 3:
                self._mixed.kt("elect")

    def _leave(self, broker: int, *, gently: bool) -> None:
        real = self._mixed.real
        if (ours := self._at_work.pop(broker, None)) is not None:
            ours.stop() if gently else ours.kill()
        else:
            (real.stop_broker if gently else real.kill_broker)(broker)
        self._mixed.await_gone(broker)

    def _come(self, broker: int, *, ours: bool) -> None:
        print(f"broker {broker} comes back as {'ours' if ours else 'real'}", flush=True)
        real = self._mixed.real
        if ours:
            if broker not in self._known:
                self._known[broker] = self._make_ours(broker)
            self._at_work[broker] = self._known[broker]
            self._at_work[broker].start()
            return
        if broker == OURS and OURS not in real.ports:
            real.ports[OURS] = self._mixed.ours.port
            real.data_directory(OURS).symlink_to(self._mixed.ours.data)
        real.start_broker(broker)

    def _make_ours(self, broker: int) -> OurBroker:
        """Return one that is not started, on the directory of Kafka's."""
        real = self._mixed.real
        made = OurBroker(
            self._mixed.directory / f"ours-{broker}",
            self._mixed.zookeeper,
            {**self._mixed.ours.options, "log.dirs": real.data_directory(broker)},
            broker,
            port=real.ports[broker],
        )
        self._ends.push(made.__exit__)
        return made

    def down(self) -> None:
        self._ends.close()
