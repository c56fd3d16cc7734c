"""The speed limit of compaction, which leaves the interpreter and the disk to the requests (BRK-167)."""

import threading
import time

_SLICE_S = 0.005  # of CPU time between pauses: about what a thread keeps the interpreter for anyway


class CleanerThrottle:
    """A brake, called with the bytes just read: after a slice of work it pauses as long as the slice took.

    So one thread of work takes half of the interpreter at most, whatever the disk could give. ``bytes_per_second``
    (log.cleaner.io.max.bytes.per.second) can ask for less. Ends early, with True, when ``stopping`` is set.
    """

    def __init__(self, bytes_per_second: float, stopping: threading.Event) -> None:
        self._bytes_per_second = bytes_per_second
        self._stopping = stopping
        self._resumed_s = time.thread_time()
        self._bytes = 0

    def __call__(self, size_bytes: int) -> bool:
        """Account for the bytes; tell whether it is time to stop."""
        self._bytes += size_bytes
        worked_s = time.thread_time() - self._resumed_s
        due_s = self._bytes / self._bytes_per_second
        if max(worked_s, due_s) < _SLICE_S:
            return self._stopping.is_set()
        self._stopping.wait(max(worked_s, due_s - worked_s))
        self._resumed_s = time.thread_time()
        self._bytes = 0
        return self._stopping.is_set()
