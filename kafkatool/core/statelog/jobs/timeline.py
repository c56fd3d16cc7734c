"""The second round of ``kt logs timeline``: the facts of all partitions, in order (SCL-17X)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafkatool.core.statelog.history.facts import history_of
from kafkatool.core.statelog.history.timeline import Item, partition_items
from kafkatool.core.statelog.history.verdict import Verdict, brokers_named, judge, unseen_changes
from kafkatool.core.statelog.jobs.carrier import Entry
from kafkatool.core.statelog.jobs.gathering import Gathered, partitions_of


@dataclass(frozen=True, slots=True)
class Timeline:
    """Facts of the partitions, wherever the carrier keeps them; ``items`` gives them without holding them."""

    entries: Callable[[], Iterator[Entry]]
    partitions: int
    verdict: Verdict

    def items(self) -> Iterator[Item]:
        """Yield all facts as data, in order. OSError, SparkError."""
        for _, item in self.entries():
            yield item


@dataclass(frozen=True, slots=True)
class _TimelineTask:
    names: tuple[str, ...]
    first_lines: tuple[int, ...]
    start_time: str
    end: str
    by_time: bool
    with_ignored: bool

    def sort_bucket(self, found: Iterator[Entry]) -> tuple[list[Entry], tuple[int, set[int], int]]:
        """Return the facts of a bucket's partitions, sorted; the number of partitions, the brokers they name, and how many
        changes no line tells of.
        """
        entries: list[Entry] = []
        partitions = unseen = 0
        named: set[int] = set()
        for topic, partition, observations in partitions_of(found, self.first_lines):
            history = history_of(observations)
            items = partition_items(
                *(topic, partition, history, self.names),
                start_time=self.start_time,
                end=self.end,
                with_ignored=self.with_ignored,
            )
            partitions += bool(items)
            unseen += unseen_changes(history)
            named |= brokers_named(history)
            for place, item in enumerate(items):
                key = (item["time"], topic, partition, place) if self.by_time else (topic, partition, place)
                entries.append((key, item))
        entries.sort(key=lambda entry: entry[0])
        return entries, (partitions, named, unseen)


def make_timeline(gathered: Gathered, *, by_time: bool = False, with_ignored: bool = False) -> Timeline:
    """Order the facts of all partitions gathered, by partition or by time. SparkError, OSError."""
    selection = gathered.selection
    end = min(gathered.overview.last or "", selection.end_time)
    task = _TimelineTask(gathered.names, gathered.first_lines, selection.start_time, end, by_time, with_ignored)
    entries, sums = gathered.scattered.in_order(task.sort_bucket, gathered.buckets)
    named = {broker for _, brokers, _ in sums for broker in brokers}
    verdict = judge(gathered.overview, named, sum(unseen for *_, unseen in sums))
    return Timeline(entries, sum(partitions for partitions, _, _ in sums), verdict)
