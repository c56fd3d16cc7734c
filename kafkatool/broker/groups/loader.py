"""Read one partition of ``__consumer_offsets`` into groups (GRP-9 to 14; Kafka 2.3.1 group/GroupMetadataManager.scala)."""

import logging
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kafkatool.broker.coordination.log_walk import walk
from kafkatool.broker.groups.offsets import Commit, CommittedOffsets
from kafkatool.broker.groups.records import (
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    Record,
)

log = logging.getLogger(__name__)

_COMMIT_MARKER = 1
_MARKER_KEY = struct.Struct(">hh")  # version, kind


@dataclass(slots=True)
class Loaded:
    """The groups and offsets that a partition's records say.

    ``damaged`` has, by group, the keys whose value in force cannot be decoded: such a group alone answers 14, until a
    later record of that key, such as the tombstone that DeleteGroups writes, puts it right (GRP-14).
    """

    partition: str = OFFSETS_TOPIC  # as log lines name it
    groups: dict[str, GroupValue] = field(default_factory=dict)
    offsets: defaultdict[str, CommittedOffsets] = field(default_factory=lambda: defaultdict(CommittedOffsets))
    damaged: dict[str, set[Key]] = field(default_factory=dict)
    open_transactions: dict[int, set[str]] = field(default_factory=dict)  # producer id -> groups it commits for
    end: int = 0
    """The offset behind the last record that was read."""

    _partitions: dict[TopicPartition, TopicPartition] = field(default_factory=dict)  # one object for all groups

    def group_ids(self) -> set[str]:
        """Return the ids of all groups that are whole."""
        known = set(self.groups) | {g for g, offsets in self.offsets.items() if not offsets.empty}
        return known - set(self.broken)

    @property
    def broken(self) -> list[str]:
        """Return the groups with a damaged record."""
        return [group for group, keys in self.damaged.items() if keys]

    def keys_of(self, group: str) -> set[Key]:
        """Return the keys that need a tombstone to be rid of the group."""
        stored = (OffsetKey(group, t, p) for t, p in self.offsets[group].partitions())
        return {GroupKey(group), *stored, *self.damaged.get(group, ())}

    def apply(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """Apply the next batch of the log. What no key can be read from is skipped, with a log line."""
        if header.attributes & CONTROL:  # the end of a producer's transaction
            self._apply_marker(header, records)
            return
        transactional = bool(header.attributes & TRANSACTIONAL)
        for record in records:
            try:
                key = decode_key(record.key) if record.key is not None else None
            except CorruptRecordsError as e:
                log.error(
                    "%s: the record at offset %d is skipped, its key is damaged: %s", self.partition, record.offset, e
                )
                continue
            if key is None:
                continue
            try:
                if isinstance(key, GroupKey):
                    self._apply_group(key, record)
                else:
                    self._apply_offset(key, record, header.producer_id if transactional else None)
            except CorruptRecordsError as e:
                log.error(
                    "%s: group %s is not served until it is deleted: the record at offset %d is damaged: %s",
                    self.partition,
                    key.group,
                    record.offset,
                    e,
                )
                self.damaged.setdefault(key.group, set()).add(key)
            else:
                if self.damaged and key.group in self.damaged:
                    self.damaged[key.group].discard(key)

    def _apply_marker(self, header: BatchHeader, records: Iterable[Record]) -> None:
        key = next((record.key for record in records), None)
        if key is None or len(key) < _MARKER_KEY.size:
            log.warning(
                "%s: the control batch at offset %d is no transaction marker and is skipped",
                self.partition,
                header.base_offset,
            )
            return
        _, kind = _MARKER_KEY.unpack_from(key)
        self.end_transaction(header.producer_id, committed=kind == _COMMIT_MARKER, log_offset=header.base_offset)

    def end_transaction(self, producer_id: int, *, committed: bool, log_offset: int) -> None:
        """Put in force, or drop, what the producer's open transaction holds: its marker stands at that offset."""
        for group in self.open_transactions.pop(producer_id, ()):
            self.offsets[group].end_transaction(producer_id, committed=committed, log_offset=log_offset)

    def _apply_group(self, key: GroupKey, record: Record) -> None:
        if record.value is None:
            self.groups.pop(key.group, None)
        else:
            self.groups[key.group] = decode_group(record.value)

    def _apply_offset(self, key: OffsetKey, record: Record, producer_id: int | None) -> None:
        partition = TopicPartition(key.topic, key.partition)
        partition = self._partitions.setdefault(partition, partition)
        offsets = self.offsets[key.group]
        if record.value is None:
            for held in (offsets.in_force, *offsets.transactional.values()):
                held.pop(partition, None)  # a transaction that is open still brings it back no more (TXN-88)
            return
        commit = Commit(decode_offset(record.value), record.offset)
        if producer_id is None:
            offsets.apply(partition, commit)
        else:
            offsets.transactional.setdefault(producer_id, {})[partition] = commit
            self.open_transactions.setdefault(producer_id, set()).add(key.group)


def load(source: Log, buffer_size: int, wanted: Callable[[], bool]) -> Loaded | None:
    """Read from log start to log end. None: no longer ``wanted``. Raises StorageError, CorruptRecordsError: see ``walk``."""
    loaded = Loaded(str(source.partition))
    end = walk(source, buffer_size, wanted, loaded.apply)
    if end is None:
        return None
    loaded.end = end
    return loaded
