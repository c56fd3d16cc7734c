"""A log as a round of compaction found it, and the round's changes to it (BRK-136, BRK-167)."""

from collections.abc import Sequence
from typing import NamedTuple

from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.segment.segment import Segment
from kafkatool.broker.storage.segment.segment_swap import SegmentCopy, swap_in


class LastBatch(NamedTuple):
    """The part of an idempotent producer that must stay: its epoch and, when it wrote data, the end of its last batch."""

    producer_epoch: int
    last_offset: int | None


class LogSnapshot:
    """A log at the beginning of a round. The log goes on meanwhile; changes are refused once it was truncated."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._state = state = log.state
        with state.lock:
            self.segments = list(state.segments)  # the active one is the last
            # No transaction is open and all is replicated below: nothing at or above it is touched.
            self.stable_offset = state.last_stable_offset
            self.last_batches = {  # by producer id
                producer_id: LastBatch(entry.epoch, entry.batches[-1].last_offset if entry.batches else None)
                for producer_id, entry in state.producers.entries.items()
            }
            self._truncations = state.truncations

    def is_current(self) -> bool:
        """Tell whether the log is open and was not truncated since."""
        with self._state.lock:  # a truncation under way has come to its end
            return not self._state.closed and self._truncations == self._state.truncations

    def start_copy(self, base_offset: int) -> SegmentCopy:
        """Make an empty file for what stays of the segments from there on."""
        state = self._state
        return SegmentCopy(state.directory, base_offset, state.lock, state.config.index_interval_bytes)

    def replace_segments(self, old: Sequence[Segment], cleaned: Segment) -> bool:
        """Put ``cleaned``, which is flushed, in the place of ``old``; False if the log has changed too much."""
        state = self._state
        with state.lock:
            segments = list(state.segments)
            at = segments.index(old[0]) if old[0] in segments else -1
            if at < 0 or segments[at : at + len(old)] != list(old) or not self.is_current():
                return False
            try:
                swap_in(state.directory, cleaned, old)
            except OSError as e:
                raise state.disk_failed(e) from e
            state.segments.replace([*segments[:at], cleaned, *segments[at + len(old) :]])
        state.services.defer(lambda: state.erase(old), state.config.file_delete_delay_ms)
        return True

    def finish(self, cleaned_to: int) -> None:
        """End the round; the next begins at ``cleaned_to``. Nothing if the log was truncated meanwhile."""
        with self._state.lock:
            if not self.is_current():
                return
            self._state.cleaned_to = cleaned_to
        self._state.services.on_cleaned_to_changed()
