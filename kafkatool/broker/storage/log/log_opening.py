"""Opening a partition directory: temporary files, recovery after an unclean stop, epochs and producers (BRK-135 to BRK-139).

Source: Kafka 1.1.1 and 2.3.1 log/Log.scala.
"""

import logging
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from kafkatool.broker.storage.batches.batch_scan import scan_valid
from kafkatool.broker.storage.checkpoint import LEADER_EPOCHS, sync_directory
from kafkatool.broker.storage.log.leader_epochs import LeaderEpochCache
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.broker.storage.log.log_state import LogServices, LogState
from kafkatool.broker.storage.log.temporary_files import resolve_temporary_files
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.producers.producer_reload import newest_snapshot, reload_producers, replay, replay_batch
from kafkatool.broker.storage.producers.producer_snapshot import delete_snapshots, snapshots, write_snapshot
from kafkatool.broker.storage.producers.producer_state import ProducerState
from kafkatool.broker.storage.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, MAX_RELATIVE_OFFSET, Segment, file_name
from kafkatool.broker.storage.segment.segments import Segments
from kafkatool.broker.storage.segment.transaction_index import sync_aborted
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.records.batches import BatchHeader

log = logging.getLogger(__name__)


def open_log(
    directory: Path,
    partition: TopicPartition,
    config: LogConfig,
    services: LogServices,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool = False,
    may_lack_data: bool = False,
) -> Log:
    """Open the log in ``directory``, which must exist; an empty one gets its first segment.

    ``recovery_point`` and ``log_start_offset`` are the checkpointed ones. With ``clean`` the last stop was clean and
    the scan is skipped. ``may_lack_data``: of what lies above the recovery point a power cut may have taken any part; the
    log notes where it begins to lack offsets. Raises OSError, CheckpointDamagedError.
    """
    lock = threading.RLock()
    segments = _find_segments(directory, lock)
    start = max(log_start_offset, segments[0].base_offset if segments else 0)
    epochs = LeaderEpochCache(directory / LEADER_EPOCHS)
    was_scanned = bool(segments) and not clean
    if was_scanned:
        segments = _recover(directory, segments, recovery_point, config, epochs)
        if not config.compacted:  # in such a one nothing may follow a rightful gap
            segments = _without_empty_end(directory, segments, recovery_point)
    end, position = segments[-1].find_end() if segments else (start, 0)
    if segments and not was_scanned and position < segments[-1].size_bytes:
        # Appended to behind it, nobody could read on, and the next scan would cut.
        log.warning(
            "%s: the last stop was clean, but the last segment cannot be read behind byte %d of %d: scanning it",
            *(directory, position, segments[-1].size_bytes),
        )
        segments = _recover(directory, segments, segments[-1].base_offset, config, epochs)
        was_scanned, clean = True, False
        end, _ = segments[-1].find_end()
    if segments and end < start:
        log.warning("%s ends at %d, before its start %d: dropping its segments", directory, end, start)
        _drop(directory, segments)
        segments = []
    if not segments:
        segments = [Segment(directory, start, lock)]
        segments[0].create(preallocate_bytes=config.segment_bytes if config.preallocate else 0)
        end = start
    else:
        segments[-1].activate(end)
    epochs.truncate_from_start(start)
    epochs.truncate_from_end(end)
    producers = _load_producers(directory, segments, end, clean=clean)
    for segment in segments:
        segment.release()
    state = LogState(
        partition=partition,
        directory=directory,
        config=config,
        services=services,
        lock=lock,
        segments=Segments(segments),
        end=LogOffset(end, segments[-1].base_offset, segments[-1].size_bytes),
        log_start_offset=start,
        recovery_point=min(recovery_point, end),  # what was scanned may be in the page cache only
        leader_epochs=epochs,
        producers=producers,
        disk_lags=was_scanned,
        gap_at=first_gap(segments, recovery_point, start) if may_lack_data else None,
    )
    return Log(state)


def _find_segments(directory: Path, lock: threading.RLock) -> list[Segment]:
    """Return the segments on disk, after the temporary files of an earlier life are dealt with (BRK-136)."""
    with os.scandir(directory) as entries:
        sizes = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    resolve_temporary_files(directory, sizes)
    logs = {name.removesuffix(LOG_SUFFIX) for name in sizes if name.endswith(LOG_SUFFIX)}
    for name in sizes:
        stem, _, _ = name.partition(".")
        if name.endswith(INDEX_SUFFIXES) and stem not in logs:
            (directory / name).unlink()
    bases = sorted(int(stem) for stem in logs if stem.isdecimal())
    return [Segment(directory, base, lock, size_bytes=sizes[file_name(base, LOG_SUFFIX)]) for base in bases]


def _recover(
    directory: Path, segments: list[Segment], recovery_point: int, config: LogConfig, epochs: LeaderEpochCache
) -> list[Segment]:
    """Scan what may not have reached the disk; return the segments that are left (BRK-137)."""
    first = max((i for i, s in enumerate(segments) if s.base_offset <= recovery_point), default=0)
    state = _producers_before(directory, segments, first)
    for number in range(first, len(segments)):
        segment = segments[number]
        size_before = segment.size_bytes
        segment.transaction_index_path.unlink(missing_ok=True)
        later = segments[number + 1 :]
        good = _observed(scan_valid(segment.file, 0, size_before), segment, state, epochs)
        segment.recover(_then_drop(directory, good, size_before, later), config.index_interval_bytes)
        if sync_aborted(segment.transaction_index_path):
            sync_directory(directory)  # it may lie below the recovery point: no flush would come to it again
        delete_snapshots(directory, above=state.end_offset)
        write_snapshot(directory, state)
        if segment.size_bytes < size_before:
            log.warning(
                "%s: segment %d is damaged at byte %d of %d: cut there, %d later segments dropped",
                directory,
                segment.base_offset,
                segment.size_bytes,
                size_before,
                len(later),
            )
            _drop(directory, later)
            return segments[: number + 1]
        if later:
            segment.release()
    return segments


def _then_drop(
    directory: Path, batches: Iterator[tuple[int, BatchHeader]], size_bytes: int, later: list[Segment]
) -> Iterator[tuple[int, BatchHeader]]:
    """Pass the batches on; if they do not fill the segment, drop those after it, before the caller cuts it."""
    end = 0
    for position, header in batches:
        end = position + header.size_bytes
        yield position, header
    if end < size_bytes:
        _drop(directory, later)


def _drop(directory: Path, segments: list[Segment]) -> None:
    """Remove the end of the log, the newest segment first: a crash in between leaves no hole."""
    for segment in reversed(segments):
        segment.mark_deleted()
        segment.erase()
    if segments:
        sync_directory(directory)


def _without_empty_end(directory: Path, segments: list[Segment], recovery_point: int) -> list[Segment]:
    """Drop the segments of which a power cut left but the names, if it took records before them too; return the others.

    With records behind it a gap ends no log: compaction leaves such, whatever the topic's policy is by now, and so does a
    follower whose leader's log has them.
    """
    kept = list(segments)
    while len(kept) > 1 and not kept[-1].size_bytes and kept[-1].base_offset > recovery_point:
        if kept[-2].find_end()[0] == kept[-1].base_offset:
            break
        log.warning("%s: nothing is in segment %d, and not all before it", directory, kept[-1].base_offset)
        _drop(directory, [kept.pop()])
    return kept


def first_gap(segments: list[Segment], recovery_point: int, start: int) -> int | None:
    """Return the first offset above the recovery point that is in no segment though later ones are, None if there is none.

    It is one at which a batch begins, here and in other replicas. Within a segment nothing is missing: what a power cut
    takes of a file's middle damages it.
    """
    for segment, following in pairwise(segments):
        if following.base_offset > max(recovery_point, start):
            end, _ = segment.find_end()
            segment.release()  # where the recovery points are lost these are all segments of all logs
            if end < following.base_offset:
                return max(end, recovery_point)
    return None


def _producers_before(directory: Path, segments: list[Segment], first: int) -> ProducerState:
    """Return the producers at the base of ``segments[first]``."""
    state = newest_snapshot(directory, segments[first].base_offset)
    for segment in segments[:first]:
        if segments[segments.index(segment) + 1].base_offset > state.end_offset:
            replay(state, segment, segments[first].base_offset)
    state.end_offset = segments[first].base_offset
    return state


def _observed(
    batches: Iterator[tuple[int, BatchHeader]], segment: Segment, state: ProducerState, epochs: LeaderEpochCache
) -> Iterator[tuple[int, BatchHeader]]:
    """Pass the batches on while their offsets rise, learning their epochs and producers."""
    expected = segment.base_offset
    for position, header in batches:
        if header.base_offset < expected or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return
        expected = header.next_offset
        if header.magic != 2:
            epochs.clear()
        else:
            if header.partition_leader_epoch not in (-1, epochs.epoch_at(header.base_offset)):
                epochs.learn(header.partition_leader_epoch, header.base_offset)
            if aborted := replay_batch(state, segment, position, header):
                segment.note_aborted(aborted)
        yield position, header


def _load_producers(directory: Path, segments: list[Segment], end: int, *, clean: bool) -> ProducerState:
    """Reload them. Without any snapshot a clean directory comes from before idempotence: it is not scanned, as in Kafka."""
    delete_snapshots(directory, above=end)
    if clean and not snapshots(directory):
        state = ProducerState()
        state.end_offset = end
        return state
    return reload_producers(directory, segments, end)
