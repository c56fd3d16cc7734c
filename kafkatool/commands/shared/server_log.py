"""Logging of a server in the foreground, in Kafka's layout: to stderr, the controller's to a file besides.

What an authorizer refuses goes to a file alone: clients decide how much that is. Clients also choose names that are told
of: what would begin another line, or drive a terminal, is escaped.
"""

import logging
import re
import sys
from pathlib import Path

_FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"  # Kafka's log4j layout
_DATE = "%Y-%m-%d %H:%M:%S"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class _OneLine(logging.Formatter):
    """Keeps a message on its line; a traceback follows on its own, as ever."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), record.message)
        return super().formatMessage(record)


def log_to_stderr() -> None:
    """Log everything of kafkatool's to stderr, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(_FORMAT, _DATE))
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


def _file_handler(path: Path) -> logging.FileHandler:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_OneLine(_FORMAT, _DATE))
    return handler
