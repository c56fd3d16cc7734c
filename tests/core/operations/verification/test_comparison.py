"""Comparing replicas: what counts as a difference, and that gaps, absent brokers and deleted ranges are survived."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification.comparison import (
    EARLIEST,
    LATEST,
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
def test_what_a_batch_shows_of_verified_offsets_is_passed_over() -> None:
    rows = entries((4, 1), (9, 2))
    assert compare(T0, {1: Fetched(10, rows), 2: Fetched(10, rows[1:])}, 5) == (10, 1, ())


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
    down: set[int] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)
    before_fetch: Callable[[int], None] = lambda _: None

    def end(self, broker: int, partition: TopicPartition) -> int:
        log = self.logs[broker, partition]
        return log[-1].last_offset + 1 if log else self.starts.get((broker, partition), 0)

    def fetch(self, broker_id: int, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Fetched | str]:
        self._check(broker_id)
        self.before_fetch(broker_id)
        return {p: self._read(broker_id, p, offset) for p, offset in offsets.items()}

    def _read(self, broker: int, partition: TopicPartition, offset: int) -> Fetched | str:
        if broker in self.errors:
            return self.errors[broker]
        end = self.end(broker, partition)
        if not self.starts.get((broker, partition), 0) <= offset <= end:
            return Fetched(-1, (), out_of_range=True)
        rows = [e for e in self.logs[broker, partition] if e.last_offset >= offset][: self.page]
        return Fetched(end, tuple(rows))

    def offsets(
        self, broker_id: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
    ) -> Mapping[TopicPartition, int | str]:
        self._check(broker_id)
        if timestamp_ms == LATEST:
            return {p: self.end(broker_id, p) for p in partitions}
        return {p: self.starts.get((broker_id, p), 0) for p in partitions}

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


@pytest.mark.spec("RPV-9X")
def test_a_broker_that_answers_an_error_counts_as_missing(verify: Verify) -> None:
    report, _ = verify(FakeCluster({(1, T0): log_of(5), (2, T0): log_of(5)}, errors={2: "KAFKA_STORAGE_ERROR"}))
    assert report.complete and report.missing == {2: "KAFKA_STORAGE_ERROR"}


@pytest.mark.spec("RPV-7X", "RPV-9X")
def test_no_broker_at_all_is_not_complete(verify: Verify) -> None:
    report, _ = verify(FakeCluster({(1, T0): log_of(5), (2, T0): log_of(5)}, down={1, 2}))
    assert not report.complete and set(report.missing) == {1, 2}


@pytest.mark.spec("RPV-10X")
def test_what_retention_took_from_one_replica_is_skipped_and_said(verify: Verify) -> None:
    cluster = FakeCluster({(1, T0): log_of(10), (2, T0): log_of(10, start=6)}, starts={(2, T0): 6})
    report, told = verify(cluster)
    assert report.complete and not told
    assert (report.skipped, report.entries) == ([(0, 6)], 4)


@pytest.mark.spec("RPV-2")
def test_latest_starts_at_the_leaders_high_watermark(verify: Verify) -> None:
    report, _ = verify(FakeCluster({(1, T0): log_of(10), (2, T0): log_of(10)}), time_ms=LATEST)
    assert (report.start, report.entries, report.complete) == (10, 0, True)


@pytest.mark.spec("RPV-4")
def test_the_worst_partition_is_the_one_with_the_largest_lag() -> None:
    t1 = TopicPartition("t", 1)
    logs = {(1, T0): log_of(3), (2, T0): log_of(3), (1, t1): log_of(9), (2, t1): log_of(5)}
    both = {T0: (1, 2), t1: (1, 2)}
    layout = Layout({1: ("h", 1), 2: ("h", 2)}, both, {T0: 1, t1: 1}, both)
    verifier = Verifier(layout, FakeCluster(logs))
    try:
        verifier.begin(EARLIEST)
        while verifier.round():
            pass
        worst = verifier.worst()
    finally:
        verifier.close()
    assert (worst.partition, worst.lag, worst.offset) == (t1, 4, 5)
