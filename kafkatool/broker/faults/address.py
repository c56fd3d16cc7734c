"""The address of a broker's fault socket, for both ends of it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Give a name for the socket that is short enough: those of sockets are bounded by 108 bytes, paths are not."""
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
