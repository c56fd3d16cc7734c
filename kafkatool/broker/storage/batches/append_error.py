"""The error of a batch that a log refuses, with the code its sender is told."""

from typing import NamedTuple

from kafkatool.core.errors import KafkatoolError
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class RecordError(NamedTuple):
    """A record to blame, by its position in the batch."""

    batch_index: int
    message: str


class AppendError(KafkatoolError):
    """The batch was refused and nothing was written (BRK-84, BRK-85, BRK-91)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.record_errors = record_errors


class TooMuchInsideError(AppendError):
    """A batch of more records, or more bytes of them decompressed, than one may have (SEC-102)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)
