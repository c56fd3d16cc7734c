"""The data of a reassignment copied so far, as the brokers' own log sizes tell (RSN-33X).

To copy is, for each replica of the plan that is not in sync, as much as the largest replica of its partition holds.
Both grow while producers write, so every reading replaces both.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kafkatool.core.model.values import BrokerInfo, TopicPartition
from kafkatool.core.operations.reassignment.replica_sizes import TIMEOUT_MS, ReplicaSizes, SizeReader, largest
from kafkatool.core.zookeeper.cluster_view import read_cluster, read_states
from kafkatool.core.zookeeper.session import ZooKeeper

if TYPE_CHECKING:
    from kafkatool.core.client.access import BrokerAccess

RATE_WINDOW_S: Final = 30.0  # the rate is that of the last half minute: a throttle may have been changed
READ_INTERVAL_S: Final = 1.0
REST_PER_READING: Final = 9  # a reading that takes long is made less often: at most a tenth of the time is spent so


class Replica(NamedTuple):
    """A replica that the plan wants and that was not in sync when kt began to look."""

    partition: TopicPartition
    broker: int


class Copied(NamedTuple):
    """The bytes copied so far. ``bytes_per_second`` None: there are not two readings yet.

    ``written_per_second``: by how much there comes to be more to copy meanwhile. ``still_s``: for how long no byte moved.
    """

    copied_bytes: int
    total_bytes: int
    bytes_per_second: float | None
    written_per_second: float = 0.0
    still_s: float = 0.0

    @property
    def remaining_s(self) -> float | None:
        """Return the estimate; None: no rate yet, nothing moves, or as much is written as is copied."""
        left = max(0, self.total_bytes - self.copied_bytes)
        if not self.bytes_per_second or (left and self.bytes_per_second <= self.written_per_second):
            return None
        return left / (self.bytes_per_second - self.written_per_second) if left else 0.0


@dataclass(frozen=True, slots=True)
class ToCopy:
    """The replicas a plan has to copy, and the brokers that know how large they are."""

    replicas: frozenset[Replica]
    brokers: Mapping[int, BrokerInfo]


def to_copy(zk: ZooKeeper, moves: Mapping[TopicPartition, tuple[int, ...]]) -> ToCopy:
    """Read from ZooKeeper which replicas of the plan are not in the ISR."""
    view = read_cluster(zk, {p.topic for p in moves}, states=False)
    states = read_states(zk, moves)
    replicas = frozenset(
        Replica(p, b) for p, target in moves.items() if p in states for b in target
        if b not in states[p].leader_and_isr.isr
    )  # fmt: skip
    concerned = {r.broker for r in replicas}
    for partition in {r.partition for r in replicas}:
        concerned.update(states[partition].leader_and_isr.isr)
    return ToCopy(replicas, {b: view.brokers[b] for b in sorted(concerned) if b in view.brokers})


class Share(NamedTuple):
    """The part of one broker in what there is to copy."""

    broker: int
    left_bytes: int


def largest_share(what: ToCopy, sizes: ReplicaSizes) -> Share | None:
    """Return the part of the broker with most to copy; None: nothing. What no broker tells counts as nothing."""
    left: Counter[int] = Counter()
    wanted = largest(sizes)
    for partition, broker in what.replicas:
        left[broker] += wanted.get(partition, 0) - sizes.get(broker, {}).get(partition, 0)
    broker, most = max(left.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
    return Share(broker, most) if most else None


def read_largest_share(what: ToCopy, access: "BrokerAccess | None" = None) -> Share | None:
    """Ask the brokers once how much there is to copy, and return the largest part."""
    with SizeReader(what.brokers.values(), access) as reader:
        return largest_share(what, reader.read({r.partition for r in what.replicas}))


class CopyCount:
    """The sum of the readings. What a broker does not tell any more counts as last told."""

    def __init__(self, replicas: Collection[Replica]) -> None:
        self._replicas = replicas
        self._told: dict[int, dict[TopicPartition, int]] = {}
        self._wanted: dict[TopicPartition, int] = {}
        self._history: deque[tuple[float, int, int]] = deque()  # when, copied, total
        self._moved_s = 0.0  # when bytes were last seen to have moved

    def add(self, sizes: ReplicaSizes, left: Collection[TopicPartition], now_s: float) -> None:
        """Add a reading, made at ``now_s`` of a monotonic clock; partitions not in ``left`` have been copied in full."""
        self._told.update((broker, dict(of_broker)) for broker, of_broker in sizes.items())
        whole = {  # a replica that is being copied does not tell how much there is
            p
            for b, of_broker in self._told.items()
            for p in of_broker
            if p not in left or Replica(p, b) not in self._replicas
        }
        for partition, size in largest(self._told).items():
            if partition in whole and (partition in left or partition not in self._wanted):
                self._wanted[partition] = size
        counted = self._count(left)
        if counted is None:
            return
        if not self._history or counted[0] != self._history[-1][1]:
            self._moved_s = now_s
        self._history.append((now_s, *counted))
        while len(self._history) > 1 and now_s - self._history[1][0] >= RATE_WINDOW_S:
            self._history.popleft()

    def copied(self, left: Collection[TopicPartition]) -> Copied | None:
        """Return the sum; None: nothing to copy, or some partition's size has not been told yet."""
        counted = self._count(left)
        if not counted or not counted[1]:
            return None
        if len(self._history) < 2:
            return Copied(*counted, None)
        (then_s, copied_then, total_then), (now_s, copied, total) = self._history[0], self._history[-1]
        past_s = now_s - then_s
        rate, written = max(0, copied - copied_then) / past_s, max(0, total - total_then) / past_s
        return Copied(*counted, rate, written, now_s - self._moved_s)

    def unknown(self) -> frozenset[TopicPartition]:
        """Return partitions whose size nobody has told yet: they are asked for even if they have finished."""
        return frozenset(r.partition for r in self._replicas if r.partition not in self._wanted)

    def _count(self, left: Collection[TopicPartition]) -> tuple[int, int] | None:
        copied = total = 0
        for replica in self._replicas:
            wanted = self._wanted.get(replica.partition)
            if wanted is None:
                return None
            if replica.partition not in left:
                copied += wanted
            elif replica.broker not in self._told:
                return None
            else:
                copied += min(wanted, self._told[replica.broker].get(replica.partition, 0))
            total += wanted
        return copied, total


class CopyWatch:
    """A reader of sizes on a thread of its own, so that a broker that does not answer holds nothing up."""

    def __init__(
        self, what: ToCopy, *, interval_s: float = READ_INTERVAL_S, access: "BrokerAccess | None" = None
    ) -> None:
        self._what = what
        self._access = access
        self._interval_s = interval_s
        self._count = CopyCount(what.replicas)
        self._asked = self._count.unknown()
        self._latest: tuple[float, ReplicaSizes] | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kt-copy-watch", daemon=True)

    def __enter__(self) -> Self:
        if self._what.replicas:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(2 * TIMEOUT_MS / 1000)  # a broker that does not answer is not waited for

    def copied(self, left: Collection[TopicPartition]) -> Copied | None:
        """Return the sum as of the last reading; ``left`` are the plan's partitions that have not finished."""
        latest, self._latest = self._latest, None
        if latest is not None:
            self._count.add(latest[1], left, latest[0])
        self._asked = self._count.unknown().union(left)
        return self._count.copied(left)

    def _run(self) -> None:
        partitions = {r.partition for r in self._what.replicas}
        with SizeReader(self._what.brokers.values(), self._access) as reader:
            while not self._ending.is_set():
                begun = time.monotonic()
                sizes = reader.read(partitions.intersection(self._asked))
                ended = time.monotonic()
                self._latest = (ended, sizes)
                self._ending.wait(max(self._interval_s, REST_PER_READING * (ended - begun)))
