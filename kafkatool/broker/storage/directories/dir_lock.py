"""The lock file ``.lock``, by which a log dir has one owner (BRK-148).

A POSIX record lock, as Java's FileLock takes, so that real Kafka and this broker exclude each other. Such a lock does
not exclude inside one process and is lost when *any* descriptor of the file is closed there, so the process also
keeps a registry, asked before the file is opened. Source: Kafka 1.1.1 utils/FileLock.scala.
"""

import fcntl
import os
import threading
from pathlib import Path

from kafkatool.core.errors import StorageError

_FILE = ".lock"
_registry_lock = threading.Lock()
_held_here: set[Path] = set()


class DirLock:
    """The lock of one log dir, held from construction until ``release``."""

    def __init__(self, directory: Path) -> None:
        """Take it. Raises StorageError when another broker has it, OSError when the file cannot be made."""
        self._key = directory.resolve()
        refusal = f"{directory} is in use by another broker: stop that one or choose another log.dirs"
        with _registry_lock:
            if self._key in _held_here:
                raise StorageError(refusal)
            self._fd: int | None = os.open(directory / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as e:
                os.close(self._fd)
                raise StorageError(refusal) from e
            _held_here.add(self._key)

    def release(self) -> None:
        """Give it back. Safe to call twice."""
        with _registry_lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None
                _held_here.discard(self._key)
