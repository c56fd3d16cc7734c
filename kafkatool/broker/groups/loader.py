"""Read one partition of ``__consumer_offsets`` into groups (GRP-9 to 14; Kafka 2.3.1 group/GroupMetadataManager.scala)."""

import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkatool.broker.groups.offsets import Commit, CommittedOffsets
from kafkatool.broker.groups.records import GroupKey, GroupValue, OffsetKey, decode_group, decode_key, decode_offset
from kafkatool.broker.storage.log import Log
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.model import TopicPartition
from kafkatool.core.protocol.file_region import FileRegion
from kafkatool.core.protocol.records import BatchHeader, Record, decode_records, iter_batches

log = logging.getLogger(__name__)

_COMMIT_MARKER = 1
_MARKER_KEY = struct.Struct(">hh")  # version, kind


@dataclass(slots=True)
class Loaded:
    """What a partition says. ``broken`` are groups with a value that cannot be decoded: they alone answer 14."""

    groups: dict[str, GroupValue] = field(default_factory=dict)
    offsets: dict[str, CommittedOffsets] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def group_ids(self) -> set[str]:
        return set(self.groups) | {g for g, offsets in self.offsets.items() if not offsets.empty}

    def of(self, group: str) -> CommittedOffsets:
        return self.offsets.setdefault(group, CommittedOffsets())


def load(source: Log, buffer_size: int, wanted: Callable[[], bool]) -> Loaded | None:
    """From log start to log end, in pieces of ``buffer_size`` bytes. None: no longer ``wanted`` (leadership went).

    The log end, not the high watermark: the elected leader's log is the truth. It also ends when a read brings
    nothing, since compaction can leave a gap at the end.
    """
    loaded = Loaded()
    offset = source.log_start_offset
    while offset < (end := source.log_end_offset):
        if not wanted():
            return None
        read = source.read(offset, buffer_size, end, min_one_batch=True)
        records = read.records.read() if isinstance(read.records, FileRegion) else read.records
        view = memoryview(records)
        after = offset
        for position, header in iter_batches(view):
            if position + header.size_bytes > len(view):
                break  # cut by the piece's end: comes whole with the next
            _apply(loaded, header, decode_records(view[position : position + header.size_bytes]))
            after = header.next_offset
        if after == offset:
            break
        offset = after
    return loaded


def _apply(loaded: Loaded, header: BatchHeader, records: list[Record]) -> None:
    if header.attributes & 0x20:  # a control batch: the end of a producer's transaction
        _apply_marker(loaded, header, records)
        return
    transactional = bool(header.attributes & 0x10)
    for record in records:
        key = decode_key(record.key) if record.key is not None else None
        if key is None:
            continue
        try:
            if isinstance(key, GroupKey):
                _apply_group(loaded, key, record)
            else:
                _apply_offset(loaded, key, record, header.producer_id if transactional else None)
        except CorruptRecordsError as e:
            log.error("group %s cannot be served: record at offset %d: %s", key.group, record.offset, e)
            loaded.broken.add(key.group)


def _apply_marker(loaded: Loaded, header: BatchHeader, records: list[Record]) -> None:
    key = records[0].key if records else None
    if key is None or len(key) < _MARKER_KEY.size:
        log.warning("the control batch at offset %d is no transaction marker and is skipped", header.base_offset)
        return
    _, kind = _MARKER_KEY.unpack_from(key)
    for offsets in loaded.offsets.values():
        offsets.end_transaction(header.producer_id, committed=kind == _COMMIT_MARKER)


def _apply_group(loaded: Loaded, key: GroupKey, record: Record) -> None:
    if record.value is None:
        loaded.groups.pop(key.group, None)
    else:
        loaded.groups[key.group] = decode_group(record.value)


def _apply_offset(loaded: Loaded, key: OffsetKey, record: Record, producer_id: int | None) -> None:
    partition = TopicPartition(key.topic, key.partition)
    offsets = loaded.of(key.group)
    if record.value is None:
        offsets.in_force.pop(partition, None)
        return
    commit = Commit(decode_offset(record.value), record.offset)
    if producer_id is None:
        offsets.apply(partition, commit)
    else:
        offsets.transactional.setdefault(producer_id, {})[partition] = commit
