"""A batch that this log does not take, and the code its sender is told."""

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class AppendError(KafkatoolError):
    """Nothing was written (BRK-84, BRK-85, BRK-91)."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
