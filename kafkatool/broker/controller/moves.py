"""What the controller tells of moves that clients ask for, which the handlers turn into words of the wire (ADM-64, 66)."""

from collections.abc import Mapping
from typing import NamedTuple

from kafkatool.core.model.moves import Replicas, StoredMove
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode

WantedMoves = Mapping[TopicPartition, Replicas | None]
"""Targets; None: back to the origin."""

OngoingMoves = Mapping[TopicPartition, StoredMove]


class MoveOutcome(NamedTuple):
    """Whether the move of one partition is stored, or why not."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
