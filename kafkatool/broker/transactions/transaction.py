"""What is known of a transactional id: a value, of which each record of ``__transaction_state`` holds one."""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from kafkatool.broker.transactions.states import LEGAL, TransactionState
from kafkatool.core.model.values import TopicPartition


class IllegalMoveError(RuntimeError):
    """A move that the table of states does not have: a fault of this program."""


class Identity(NamedTuple):
    """A producer's id and epoch."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id's state. Times in ms since 1970; -1: none.

    The last epoch and id are what the producer had before the present ones, if it told them (KIP-360). A record has no
    place for them: they are unknown after a load.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    update_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: Set[TopicPartition] = frozenset()
    start_ms: int = -1
    last_producer_id: int = -1
    last_epoch: int = -1

    @property
    def identity(self) -> Identity:
        """Return what its producer calls itself by."""
        return Identity(self.producer_id, self.epoch)

    def moved(self, state: TransactionState, **changes: Any) -> Self:
        """Return it in another state. Raises IllegalMoveError."""
        if self.state not in LEGAL[state]:
            raise IllegalMoveError(f"a transaction cannot go from {self.state.label} to {state.label}")
        return replace(self, state=state, **changes)
