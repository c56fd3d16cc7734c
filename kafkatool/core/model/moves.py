"""A partition on the move: as its topic's node tells of it since Kafka 2.4 (KIP-455), and how far a plan has come.

Origin: the replicas before the move, target: those wanted. Kafka keeps neither, but AR and what of it is being added and
removed; so both are found again by whoever reads the node.
"""

import enum
from collections.abc import Collection
from typing import NamedTuple, Self

from kafkatool.core.model.values import TopicPartition

Replicas = tuple[int, ...]


def minus(replicas: Replicas, others: Collection[int]) -> Replicas:
    """Return those not among ``others``, in order."""
    return tuple(b for b in replicas if b not in others)


class StoredMove(NamedTuple):
    """One partition. ``replicas`` is AR: the target, then the rest of the origin.

    ``dropped``: replicas of an earlier target that nothing wants any more, until their brokers have deleted them. Kafka
    has no such list, and leaves them on the disks of brokers that it could not tell.
    """

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()
    dropped: Replicas = ()

    @property
    def target(self) -> Replicas:
        """Return the replicas at the end of the move."""
        return minus(self.replicas, self.removing)

    @property
    def origin(self) -> Replicas:
        """Return the replicas before the move, in the order in which AR has them."""
        return minus(self.replicas, self.adding)

    @property
    def is_moving(self) -> bool:
        """Tell whether replicas are being added or removed."""
        return bool(self.adding or self.removing)

    def to(self, target: Replicas) -> Self:
        """Return the move with another target: the origin stays, what only the former target wanted is dropped."""
        origin = self.origin
        rest = minus(origin, target)
        replicas = (*target, *rest)
        dropped = (*self.dropped, *minus(self.replicas, self.dropped))
        return type(self)(replicas, minus(target, origin), rest, minus(dropped, replicas))


class Status(enum.StrEnum):
    """The status of one partition of a plan (RSN-35X)."""

    PENDING = "pending"  # not written yet
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    NOOP = "noop"  # the plan is what is there already


class Move(NamedTuple):
    """The move of one partition: ``current`` replicas (empty: no such partition), ``target`` of the plan; ISR if read."""

    partition: TopicPartition
    current: tuple[int, ...]
    target: tuple[int, ...]
    status: Status
    isr: tuple[int, ...] = ()
