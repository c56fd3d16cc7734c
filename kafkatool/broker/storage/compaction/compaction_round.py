"""One round of compaction on one log: of each key only the newest record stays (BRK-167).

First the keys of the dirty section are read into a map, then everything up to its end is copied without what the map
shows to be outdated. Offsets never change. What is above the map's end is copied as it is. The log goes on meanwhile:
only putting a finished segment in place takes its lock. Source: Kafka 2.3.1 log/LogCleaner.scala.
"""

import logging
import time
from collections.abc import Iterable, Sequence

from kafkatool.broker.storage.batches.batch_filter import empty_batch, filter_batch, keys_of
from kafkatool.broker.storage.batches.batch_scan import scan_batches
from kafkatool.broker.storage.batches.transaction_markers import delete_horizon_ms, with_delete_horizon
from kafkatool.broker.storage.compaction.cleaned_transactions import CleanedTransactions
from kafkatool.broker.storage.compaction.compaction_plan import CleanPlan, group_segments
from kafkatool.broker.storage.compaction.log_snapshot import LogSnapshot
from kafkatool.broker.storage.compaction.offset_map import OffsetMap
from kafkatool.broker.storage.compaction.throttle import CleanerThrottle
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.segment_swap import SegmentCopy
from kafkatool.core.errors import CorruptRecordsError, KafkatoolError
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.records.batches import BatchHeader, check_crc

log = logging.getLogger(__name__)


class CleaningStoppedError(KafkatoolError):
    """The round was given up: the log was cut or closed, or the broker stops. What is in place already is whole."""


class CompactionRound:
    """A round on one log. ``run`` once."""

    def __init__(self, snapshot: LogSnapshot, plan: CleanPlan, offsets: OffsetMap, throttle: CleanerThrottle) -> None:
        self._log = snapshot.log
        self._snapshot = snapshot
        self._plan = plan
        self._offsets = offsets
        self._throttle = throttle
        self._latest = plan.end - 1  # of the section that the map covers
        self._drop_deletes_before_ms = self._delete_horizon_ms()
        aborted = [a for segment in snapshot.segments for a in segment.aborted_transactions()]
        self._aborted = aborted
        self._transactions = CleanedTransactions(aborted)
        self._without_key = 0

    def run(self) -> int:
        """Clean; return the bytes saved. Raises CleaningStoppedError, CorruptRecordsError, OSError, StorageError."""
        self._map_keys()
        end = self._latest + 1
        segments = [s for s in self._plan.segments if s.base_offset < end]
        before = sum(s.size_bytes for s in segments)
        after = 0
        for group in group_segments(segments, self._log.config.segment_bytes, self._plan.end):
            after += self._clean_group(group)
        self._snapshot.finish(end)
        if self._without_key:
            log.warning("%s: %d records without a key were removed", self._log.partition, self._without_key)
        return before - after

    def _delete_horizon_ms(self) -> float:
        """Return the time: tombstones in files last written before it were first cleaned long enough ago."""
        clean = [s for s in self._plan.segments if s.base_offset < self._plan.first_dirty]
        return clean[-1].modified_ms - self._log.config.delete_retention_ms if clean else 0.0

    # --- first pass ------------------------------------------------------------------------------------------------

    def _map_keys(self) -> None:
        """Read the dirty section's keys, as many as the map takes; at least one batch."""
        offsets, first_dirty = self._offsets, self._plan.first_dirty
        offsets.clear()
        transactions = CleanedTransactions(self._aborted)
        done = first_dirty
        for number, segment in enumerate(self._plan.segments):
            if number + 1 < len(self._plan.segments) and self._plan.segments[number + 1].base_offset <= first_dirty:
                continue
            for header, batch in self._batches(segment):
                if header.last_offset < first_dirty or header.is_control:
                    continue
                if not transactions.is_aborted(header):
                    for offset, key in keys_of(batch, header):
                        if offset >= first_dirty:
                            offsets.put(key, offset)
                done = header.next_offset
                if offsets.is_full:
                    self._latest = done - 1
                    return

    def _batches(self, segment: Segment) -> Iterable[tuple[BatchHeader, memoryview]]:
        """Yield all of a segment, checked: what cannot be read must not be taken for the end."""
        end = 0
        for position, header, batch in scan_batches(segment.file, 0, segment.size_bytes):
            if self._throttle(header.size_bytes):
                raise CleaningStoppedError("the broker stops")
            if not self._snapshot.is_current():
                raise CleaningStoppedError("the log was cut or closed")
            if not check_crc(batch):
                raise CorruptRecordsError(f"{segment.base_offset}: the batch at byte {position} is damaged")
            end = position + header.size_bytes
            yield header, batch
        if end != segment.size_bytes:
            raise CorruptRecordsError(f"{segment.base_offset}: no batch can be read at byte {end}")

    # --- second pass -----------------------------------------------------------------------------------------------

    def _clean_group(self, group: Sequence[Segment]) -> int:
        """Copy what stays of these segments into one that takes their place; return its size."""
        copy = self._snapshot.start_copy(group[0].base_offset)
        try:
            for segment in group:
                keeps_deletes = segment.modified_ms > self._drop_deletes_before_ms
                for header, batch in self._batches(segment):
                    kept = self._kept(header, batch, copy, keeps_deletes=keeps_deletes)
                    copy.is_changed |= kept is not batch
                    if kept is not None:
                        copy.add(kept)
            if len(group) == 1 and not copy.is_changed:
                copy.discard()
            else:  # the age of the file, by which tombstones go, is that of the newest it was made from
                cleaned = copy.finish(group[-1].modified_ms)
                if not self._snapshot.replace_segments(group, cleaned):
                    raise CleaningStoppedError("segments were removed")
        except BaseException:
            copy.discard()
            raise
        return copy.size_bytes

    def _kept(self, header: BatchHeader, batch: memoryview, copy: SegmentCopy, *, keeps_deletes: bool) -> Buffer | None:
        last = self._snapshot.last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if header.is_control:
            has_data, aborted = self._transactions.end(header)
            if aborted:
                copy.aborted.append(aborted)
            is_last = last is not None and last.last_offset is None and last.producer_epoch == header.producer_epoch
            return batch if has_data or is_last else self._alone(header, batch)
        tells_sequence = last is not None and last.last_offset == header.last_offset
        if self._transactions.is_aborted(header):
            kept: Buffer | None = None
        elif header.base_offset > self._latest:
            kept = batch
        else:
            kept = filter_batch(batch, header, lambda *record: self._wanted(*record, keeps_deletes=keeps_deletes))
        if kept is None and tells_sequence:
            return empty_batch(batch) if header.record_count else batch
        return kept

    def _alone(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """Let a marker of which nothing else is left stay for ``delete.retention.ms`` after it was first found so.

        Not by its file's age, as a tombstone: that says nothing of when the last record of its transaction went.
        """
        if not header.record_count:
            return None  # emptied by Kafka's cleaner
        now_ms = int(time.time() * 1000)
        horizon_ms = delete_horizon_ms(header)
        if horizon_ms is None:
            return with_delete_horizon(batch, header, now_ms + self._log.config.delete_retention_ms)
        return batch if horizon_ms > now_ms else None

    def _wanted(self, offset: int, key: bytes | None, has_value: bool, *, keeps_deletes: bool) -> bool:
        if offset > self._latest:
            return True
        if key is None:
            self._without_key += 1
            return False
        return offset >= self._offsets.newest(key) and (has_value or keeps_deletes)
