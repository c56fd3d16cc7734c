"""Fetches of clients from before record batches: what was read becomes entries of their format (ADM-93 to 95).

They read as others do. What they get is made on the thread of ``Conversions``, out of a megabyte of the log at a time,
unless it lies in the log as they need it: then it is sent from the file like any other.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple

from kafkatool.broker.replication.leading.conversions import Conversions, Converted
from kafkatool.broker.replication.leading.fetch_session import FetchEntries, FetchResults
from kafkatool.broker.replication.leading.fetches import Fetches
from kafkatool.broker.replication.partition.local_partitions import LocalPartitions
from kafkatool.broker.replication.partition.partition_reads import FAILED_READS, PartitionRead, Reader
from kafkatool.broker.runtime.timer import monotonic_ms
from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.storage.batches.batch_scan import scan_batches, scan_headers
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.errors import CorruptRecordsError, OffsetOutOfRangeError, StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchRequestPartition
from kafkatool.core.protocol.records.batches import BatchHeader, iter_batches
from kafkatool.core.protocol.records.down_conversion import NotConvertibleError, down_converted

_SEARCHED_BYTES: Final = 1 << 20  # of the log, for a batch that can be converted, where all read were markers
_CUT_ENTRY: Final = Struct(">qi")
_LARGER_THAN_ANY: Final = 2**31 - 1


class OlderFormat(NamedTuple):
    """What a version of Fetch below 4 can carry."""

    magic: int
    cuts_entries: bool
    """Whether a first entry too large is cut, for the client to find and report (versions 0-2); else it comes whole."""


FORMATS: Final = tuple(OlderFormat(magic, cuts) for magic, cuts in ((0, True), (0, True), (1, True), (1, False)))
"""By version of Fetch."""


class _Made(NamedTuple):
    read: PartitionRead
    behind: int | None = None
    """Where to go on, as there was nothing but markers up to the end of what may be read."""


class OlderFetches:
    """The fetches of versions below 4. Any thread."""

    def __init__(self, partitions: LocalPartitions, fetches: Fetches, conversions: Conversions) -> None:
        self._partitions = partitions
        self._fetches = fetches
        self._conversions = conversions

    def fetch(
        self,
        entries: FetchEntries,
        reader: Reader,
        wanted: OlderFormat,
        *,
        max_wait_ms: float,
        min_bytes: int,
        max_bytes: int,
        on_done: Callable[[FetchResults], None],
    ) -> None:
        """Do as ``Fetches.fetch``, with records in that format."""
        until_ms = monotonic_ms() + max_wait_ms

        def convert(results: FetchResults) -> None:
            if any(read.size_bytes for _, read in results):
                self._conversions.submit(
                    lambda: work(results), until_ms=until_ms, otherwise=lambda: on_done(_emptied(results))
                )
            else:
                on_done(results)

        def work(results: FetchResults) -> None:
            asked = dict(entries)
            made = [(tp, self._made(tp, asked[tp], read, reader, wanted)) for tp, read in results]
            behind = {tp: one.behind for tp, one in made if one.behind is not None}
            left_ms = until_ms - monotonic_ms()
            if not behind or left_ms <= 0 or any(one.read.size_bytes or one.read.error for _, one in made):
                on_done([(tp, one.read) for tp, one in made])
                return
            # There are only markers of transactions, of which this client can be told nothing: it waits behind them.
            further = [(tp, replace(one, fetch_offset=behind[tp]) if tp in behind else one) for tp, one in entries]
            self.fetch(
                further,
                reader,
                wanted,
                max_wait_ms=left_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                on_done=on_done,
            )

        self._fetches.fetch(
            entries,
            reader,
            max_wait_ms=int(max_wait_ms),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            on_done=convert,
            one_batch_each=wanted.cuts_entries,
        )

    def _made(
        self,
        topic_partition: TopicPartition,
        asked: FetchRequestPartition,
        read: PartitionRead,
        reader: Reader,
        wanted: OlderFormat,
    ) -> _Made:
        """Return the read in the client's format. On the conversion thread."""
        if not read.size_bytes:
            return _Made(read)
        try:
            if all(header.magic <= wanted.magic for header in _headers(read.records)):
                return _Made(_cut(read, asked.partition_max_bytes) if wanted.cuts_entries else read)
            partition = self._partitions.get(topic_partition)
            if partition is None:
                return _Made(FAILED_READS[ErrorCode.NOT_LEADER_FOR_PARTITION])
            if not (reader.is_follower or partition.log.config.message_downconversion_enable):
                return _Made(FAILED_READS[ErrorCode.UNSUPPORTED_VERSION])
            return self._converted(partition.log, asked, read, reader, wanted)
        except NotConvertibleError:
            return _Made(FAILED_READS[ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
        except CorruptRecordsError:
            return _Made(FAILED_READS[ErrorCode.CORRUPT_MESSAGE])
        except (OSError, StorageError):
            return _Made(FAILED_READS[ErrorCode.KAFKA_STORAGE_ERROR])
        except OffsetOutOfRangeError:
            return _Made(FAILED_READS[ErrorCode.OFFSET_OUT_OF_RANGE])

    def _converted(
        self, log: Log, asked: FetchRequestPartition, read: PartitionRead, reader: Reader, wanted: OlderFormat
    ) -> _Made:
        out = Converted()
        limit, offset = asked.partition_max_bytes, asked.fetch_offset
        end = read.leader_end if reader.is_follower else read.high_watermark
        records, searched_bytes = read.records, read.size_bytes
        while True:
            after = _convert(records, wanted.magic, offset, limit, out)
            if out or after >= end or searched_bytes >= _SEARCHED_BYTES or reader.is_follower:
                break
            found = log.read(after, _SEARCHED_BYTES - searched_bytes, end, min_one_batch=True)
            if not found.size_bytes:
                break
            records, searched_bytes = found.records, searched_bytes + found.size_bytes
        if not out and not reader.is_follower:
            if after >= end:
                return _Made(_emptied_one(read), after if after > offset else None)
            out += _CUT_ENTRY.pack(offset, _LARGER_THAN_ANY)
        if wanted.cuts_entries:
            del out[limit:]
        return _Made(read._replace(records=self._conversions.hold(out), size_bytes=len(out)))


def _convert(records: FileRegion | bytes | bytearray, magic: int, offset: int, limit: int, out: Converted) -> int:
    """Append what fits of the records from ``offset`` on, the first entry whole; return the offset after the last seen.

    What cannot be converted is for the next fetch where something came before it.
    """
    after = offset
    for header, batch in _batches(records):
        if header.last_offset < offset:
            continue
        with closing(down_converted(batch, header, magic, offset, yielding_gil)) as entries:  # type: ignore[type-var]
            try:
                for entry in entries:
                    if out and len(out) + len(entry) > limit:
                        return after
                    out += entry
            except (NotConvertibleError, CorruptRecordsError):
                if out:
                    return after
                raise
        after = header.next_offset
        if len(out) >= limit:
            break
    return after


def _headers(records: FileRegion | bytes | bytearray) -> Iterator[BatchHeader]:
    if isinstance(records, FileRegion):
        stretch = scan_headers(records.fd_owner, records.position, records.position + records.size_bytes)
        return (header for _, header in stretch)
    return (header for _, header in iter_batches(records))


def _batches(records: FileRegion | bytes | bytearray) -> Iterator[tuple[BatchHeader, memoryview]]:
    if isinstance(records, FileRegion):
        stretch = scan_batches(records.fd_owner, records.position, records.position + records.size_bytes)
        return ((header, batch) for _, header, batch in stretch)
    view = memoryview(records)
    return ((header, view[at : at + header.size_bytes]) for at, header in iter_batches(view))


def _cut(read: PartitionRead, limit: int) -> PartitionRead:
    if read.size_bytes <= limit:
        return read
    records = read.records
    cut = records._replace(size_bytes=limit) if isinstance(records, FileRegion) else records[:limit]
    return read._replace(records=cut, size_bytes=limit)


def _emptied(results: FetchResults) -> FetchResults:
    return [(tp, _emptied_one(read)) for tp, read in results]


def _emptied_one(read: PartitionRead) -> PartitionRead:
    return read._replace(records=b"", size_bytes=0)
