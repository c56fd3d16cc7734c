"""Value types that every part shares. Frozen; absence is None, never -1 (only the wire and the znodes say -1)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of a topic. A tuple, so that it hashes and sorts at C speed: it is the key of every hot map."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the form Kafka >= 1.0 prints: ``topic-0``."""
        return f"{self.topic}-{self.partition}"

    @property
    def bracketed(self) -> str:
        """Return the form Kafka <= 0.11 prints: ``[topic,0]``."""
        return f"[{self.topic},{self.partition}]"


class Endpoint(NamedTuple):
    """The address of a listener. ``listener`` is its upper-case name, ``protocol`` the security protocol."""

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker. ``epoch`` is the czxid of its node, its incarnation (Z-8); None if not read from one.

    ``asks_for_isr_changes``: it speaks inter.broker.protocol.version >= 2.7, so it leaves changing ISRs to the controller
    (AlterIsr, KIP-497), which kafkatool's does not serve.
    """

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int | None = None
    asks_for_isr_changes: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint of that listener name, or None."""
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Leadership of one partition, as its state node holds it (Z-15 to Z-17).

    ``isr`` is ordered and never empty; ``controller_epoch`` is that of the controller which decided the leadership.
    """

    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """LeaderAndIsr together with the version of the node it was read from or written to."""

    leader_and_isr: LeaderAndIsr
    version: int


Assignment = Mapping[int, tuple[int, ...]]
"""Partition id -> ordered broker ids, the first being the preferred replica."""


def join_ids(ids: Iterable[int], separator: str = ",") -> str:
    """Return the broker ids as texts and files name them: ``1,2,3``; of none an empty text."""
    return separator.join(map(str, ids))


def first_of(names: Sequence[object], most: int, separator: str = ", ") -> str:
    """Return the first ``most`` names, and how many more there are: ``t-0, t-1 and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(map(str, names[:most])) + more


def in_number(count: int, one: str, many: str) -> str:
    """Return ``1 partition``, ``0 partitions``: the count, and what agrees with it in number."""
    return f"{count} {one if count == 1 else many}"


def leaders_by_preference(assigned: Iterable[Sequence[int]]) -> Counter[int]:
    """Count for each broker the partitions that prefer it as leader, being first in their ``assigned`` replicas."""
    return Counter(replicas[0] for replicas in assigned if replicas)
