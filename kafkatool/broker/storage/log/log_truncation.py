"""Taking records out of a log: after a leader change, by DeleteRecords, by retention (BRK-141 to BRK-143)."""

import logging
import os

from kafkatool.broker.storage.checkpoint import opened_directory
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.broker.storage.log.log_state import LogState
from kafkatool.broker.storage.log.log_writer import LogWriter
from kafkatool.broker.storage.producers.producer_reload import reload_producers
from kafkatool.broker.storage.producers.producer_snapshot import delete_snapshots
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.storage.segment.retention import removable_segments
from kafkatool.broker.storage.segment.segment import FRESH_SUFFIX, Segment

log = logging.getLogger(__name__)


class LogTruncation:
    """The part of a log that shortens it, at its end or at its start. Any method raises StorageError as the writer's."""

    __slots__ = ("_state", "_writer")

    def __init__(self, state: LogState, writer: LogWriter) -> None:
        self._state = state
        self._writer = writer

    def truncate_to(self, offset: int) -> None:
        """Drop everything from ``offset`` on; no record when the log ends there or before (BRK-142).

        A batch that holds ``offset`` inside goes whole, and the log then ends where that batch began. An epoch that
        begins at the end goes in any case: this broker led in it without a write, and as the newest it would be what
        the leader is asked about again and again (Kafka 2.6 log/Log.scala, truncateTo).
        """
        state = self._state
        with state.lock:
            state.check_open()
            try:
                if offset >= state.end.offset:
                    state.leader_epochs.truncate_from_end(state.end.offset)
                    self._cap_cleaned(offset)  # of a copy, which is still behind what was clean in its log
                    return
                log.info("%s: truncating from %d to %d", state.partition, state.end.offset, offset)
                if offset < state.segments.first.base_offset:
                    self._start_over(offset)
                else:
                    self._cut(offset)
            except OSError as e:
                raise state.disk_failed(e, midway=state.midway) from e

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next record gets ``offset``, which is the log start too."""
        state = self._state
        with state.lock:
            state.check_open()
            log.info("%s: dropping all, starting at %d", state.partition, offset)
            try:
                self._start_over(offset)
            except OSError as e:
                raise state.disk_failed(e, midway=state.midway) from e

    def _cut(self, offset: int) -> None:
        state = self._state
        kept = [s for s in state.segments if s.base_offset <= offset]
        gone = list(state.segments)[len(kept) :]
        last = kept[-1]
        cut = last.prepare_truncation(offset)
        offset, producers = cut.offset, ProducerState()
        delete_snapshots(state.directory, above=offset)  # one that stayed would be taken for what comes to stand there
        if state.producers.entries:
            producers = reload_producers(state.directory, kept, offset)
        with opened_directory(state.directory) as names:
            state.midway = True  # from here on nothing needs a descriptor
            if gone:
                self._remove_newest_first(gone, names)
        last.truncate(cut)
        if gone:
            last.activate(offset)
            state.segments.replace(kept)
        state.end = LogOffset(offset, last.base_offset, last.size_bytes)
        state.leader_epochs.truncate_from_end(offset)
        state.producers = producers
        state.producers.end_offset = offset
        self._cap(offset, state.log_start_offset)
        state.midway = False

    def _start_over(self, offset: int) -> None:
        state = self._state
        fresh = self._writer.new_segment(offset, suffix=FRESH_SUFFIX)  # while nothing is changed: it takes descriptors
        with opened_directory(state.directory) as names:
            delete_snapshots(state.directory, below=2**63 - 1)
            state.midway = True
            self._remove_newest_first(list(state.segments), names)
        fresh.rename("")
        state.segments.replace([fresh])
        state.end = LogOffset(offset, offset, 0)
        state.leader_epochs.clear()
        state.producers = ProducerState()
        state.producers.end_offset = offset
        before, state.log_start_offset = state.log_start_offset, offset
        state.gap_at = None
        self._cap(offset, before)
        state.midway = False

    def _remove_newest_first(self, segments: list[Segment], names: int) -> None:
        """Take the end of the log away so that a crash at any moment leaves no hole: what is found is its beginning."""
        self._writer.remove_segments(segments[::-1])
        os.fsync(names)  # else a power cut could keep their names and spare the cut that follows

    def _cap(self, end: int, start: int) -> None:
        """Keep every other offset of the log at or below its new end; ``start`` is where the log began before."""
        state = self._state
        state.disk_lags = True
        state.truncations += 1
        state.log_start_offset = min(state.log_start_offset, end)
        if state.log_start_offset < start:
            state.services.on_start_lowered()
        state.high_watermark = min(state.high_watermark, end)
        if state.gap_at is not None and state.gap_at >= end:
            state.gap_at = None
        if state.recovery_point > end:
            state.recovery_point = end
            state.services.on_recovery_point_lowered()
        self._cap_cleaned(end)

    def _cap_cleaned(self, end: int) -> None:
        state = self._state
        if state.cleaned_to is not None and state.cleaned_to > end:
            state.cleaned_to = end
            state.services.on_cleaned_to_changed()

    def advance_log_start(self, offset: int) -> None:
        """Serve no records below ``offset`` any more; their segments go with the next retention run."""
        state = self._state
        with state.lock:
            if offset > state.log_start_offset:
                state.log_start_offset = min(offset, state.end.offset)
                state.leader_epochs.truncate_from_start(state.log_start_offset)

    def apply_retention(self) -> int:
        """Remove the segments that are too old, too much, or below the log start (BRK-143); return how many."""
        state = self._state
        with state.lock:
            if state.closed or state.gap_at is not None:  # what is before a gap is what a follower keeps
                return 0
            try:
                gone = removable_segments(
                    list(state.segments), state.config, state.end.offset, state.log_start_offset, state.high_watermark
                )
                if not gone:
                    return 0
                if len(gone) == len(state.segments):
                    self._writer.roll(state.end.offset)
                state.segments.replace(list(state.segments)[len(gone) :])
                self.advance_log_start(state.segments.first.base_offset)
                self._writer.remove_segments(gone)
                delete_snapshots(state.directory, below=state.segments.first.base_offset)
            except OSError as e:
                raise state.disk_failed(e) from e
        start = state.log_start_offset
        log.info("%s: retention removed %d segments, log start is %d", state.partition, len(gone), start)
        return len(gone)
