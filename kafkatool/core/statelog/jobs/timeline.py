"""The second round of ``kt logs timeline``: the facts of all partitions, in order (SCL-17X)."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from kafkatool.core.statelog.history.facts import history_of
from kafkatool.core.statelog.history.timeline import Item, partition_items
from kafkatool.core.statelog.history.verdict import Verdict, judge
from kafkatool.core.statelog.jobs.carrier import Entry
from kafkatool.core.statelog.jobs.gathering import Gathered, partitions_of
from kafkatool.core.statelog.sources.spilling import in_order


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


@dataclass(slots=True)
class _Told:
    """The number of a bucket's partitions, the brokers that they name, and how many changes no line tells of."""

    partitions: int = 0
    named: set[int] = field(default_factory=set)
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class _TimelineTask:
    names: tuple[str, ...]
    first_lines: tuple[int, ...]
    start_time: str
    end: str
    by_time: bool
    with_ignored: bool

    def sort_bucket(self, found: Iterator[Entry]) -> Generator[Entry, None, _Told]:
        """Yield the facts of a bucket's partitions, in order, and return what is told of them in all."""
        told = _Told()
        entries = self._entries(found, told)
        yield from in_order(entries, itemgetter(0)) if self.by_time else entries
        return told

    def _entries(self, found: Iterator[Entry], told: _Told) -> Iterator[Entry]:
        for topic, partition, observations in partitions_of(found, self.first_lines):
            history = history_of(observations)
            items = partition_items(
                *(topic, partition, history, self.names),
                start_time=self.start_time,
                end=self.end,
                with_ignored=self.with_ignored,
            )
            place = -1
            for place, item in enumerate(items):
                yield (item["time"], topic, partition, place) if self.by_time else (topic, partition, place), item
            told.partitions += place >= 0
            told.unseen += history.unseen
            told.named |= history.named


def make_timeline(gathered: Gathered, *, by_time: bool = False, with_ignored: bool = False) -> Timeline:
    """Order the facts of all partitions gathered, by partition or by time. SparkError, OSError."""
    selection = gathered.selection
    end = min(gathered.overview.last or "", selection.end_time)
    task = _TimelineTask(gathered.names, gathered.first_lines, selection.start_time, end, by_time, with_ignored)
    entries, sums = gathered.scattered.in_order(task.sort_bucket, gathered.buckets)
    named = {broker for told in sums for broker in told.named}
    verdict = judge(gathered.overview, named, sum(told.unseen for told in sums))
    return Timeline(entries, sum(told.partitions for told in sums), verdict)
