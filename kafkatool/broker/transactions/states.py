"""The states of a transactional id and the moves between them (TXN-17)."""

import enum
from collections.abc import Mapping
from typing import Final


class TransactionState(enum.IntEnum):
    """The states; their numbers are those of ``__transaction_state``."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired; never stored, it ends as a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """Ongoing under an epoch that was raised to fence its producer, and about to be aborted; never stored."""

    @property
    def label(self) -> str:
        """Return the name that DescribeTransactions and ListTransactions show."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
OPEN: Final = frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE})

LEGAL: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {  # to -> from
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: OPEN,
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
STORABLE: Final = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}
