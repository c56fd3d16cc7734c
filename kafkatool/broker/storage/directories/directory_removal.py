"""The erasure of the directories of deleted partitions, in the background (BRK-150).

One after the other, with pauses: a topic's thousands come due at once, and a pool of threads that erase at full speed
holds up whoever makes a directory on that disk: a topic of 1,000 partitions needed three times as long to come up.
"""

import logging
import shutil
import threading
import time
from collections import deque
from pathlib import Path

log = logging.getLogger(__name__)

_REST = 2  # times as long as it worked


class DirectoryRemoval:
    """The directories to be erased now. Any thread may call; the one that is erasing takes over what others bring."""

    def __init__(self) -> None:
        self._doomed: deque[Path] = deque()
        self._erasing = threading.Lock()
        self._stopped = False

    def erase(self, path: Path) -> None:
        """Remove the directory before this returns, or have the thread do it that is at work already."""
        self._doomed.append(path)
        while self._doomed and not self._stopped and self._erasing.acquire(blocking=False):
            try:
                while self._doomed and not self._stopped:
                    started = time.perf_counter()
                    _remove_tree(self._doomed.popleft())
                    time.sleep(_REST * (time.perf_counter() - started))
            finally:
                self._erasing.release()

    def stop(self) -> None:
        """Erase no more; the next start does it."""
        self._stopped = True


def _remove_tree(path: Path) -> None:
    """Remove the directory; what cannot be removed is tried again at the next start."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass  # somebody else was faster
    except OSError as e:
        log.warning("%s could not be removed: %s", path, e)
