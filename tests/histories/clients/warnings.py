"""What clients warn of while a run lasts, in one file: what they did by themselves is told nowhere else."""

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOG: Final = logging.getLogger(__name__)
"""What recorders say themselves, and what librdkafka says through them."""

_LOGS: Final = (LOG, logging.getLogger("aiokafka"))
for _log in _LOGS:
    _log.propagate = False
    _log.addHandler(logging.NullHandler())


@contextlib.contextmanager
def warnings_in(file: Path) -> Iterator[None]:
    """Write what clients warn of into that file, with the clock of histories, while the block runs."""
    handler = logging.FileHandler(file, delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Clocked())
    for log in _LOGS:
        log.addHandler(handler)
    try:
        yield
    finally:
        for log in _LOGS:
            log.removeHandler(handler)
        handler.close()


class _Clocked(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{time.monotonic_ns()} {record.name.rpartition('.')[2]} {record.getMessage()}"
