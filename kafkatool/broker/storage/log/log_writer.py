"""Appending to a log, as leader and as follower, and bringing it to the disk (BRK-130 to BRK-132, BRK-140).

Source: Kafka 2.3.1 log/Log.scala.
"""

import logging
import random
import time
from dataclasses import dataclass
from typing import NamedTuple

from kafkatool.broker.storage.batches.append_checks import (
    check_batch,
    recompressed,
    stamp_append_time,
    with_true_time,
)
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.older_entries import OlderEntries
from kafkatool.broker.storage.batches.received_batches import ReceivedBatch, received_batches
from kafkatool.broker.storage.batches.transaction_markers import Marker, read_marker
from kafkatool.broker.storage.checkpoint import sync_directory
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.broker.storage.log.log_state import LogState, NewestBatch
from kafkatool.broker.storage.log_config import RECORD_BATCHES, LogConfig
from kafkatool.broker.storage.producers.producer_reload import apply_marker
from kafkatool.broker.storage.producers.producer_snapshot import delete_snapshots, write_snapshot
from kafkatool.broker.storage.producers.producer_state import Verification
from kafkatool.broker.storage.segment.segment import FRESH_SUFFIX, MAX_RELATIVE_OFFSET, Segment, must_roll
from kafkatool.core.protocol.records.batches import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    set_base_offset_and_epoch,
)

log = logging.getLogger(__name__)

_KEPT_BYTES = 2048  # a larger newest batch is read from the file: it is sent from there without a copy


class AppendInfo(NamedTuple):
    """The outcome of an append by the leader."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int | None
    """The broker's time when the topic keeps that, else None."""
    log_start_offset: int
    duplicate: bool = False
    """The batch had been appended before; nothing was written, the offsets are those of then (BRK-91)."""


@dataclass(frozen=True, slots=True)
class LogWriter:
    """The writing part of a log: appends, rolls and flushes. Any method raises StorageError when the disk fails."""

    _state: LogState

    def append_as_leader(
        self,
        records: bytearray | memoryview,
        leader_epoch: int,
        *,
        origin_client: bool = True,
        verification: Verification | None = None,
    ) -> AppendInfo:
        """Check one batch, give it offsets (written into ``records``, which must be writable) and append it.

        A topic with a codec of its own gets the batch in that codec (BRK-130).

        Without ``origin_client`` (the coordinators) sequences are not checked and control batches are taken.
        ``verification``: the leave of the batch to open a transaction (TXN-72).
        Raises AppendError, and then nothing was written.
        """
        state = self._state
        config = state.config
        now_ms = int(time.time() * 1000)
        header = check_batch(memoryview(records), config, now_ms, origin_client=origin_client)
        batch, header = recompressed(memoryview(records), header, config)
        header = with_true_time(batch, header, config)
        with state.lock:
            state.check_open()
            base = state.end.offset
            if header.producer_id < 0:
                earlier = None
            elif origin_client:
                earlier = state.producers.check(header, verification)
            else:
                earlier = None
                self._check_coordinators(batch, header, verification)
            if earlier is not None:
                first = earlier.last_offset - earlier.offset_delta
                append_time = earlier.timestamp if config.message_timestamp_type == "LogAppendTime" else None
                return AppendInfo(first, earlier.last_offset, append_time, state.log_start_offset, duplicate=True)
            append_time = None
            timestamp = header.max_timestamp
            set_base_offset_and_epoch(batch, 0, base, leader_epoch)
            if config.message_timestamp_type == "LogAppendTime":
                append_time = timestamp = now_ms
                stamp_append_time(batch, now_ms)
            try:
                if leader_epoch != state.leader_epochs.latest:
                    state.leader_epochs.assign(leader_epoch, base)
                self._append(batch, [ReceivedBatch(0, header, base, timestamp)])
            except OSError as e:
                raise state.disk_failed(e, midway=state.midway) from e
            self._keep_in_memory(batch, base)
            info = AppendInfo(base, base + header.last_offset_delta, append_time, state.log_start_offset)
        self._flush_if_due(config)
        return info

    def append_entries(self, entries: OlderEntries) -> AppendInfo:
        """Give entries of format 0 or 1 offsets and append them, as the leader (ADM-91).

        They have no epoch: followers cut at the high watermark (ADM-98). Raises AppendError, and then nothing was written.
        """
        state = self._state
        with state.lock:
            state.check_open()
            base = state.end.offset
            try:
                for records, batches in entries.placed(base):
                    state.leader_epochs.clear()
                    self._append(records, batches)
            except OSError as e:
                raise state.disk_failed(e, midway=state.midway) from e
            last = base + entries.count - 1
            info = AppendInfo(base, last, entries.append_time_ms, state.log_start_offset)
        self._flush_if_due(state.config)
        return info

    def check_marker(self, batch: bytearray | memoryview) -> None:
        """Check that the batch is no marker that comes too late, before it is looked at what else forbids it.

        Raises AppendError.
        """
        header = read_header(batch)
        if header is not None and header.attributes & CONTROL:
            with self._state.lock:
                self._check_coordinators(memoryview(batch), header, None)

    def _check_coordinators(self, batch: memoryview, header: BatchHeader, verification: Verification | None) -> None:
        """Check a marker, or offsets that a transaction commits: what was held up must not end or open a later one."""
        producers = self._state.producers
        if header.attributes & CONTROL:
            if (marker := read_marker(batch)) is not None:
                producers.check_marker(header, marker.coordinator_epoch)
        elif header.attributes & TRANSACTIONAL:
            producers.check_leave(header, verification)

    def _keep_in_memory(self, batch: memoryview, base: int) -> None:
        size, end = len(batch), self._state.end
        if size < _KEPT_BYTES:
            assert end.position is not None  # the end always has its place
            start = LogOffset(base, end.segment_base, end.position - size)
            self._state.newest = NewestBatch(start, end, bytes(batch))

    def append_as_follower(self, records: memoryview) -> None:
        """Append what the leader sent, as it is; a cut last batch is left out (BRK-161, BRK-91).

        Raises CorruptRecordsError for a wrong checksum, OffsetOrderError for offsets that do not continue the log;
        whole batches before the bad one are appended first.
        """
        state = self._state
        records = memoryview(records)
        with state.lock:
            state.check_open()
            first = state.end.offset
            is_bare = len(state.segments) == 1 and not state.segments.active.size_bytes
            batches, trouble = received_batches(records, first, accept_overlap=is_bare)
            try:
                if batches and batches[0].base_offset < first and batches[0].header.magic == 2:
                    self._restart_at(batches[0].base_offset)  # the log start lies inside the leader's batch
                for batch in batches:
                    if batch.header.magic != 2:
                        state.leader_epochs.clear()
                    elif batch.header.partition_leader_epoch not in (-1, state.leader_epochs.latest):
                        state.leader_epochs.assign(batch.header.partition_leader_epoch, batch.base_offset)
                if batches:
                    self._append(records, batches)
            except OSError as e:
                raise state.disk_failed(e, midway=state.midway) from e
        if trouble is not None:
            raise trouble
        self._flush_if_due(state.config)

    def _append(self, records: memoryview, batches: list[ReceivedBatch]) -> None:
        """Write batches that lie back to back in ``records``: one write for each segment they go to."""
        state, config = self._state, self._state.config
        done = 0
        while done < len(batches):
            segment = state.segments.active
            if must_roll(segment, segment.size_bytes, batches[done], config):
                segment = self.roll(self._roll_at(batches[done]))
            planned = segment.size_bytes + batches[done].header.size_bytes
            through = done + 1
            while through < len(batches) and not must_roll(segment, planned, batches[through], config):
                planned += batches[through].header.size_bytes
                through += 1
            start = batches[done].position
            markers = {
                batch.position: read_marker(records[batch.position : batch.position + batch.header.size_bytes])
                for batch in batches[done:through]
                if batch.header.attributes & CONTROL
            }
            index = None
            if any(marker is not None and not marker.committed for marker in markers.values()):
                index = segment.open_transaction_index()
            segment.write(records[start : start + planned - segment.size_bytes], segment.size_bytes)
            interval = config.index_interval_bytes
            state.midway = True
            for position, header, base, timestamp in batches[done:through]:
                last_offset = base + header.last_offset_delta
                segment.note_batch(header.size_bytes, last_offset, timestamp, interval)
                if header.producer_id >= 0:
                    if header.attributes & CONTROL:
                        if (marker := markers[position]) is not None:
                            self._tell_if_stale(header, base, marker)
                            if aborted := apply_marker(state.producers, header, base, marker):
                                assert index is not None  # the marker is an abort
                                index.append(aborted)
                    else:
                        state.producers.record(header, base, timestamp)
            state.end = LogOffset(last_offset + 1, segment.base_offset, segment.size_bytes)
            state.producers.end_offset = last_offset + 1
            state.midway = False
            if index is not None:
                index.close()
            done = through

    def _tell_if_stale(self, header: BatchHeader, base: int, marker: Marker) -> None:
        """Say of a marker that a leader would refuse that the leader sent it; a follower takes it all the same (TXN-67)."""
        try:
            self._state.producers.check_marker(header, marker.coordinator_epoch)
        except AppendError as e:
            log.warning("%s: the leader's marker at offset %d is stale: %s", self._state.partition, base, e)

    def _roll_at(self, batch: ReceivedBatch) -> int:
        """Return the base of the segment that begins with the batch: its first offset, of which a wrapper tells the last.

        It is the log's end then, but where offsets could not be counted from it. Source: Kafka 1.1.1 log/Log.scala.
        """
        if batch.header.magic == RECORD_BATCHES or not batch.header.codec:
            return batch.base_offset
        return max(self._state.end.offset, batch.base_offset - MAX_RELATIVE_OFFSET)

    def _restart_at(self, base_offset: int) -> None:
        """Begin the empty log at the base of the leader's batch, in which the log start lies."""
        state = self._state
        fresh = self.new_segment(base_offset, suffix=FRESH_SUFFIX)
        state.midway = True
        self.remove_segments(list(state.segments))
        fresh.rename("")
        state.segments.replace([fresh])
        state.end = LogOffset(base_offset, base_offset, 0)
        state.midway = False

    def roll(self, base_offset: int) -> Segment:
        """Close the active segment and begin one at ``base_offset``."""
        state = self._state
        old = state.segments.active
        segment = self.new_segment(base_offset)
        if old.size_bytes:
            try:
                old.seal()
            except OSError:
                segment.erase()  # the old one goes on, with the offsets that this one would hold
                raise
            state.segments.add(segment)
            state.end = LogOffset(state.end.offset, base_offset, 0)
            state.services.defer(self.flush, 0)
            state.producers.end_offset = base_offset
            write_snapshot(state.directory, state.producers)
        else:  # empty, and the offset does not fit it
            state.segments.replace([*list(state.segments)[:-1], segment])
            self.remove_segments([old])
            state.end = LogOffset(state.end.offset, base_offset, 0)
        return segment

    def new_segment(self, base_offset: int, *, suffix: str = "") -> Segment:
        """Make the files of an active segment at ``base_offset``; to be renamed if it is given a suffix."""
        state, config = self._state, self._state.config
        segment = Segment(state.directory, base_offset, state.lock, suffix=suffix)
        segment.create(preallocate_bytes=config.segment_bytes if config.preallocate else 0)
        jitter = min(config.segment_jitter_ms, config.longest_segment_ms)
        segment.roll_jitter_ms = random.randrange(jitter) if jitter else 0
        return segment

    def remove_segments(self, segments: list[Segment]) -> None:
        """Rename their files now, erase them when readers have had their time (BRK-144)."""
        state = self._state
        for segment in segments:
            segment.mark_deleted()
        if segments:
            state.services.defer(lambda: state.erase(segments), state.config.file_delete_delay_ms)

    def _flush_if_due(self, config: LogConfig) -> None:
        if self._state.end.offset - self._state.recovery_point >= config.flush_messages:
            self.flush()

    def flush(self) -> None:
        """Bring everything to the disk and move the recovery point up (BRK-140)."""
        state = self._state
        truncations, target = state.truncations, state.end.offset
        if state.closed or (target <= state.recovery_point and not state.disk_lags):
            return
        try:
            is_any_new = False
            for segment in state.segments.from_offset(state.recovery_point):
                is_any_new |= segment.flush() or segment.base_offset >= state.recovery_point
            if not state.leader_epochs.sync() and is_any_new:
                sync_directory(state.directory)  # a power cut could spare its data and take its name
            if state.segments.first.base_offset >= state.recovery_point:
                sync_directory(state.directory.parent)  # or that of the whole log: it may be new
            with state.lock:
                if truncations != state.truncations:
                    return  # what lies below the target now may have been written behind the flush
                reached = min(target, state.end.offset)
                if state.gap_at is not None:
                    reached = min(reached, state.gap_at)
                state.recovery_point = max(state.recovery_point, reached)
                state.disk_lags = False
                state.last_flush_ms = time.time() * 1000
                older = [s.base_offset for s in state.segments][-2:]
                delete_snapshots(state.directory, below=min(state.recovery_point, *older))
        except FileNotFoundError:
            return  # removed meanwhile; the next flush sees what is left
        except OSError as e:
            raise state.disk_failed(e) from e
