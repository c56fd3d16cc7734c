"""Logging of a server in the foreground: to stderr, and the controller's to a file besides, in Kafka's layout."""

import logging
import sys
from pathlib import Path

_FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"  # Kafka's log4j layout
_DATE = "%Y-%m-%d %H:%M:%S"


def log_to_stderr() -> None:
    """Log everything of kafkatool's to stderr, from INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, _DATE))
    root = logging.getLogger("kafkatool")
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def log_controller_to(path: Path) -> None:
    """Log the controller to that file too; its directory is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(_FORMAT, _DATE))
    logging.getLogger("kafkatool.broker.controller").addHandler(handler)
