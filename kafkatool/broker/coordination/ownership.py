"""The partitions of an internal topic that this broker coordinates: owned, or being loaded (GRP-6, 7, 15; TXN-7)."""

import enum
import functools
import threading
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A time in which a partition is led here, from its load on.

    Never equal to another, be their epochs the same: a topic that is deleted and made anew begins with the same ones.
    """

    partition: int
    epoch: int
    """The leader epoch in which it began."""


class OwnedPartitions:
    """The partitions led here. Thread-safe. A change of an older leader epoch than the newest seen is refused (GRP-7).

    A load is known by its term: one whose partition was lost meanwhile stays void, even when the partition has come back
    and is being loaded again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: dict[int, Ownership] = {}
        self._epochs: dict[int, int] = {}  # the newest seen, of the replica that is here
        self._terms: dict[int, Term] = {}  # of the partitions led now

    def begin_load(self, partition: int, epoch: int) -> Term | None:
        """Enter loading. None: stale, or led already under an earlier epoch, which is not loaded again (GRP-6)."""
        with self._lock:
            if epoch < self._epochs.get(partition, -1):
                return None
            self._epochs[partition] = epoch
            if partition in self._state:
                return None
            self._state[partition] = Ownership.LOADING
            term = self._terms[partition] = Term(partition, epoch)
            return term

    def finish_load(self, term: Term) -> bool:
        """End a load that went well. False: the partition was lost meanwhile, what was loaded is void."""
        with self._lock:
            if not self._is_loading(term):
                return False
            self._state[term.partition] = Ownership.OWNED
            return True

    def still_loading(self, term: Term) -> bool:
        """Tell whether the load that began with that term is wanted still."""
        with self._lock:
            return self._is_loading(term)

    def _is_loading(self, term: Term) -> bool:
        return self._terms.get(term.partition) is term and self._state[term.partition] is Ownership.LOADING

    def owned_since(self, partition: int) -> Term | None:
        """Return the term whose load is done; None: not owned. Equal answers: never lost between (GRP-16)."""
        with self._lock:
            return self._terms[partition] if self._state.get(partition) is Ownership.OWNED else None

    def end(self, partition: int, epoch: int | None) -> bool:
        """Stop leading; ``epoch`` None: the replica is gone, and the next one's epochs may begin anew.

        False: a stale message, or not ours anyway.
        """
        with self._lock:
            if epoch is None:
                self._epochs.pop(partition, None)
            elif epoch < self._epochs.get(partition, -1):
                return False
            else:
                self._epochs[partition] = epoch
            self._terms.pop(partition, None)
            return self._state.pop(partition, None) is not None

    def get(self, partition: int) -> Ownership | None:
        with self._lock:
            return self._state.get(partition)

    def loading(self) -> bool:
        """Tell whether anything is being loaded (GRP-59)."""
        with self._lock:
            return Ownership.LOADING in self._state.values()
