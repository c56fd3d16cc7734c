"""``kt logs timeline``: the facts about each partition asked for, as data, in order (SCL-17X)."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kafkatool.core.statelog.history.facts import Fact, History, Witness, history_of
from kafkatool.core.statelog.history.observations import milliseconds
from kafkatool.core.statelog.jobs.gathering import Gathered, Logs, Places, partitions_of
from kafkatool.core.statelog.jobs.merge import Mapper
from kafkatool.core.statelog.jobs.shuffle import Shelf, shelve, take
from kafkatool.core.statelog.lines.selection import Selection

FINAL: Final = "final"
"""The kind of the last item of each partition: how it stands at the end of the logs, or at the end time asked for."""

Item = dict[str, Any]
_Finding = tuple[tuple[Any, ...], Item]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Facts of the partitions, in files of the workers; ``items`` merges them without holding them."""

    shelves: tuple[Shelf, ...]
    partitions: int

    def items(self) -> Iterator[Item]:
        """All facts as data (``fact_item``), in order. OSError."""
        streams = [self._stream(shelf) for shelf in self.shelves]
        for _, item in heapq.merge(*streams, key=lambda found: found[0]):
            yield item

    @staticmethod
    def _stream(shelf: Shelf) -> Iterator[_Finding]:
        for _, offset in shelf.places:
            yield from take([(shelf.path, offset)])


@dataclass(frozen=True, slots=True)
class _Telling:
    logs: Logs
    first_lines: tuple[int, ...]
    start_time: str
    end: str
    by_time: bool
    with_ignored: bool

    def tell(self, bucket: tuple[int, Places]) -> tuple[Shelf, int]:
        """The facts of a bucket's partitions, sorted."""
        number, places = bucket
        found: list[_Finding] = []
        partitions = 0
        names = [source.name for source in self.logs.sources]
        for topic, partition, observations in partitions_of(places, self.first_lines):
            history = history_of(observations)
            facts = [fact for fact in history.facts if fact.kind != "ignored" or self.with_ignored]
            if not facts:
                continue
            partitions += 1
            items = [fact_item(topic, partition, f, names) for f in facts if f.time >= self.start_time]
            items.append(final_item(topic, partition, history, self.end))
            for place, item in enumerate(items):
                key = (item["time"], topic, partition, place) if self.by_time else (topic, partition, place)
                found.append((key, item))
        found.sort(key=lambda f: f[0])
        shelf = shelve(self.logs.directory / f"facts-{number:06d}", {0: found})
        return shelf, partitions


def tell_timeline(
    logs: Logs,
    gathered: Gathered,
    selection: Selection,
    mapper: Mapper,
    *,
    by_time: bool = False,
    with_ignored: bool = False,
) -> Timeline:
    """The facts of all partitions gathered, ordered by partition or by time. SparkError, OSError."""
    end = min(gathered.overview.last or "", selection.end_time)
    telling = _Telling(logs, gathered.first_lines, selection.start_time, end, by_time, with_ignored)
    told = mapper.map(telling.tell, gathered.buckets())
    return Timeline(tuple(shelf for shelf, _ in told), sum(partitions for _, partitions in told))


def fact_item(topic: str, partition: int, fact: Fact, names: Sequence[str]) -> Item:
    """A fact as JSON has it: every key always there. ``late_ms``: a witness's clock against the fact's time."""
    values = asdict(fact)
    values.pop("witnesses")
    kind = values.pop("kind")
    time = values.pop("time")
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    told = [_witness(w, fact, names) for w in fact.witnesses]
    return {"time": time, "topic": topic, "partition": partition, "fact": kind, **plain, "witnesses": told}


def final_item(topic: str, partition: int, history: History, end: str) -> Item:
    """How the partition stands at the end, in the same shape."""
    fact = Fact(
        end,
        FINAL,
        leader=history.leader if history.leader is not None and history.leader >= 0 else None,
        leader_epoch=history.leader_epoch,
        isr=history.isr,
        reason="deleted" if history.deleted else "no leader" if history.leader == -1 else None,
    )
    return fact_item(topic, partition, fact, ())


def _witness(witness: Witness, fact: Fact, names: Sequence[str]) -> Item:
    return {
        "broker": witness.broker,
        "role": witness.role,
        "time": witness.time,
        "late_ms": milliseconds(witness.time) - milliseconds(fact.time),
        "file": names[witness.source],
        "line": witness.line,
    }
