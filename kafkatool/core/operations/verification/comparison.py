"""Comparison of all replicas of a partition, each read from its own broker (RPV-1 to RPV-11X).

``compare`` is a pure function over what was fetched. ``Verifier`` runs rounds: fetch from all brokers at once, compare,
move each partition's offset on to the first entry that not every replica has shown yet. Nothing is written anywhere.
A mismatch counts once a second fetch of the same offset has shown it again (RPV-11X).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from kafkatool.core.errors import BrokerTooOldError, BrokerUnreachableError, LoginRefusedError, TlsError
from kafkatool.core.model.values import TopicPartition

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4  # on the broker's own disks: what is before is in tiered storage
LATEST: Final = -1
RETRY_S: Final = 5.0  # how long a broker that did not answer is left alone
STALL_S: Final = 5.0  # --once: no progress for so long means that a replica does not get there
MIN_ROUND_S: Final = 0.1  # a round without news lasts at least so long (a broker may answer errors at once)
_IS_UP: Final = (LoginRefusedError, TlsError, BrokerTooOldError)  # whoever fails so is not down

ROTTEN: Final = -1  # in place of the checksum of a batch that does not fit its own CRC


class Entry(NamedTuple):
    """A record batch, or a message of format 0 and 1: its last offset and its CRC (RPV-3), or ROTTEN."""

    last_offset: int
    checksum: int


class Fetched(NamedTuple):
    """The entries of one replica from an offset on. ``out_of_range``: it does not have that offset.

    ``tiered``: it has it in tiered storage alone, which is no replica's own.
    """

    high_watermark: int
    entries: tuple[Entry, ...]
    out_of_range: bool = False
    tiered: bool = False


class Mismatch(NamedTuple):
    """Two replicas that differ: in their next offset, or in the checksum of the entry at ``offset``.

    Or two, or one twice, whose entry there is rotten: rot on both is no agreement.
    """

    partition: TopicPartition
    kind: Literal["offset", "checksum", "rotten"]
    offset: int
    replica: int
    value: int
    other_replica: int
    other_value: int


class Comparison(NamedTuple):
    """The result of one comparison. ``next_offset`` is the first not verified yet, ``entries`` the number compared."""

    next_offset: int
    entries: int
    mismatches: tuple[Mismatch, ...]


def compare(partition: TopicPartition, fetched: Mapping[int, Fetched], offset: int) -> Comparison:
    """Compare the replicas' entries in step, each up to its own high watermark: uncommitted data never counts (RPV-3).

    Where offsets differ the walk goes on at the highest of them, so that one gap is one mismatch per replica.
    """
    left = {b: _committed(fetched[b], offset) for b in sorted(fetched)}
    mismatches: list[Mismatch] = []
    entries = 0
    while left and all(left.values()):
        heads = {b: rows[-1] for b, rows in left.items()}
        first, *others = heads
        highest = max(head.last_offset for head in heads.values())
        if all(head.last_offset == highest for head in heads.values()):
            checksum = heads[first].checksum
            mismatches += [
                Mismatch(partition, "checksum", highest, first, checksum, b, heads[b].checksum)
                for b in others
                if heads[b].checksum != checksum
            ]
            if checksum == ROTTEN:
                mismatches += [
                    Mismatch(partition, "rotten", highest, first, ROTTEN, b, ROTTEN)
                    for b in others or [first]
                    if heads[b].checksum == ROTTEN
                ]
            entries += 1
            offset = highest + 1
            for rows in left.values():
                rows.pop()
            continue
        first_offset = heads[first].last_offset
        mismatches += [
            Mismatch(partition, "offset", min(first_offset, head.last_offset), first, first_offset, b, head.last_offset)
            for b, head in heads.items()
            if head.last_offset != first_offset
        ]
        offset = highest
        for rows in left.values():
            while rows and rows[-1].last_offset < highest:
                rows.pop()
    return Comparison(offset, entries, tuple(mismatches))


def _committed(fetched: Fetched, offset: int) -> list[Entry]:
    """Return the entries to compare, the next one last. Those that end below ``offset`` were verified before."""
    rows = [e for e in fetched.entries if offset <= e.last_offset < fetched.high_watermark]
    rows.reverse()
    return rows


# --- the cluster as the verifier sees it -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of the replicas: broker -> (host, port), partition -> assigned brokers, leader, ISR.

    ``topic_ids`` has those topics whose id was told.
    """

    addresses: Mapping[int, tuple[str, int]]
    replicas: Mapping[TopicPartition, tuple[int, ...]]
    leaders: Mapping[TopicPartition, int | None]
    isr: Mapping[TopicPartition, tuple[int, ...]]
    cluster_id: str | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


class ReplicaReader(Protocol):
    """Reads replicas from their own brokers.

    A text in place of a value says why that replica cannot be read though its broker answers.
    """

    def fetch(
        self, broker_id: int, offsets: Mapping[TopicPartition, int], *, wait: bool
    ) -> Mapping[TopicPartition, Fetched | str]:
        """Fetch from those offsets on; ``wait`` a moment when there is nothing new. Raises BrokerUnreachableError."""

    def offsets(
        self, broker_id: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
    ) -> Mapping[TopicPartition, int | str]:
        """Ask for the offset of a time: LATEST, EARLIEST, EARLIEST_LOCAL or ms.

        ``committed``: LATEST is the high watermark.
        """


@dataclass(slots=True)
class PartitionReport:
    """The findings about one partition; filled by the Verifier as it goes, its one writer.

    Compared is [``start``, ``offset``) but for ``skipped``; ``end`` is the offset ``--once`` wants to reach. ``missing``
    and ``unreadable`` have the reason for each replica that was not compared all the way: its broker was down, or answered
    that it is damaged, refused or not there. ``unread`` are the replicas that gave nothing when last asked.
    """

    partition: TopicPartition
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start: int = 0
    offset: int = 0
    end: int | None = None
    entries: int = 0
    high_watermarks: dict[int, int] = field(default_factory=dict)
    mismatches: list[Mismatch] = field(default_factory=list)
    missing: dict[int, str] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    skipped: list[tuple[int, int]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Tell whether every replica that answers was compared up to ``end``."""
        return self.end is not None and self.offset >= self.end

    @property
    def lag(self) -> int:
        """Return the highest watermark of any replica minus the verified offset (RPV-4), of a partition that was read."""
        return max(self.high_watermarks.values()) - self.offset

    @property
    def lags(self) -> dict[int, int | None]:
        """Return each replica's high watermark's distance to the highest; None: it never answered (RPV-11X)."""
        highest = max(self.high_watermarks.values(), default=0)
        return {b: highest - hw if (hw := self.high_watermarks.get(b)) is not None else None for b in self.replicas}

    def note_unread(self, broker: int, why: str | BrokerUnreachableError) -> None:
        """Note that this replica gave nothing; a text: its broker answered so."""
        kind = self.unreadable if isinstance(why, (str, *_IS_UP)) else self.missing
        kind[broker] = self.unread[broker] = str(why)

    @property
    def is_read(self) -> bool:
        """Tell whether any replica was read when last asked: else its lag is none that anybody knows."""
        return bool(self.high_watermarks) and len(self.unread) < len(self.replicas)


# --- rounds ----------------------------------------------------------------------------------------------------


class Verifier:
    """Compares all partitions of a layout, round by round. One thread uses it; brokers are read in parallel."""

    def __init__(
        self, layout: Layout, reader: ReplicaReader, *, on_mismatch: Callable[[Mismatch], None] = lambda _: None
    ) -> None:
        self._layout = layout
        self._reader = reader
        self._on_mismatch = on_mismatch
        # Broker -> when to try it again, why it is left alone.
        self._resting: dict[int, tuple[float, BrokerUnreachableError]] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(layout.addresses)), thread_name_prefix="verify")
        self.reports = [PartitionReport(p, layout.replicas[p], layout.isr[p]) for p in sorted(layout.replicas)]
        # In the order they are fetched: only the first of a request gets a batch larger than the fetch size whole.
        self._queue = list(self.reports)
        self._has_read = False  # what is there, once

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, timestamp_ms: int) -> None:
        """Set each partition's start to where that time points on its leader (RPV-2), else on any replica."""
        asked: dict[TopicPartition, int] = {}
        pending = list(self.reports)
        for rank in range(1 + max((len(r.replicas) for r in self.reports), default=0)):
            candidates = {r.partition: self._candidates(r) for r in pending}
            by_broker: dict[int, list[TopicPartition]] = {}
            for partition, brokers in candidates.items():
                if rank < len(brokers):
                    by_broker.setdefault(brokers[rank], []).append(partition)
            answers = {  # of all brokers at once
                broker: self._pool.submit(self._start_offsets, broker, partitions, timestamp_ms, committed=rank == 0)
                for broker, partitions in by_broker.items()
            }
            for broker, answer in answers.items():
                try:
                    asked.update(answer.result())
                except BrokerUnreachableError as e:
                    self._rest(broker, e)  # any replica says where to start; the rounds tell what was not compared
            pending = [r for r in pending if r.partition not in asked]
        for report in self.reports:
            report.start = report.offset = asked.get(report.partition, 0)

    def _candidates(self, report: PartitionReport) -> Sequence[int]:
        leader = self._layout.leaders[report.partition]
        if report.replicas[:1] == (leader,):  # as nearly all are
            return report.replicas
        return sorted(report.replicas, key=lambda b: b != leader)

    def _start_offsets(
        self, broker: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
    ) -> dict[TopicPartition, int]:
        found = dict(self._reader.offsets(broker, partitions, timestamp_ms, committed=committed))
        after_all = [p for p in partitions if found.get(p) == -1]  # nothing is as young as that: start at the end
        if after_all:
            found.update(self._reader.offsets(broker, after_all, LATEST, committed=committed))
        return {p: offset for p, offset in found.items() if isinstance(offset, int) and offset >= 0}

    def round(self) -> bool:
        """Fetch what is not complete, compare, move on. Return False when nothing was new anywhere."""
        begun = time.monotonic()
        active = [r for r in self._queue if not r.complete]
        # What is there is told at once: to wait for more costs a broker twice the work, as it looks at all of it again.
        fetched = self._fetch(active, wait=self._has_read)
        self._has_read = True
        moved = [r for r in active if self._judge(r, fetched.get(r.partition, {}))]
        if not moved:
            time.sleep(max(0.0, MIN_ROUND_S - (time.monotonic() - begun)))
            return False
        gone_on = {r.partition for r in moved}
        self._queue = [r for r in self._queue if r.partition not in gone_on] + moved
        return True

    def run_once(self, *, stall_s: float, on_round: Callable[[], None] = lambda: None) -> None:
        """Run rounds until all are compared to the high watermarks of the first, or none moved for ``stall_s``.

        The last round begins when that time is over: one that kt or a broker stood still in has shown nothing of the rest.
        ``on_round`` is called after each round, to look at ``reports``.
        """
        last_move = time.monotonic()
        while True:
            begun = time.monotonic()
            moved = self.round()
            for report in self.reports:
                if report.end is None and report.high_watermarks:
                    report.end = max(report.high_watermarks.values())
            on_round()
            if all(r.complete for r in self.reports):
                return
            if moved:
                last_move = time.monotonic()
            elif begun - last_move > stall_s:
                return

    @property
    def unreachable(self) -> dict[int, str]:
        """Return the brokers that are not read now, and why."""
        now = time.monotonic()
        return {broker: str(why) for broker, (until, why) in sorted(self._resting.items()) if until > now}

    def worst(self) -> PartitionReport | None:
        """Return the partition with the largest lag of those that are read (RPV-4); None: none is."""
        return max((r for r in self.reports if r.is_read), key=lambda r: r.lag, default=None)

    def _fetch(
        self, reports: Iterable[PartitionReport], *, wait: bool = False
    ) -> dict[TopicPartition, dict[int, Fetched]]:
        """Fetch all replicas of the partitions; ``wait`` a moment for what is new.

        Each that gives nothing is noted: the others are compared without it.
        """
        now = time.monotonic()
        resting = {broker: why for broker, (until, why) in self._resting.items() if until > now}
        by_broker: defaultdict[int, list[PartitionReport]] = defaultdict(list)
        for report in reports:
            for broker in report.replicas:
                if broker in resting:
                    report.note_unread(broker, resting[broker])
                else:
                    by_broker[broker].append(report)
        requests = {
            broker: self._pool.submit(self._reader.fetch, broker, {r.partition: r.offset for r in wanted}, wait=wait)
            for broker, wanted in by_broker.items()
        }
        fetched: defaultdict[TopicPartition, dict[int, Fetched]] = defaultdict(dict)
        for broker, request in requests.items():
            answer: Mapping[TopicPartition, Fetched | str | BrokerUnreachableError]
            try:
                answer = request.result()
            except BrokerUnreachableError as e:
                self._rest(broker, e)
                answer = dict.fromkeys((r.partition for r in by_broker[broker]), e)
            for report in by_broker[broker]:
                value = answer.get(report.partition, "its answer leaves the partition out")
                if isinstance(value, Fetched):
                    fetched[report.partition][broker] = value
                    if report.unread:  # few are
                        report.unread.pop(broker, None)
                else:
                    report.note_unread(broker, value)
        return fetched

    def _rest(self, broker: int, why: BrokerUnreachableError) -> None:
        self._resting[broker] = (time.monotonic() + RETRY_S, why)

    def _judge(self, report: PartitionReport, fetched: dict[int, Fetched]) -> bool:
        """Compare what was fetched and note it. Return whether the partition moved on."""
        without_entries = []
        for broker, found in fetched.items():
            if found.high_watermark >= 0:
                report.high_watermarks[broker] = found.high_watermark
            if not found.entries:
                without_entries.append(broker)
        if without_entries:  # most partitions in most rounds: nothing new
            if out_of_range := [b for b in without_entries if fetched[b].out_of_range]:
                return self._skip_to(EARLIEST, report, out_of_range)
            if tiered := [b for b in without_entries if fetched[b].tiered]:
                return self._skip_to(EARLIEST_LOCAL, report, tiered)
            return False
        return self._judge_entries(report, fetched)

    def _judge_entries(self, report: PartitionReport, fetched: dict[int, Fetched]) -> bool:
        """Compare entries of all replicas that answer."""
        found = compare(report.partition, fetched, report.offset)
        if found.mismatches:
            again = compare(report.partition, self._fetch([report]).get(report.partition, {}), report.offset)
            confirmed = [m for m in found.mismatches if m in again.mismatches]
            if not confirmed:
                return True  # it looked different while something changed: compare anew
            report.mismatches += confirmed
            for mismatch in confirmed:
                self._on_mismatch(mismatch)
        moved = found.next_offset > report.offset
        report.offset = found.next_offset
        report.entries += found.entries
        return moved

    def _skip_to(self, time_ms: int, report: PartitionReport, brokers: Iterable[int]) -> bool:
        """Go on at the highest log start, or local one (RPV-10X, ADM-52). A replica that ends below is only behind."""
        starts = []
        for broker in brokers:
            try:
                start = self._reader.offsets(broker, [report.partition], time_ms, committed=False)[report.partition]
            except BrokerUnreachableError as e:
                self._rest(broker, e)
                report.note_unread(broker, e)
                continue
            if isinstance(start, int):
                starts.append(start)
            else:
                report.note_unread(broker, start)
        highest = max(starts, default=report.offset)
        if highest <= report.offset:
            return False
        report.skipped.append((report.offset, highest))
        report.offset = highest
        return True
