"""The second round of ``kt logs timeline``: the facts of all partitions, in order, in files of the tasks (SCL-17X)."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from kafkatool.core.statelog.history.facts import history_of
from kafkatool.core.statelog.history.timeline import Item, partition_items
from kafkatool.core.statelog.jobs.gathering import Gathered, Logs, partitions_of
from kafkatool.core.statelog.jobs.shuffle import (
    Batches,
    Entry,
    ShuffleFile,
    batches_by_bucket,
    read_batches,
    write_shuffle_file,
)
from kafkatool.core.statelog.jobs.tasks import Mapper


@dataclass(frozen=True, slots=True)
class Timeline:
    """Facts of the partitions, in files; ``items`` merges them without holding them."""

    files: tuple[ShuffleFile, ...]
    partitions: int

    def items(self) -> Iterator[Item]:
        """Yield all facts as data, in order. OSError."""
        streams = [read_batches(batches) for file in self.files for batches in batches_by_bucket([file]).values()]
        for _, item in heapq.merge(*streams, key=lambda entry: entry[0]):
            yield item


@dataclass(frozen=True, slots=True)
class _TimelineTask:
    logs: Logs
    first_lines: tuple[int, ...]
    start_time: str
    end: str
    by_time: bool
    with_ignored: bool

    def sort_bucket(self, bucket: tuple[int, Batches]) -> tuple[ShuffleFile, int]:
        """Write the facts of a bucket's partitions, sorted; return their file and the number of partitions."""
        number, batches = bucket
        names = [source.name for source in self.logs.sources]
        entries: list[Entry] = []
        partitions = 0
        for topic, partition, observations in partitions_of(batches, self.first_lines):
            history = history_of(observations)
            items = partition_items(
                *(topic, partition, history, names),
                start_time=self.start_time,
                end=self.end,
                with_ignored=self.with_ignored,
            )
            partitions += bool(items)
            for place, item in enumerate(items):
                key = (item["time"], topic, partition, place) if self.by_time else (topic, partition, place)
                entries.append((key, item))
        entries.sort(key=lambda entry: entry[0])
        return write_shuffle_file(self.logs.directory / f"facts-{number:06d}", {0: entries}), partitions


def make_timeline(gathered: Gathered, mapper: Mapper, *, by_time: bool = False, with_ignored: bool = False) -> Timeline:
    """Order the facts of all partitions gathered, by partition or by time. SparkError, OSError."""
    selection = gathered.selection
    end = min(gathered.overview.last or "", selection.end_time)
    task = _TimelineTask(gathered.logs, gathered.first_lines, selection.start_time, end, by_time, with_ignored)
    sorted_buckets = mapper.map(task.sort_bucket, gathered.buckets())
    return Timeline(tuple(file for file, _ in sorted_buckets), sum(partitions for _, partitions in sorted_buckets))
