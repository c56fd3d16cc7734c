"""Logging of a server in the foreground, in Kafka's layout: to stderr, the controller's to a file besides.

What an authorizer refuses goes to a file alone: clients decide how much that is. Clients also choose names that are told
of: what would begin another line, or drive a terminal, is escaped. Files are rolled and bounded in size; stderr is for who
started the server to keep.
"""

import logging
import logging.handlers
import sys
import traceback
from pathlib import Path
from types import TracebackType

from kafkatool.commands.shared.printable import one_line

_FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"  # Kafka's log4j layout
_DATE = "%Y-%m-%d %H:%M:%S"
FILE_BYTES = 100 << 20
ROLLED = 9  # files beside the newest one: a log needs at most 1 GB

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class OneLine(logging.Formatter):
    """Keeps a message on its line, and harmless. A traceback follows on lines of its own, each of its errors on one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802
        if ei[1] is None:
            return super().formatException(ei)
        written = []
        for part in traceback.TracebackException.from_exception(ei[1]).format():
            is_place = part.startswith("  File ")  # with the line of the program, which is nobody else's text
            lines = part.rstrip("\n").split("\n") if is_place or not part.strip() else [part.strip("\n")]
            written += [one_line(line) for line in lines]
        return "\n".join(written)


def log_to_stderr() -> None:
    """Log everything of kafkatool's to stderr, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(_FORMAT, _DATE))
    root = logging.getLogger("kafkatool")
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def log_controller_to(path: Path) -> None:
    """Log the controller to that file too; its directory is made."""
    logging.getLogger("kafkatool.broker.controller").addHandler(_file_handler(path))


def log_refusals_to(path: Path) -> None:
    """Log what the authorizer refuses to that file; its directory is made (SEC-75)."""
    logger = logging.getLogger("kafka.authorizer.logger")
    logger.addHandler(_file_handler(path))
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _file_handler(path: Path) -> logging.Handler:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=FILE_BYTES, backupCount=ROLLED, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(OneLine(_FORMAT, _DATE))
    return handler
