"""A group's committed offsets: what is in force, what is being written, what open transactions hold (GRP-12, 46 to 56)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkatool.broker.groups.records import OffsetValue
from kafkatool.core.model.values import TopicPartition


class Commit(NamedTuple):
    """A commit and where its record is in the log: of two, the later one stays (GRP-52)."""

    value: OffsetValue
    log_offset: int


@dataclass(slots=True)
class CommittedOffsets:
    """The offsets of one group. Not thread-safe: the group's lock guards it."""

    in_force: dict[TopicPartition, Commit] = field(default_factory=dict)
    under_way: Counter[TopicPartition] = field(default_factory=Counter)
    transactional: dict[int, dict[TopicPartition, Commit]] = field(default_factory=dict)
    """By producer id: what counts if its transaction commits (TXN-86)."""
    erasing: set[TopicPartition] = field(default_factory=set)
    """Partitions whose tombstone is decided and not appended yet: a commit that began now could come before it in the
    log, and be erased by it."""
    _deletions: int = 0  # how often partitions were deleted: tells what began before and what after
    _deleted: dict[TopicPartition, int] = field(default_factory=dict)  # while a commit for them is under way: when
    _left: set[TopicPartition] = field(default_factory=set)  # of these the log has records of a topic that is gone
    _tombstones: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets of those that an administrator had written, of partitions with a commit under way."""

    _writing: dict[int, Counter[TopicPartition]] = field(default_factory=dict)  # by producer id: under way as well
    _ended: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    """Markers of producers with a commit under way: where they stand in the log, and whether they commit."""

    def begin(self, partitions: Iterable[TopicPartition], producer_id: int | None = None) -> int:
        """Note that commits for these are being written. Return what ``finish`` wants to know: when they began.

        ``producer_id``: they are part of its transaction.
        """
        listed = list(partitions)  # a mapping would be taken for counts
        self.under_way.update(listed)
        if producer_id is not None:
            self._writing.setdefault(producer_id, Counter()).update(listed)
        return self._deletions

    def finish(
        self, partition: TopicPartition, commit: Commit | None, begun: int, producer_id: int | None = None
    ) -> bool:
        """End the write of a commit; None: it failed and nothing changes.

        Return whether a tombstone is needed: the partition was deleted while a commit was on its way, and nothing that
        stands later in the log hides it (GRP-53). A commit that began after the deletion, for a topic made anew, counts.
        """
        self.under_way[partition] -= 1
        last = self.under_way[partition] <= 0
        if last:
            del self.under_way[partition]
        if commit is not None:
            if begun < self._deleted.get(partition, 0):
                self._left.add(partition)
            elif producer_id is None:
                self.apply(partition, commit)
            else:
                self._hold(producer_id, partition, commit)
        if producer_id is not None:
            self._written(producer_id, partition)
        if not last:
            return False
        self._deleted.pop(partition, None)
        self._tombstones.pop(partition, None)
        left = partition in self._left and partition not in self.in_force and not self._is_held(partition)
        self._left.discard(partition)
        if left:
            self.erasing.add(partition)
        return left

    def _hold(self, producer_id: int, partition: TopicPartition, commit: Commit) -> None:
        """Keep it until the marker comes; that may have been told before the commit was (TXN-86)."""
        for marker, committed in self._ended.get(producer_id, ()):
            if commit.log_offset < marker:
                if committed:
                    self.apply(partition, commit)
                return
        held = self.transactional.setdefault(producer_id, {})
        known = held.get(partition)
        if known is None or known.log_offset < commit.log_offset:
            held[partition] = commit

    def _written(self, producer_id: int, partition: TopicPartition) -> None:
        writing = self._writing.get(producer_id)
        if writing is None:
            return  # the group was let go of meanwhile, with what it knew
        writing[partition] -= 1
        if not writing[partition]:
            del writing[partition]
        if not writing:
            del self._writing[producer_id]
            self._ended.pop(producer_id, None)

    def _is_held(self, partition: TopicPartition) -> bool:
        return any(partition in held for held in self.transactional.values())

    def unstable(self) -> set[TopicPartition]:
        """Return the partitions whose offset may be about to change, by a transaction or a commit being written (TXN-87).

        Source: Kafka 2.8.2 GroupMetadata.scala (hasPendingOffsetCommitsForTopicPartition).
        """
        held = (p for partitions in self.transactional.values() for p in partitions)
        return {*held, *+self.under_way}

    def apply(self, partition: TopicPartition, commit: Commit) -> None:
        """Put in force unless what is there, or a tombstone, stands later in the log."""
        known = self.in_force.get(partition)
        deleted_at = self._tombstones.get(partition, -1)
        if deleted_at < commit.log_offset and (known is None or known.log_offset < commit.log_offset):
            self.in_force[partition] = commit

    def delete(self, partition: TopicPartition, log_offset: int) -> None:
        """Take out what was committed before the tombstone at that offset, and what is still being written (ADM-67)."""
        for held in (self.in_force, *self.transactional.values()):
            if (known := held.get(partition)) is not None and known.log_offset < log_offset:
                del held[partition]
        if self.under_way[partition] > 0:
            self._tombstones[partition] = log_offset

    def end_transaction(self, producer_id: int, *, committed: bool, log_offset: int) -> None:
        """Apply or drop what the producer's transaction held whose marker stands at that offset (GRP-12, TXN-86).

        What stands behind the marker is of its next transaction.
        """
        if producer_id in self._writing:
            self._ended.setdefault(producer_id, []).append((log_offset, committed))
        held = self.transactional.pop(producer_id, {})
        for partition, commit in held.items():
            if commit.log_offset > log_offset:
                self.transactional.setdefault(producer_id, {})[partition] = commit
            elif committed:
                self.apply(partition, commit)

    def knows_transaction(self, producer_id: int) -> bool:
        """Tell whether something of the producer waits for a marker, or is being written."""
        return producer_id in self._writing or bool(self.transactional.get(producer_id))

    def forget(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget deleted partitions; return the ones that had an offset, which needs a tombstone (GRP-53)."""
        had = []
        self._deletions += 1
        for partition in partitions:
            kept = (self.in_force, *self.transactional.values())
            if [held for held in kept if held.pop(partition, None) is not None]:
                had.append(partition)
                self.erasing.add(partition)
            if self.under_way[partition] > 0:
                self._deleted[partition] = self._deletions
            else:
                del self.under_way[partition]
        return had

    def expire(
        self, now_ms: float, retention_ms: float, since_ms: float | None, *, simple: bool
    ) -> Mapping[TopicPartition, Commit]:
        """Take out what has expired (GRP-54). ``since_ms``: when the group became Empty, None if not known."""
        gone = {}
        held = self.unstable()
        for partition, commit in self.in_force.items():
            if partition in held:
                continue
            value = commit.value
            if value.expire_timestamp_ms is not None:
                due = now_ms >= value.expire_timestamp_ms
            else:
                start = value.commit_timestamp_ms if simple or since_ms is None else since_ms
                due = now_ms - start >= retention_ms
            if due:
                gone[partition] = commit
        for partition in gone:
            del self.in_force[partition]
            self.erasing.add(partition)
        self.under_way = +self.under_way
        return gone

    def partitions(self) -> set[TopicPartition]:
        """Return all that have, or may get, a record in the log."""
        return {*self.in_force, *self.under_way, *(p for held in self.transactional.values() for p in held)}

    @property
    def empty(self) -> bool:
        """Tell whether nothing is in force, pending or under way: nothing to remember the group for (GRP-55)."""
        return not (self.in_force or +self.under_way or any(self.transactional.values()))
