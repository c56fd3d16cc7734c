"""Operations that wait for something to happen, or for their time to run out: Kafka's purgatory (BRK-81).

An operation is watched under keys. Whoever changes what belongs to a key calls ``check(key)`` afterwards, holding no
lock of a partition (BRK-43), and the operations waiting there are tried on that very thread: no hop, no queue.
A completed operation leaves all its watch lists at once, so nothing has to be swept. What a request waits for is an
operation in the room that serves it; all of them wait here.
Source: Kafka 1.1.1 server/DelayedOperation.scala.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafkatool.broker.runtime.timer import Timer, TimerTask

log = logging.getLogger(__name__)


@dataclass(eq=False)
class DelayedOperation:
    """Something to be completed exactly once: by its condition, by its timer, or because its subject went away."""

    delay_ms: float
    _once: threading.Lock = field(default_factory=threading.Lock, init=False)  # taken for good by whoever completes
    purgatory: "Purgatory | None" = field(default=None, init=False)  # these three are set by the purgatory it waits in
    keys: Sequence[Hashable] = field(default=(), init=False)
    timer_task: TimerTask | None = field(default=None, init=False)

    @property
    def completed(self) -> bool:
        """Tell whether somebody has completed it, or is doing so."""
        return self._once.locked()

    def try_complete(self, key: Hashable | None = None) -> bool:
        """Complete if the condition holds; True if completed, now or before.

        ``key`` is what changed, None: look at everything. May run on several threads at a time.
        """
        raise NotImplementedError

    def on_complete(self) -> None:
        """Do what was waited for. Called once, under no lock."""
        raise NotImplementedError

    def on_expire(self) -> None:
        """Note that the time ran out; ``on_complete`` follows."""

    def abandon(self, key: Hashable) -> None:
        """Stop waiting for what belongs to ``key``: it goes away."""
        self.complete()

    def complete(self) -> bool:
        """Complete whatever the condition says; False if somebody else did."""
        if not self._claim():
            return False
        self.on_complete()
        return True

    def expire(self) -> None:
        """Complete as when the time is out, unless somebody else did. May block, as ``on_complete`` may."""
        if self._claim():
            self.on_expire()
            self.on_complete()

    def _claim(self) -> bool:
        if not self._once.acquire(blocking=False):
            return False
        if self.purgatory is not None:
            self.purgatory.forget(self)
        if self.timer_task is not None:
            self.timer_task.cancel()
        return True


class Purgatory:
    """The operations of one kind that are waiting, by key. Thread-safe.

    An expiry answers a client and may read a disk for it, so ``timer`` is one that hands its tasks to an executor.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self._watched: dict[Hashable, dict[DelayedOperation, None]] = {}

    def __len__(self) -> int:
        """Return how many keys are watched."""
        return len(self._watched)

    def watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> bool:
        """Return True if it could be completed at once; else it waits under every key until its time is out.

        It is tried when it can be found, not before: so a change between a try and the watching is not missed.
        """
        operation.purgatory, operation.keys = self, keys
        with self._lock:
            for key in keys:
                self._watched.setdefault(key, {})[operation] = None
        if operation.try_complete():
            return True
        operation.timer_task = task = self._timer.add(operation.delay_ms, operation.expire)
        if operation.completed:
            task.cancel()  # it was completed before it could see its timer
        return False

    def check(self, key: Hashable) -> None:
        """Try what waits for something under this key, which has changed. Call without holding a partition's lock."""
        self._try_all(key, key)

    def _try_all(self, watched: Hashable, key: Hashable) -> None:
        """Try what waits under ``watched``; ``key`` is what changed."""
        if waiting := self._watched.get(watched):
            for operation in list(waiting):
                guarded(partial(operation.try_complete, key))

    def abandon(self, key: Hashable) -> None:
        """Have nothing wait for this key any longer: what belongs to it is gone."""
        for operation in list(self._watched.get(key, ())):
            guarded(partial(operation.abandon, key))

    def expire_all(self) -> None:
        """End every wait now, as if the time were out: the broker is stopping (BRK-127)."""
        with self._lock:
            operations = {operation for waiting in self._watched.values() for operation in waiting}
        for operation in operations:
            guarded(operation.expire)

    def forget(self, operation: DelayedOperation) -> None:
        """Take an operation that is completed off its watch lists."""
        with self._lock:
            for key in operation.keys:
                if waiting := self._watched.get(key):
                    waiting.pop(operation, None)
                    if not waiting:
                        del self._watched[key]


def guarded(act: Callable[[], object]) -> None:
    """Do it for one that waits: what goes wrong there is neither the others' fault nor that of who changed something."""
    try:
        act()
    except Exception:
        log.exception("an operation that waited could not go on")
