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
    _deleted: set[TopicPartition] = field(default_factory=set)  # went while a commit for them was under way

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that commits for these are being written."""
        self.under_way.update(list(partitions))  # a list: a mapping would be taken for counts

    def finish(self, partition: TopicPartition, commit: Commit | None) -> None:
        """End the write of a commit; None: it failed and nothing changes."""
        self.under_way[partition] -= 1
        last = self.under_way[partition] <= 0
        if last:
            del self.under_way[partition]
        if commit is not None and partition not in self._deleted:
            self.apply(partition, commit)
        if last:
            self._deleted.discard(partition)

    def apply(self, partition: TopicPartition, commit: Commit) -> None:
        """Put in force unless what is there stands later in the log."""
        known = self.in_force.get(partition)
        if known is None or known.log_offset < commit.log_offset:
            self.in_force[partition] = commit

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply or drop what the producer's open transaction held: its marker was read (GRP-12)."""
        held = self.transactional.pop(producer_id, {})
        if committed:
            for partition, commit in held.items():
                self.apply(partition, commit)

    def forget(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget deleted partitions; return the ones that had an offset, which needs a tombstone (GRP-53)."""
        had = []
        for partition in partitions:
            if self.in_force.pop(partition, None) is not None:
                had.append(partition)
            if self.under_way[partition] > 0:
                self._deleted.add(partition)
            else:
                del self.under_way[partition]
        return had

    def expire(
        self, now_ms: float, retention_ms: float, since_ms: float | None, *, simple: bool
    ) -> Mapping[TopicPartition, Commit]:
        """Take out what has expired (GRP-54). ``since_ms``: when the group became Empty, None if not known."""
        gone = {}
        for partition, commit in self.in_force.items():
            if self.under_way[partition] > 0:
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
        self.under_way = +self.under_way
        return gone

    def partitions(self) -> set[TopicPartition]:
        """Return all that have, or may get, a record in the log."""
        return {*self.in_force, *self.under_way, *(p for held in self.transactional.values() for p in held)}

    @property
    def empty(self) -> bool:
        """Tell whether nothing is in force, pending or under way: nothing to remember the group for (GRP-55)."""
        return not (self.in_force or +self.under_way or any(self.transactional.values()))
