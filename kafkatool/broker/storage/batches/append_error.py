"""The error of a batch that a log refuses, with the code its sender is told."""

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class AppendError(KafkatoolError):
    """The batch was refused and nothing was written (BRK-84, BRK-85, BRK-91)."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
