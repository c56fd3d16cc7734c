"""The log of one partition replica (BRK-130 to BRK-144). Source: Kafka 2.3.1 log/Log.scala."""

import logging
from collections.abc import Iterator
from pathlib import Path

from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.storage.batches.transaction_markers import OpenTransaction
from kafkatool.broker.storage.checkpoint import sync_directory
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.broker.storage.log.log_reader import LogReader
from kafkatool.broker.storage.log.log_state import LogState
from kafkatool.broker.storage.log.log_truncation import LogTruncation
from kafkatool.broker.storage.log.log_writer import LogWriter
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.producers.producer_snapshot import write_snapshot
from kafkatool.broker.storage.producers.producer_state import ActiveProducer, Verification
from kafkatool.core.protocol.records.batches import BatchHeader

log = logging.getLogger(__name__)

_PRODUCERS_AT_ONCE = 500  # described under the log's lock: some tenths of a millisecond


class Log:
    """A partition's records on this broker: its state, and the parts that write, shorten and read it.

    Made by ``open_log``. Any operation raises StorageError when the disk fails, after the log dir was reported as failed.
    """

    def __init__(self, state: LogState) -> None:
        self.state = state
        self.partition = state.partition
        self.segments = state.segments
        self.leader_epochs = state.leader_epochs
        writer = LogWriter(state)
        truncation = LogTruncation(state, writer)
        reader = LogReader(state)
        # The operations of the parts are the log's, bound here: a call costs no layer.
        self.append_as_leader = writer.append_as_leader
        self.check_marker = writer.check_marker
        self.append_entries = writer.append_entries
        self.append_as_follower = writer.append_as_follower
        self.roll = writer.roll
        self.flush = writer.flush
        self.truncate_to = truncation.truncate_to
        self.truncate_fully_and_start_at = truncation.truncate_fully_and_start_at
        self.advance_log_start = truncation.advance_log_start
        self.apply_retention = truncation.apply_retention
        self.read = reader.read
        self.newest_at = reader.newest_at
        self.offset_metadata = reader.offset_metadata
        self.find_by_timestamp = reader.find_by_timestamp
        self.newest_time_ms = reader.newest_time_ms
        self.segment_times = reader.segment_times
        self.aborted_transactions = reader.aborted_transactions

    @property
    def directory(self) -> Path:
        """Return the partition directory."""
        return self.state.directory

    @property
    def config(self) -> LogConfig:
        """Return the settings in force."""
        return self.state.config

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that is served."""
        return self.state.log_start_offset

    @property
    def end(self) -> LogOffset:
        """Return the log end offset (LEO) with its place."""
        return self.state.end

    @property
    def log_end_offset(self) -> int:
        """Return the offset the next record gets."""
        return self.state.end.offset

    @property
    def high_watermark(self) -> int:
        """Return the high watermark, which replication sets."""
        return self.state.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self.state.high_watermark = offset

    @property
    def gap_at(self) -> int | None:
        """Return the first offset that a power cut may have taken out of the midst of the log, None if there is none."""
        return self.state.gap_at

    def keep_gap(self) -> None:
        """Go on with what is missing: who leads has nobody to take it from."""
        with self.state.lock:
            gap, self.state.gap_at = self.state.gap_at, None
        if gap is not None:
            text = "%s: leads with offsets missing from %d on: compaction left them out, or a power cut took them"
            log.warning(text, self.partition, gap)

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which no transaction is open; at most the high watermark."""
        return self.state.last_stable_offset

    @property
    def size_bytes(self) -> int:
        """Return the size of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def expire_producers(self, before_ms: int) -> None:
        """Forget producers idle since then (producer.id.expiration.ms)."""
        state = self.state
        with state.lock:
            state.producers.last_stable_offset(state.high_watermark)  # forgets transactions that ended long ago
            state.producers.expire(before_ms)

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the transactions without a marker, which hold back the last stable offset."""
        with self.state.lock:
            return self.state.producers.open_transactions()

    def oldest_open_transaction(self) -> tuple[OpenTransaction, int] | None:
        """Return the one that holds back the last stable offset, and the time in ms of its producer's last batch."""
        with self.state.lock:
            return self.state.producers.oldest_open()

    def begin_verification(self, header: BatchHeader) -> Verification | None:
        """Return what a client's batch needs to open a transaction, None if it opens none (TXN-72)."""
        with self.state.lock:
            return self.state.producers.begin_verification(header)

    def has_open_transaction(self, header: BatchHeader) -> bool:
        """Tell whether the batch goes on with a transaction."""
        with self.state.lock:
            return self.state.producers.has_open_transaction(header)

    def knows_producer(self, producer_id: int) -> bool:
        """Tell whether there is anything by which the producer's next batch is told."""
        with self.state.lock:
            return self.state.producers.knows(producer_id)

    def void_verifications(self) -> None:
        """Let no batch open a transaction on the strength of what was asked before (TXN-75)."""
        with self.state.lock:
            self.state.producers.void_verifications()

    def active_producers(self) -> Iterator[ActiveProducer]:
        """Yield the producers by id, in slices, between which appends and other threads come through (ADM-81)."""
        with self.state.lock:
            producer_ids = sorted(self.state.producers.entries)
        for start in yielding_gil(range(0, len(producer_ids), _PRODUCERS_AT_ONCE)):
            with self.state.lock:
                found = self.state.producers.describe(producer_ids[start : start + _PRODUCERS_AT_ONCE])
            yield from found

    def release_idle(self) -> None:
        """Give back descriptors and memory of all but the active segment."""
        with self.state.lock:
            for segment in list(self.state.segments)[:-1]:
                segment.release()

    def update_config(self, config: LogConfig) -> None:
        """Go by these settings from now on."""
        self.state.config = config

    def close(self) -> None:
        """Write what the next start needs (BRK-139). Nothing can be appended after."""
        state = self.state
        with state.lock:
            if state.closed:
                return
            state.closed = True
            try:
                for segment in state.segments:
                    segment.seal()
                write_snapshot(state.directory, state.producers)
                if not state.leader_epochs.sync() and state.producers.entries:
                    sync_directory(state.directory)  # a start after a clean stop does not scan for what it lacks
            except OSError as e:
                raise state.disk_failed(e) from e

    def rename(self, directory: Path) -> None:
        """Give its directory another name; reads under way go on by that. Raises OSError, and changes nothing then."""
        state = self.state
        with state.lock:
            state.directory.rename(directory)
            state.directory = directory
            state.leader_epochs.follow_to(directory)
            for segment in state.segments:
                segment.follow_to(directory)
            state.segments.replace(list(state.segments))  # who missed a file looks again

    def abandon(self, directory: Path | None = None) -> None:
        """Let go without writing: the dir is offline, or the partition was deleted and now is in ``directory``."""
        state = self.state
        with state.lock:
            state.closed = True
            for segment in state.segments:
                segment.deleted = True
            if directory is not None:
                state.directory = directory
