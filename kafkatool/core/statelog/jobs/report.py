"""The second round of ``kt logs report``: tasks sum up partitions, the driver adds the sums (SCL-18X to SCL-20X)."""

import pickle
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kafkatool.core.statelog.history.observations import milliseconds
from kafkatool.core.statelog.history.report import MINUTE_MS, MOST_BARS, Minute, Report, ReportScope, Sums
from kafkatool.core.statelog.jobs.carrier import Entry
from kafkatool.core.statelog.jobs.gathering import Gathered, partitions_of


@dataclass(frozen=True, slots=True)
class _ReportTask:
    scope: ReportScope
    first_lines: tuple[int, ...]
    top: int

    def count_minutes(self, found: Iterator[Entry]) -> tuple[list[Minute], dict[int, int]]:
        """Return the busiest minutes, and the lines of each bar."""
        lines: Counter[str] = Counter()
        for minute, number in found:
            lines[minute] += number
        return self.scope.busiest(lines, self.top), self.scope.bars(lines)

    def sum_up(self, found: Iterator[Entry]) -> bytes:
        """Return the sums of a bucket's partitions, packed: the driver holds those of all buckets."""
        sums = Sums()
        for topic, partition, observations in partitions_of(found, self.first_lines):
            sums.add(self.scope.sum_up(topic, partition, observations), self.top)
        return zlib.compress(pickle.dumps(sums), 1)


def make_report(gathered: Gathered, *, top: int) -> Report:
    """Count what was gathered; ``top`` partitions and minutes are listed one by one. SparkError, OSError."""
    overview, selection = gathered.overview, gathered.selection
    first = max(overview.first or "", selection.start_time)
    last = max(min(overview.last or "", selection.end_time), first)
    span_minutes = (milliseconds(last) - milliseconds(first)) // MINUTE_MS + 1
    heard_from: dict[int, str] = {}
    for (_, controller), activity in overview.controllers.items():
        heard_from[controller] = min(heard_from.get(controller, activity.first), activity.first)
    task = _ReportTask(ReportScope(first, last, -(-span_minutes // MOST_BARS), heard_from), gathered.first_lines, top)
    ((busiest, bars),) = gathered.scattered.each(task.count_minutes, [gathered.buckets])
    task = replace(task, scope=replace(task.scope, busy=frozenset(m.minute for m in busiest)))
    sums = Sums()
    for part in gathered.scattered.each(task.sum_up, range(gathered.buckets)):
        sums.add(pickle.loads(zlib.decompress(part)), top)
    for (minute, kind), number in sums.in_minutes.items():
        next(m for m in busiest if m.minute == minute).facts[kind] += number
    return Report(overview, first, last, sums, busiest, task.scope.bar_minutes, bars)
