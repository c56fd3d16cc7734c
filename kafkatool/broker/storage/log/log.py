"""The log of one partition replica: append, read, truncate (broker.md section 15; BRK-130 to BRK-144).

One lock guards append, roll, truncate, retention and the end of a compaction; reads take none.
Source: Kafka 2.3.1 log/Log.scala.
"""

import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path

from kafkatool.broker.storage.batches.append_checks import check_batch, recompressed, stamp_append_time
from kafkatool.broker.storage.batches.received_batches import ReceivedBatch, received_batches
from kafkatool.broker.storage.log.log_offset import (
    AppendInfo,
    Cleanable,
    LastBatch,
    LogOffset,
    NewestBatch,
)
from kafkatool.broker.storage.log.readable_log import ReadableLog
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.producers.producer_reload import apply_marker, reload_producers
from kafkatool.broker.storage.producers.producer_snapshot import delete_snapshots, write_snapshot
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.storage.segment.retention import removable_segments
from kafkatool.broker.storage.segment.rolling import must_roll
from kafkatool.broker.storage.segment.segment import Segment, erase
from kafkatool.broker.storage.segment.segment_copy import SegmentCopy
from kafkatool.broker.storage.segment.segment_swap import swap_in
from kafkatool.broker.storage.segment.transaction_index import append_aborted
from kafkatool.core.protocol.records.batches import CONTROL, BatchHeader, set_base_offset_and_epoch

log = logging.getLogger(__name__)

_KEPT_BYTES = 2048  # a larger newest batch is read from the file: it is sent from there without a copy


class Log(ReadableLog):
    """A partition's records on this broker. Made by ``open_log``.

    Any method raises StorageError when the disk fails, after the log dir was reported as failed.
    """

    # --- appending -----------------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: bytearray | memoryview, leader_epoch: int, *, origin_client: bool = True
    ) -> AppendInfo:
        """Check one batch, give it offsets (written into ``records``, which must be writable) and append it.

        A topic with a codec of its own gets the batch in that codec (BRK-130).

        Without ``origin_client`` (the coordinators) sequences are not checked and control batches are taken.
        Raises AppendError, and then nothing was written.
        """
        config = self.config
        now_ms = int(time.time() * 1000)
        header = check_batch(memoryview(records), config, now_ms, origin_client=origin_client)
        batch, header = recompressed(memoryview(records), header, config)
        with self._lock:
            self._check_open()
            base = self._end.offset
            if header.producer_id >= 0 and origin_client and (earlier := self.producers.check(header)):
                first = earlier.last_offset - earlier.offset_delta
                append_time = earlier.timestamp if config.message_timestamp_type == "LogAppendTime" else None
                return AppendInfo(first, earlier.last_offset, append_time, self.log_start_offset, True, leader_epoch)
            append_time = None
            timestamp = header.max_timestamp
            set_base_offset_and_epoch(batch, 0, base, leader_epoch)
            if config.message_timestamp_type == "LogAppendTime":
                append_time = timestamp = now_ms
                stamp_append_time(batch, now_ms)
            try:
                if leader_epoch != self.leader_epochs.latest:
                    self.leader_epochs.assign(leader_epoch, base)
                self._append(batch, [ReceivedBatch(0, header, base, timestamp)])
            except OSError as e:
                raise self._failed(e) from e
            self._keep(batch, base)
            info = AppendInfo(
                base,
                base + header.last_offset_delta,
                append_time,
                self.log_start_offset,
                False,
                leader_epoch,
                len(batch),
            )
        self._flush_if_due(config)
        return info

    def _keep(self, batch: memoryview, base: int) -> None:
        size, end = len(batch), self._end
        if size < _KEPT_BYTES:
            assert end.position is not None  # the end always has its place
            start = LogOffset(base, end.segment_base, end.position - size)
            self._newest = NewestBatch(start, end, bytes(batch))

    def append_as_follower(self, records: memoryview) -> AppendInfo:
        """Append what the leader sent, as it is; a cut last batch is left out (BRK-161, BRK-91).

        Raises CorruptRecordsError for a wrong checksum, OffsetOrderError for offsets that do not continue the log;
        whole batches before the bad one are appended first.
        """
        records = memoryview(records)
        with self._lock:
            self._check_open()
            first = self._end.offset
            batches, trouble = received_batches(records, first, accept_overlap=self._is_bare())
            try:
                if batches and batches[0].base_offset < first and batches[0].header.magic == 2:
                    self._restart_at(batches[0].base_offset)  # the log start lies inside the leader's batch
                for batch in batches:
                    if batch.header.magic != 2:
                        self.leader_epochs.clear()
                    elif batch.header.partition_leader_epoch not in (-1, self.leader_epochs.latest):
                        self.leader_epochs.assign(batch.header.partition_leader_epoch, batch.base_offset)
                if batches:
                    self._append(records, batches)
            except OSError as e:
                raise self._failed(e) from e
            info = AppendInfo(
                batches[0].base_offset if batches else first,
                self._end.offset - 1,
                None,
                self.log_start_offset,
                leader_epoch=self.leader_epochs.latest,
                size_bytes=sum(batch.header.size_bytes for batch in batches),
            )
        if trouble is not None:
            raise trouble
        self._flush_if_due(self.config)
        return info

    def _append(self, records: memoryview, batches: list[ReceivedBatch]) -> None:
        """Write batches that lie back to back in ``records``: one write for each segment they go to."""
        if self.leader_epochs.unwritten:
            self.leader_epochs.write()
        done = 0
        while done < len(batches):
            segment = self._segments.active
            if must_roll(segment, segment.size_bytes, batches[done], self.config):
                segment = self._roll(batches[done].base_offset)
            planned = segment.size_bytes + batches[done].header.size_bytes
            through = done + 1
            while through < len(batches) and not must_roll(segment, planned, batches[through], self.config):
                planned += batches[through].header.size_bytes
                through += 1
            start = batches[done].position
            segment.write(records[start : start + planned - segment.size_bytes], segment.size_bytes)
            interval = self.config.index_interval_bytes
            for position, header, base, timestamp in batches[done:through]:
                last_offset = base + header.last_offset_delta
                segment.note_batch(header.size_bytes, last_offset, timestamp, interval)
                if header.producer_id >= 0:
                    if header.attributes & CONTROL:
                        self._note_marker(segment, header, base, records[position : position + header.size_bytes])
                    else:
                        self.producers.record(header, base, timestamp)
            self._end = LogOffset(last_offset + 1, segment.base_offset, segment.size_bytes)
            self.producers.end_offset = last_offset + 1
            done = through

    def _note_marker(self, segment: Segment, header: BatchHeader, base: int, batch: memoryview) -> None:
        if aborted := apply_marker(self.producers, header, base, batch):
            append_aborted(segment.transaction_index_path, aborted)

    def _is_bare(self) -> bool:
        """Whether nothing was appended since the log start."""
        return len(self._segments) == 1 and not self._segments.active.size_bytes

    def _restart_at(self, base_offset: int) -> None:
        """Begin the empty log at the base of the leader's batch, in which the log start lies."""
        self._remove(list(self._segments))
        self._segments.replace([self._new_segment(base_offset)])
        self._end = LogOffset(base_offset, base_offset, 0)

    def _roll(self, base_offset: int) -> Segment:
        """Close the active segment and begin one at ``base_offset``."""
        old = self._segments.active
        segment = self._new_segment(base_offset)
        if old.size_bytes:
            old.seal()
            self._segments.add(segment)
            self.producers.end_offset = base_offset
            write_snapshot(self.directory, self.producers)
            self._services.defer(self.flush, 0)
        else:  # empty, and the offset does not fit it
            self._segments.replace([*list(self._segments)[:-1], segment])
            self._remove([old])
        self._end = LogOffset(self._end.offset, base_offset, 0)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment(self.directory, base_offset, self._lock)
        segment.create(preallocate_bytes=self.config.segment_bytes if self.config.preallocate else 0)
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        segment.roll_jitter_ms = random.randrange(jitter) if jitter else 0
        return segment

    def _flush_if_due(self, config: LogConfig) -> None:
        if self._end.offset - self.recovery_point >= config.flush_messages:
            self.flush()

    # --- cutting -------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Drop everything from ``offset`` on; nothing when the log ends there or before (BRK-142).

        A batch that holds ``offset`` inside goes whole, and the log then ends where that batch began.
        """
        with self._lock:
            self._check_open()
            if offset >= self._end.offset:
                return
            log.info("%s: truncating from %d to %d", self.partition, self._end.offset, offset)
            try:
                if offset < self._segments.first.base_offset:
                    self._start_over(offset)
                else:
                    self._cut(offset)
            except OSError as e:
                raise self._failed(e) from e

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next record gets ``offset``, which is the log start too."""
        with self._lock:
            self._check_open()
            log.info("%s: dropping all, starting at %d", self.partition, offset)
            try:
                self._start_over(offset)
            except OSError as e:
                raise self._failed(e) from e

    def _cut(self, offset: int) -> None:
        kept = [s for s in self._segments if s.base_offset <= offset]
        gone = list(self._segments)[len(kept) :]
        last = kept[-1]
        offset = last.truncate(offset)
        if gone:
            last.activate(offset)
            self._segments.replace(kept)
            self._remove(gone)
        self._end = LogOffset(offset, last.base_offset, last.size_bytes)
        self.leader_epochs.truncate_from_end(offset)
        if self.producers.entries:
            delete_snapshots(self.directory, above=offset)
            self.producers = reload_producers(self.directory, list(self._segments), offset)
        self.producers.end_offset = offset
        self._cap(offset)

    def _start_over(self, offset: int) -> None:
        old = list(self._segments)
        self._remove(old)
        self._segments.replace([self._new_segment(offset)])
        self._end = LogOffset(offset, offset, 0)
        self.leader_epochs.clear()
        self.producers = ProducerState()
        self.producers.end_offset = offset
        delete_snapshots(self.directory, below=2**63 - 1)
        self.log_start_offset = offset
        self._cap(offset)

    def _cap(self, end: int) -> None:
        self._cuts += 1
        self.log_start_offset = min(self.log_start_offset, end)
        self.high_watermark = min(self.high_watermark, end)
        if self.recovery_point > end:
            self.recovery_point = end
            self._services.on_recovery_point_lowered()
        if self.cleaned_to is not None and self.cleaned_to > end:
            self.cleaned_to = end
            self._services.on_cleaned_to_changed()

    def advance_log_start(self, offset: int) -> None:
        """Records below ``offset`` are not served any more; their segments go with the next retention run."""
        with self._lock:
            if offset > self.log_start_offset:
                self.log_start_offset = min(offset, self._end.offset)
                try:
                    self.leader_epochs.truncate_from_start(self.log_start_offset)
                except OSError as e:
                    raise self._failed(e) from e

    # --- retention -----------------------------------------------------------------------------------------------

    def apply_retention(self) -> int:
        """Remove the segments that are too old, too much, or below the log start (BRK-143); how many."""
        with self._lock:
            if self.closed:
                return 0
            try:
                gone = removable_segments(
                    list(self._segments), self.config, self._end.offset, self.log_start_offset, self.high_watermark
                )
                if not gone:
                    return 0
                if len(gone) == len(self._segments):
                    self._roll(self._end.offset)
                self._segments.replace(list(self._segments)[len(gone) :])
                self.advance_log_start(self._segments.first.base_offset)
                self._remove(gone)
                delete_snapshots(self.directory, below=self._segments.first.base_offset)
            except OSError as e:
                raise self._failed(e) from e
        log.info("%s: retention removed %d segments, log start is %d", self.partition, len(gone), self.log_start_offset)
        return len(gone)

    # --- compaction ----------------------------------------------------------------------------------------------

    def cleanable(self) -> Cleanable:
        """What a round of compaction goes by (BRK-167)."""
        with self._lock:
            producers = {
                producer_id: LastBatch(entry.epoch, entry.batches[-1].last_offset if entry.batches else None)
                for producer_id, entry in self.producers.entries.items()
            }
            return Cleanable(list(self._segments), self.last_stable_offset, producers, self._cuts)

    def is_as_it_was(self, when: Cleanable) -> bool:
        """Whether the log is open and nothing was cut off since."""
        with self._lock:  # a cut under way has come to its end
            return not self.closed and when.cuts == self._cuts

    def start_copy(self, base_offset: int) -> SegmentCopy:
        """An empty file for what stays of the segments from there on."""
        return SegmentCopy(self.directory, base_offset, self._lock, self.config.index_interval_bytes)

    def replace_segments(self, old: Sequence[Segment], cleaned: Segment, when: Cleanable) -> bool:
        """Put ``cleaned``, which is flushed, in the place of ``old``; False if the log has changed too much."""
        with self._lock:
            segments = list(self._segments)
            at = segments.index(old[0]) if old[0] in segments else -1
            if at < 0 or segments[at : at + len(old)] != list(old) or not self.is_as_it_was(when):
                return False
            try:
                swap_in(self.directory, cleaned, old)
            except OSError as e:
                raise self._failed(e) from e
            self._segments.replace([*segments[:at], cleaned, *segments[at + len(old) :]])
        self._services.defer(lambda: erase(old), self.config.file_delete_delay_ms)
        return True

    def finish_cleaning(self, cleaned_to: int, when: Cleanable) -> None:
        """The round is over; the next begins at ``cleaned_to``. Nothing if the log was cut meanwhile."""
        with self._lock:
            if not self.is_as_it_was(when):
                return
            self.cleaned_to = cleaned_to
        self._services.on_cleaned_to_changed()

    def _remove(self, segments: list[Segment]) -> None:
        """Rename them now, erase them when readers have had their time (BRK-144)."""
        for segment in segments:
            segment.mark_deleted()
        if segments:
            self._services.defer(lambda: erase(segments), self.config.file_delete_delay_ms)

    # --- durability ----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Bring everything to the disk and move the recovery point up (BRK-140)."""
        cuts, target = self._cuts, self._end.offset
        if self.closed or target <= self.recovery_point:
            return
        try:
            for segment in self._segments.from_offset(self.recovery_point):
                segment.flush()
            self.leader_epochs.sync()
        except FileNotFoundError:
            return  # removed meanwhile; the next flush sees what is left
        except OSError as e:
            raise self._failed(e) from e
        with self._lock:
            if cuts != self._cuts:
                return  # what lies below the target now may have been written behind the flush
            self.recovery_point = max(self.recovery_point, min(target, self._end.offset))
            self.last_flush_ms = time.time() * 1000
            older = [s.base_offset for s in self._segments][-2:]
            delete_snapshots(self.directory, below=min(self.recovery_point, *older))

    def expire_producers(self, before_ms: int) -> None:
        """Forget producers idle since then (transactional.id.expiration.ms)."""
        with self._lock:
            self.producers.last_stable_offset(self.high_watermark)  # forgets transactions that ended long ago
            self.producers.expire(before_ms)

    def release_idle(self) -> None:
        """Give back descriptors and memory of all but the active segment."""
        with self._lock:
            for segment in list(self._segments)[:-1]:
                segment.release()

    def update_config(self, config: LogConfig) -> None:
        """From now on these settings."""
        self.config = config

    def close(self) -> None:
        """Write what the next start needs (BRK-139). Nothing can be appended after."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            try:
                for segment in self._segments:
                    segment.seal()
                write_snapshot(self.directory, self.producers)
            except OSError as e:
                raise self._failed(e) from e

    def abandon(self, directory: Path | None = None) -> None:
        """Let go without writing: the dir is offline, or the partition was deleted and now is in ``directory``."""
        with self._lock:
            self.closed = True
            for segment in self._segments:
                segment.deleted = True
            if directory is not None:
                self.directory = directory
