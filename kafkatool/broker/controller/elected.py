"""The outcome of an election that a client asked for, which the handler turns into words of the wire (ADM-62)."""

from typing import NamedTuple

from kafkatool.core.protocol.messages.error_codes import ErrorCode


class Elected(NamedTuple):
    """The outcome for one partition: its new leader, or why there is none."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    leader: int | None = None
