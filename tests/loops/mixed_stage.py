"""A cluster of Kafka's brokers and ours, each of which dies or stops, and comes back as the one or the other.

Whoever comes back goes on with the directory, the port and the number of who was there before, whichever kind that was.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.mixed import OURS, Mixed, mixed_cluster
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
        options = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
        with ExitStack() as ends:
            self._mixed: Mixed = ends.enter_context(mixed_cluster(version, _PROTOCOL, directory, options))
            self._mixed.create_transaction_topic(2, 1)
            self._ends = ends.pop_all()
        self.bootstrap = self._mixed.bootstrap
        self._at_work = {OURS: self._mixed.ours}
        self._known = dict(self._at_work)

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
                self._known[broker] = self._mixed.ours_on_theirs(broker)
                self._ends.push(self._known[broker].__exit__)
            self._at_work[broker] = self._known[broker]
            self._at_work[broker].start()
            return
        if broker == OURS and OURS not in real.ports:
            self._ends.enter_context(self._mixed.theirs_on_ours())
        real.start_broker(broker)

    def down(self) -> None:
        self._ends.close()
