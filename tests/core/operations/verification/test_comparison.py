"""Comparing replicas: what counts as a difference, and that gaps, absent brokers and deleted ranges are survived."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.errors import BrokerTooOldError, BrokerUnreachableError, LoginRefusedError, TlsError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification import comparison
from kafkatool.core.operations.verification.comparison import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MIN_ROUND_S,
    ROTTEN,
    Entry,
    Fetched,
    Layout,
    Mismatch,
    PartitionReport,
    Verifier,
    compare,
)

T0 = TopicPartition("t", 0)


def entries(*pairs: tuple[int, int]) -> tuple[Entry, ...]:
    return tuple(Entry(offset, checksum) for offset, checksum in pairs)


# --- compare ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("RPV-3")
def test_equal_replicas_are_verified_up_to_the_lower_high_watermark() -> None:
    rows = entries((0, 10), (1, 11), (2, 12))
    found = compare(T0, {1: Fetched(3, rows), 2: Fetched(2, rows)}, 0)
    assert found == (2, 2, ())


@pytest.mark.spec("RPV-3")
def test_uncommitted_data_is_never_compared() -> None:
    found = compare(T0, {1: Fetched(1, entries((0, 1), (1, 7))), 2: Fetched(1, entries((0, 1), (1, 8)))}, 0)
    assert found == (1, 1, ())


@pytest.mark.spec("RPV-5")
def test_different_checksums_are_told_and_the_walk_goes_on() -> None:
    found = compare(T0, {1: Fetched(2, entries((0, 1), (1, 5))), 2: Fetched(2, entries((0, 2), (1, 5)))}, 0)
    assert found == (2, 2, (Mismatch(T0, "checksum", 0, 1, 1, 2, 2),))


@pytest.mark.spec("RPV-3", "RPV-11X")
def test_rot_on_two_replicas_is_no_agreement() -> None:
    rotten, whole = Fetched(1, entries((0, ROTTEN))), Fetched(1, entries((0, 7)))
    found = compare(T0, {1: rotten, 2: whole, 3: rotten}, 0)
    assert found.mismatches == (Mismatch(T0, "checksum", 0, 1, -1, 2, 7), Mismatch(T0, "rotten", 0, 1, -1, 3, -1))
    others = compare(T0, {1: whole, 2: rotten, 3: rotten}, 0).mismatches
    assert [(m.kind, m.other_replica) for m in others] == [("checksum", 2), ("checksum", 3)]
    assert [m.kind for m in compare(T0, {2: rotten, 3: rotten}, 0).mismatches] == ["rotten"]


@pytest.mark.spec("RPV-5", "RPV-11X")
def test_a_gap_is_one_mismatch_and_the_walk_goes_on_behind_it() -> None:
    whole = Fetched(4, entries((0, 0), (1, 1), (2, 2), (3, 3)))
    holed = Fetched(4, entries((0, 0), (3, 3)))
    assert compare(T0, {1: holed, 2: whole}, 0) == (4, 2, (Mismatch(T0, "offset", 1, 1, 3, 2, 1),))


@pytest.mark.spec("RPV-3")
def test_behind_a_gap_it_goes_on_at_the_first_offset_that_not_all_have_shown() -> None:
    holed, short = Fetched(9, entries((0, 0), (3, 3))), Fetched(9, entries((0, 0), (1, 1)))
    assert compare(T0, {1: holed, 2: short}, 0) == (3, 1, (Mismatch(T0, "offset", 1, 1, 3, 2, 1),))


@pytest.mark.spec("RPV-3")
def test_what_a_batch_shows_of_verified_offsets_is_passed_over() -> None:
    rows = entries((4, 1), (9, 2))
    assert compare(T0, {1: Fetched(10, rows), 2: Fetched(10, rows[1:])}, 5) == (10, 1, ())


@pytest.mark.spec("RPV-3")
@given(
    st.lists(st.integers(1, 5), max_size=30),
    st.lists(st.integers(0, 100), min_size=1, max_size=4),
)
def test_replicas_of_the_same_log_never_mismatch_whatever_their_high_watermarks(
    steps: list[int], high_watermarks: list[int]
) -> None:
    offsets = [sum(steps[: i + 1]) for i in range(len(steps))]
    log = entries(*((o, o * 7) for o in offsets))
    found = compare(T0, {b: Fetched(hw, log) for b, hw in enumerate(high_watermarks)}, 0)
    assert not found.mismatches
    assert found.entries == sum(o < min(high_watermarks) for o in offsets)


# --- the verifier over brokers made of lists -------------------------------------------------------------------


@dataclass
class FakeCluster:
    """Brokers as lists of entries; a fetch shows at most ``page`` of them."""

    logs: dict[tuple[int, TopicPartition], list[Entry]]
    page: int = 3
    starts: dict[tuple[int, TopicPartition], int] = field(default_factory=dict)
    local_starts: dict[tuple[int, TopicPartition], int] = field(default_factory=dict)  # before them it is tiered
    down: set[int] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)
    before_fetch: Callable[[int], None] = lambda _: None
    waited: list[bool] = field(default_factory=list)
    """Of each fetch whether it may wait for what is new."""

    def end(self, broker: int, partition: TopicPartition) -> int:
        log = self.logs[broker, partition]
        return log[-1].last_offset + 1 if log else self.starts.get((broker, partition), 0)

    def fetch(
        self, broker_id: int, offsets: Mapping[TopicPartition, int], *, wait: bool
    ) -> Mapping[TopicPartition, Fetched | str]:
        self.waited.append(wait)
        self._check(broker_id)
        self.before_fetch(broker_id)
        return {p: self._read(broker_id, p, offset) for p, offset in offsets.items()}

    def _read(self, broker: int, partition: TopicPartition, offset: int) -> Fetched | str:
        if broker in self.errors:
            return self.errors[broker]
        end = self.end(broker, partition)
        if not self.starts.get((broker, partition), 0) <= offset <= end:
            return Fetched(-1, (), out_of_range=True)
        if offset < self.local_starts.get((broker, partition), 0):
            return Fetched(end, (), tiered=True)
        rows = [e for e in self.logs[broker, partition] if e.last_offset >= offset][: self.page]
        return Fetched(end, tuple(rows))

    def offsets(
        self, broker_id: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
    ) -> Mapping[TopicPartition, int | str]:
        self._check(broker_id)
        if timestamp_ms == LATEST:
            return {p: self.end(broker_id, p) for p in partitions}
        starts = self.local_starts if timestamp_ms == EARLIEST_LOCAL else self.starts
        return {p: starts.get((broker_id, p), 0) for p in partitions}

    def _check(self, broker: int) -> None:
        if broker in self.down:
            raise BrokerUnreachableError(f"broker {broker} does not answer")


def log_of(count: int, *, start: int = 0) -> list[Entry]:
    return [Entry(o, o * 3) for o in range(start, count)]


@pytest.fixture
def verify() -> Iterator[Callable[..., tuple[PartitionReport, list[Mismatch]]]]:
    """Run --once over a fake cluster of one partition: its report, and the mismatches told."""
    made: list[Verifier] = []

    def run(cluster: FakeCluster, time_ms: int = EARLIEST) -> tuple[PartitionReport, list[Mismatch]]:
        brokers = tuple(b for b, _ in cluster.logs)
        layout = Layout(dict.fromkeys(brokers, ("127.0.0.1", 1)), {T0: brokers}, {T0: brokers[0]}, {T0: brokers})
        told: list[Mismatch] = []
        verifier = Verifier(layout, cluster, on_mismatch=told.append)
        made.append(verifier)
        verifier.begin(time_ms)
        verifier.run_once(stall_s=0.2)
        return verifier.reports[0], told

    yield run
    for verifier in made:
        verifier.close()


Verify = Callable[..., tuple[PartitionReport, list[Mismatch]]]


@pytest.mark.spec("RPV-7X", "RPV-11X")
def test_equal_replicas_are_complete(verify: Verify) -> None:
    report, told = verify(FakeCluster({(1, T0): log_of(10), (2, T0): log_of(10)}))
    assert (report.complete, report.start, report.offset, report.end, report.entries) == (True, 0, 10, 10, 10)
    assert report.lags == {1: 0, 2: 0}
    assert not told and not report.missing


@pytest.mark.spec("RPV-7X")
def test_empty_partitions_are_complete_at_once(verify: Verify) -> None:
    report, _ = verify(FakeCluster({(1, T0): [], (2, T0): []}))
    assert report.complete and report.entries == 0


@pytest.mark.spec("RPV-7X", "RPV-4")
def test_a_replica_that_stays_behind_leaves_the_partition_incomplete(verify: Verify) -> None:
    report, told = verify(FakeCluster({(1, T0): log_of(10), (2, T0): log_of(4)}))
    assert not report.complete and not told
    assert (report.offset, report.lag, report.lags) == (4, 6, {1: 0, 2: 6})


@pytest.mark.spec("RPV-7X")
def test_a_run_that_stands_still_after_a_round_goes_on(monkeypatch: pytest.MonkeyPatch, verify: Verify) -> None:
    """As on a machine that was asleep: ten seconds pass between any two looks at the clock."""
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 10.0).__next__, sleep=lambda _: None)
    monkeypatch.setattr(comparison, "time", clock)
    report, _ = verify(FakeCluster({(1, T0): log_of(10), (2, T0): log_of(10)}, page=3))
    assert report.complete and report.offset == 10


@pytest.mark.spec("RPV-7X")
def test_a_round_that_took_longer_than_a_stall_is_not_the_last(monkeypatch: pytest.MonkeyPatch, verify: Verify) -> None:
    """A replica that is behind catches up while the round stands still in which it was found so."""
    now, rounds = [0.0], list[int]()
    monkeypatch.setattr(comparison, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    cluster = FakeCluster({(1, T0): log_of(10), (2, T0): log_of(4)}, page=10)

    def stand_still(broker: int) -> None:
        if broker == 1:
            rounds.append(broker)
            if len(rounds) == 2:
                now[0] += 10
            elif len(rounds) == 3:
                cluster.logs[2, T0] = log_of(10)

    cluster.before_fetch = stand_still
    report, _ = verify(cluster)
    assert report.complete and report.offset == 10


@pytest.mark.spec("RPV-11X")
def test_every_mismatch_is_told_not_only_the_first(verify: Verify) -> None:
    broken = [Entry(e.last_offset, 1) if e.last_offset in (2, 7) else e for e in log_of(10)]
    report, told = verify(FakeCluster({(1, T0): log_of(10), (2, T0): broken}))
    assert [(m.kind, m.offset, m.value, m.other_value) for m in told] == [("checksum", 2, 6, 1), ("checksum", 7, 21, 1)]
    assert report.mismatches == told and report.complete


@pytest.mark.spec("RPV-11X")
def test_a_difference_that_a_second_fetch_does_not_show_is_not_reported(verify: Verify) -> None:
    cluster = FakeCluster({(1, T0): log_of(3), (2, T0): [Entry(0, 99), *log_of(3, start=1)]})
    fetches: list[int] = []

    def heal_after_the_first_round(broker: int) -> None:
        fetches.append(broker)
        if len(fetches) > 2:
            cluster.logs[2, T0] = log_of(3)

    cluster.before_fetch = heal_after_the_first_round
    report, told = verify(cluster)
    assert not told and not report.mismatches and report.complete


@pytest.mark.spec("RPV-9X")
@pytest.mark.parametrize("absent", [1, 2, 3])
def test_the_others_are_compared_when_a_broker_is_down(verify: Verify, absent: int) -> None:
    logs = {(b, T0): log_of(5) for b in (1, 2, 3)}
    report, told = verify(FakeCluster(logs, down={absent}))
    assert report.complete and not told and report.entries == 5
    assert report.missing == {absent: f"broker {absent} does not answer"}


@pytest.mark.spec("RPV-9X", "RPV-7X")
@pytest.mark.parametrize("leaders", [(1, 2, 3), (1, 1, 3)], ids=["leads", "leads-nothing"])
def test_every_partition_with_a_replica_on_a_broker_that_is_down_misses_it(leaders: tuple[int, ...]) -> None:
    """Broker 2 is first noticed where the partitions start if it leads one, else where they are fetched."""
    replicas = dict(zip((TopicPartition("t", n) for n in range(3)), ((1, 2), (2, 1), (3, 1)), strict=True))
    logs = {(b, p): log_of(5) for p, brokers in replicas.items() for b in brokers}
    cluster = FakeCluster(logs, page=5, down={2})  # one round shows all
    addresses = dict.fromkeys((1, 2, 3), ("127.0.0.1", 1))
    verifier = Verifier(Layout(addresses, replicas, dict(zip(replicas, leaders, strict=True)), replicas), cluster)
    try:
        verifier.begin(EARLIEST)
        verifier.run_once(stall_s=0.2)
    finally:
        verifier.close()
    assert all(r.complete and r.entries == 5 for r in verifier.reports)
    down = {2: "broker 2 does not answer"}
    assert [r.missing for r in verifier.reports] == [down, down, {}]


@pytest.mark.spec("RPV-9X")
def test_a_broker_that_is_back_before_anything_is_fetched_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "RETRY_S", 0.0)
    cluster = FakeCluster({(b, T0): log_of(5) for b in (1, 2)}, down={1})
    verifier = Verifier(layout_of(1, 1, 2), cluster)
    try:
        verifier.begin(EARLIEST)
        cluster.down.clear()
        verifier.run_once(stall_s=0.2)
    finally:
        verifier.close()
    (report,) = verifier.reports
    assert (report.complete, report.entries, report.missing) == (True, 5, {})


@pytest.mark.spec("RPV-9X")
def test_a_broker_lost_in_the_second_fetch_of_a_difference_is_missing_everywhere() -> None:
    t1 = TopicPartition("t", 1)
    other = [Entry(0, 99), *log_of(6, start=1)]
    cluster = FakeCluster({(1, T0): log_of(6), (2, T0): other, (1, t1): log_of(6), (2, t1): log_of(6)})
    fetches: list[int] = []

    def fail_after_the_first_round(broker: int) -> None:
        fetches.append(broker)
        if broker == 2 and fetches.count(2) > 1:
            cluster.down.add(2)
            raise BrokerUnreachableError("broker 2 does not answer")

    cluster.before_fetch = fail_after_the_first_round
    both = {T0: (1, 2), t1: (1, 2)}
    verifier = Verifier(Layout(dict.fromkeys((1, 2), ("127.0.0.1", 1)), both, {T0: 1, t1: 1}, both), cluster)
    try:
        verifier.begin(EARLIEST)
        verifier.run_once(stall_s=0.2)
    finally:
        verifier.close()
    assert [(r.complete, list(r.missing)) for r in verifier.reports] == [(True, [2])] * 2


@pytest.mark.spec("RPV-9X")
def test_a_replica_left_out_of_its_brokers_answer_is_unreadable(verify: Verify) -> None:
    class Silent(FakeCluster):
        def fetch(
            self, broker_id: int, offsets: Mapping[TopicPartition, int], *, wait: bool
        ) -> Mapping[TopicPartition, Any]:
            return {} if broker_id == 2 else super().fetch(broker_id, offsets, wait=wait)

    report, _ = verify(Silent({(b, T0): log_of(5) for b in (1, 2)}))
    assert report.complete and report.unreadable == {2: "its answer leaves the partition out"} and not report.missing


@pytest.mark.spec("RPV-9X")
def test_a_broker_that_answers_an_error_is_not_down_and_its_replica_unreadable(verify: Verify) -> None:
    report, _ = verify(FakeCluster({(1, T0): log_of(5), (2, T0): log_of(5)}, errors={2: "KAFKA_STORAGE_ERROR"}))
    assert report.complete and report.unreadable == {2: "KAFKA_STORAGE_ERROR"} and not report.missing


@pytest.mark.spec("RPV-9X")
@pytest.mark.parametrize("error", [LoginRefusedError("broker 2", "refuses"), TlsError("x"), BrokerTooOldError("x")])
def test_a_broker_that_lets_nobody_in_or_is_too_old_is_not_down(verify: Verify, error: BrokerUnreachableError) -> None:
    class Closed(FakeCluster):
        def _check(self, broker: int) -> None:
            if broker == 2:
                raise error

    report, _ = verify(Closed({(1, T0): log_of(5), (2, T0): log_of(5)}))
    assert report.complete and report.unreadable == {2: str(error)} and not report.missing


@pytest.mark.spec("RPV-9X")
def test_a_replica_that_was_damaged_stays_so_told_when_its_broker_goes_down(verify: Verify) -> None:
    cluster = FakeCluster({(b, T0): log_of(9) for b in (1, 2)}, page=3, errors={2: "CORRUPT_MESSAGE"})
    seen: list[int] = []

    def fail_later(broker: int) -> None:
        seen.append(broker)
        if seen.count(1) > 1:
            cluster.down.add(2)

    cluster.before_fetch = fail_later
    report, _ = verify(cluster)
    assert report.complete and report.unreadable == {2: "CORRUPT_MESSAGE"}
    assert set(report.missing) <= {2}


@pytest.mark.spec("RPV-10X", "RPV-9X")
def test_a_replica_whose_log_start_is_not_told_is_named(verify: Verify) -> None:
    class Secretive(FakeCluster):
        def offsets(
            self, broker_id: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
        ) -> Mapping[TopicPartition, int | str]:
            found = super().offsets(broker_id, partitions, timestamp_ms, committed=committed)
            return dict.fromkeys(partitions, "REFUSED") if broker_id == 2 else found

    cluster = Secretive({(1, T0): log_of(5), (2, T0): log_of(5, start=3)}, starts={(2, T0): 3})
    report, _ = verify(cluster)
    assert not report.complete and report.unreadable == {2: "REFUSED"}


@pytest.mark.spec("RPV-7X", "RPV-9X")
def test_no_broker_at_all_is_not_complete(verify: Verify) -> None:
    report, _ = verify(FakeCluster({(1, T0): log_of(5), (2, T0): log_of(5)}, down={1, 2}))
    assert not report.complete and set(report.missing) == {1, 2}


@pytest.mark.spec("RPV-10X")
def test_what_retention_took_from_one_replica_is_skipped_and_said(verify: Verify) -> None:
    starts = {(2, T0): 4, (3, T0): 6, (4, T0): 5}
    cluster = FakeCluster({(b, T0): log_of(10, start=starts.get((b, T0), 0)) for b in (1, 2, 3, 4)}, starts=starts)
    report, told = verify(cluster)
    assert report.complete and not told
    assert (report.skipped, report.entries) == ([(0, 6)], 4)


@pytest.mark.spec("ADM-52")
def test_what_is_in_tiered_storage_is_left_out_from_where_each_replica_has_it_on_its_disks(verify: Verify) -> None:
    local = {(1, T0): 4, (2, T0): 7}
    starts = dict.fromkeys(((1, T0), (2, T0)), 2)
    logs = {key: log_of(10, start=2) for key in starts}
    report, told = verify(FakeCluster(logs, starts=starts, local_starts=local))
    assert (report.skipped, report.entries, report.complete, told) == ([(2, 7)], 3, True, [])


@pytest.mark.spec("RPV-10X")
def test_what_retention_takes_during_the_run_is_skipped_from_where_it_is(verify: Verify) -> None:
    cluster = FakeCluster({(b, T0): log_of(10) for b in (1, 2)}, page=3)
    fetches: list[int] = []

    def delete(broker: int) -> None:
        fetches.append(broker)
        if len(fetches) > 2:  # three are compared
            cluster.starts[2, T0] = 6
            cluster.logs[2, T0] = log_of(10, start=6)

    cluster.before_fetch = delete
    report, told = verify(cluster)
    assert (report.skipped, report.entries, report.complete, told) == ([(3, 6)], 7, True, [])


@pytest.mark.spec("RPV-2")
def test_latest_starts_at_the_leaders_high_watermark(verify: Verify) -> None:
    report, _ = verify(FakeCluster({(1, T0): log_of(10), (2, T0): log_of(10)}), time_ms=LATEST)
    assert (report.start, report.entries, report.complete) == (10, 0, True)


def layout_of(leader: int | None, *brokers: int) -> Layout:
    return Layout(dict.fromkeys(brokers, ("127.0.0.1", 1)), {T0: brokers}, {T0: leader}, {T0: brokers})


@pytest.mark.spec("RPV-2")
@pytest.mark.parametrize(("time_ms", "start"), [(EARLIEST, 2), (LATEST, 9), (1234, 5), (10**15, 9)])
def test_all_replicas_are_read_from_where_the_time_points_on_the_leader(time_ms: int, start: int) -> None:
    answers = {EARLIEST: 2, LATEST: 9, 1234: 5, 10**15: -1}  # later than the last record: its end
    asked: list[tuple[int, int, bool]] = []
    read: list[tuple[int, int]] = []

    class Brokers(FakeCluster):
        def offsets(
            self, broker_id: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
        ) -> Mapping[TopicPartition, int | str]:
            asked.append((broker_id, timestamp_ms, committed))
            return {T0: answers[timestamp_ms]}

        def fetch(
            self, broker_id: int, offsets: Mapping[TopicPartition, int], *, wait: bool
        ) -> Mapping[TopicPartition, Any]:
            read.append((broker_id, offsets[T0]))
            return super().fetch(broker_id, offsets, wait=wait)

    verifier = Verifier(layout_of(2, 1, 2, 3), Brokers({(b, T0): log_of(9) for b in (1, 2, 3)}))
    try:
        verifier.begin(time_ms)
        verifier.round()
    finally:
        verifier.close()
    assert asked[0] == (2, time_ms, True) and {broker for broker, _, _ in asked} == {2}
    assert sorted(read) == [(1, start), (2, start), (3, start)], "each from its own broker, from the same offset"


@pytest.mark.spec("RPV-12X")
def test_the_first_round_reads_what_is_there_and_those_after_it_wait_for_more() -> None:
    cluster = FakeCluster({(b, T0): log_of(1) for b in (1, 2)})
    verifier = Verifier(layout_of(1, 1, 2), cluster)
    try:
        verifier.begin(EARLIEST)
        rounds = [verifier.round() for _ in range(3)]
    finally:
        verifier.close()
    assert rounds == [True, False, False]
    assert cluster.waited == [False, False, *[True] * 4]


@pytest.mark.spec("RPV-6", "RPV-2")
def test_a_partition_without_a_leader_is_compared_from_where_any_replica_says() -> None:
    verifier = Verifier(layout_of(None, 1, 2), FakeCluster({(b, T0): log_of(4) for b in (1, 2)}))
    try:
        verifier.begin(EARLIEST)
        while verifier.round():
            pass
    finally:
        verifier.close()
    (report,) = verifier.reports
    assert (report.offset, report.entries, report.missing) == (4, 4, {})


@pytest.mark.spec("RPV-7X")
def test_what_is_written_during_the_run_is_not_waited_for(verify: Verify) -> None:
    cluster = FakeCluster({(b, T0): log_of(10) for b in (1, 2)})
    fetches: list[int] = []

    def grow(broker: int) -> None:
        fetches.append(broker)
        if 2 < len(fetches) < 100:  # the first round has read the high watermarks
            for log in cluster.logs.values():
                log.extend(log_of(log[-1].last_offset + 3, start=log[-1].last_offset + 1))

    cluster.before_fetch = grow
    report, _ = verify(cluster)
    assert report.end == 10 and report.complete and cluster.end(1, T0) > 10


@pytest.mark.spec("RPV-9X")
def test_a_broker_that_goes_down_later_is_missing_and_the_others_are_compared_on(verify: Verify) -> None:
    cluster = FakeCluster({(b, T0): log_of(10) for b in (1, 2, 3)}, page=3)
    seen: list[int] = []

    def fail_later(broker: int) -> None:
        seen.append(broker)
        if len(seen) > 4:
            cluster.down.add(3)

    cluster.before_fetch = fail_later
    report, told = verify(cluster)
    assert 3 in seen and not told
    assert (report.complete, report.entries, report.missing) == (True, 10, {3: "broker 3 does not answer"})


@pytest.mark.spec("RPV-12X")
def test_a_round_without_news_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [5.0], list[float]()
    stopped = SimpleNamespace(monotonic=lambda: now[0], sleep=slept.append)
    verifier = Verifier(layout_of(1, 1, 2), FakeCluster({(b, T0): log_of(2) for b in (1, 2)}))
    try:
        verifier.begin(EARLIEST)
        monkeypatch.setattr(comparison, "time", stopped)
        assert verifier.round() and slept == []
        assert not verifier.round() and slept == [MIN_ROUND_S]
    finally:
        verifier.close()


@pytest.mark.spec("RPV-4")
def test_the_worst_partition_is_the_one_with_the_largest_lag() -> None:
    t1 = TopicPartition("t", 1)
    lengths = {T0: (20, 17, 17), t1: (9, 5, 9)}  # the lag is that of the slowest replica, not of all together
    logs = {(b, p): log_of(n) for p, each in lengths.items() for b, n in enumerate(each, 1)}
    all_three = dict.fromkeys(lengths, (1, 2, 3))
    layout = Layout({b: ("h", b) for b in (1, 2, 3)}, all_three, {T0: 1, t1: 1}, all_three)
    verifier = Verifier(layout, FakeCluster(logs))
    try:
        verifier.begin(EARLIEST)
        while verifier.round():
            pass
        worst = verifier.worst()
    finally:
        verifier.close()
    assert worst is not None and (worst.partition, worst.lag, worst.offset) == (t1, 4, 5)


@pytest.mark.spec("RPV-4", "RPV-9X")
def test_the_worst_partition_is_one_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was never read has no lag, and one that is read no more has none that is known."""
    monkeypatch.setattr(comparison, "RETRY_S", 0.0)
    t1 = TopicPartition("t", 1)
    cluster = FakeCluster({(1, T0): log_of(2), (2, t1): log_of(2), (3, t1): log_of(0)})
    places = {T0: (1,), t1: (2, 3)}
    layout = Layout({b: ("h", b) for b in (1, 2, 3)}, places, {T0: 1, t1: 2}, places)
    verifier = Verifier(layout, cluster)

    def worst(*, down: Sequence[int] = (), errors: Sequence[int] = ()) -> tuple[TopicPartition, int] | None:
        cluster.down, cluster.errors = set(down), dict.fromkeys(errors, "KAFKA_STORAGE_ERROR")
        verifier.round()
        found = verifier.worst()
        return None if found is None else (found.partition, found.lag)

    try:
        verifier.begin(EARLIEST)
        assert worst(down=[1], errors=[2, 3]) is None
        assert [r.unread for r in verifier.reports] == [
            {1: "broker 1 does not answer"},
            dict.fromkeys((2, 3), "KAFKA_STORAGE_ERROR"),
        ]
        assert worst(errors=[2, 3]) == (T0, 0)
        assert worst() == (t1, 2) and not any(r.unread for r in verifier.reports)
        assert worst(errors=[3]) == (T0, 0), "the other has caught up, by the replica that is read"
        assert worst(down=[2], errors=[3]) == (T0, 0)
        assert worst(down=[1, 2, 3]) is None
    finally:
        verifier.close()
