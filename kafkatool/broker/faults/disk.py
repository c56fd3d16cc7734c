"""A disk that is slow or full: what is put in the place of ``pwrite`` for segments, and taken away again."""

import errno
import os
import time
from collections.abc import Callable

from kafkatool.broker.faults.rules import Counter
from kafkatool.broker.storage.segment import segment_file

Write = Callable[..., int]


class FaultyDisk:
    """The disk of all brokers of this process, which is one. The fault that began last is the one at work."""

    def __init__(self) -> None:
        self._faults: dict[str, Write] = {}

    def slow(self, name: str, counter: str, delay_ms: int) -> None:
        """Have every write of records take so much longer."""
        count = Counter(counter)

        def write(fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
            count.next()
            time.sleep(delay_ms / 1000)
            return os.pwrite(fd, data, position)

        self._begin(name, write)

    def fill(self, name: str, counter: str) -> None:
        """Have every write of records find no room."""
        count = Counter(counter)

        def write(fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
            count.next()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._begin(name, write)

    def remove(self, name: str) -> None:
        """End a fault, if there is one of that name."""
        self._faults.pop(name, None)
        segment_file.pwrite = next(reversed(self._faults.values()), None)

    def _begin(self, name: str, write: Write) -> None:
        self._faults[name] = write
        segment_file.pwrite = write
