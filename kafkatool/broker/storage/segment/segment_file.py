"""The open file of a segment, shared by the log and by responses being sent from it."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from kafkatool.core.protocol.codec.types import Buffer

pwrite: Callable[[int, Buffer, int], int] | None = None
"""What writes to segments in the place of ``os.pwrite``: a disk that is slow or full (`broker/faults`)."""


class SegmentFile:
    """A descriptor that closes when the last holder lets go: a response under way keeps a removed file readable.

    Thousands of partitions must not cost thousands of descriptors, so a segment opens its file when it is needed and
    forgets it when it is not (BRK-144).
    """

    __slots__ = ("_fd",)

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open; with ``create`` make the file, empty whatever was there. Raises OSError."""
        self._fd = -1
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if create else 0)
        self._fd = os.open(path, flags, 0o644)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def __del__(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # nothing is lost: what must be durable was fsynced
                os.close(self._fd)


def write_all(fd: int, data: Buffer, position: int) -> None:
    """Write everything. Raises OSError, also when the disk took only a part."""
    size = len(data)
    write = pwrite or os.pwrite
    written = write(fd, data, position)
    while written < size:
        step = write(fd, memoryview(data)[written:], position + written)
        if not step:
            raise OSError(errno.ENOSPC, f"only {written} of {size} bytes could be written")
        written += step
