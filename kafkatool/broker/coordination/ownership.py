"""The partitions of an internal topic that this broker coordinates: owned, or being loaded (GRP-6, 7, 15; TXN-7)."""

import enum
import functools
import threading

from kafkatool.core.model.java_hash import java_bucket, java_string_hash


class Ownership(enum.Enum):
    """The stage of a partition that is led here."""

    LOADING = "loading"
    OWNED = "owned"


_REMEMBERED_LENGTH = 256  # longer ids are rare, and 10,000 of the longest would be a gigabyte


def partition_for(id_: str, partitions: int) -> int:
    """Return the partition of a group, or of a transactional id, of so many (GRP-1, TXN-1)."""
    return _remembered(id_, partitions) if len(id_) <= _REMEMBERED_LENGTH else _computed(id_, partitions)


def _computed(id_: str, partitions: int) -> int:
    return java_bucket(java_string_hash(id_), partitions)


_remembered = functools.lru_cache(maxsize=10_000)(_computed)


class OwnedPartitions:
    """The partitions led here. Thread-safe. A change of an older leader epoch than the newest seen is refused (GRP-7).

    A load is known by the epoch it began in: one whose partition was lost meanwhile stays void, even when the
    partition has come back and is being loaded again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: dict[int, Ownership] = {}
        self._epochs: dict[int, int] = {}
        self._loads: dict[int, int] = {}  # partition led now -> the epoch in which its load began

    def begin_load(self, partition: int, epoch: int) -> bool:
        """Enter loading. False: stale, or led already under an earlier epoch, which is not loaded again (GRP-6)."""
        with self._lock:
            if epoch < self._epochs.get(partition, -1):
                return False
            self._epochs[partition] = epoch
            if partition in self._state:
                return False
            self._state[partition] = Ownership.LOADING
            self._loads[partition] = epoch
            return True

    def finish_load(self, partition: int, epoch: int) -> bool:
        """End a load that went well. False: the partition was lost meanwhile, what was loaded is void."""
        with self._lock:
            if self._state.get(partition) is not Ownership.LOADING or self._loads[partition] != epoch:
                return False
            self._state[partition] = Ownership.OWNED
            return True

    def still_loading(self, partition: int, epoch: int) -> bool:
        """Tell whether the load that began in ``epoch`` is wanted still."""
        with self._lock:
            return self._state.get(partition) is Ownership.LOADING and self._loads[partition] == epoch

    def owned_since(self, partition: int) -> int | None:
        """Return the epoch in which its load began; None: not owned. Equal answers: never lost between (GRP-16)."""
        with self._lock:
            return self._loads[partition] if self._state.get(partition) is Ownership.OWNED else None

    def end(self, partition: int, epoch: int | None) -> bool:
        """Stop leading; ``epoch`` None: whatever the epoch. False: a stale message, or not ours anyway."""
        with self._lock:
            if epoch is not None:
                if epoch < self._epochs.get(partition, -1):
                    return False
                self._epochs[partition] = epoch
            self._loads.pop(partition, None)
            return self._state.pop(partition, None) is not None

    def get(self, partition: int) -> Ownership | None:
        with self._lock:
            return self._state.get(partition)

    def loading(self) -> bool:
        """Tell whether anything is being loaded (GRP-59)."""
        with self._lock:
            return Ownership.LOADING in self._state.values()
