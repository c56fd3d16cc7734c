"""Fetch: who reads how far, limits, and when a parked fetch is answered."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.replication.leading.fetch_session import FetchResults
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import Reader
from kafkatool.broker.runtime.timer import Timer, TimerTask
from kafkatool.broker.storage.log.log_reader import LogRead
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import CONSUMER, TP, Clock, World, follower, wanted, world
from tests.broker.storage.batch_builders import batch, marker

TP1 = TopicPartition("t", 1)
BATCH_BYTES = len(batch())
DEBUGGER = Reader(-2)
COMMITTED = Reader(-1, committed=True)


@pytest.mark.spec("BRK-92", "BRK-94", "BRK-103")
def test_consumers_read_below_the_high_watermark_followers_to_the_end(broker: World) -> None:
    broker.lead(isr=(1, 2))
    broker.produce()
    broker.fetch(1, follower(2))
    broker.produce()
    consumer, committed, debugger, replica = (
        broker.fetch(0, r)[0] for r in (CONSUMER, COMMITTED, DEBUGGER, follower(2))
    )
    assert Reader(0).is_follower, "a broker's id may be 0"
    assert consumer.size_bytes == committed.size_bytes == debugger.size_bytes == replica.size_bytes // 2
    assert (consumer.high_watermark, consumer.last_stable_offset, consumer.log_start_offset) == (1, 1, 0)
    assert (consumer.aborted, committed.aborted) == (None, [])
    between = broker.fetch(1, CONSUMER)[0]
    assert (between.error, between.size_bytes) == (0, 0)


@pytest.mark.spec("BRK-92", "BRK-93")
def test_only_a_debugger_reads_a_follower(broker: World) -> None:
    broker.lead()
    broker.produce(count=2)
    broker.follow(epoch=1)
    assert broker.fetch(0, DEBUGGER)[0].size_bytes > 0
    failed = [broker.fetch(0, CONSUMER)[0], broker.fetch(0, follower(2))[0]]
    failed += [broker.fetch(0, CONSUMER, TP1)[0], broker.fetch(9, DEBUGGER)[0]]
    broker.know(TP1)
    failed += [broker.fetch(0, CONSUMER, TP1)[0], broker.fetch(0, DEBUGGER, TP1)[0]]
    assert [one.error for one in failed] == [6, 6, 3, 1, 6, 9]
    for one in failed:
        assert (one.high_watermark, one.last_stable_offset, one.log_start_offset, one.records) == (-1, -1, -1, b"")


@pytest.mark.spec("BRK-92")
def test_who_reads_a_follower_reads_below_its_high_watermark(broker: World) -> None:
    partition = broker.follow()
    for offset in range(2):
        sent = memoryview(batch(base_offset=offset, epoch=0))
        partition.append_as_follower(sent, 0, fetched_at=offset, high_watermark=1, log_start_offset=0)
    assert (partition.log.log_end_offset, partition.high_watermark.offset) == (2, 1)
    for reader in (DEBUGGER, Reader(-1, anywhere=True), Reader(-1, committed=True, anywhere=True)):
        read = broker.fetch(0, reader)[0]
        assert (read.error, read.size_bytes, read.high_watermark) == (0, BATCH_BYTES, 1)


@pytest.mark.spec("BRK-92", "BRK-137")
def test_nobody_reads_a_follower_that_is_to_copy_anew_what_a_power_cut_took(broker: World) -> None:
    partition = broker.follow()
    partition.append_as_follower(memoryview(batch(epoch=0)), 0, fetched_at=0, high_watermark=1, log_start_offset=0)
    reader = Reader(-1, anywhere=True)
    assert broker.fetch(0, reader)[0].error == 0
    partition.log.state.gap_at = 0
    assert [broker.fetch(0, one)[0].error for one in (reader, DEBUGGER)] == [6, 0]


@pytest.mark.spec("BRK-94")
def test_offsets_outside_the_log_and_inside_a_batch(broker: World) -> None:
    partition = broker.lead()
    broker.produce(count=3)
    broker.produce(count=3)
    assert broker.fetch(7)[0].error == 1
    assert broker.fetch(6)[0].size_bytes == 0
    assert broker.fetch(4)[0].size_bytes == broker.fetch(3)[0].size_bytes > 0
    partition.log.advance_log_start(3)
    assert broker.fetch(2)[0].error == 1
    assert broker.fetch(3)[0].size_bytes > 0


@pytest.mark.spec("BRK-63")
def test_the_leader_epoch_is_checked_before_leadership(broker: World) -> None:
    broker.lead(epoch=5)
    assert broker.fetch(0, epoch=4)[0].error == 74
    assert broker.fetch(0, epoch=6)[0].error == 75
    assert broker.fetch(0, epoch=5)[0].error == 0
    broker.follow(epoch=6)
    assert broker.fetch(0, epoch=5)[0].error == 74
    assert broker.fetch(0, epoch=6)[0].error == 6


@pytest.mark.spec("BRK-101")
def test_a_fetch_that_leadership_left_under_way_is_no_strangers(
    broker: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    assert broker.fetch(0, follower(7))[0].size_bytes == 0
    assert "broker 7 fetches t-0 but is not one of its replicas (1, 2)" in caplog.text
    caplog.clear()
    recorded = Partition.record_fetch

    def deposed(self: Partition, *position: Any, read_in: int) -> Any:
        partition.stop_leading()
        return recorded(self, *position, read_in=read_in)

    monkeypatch.setattr(Partition, "record_fetch", deposed)
    assert broker.fetch(0, follower(2))[0].size_bytes == 0
    assert "is not one of its replicas" not in caplog.text


@pytest.mark.spec("BRK-101", "BRK-39")
def test_a_position_read_before_another_led_counts_for_nothing(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower has cut its log since: its thread here stood still between reading and noting."""
    partition = broker.lead(isr=(1, 2))
    broker.produce(count=5)
    recorded = Partition.record_fetch

    def late(self: Partition, *position: Any, read_in: int) -> Any:
        monkeypatch.setattr(Partition, "record_fetch", recorded)
        broker.follow(epoch=1)
        broker.lead(epoch=2, isr=(1, 2), version=1)
        return recorded(self, *position, read_in=read_in)

    monkeypatch.setattr(Partition, "record_fetch", late)
    broker.fetch(5, follower(2), epoch=-1)
    assert partition.high_watermark.offset == 0 and partition.lacks_a_fetch
    broker.fetch(5, follower(2), epoch=2)
    assert partition.high_watermark.offset == 5


@pytest.mark.spec("BRK-40", "BRK-94")
def test_damage_is_told_once_a_minute_and_who_met_it_has_not_read(
    broker: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce(count=2)
    broker.produce(count=3)

    def damaged(*_: object, **__: object) -> None:
        raise CorruptRecordsError("the batch at position 7 has no readable header")

    monkeypatch.setattr(partition.log, "read", damaged)
    for reader in (follower(2), CONSUMER, follower(2)):
        (read,) = broker.fetch(0, reader)
        assert (read.error, read.start, read.size_bytes) == (ErrorCode.CORRUPT_MESSAGE, None, 0)
    assert partition.lacks_a_fetch and partition.high_watermark.offset == 0
    assert caplog.text.count("t-0: nothing can be read from offset 0 on: the batch at position 7") == 1


@pytest.mark.spec("BRK-96")
def test_the_first_partition_with_data_gives_a_whole_batch_the_others_only_what_fits(broker: World) -> None:
    for partition in (TP, TP1, TopicPartition("t", 2)):
        broker.lead(partition)
    for _ in range(2):
        broker.produce(TP1)
        broker.produce(TopicPartition("t", 2))

    def sizes(max_bytes: int, partition_max: int) -> list[int]:
        results: list[FetchResults] = []
        broker.manager.fetches.fetch(
            [(TopicPartition("t", p), wanted(p, 0, max_bytes=partition_max)) for p in range(3)],
            CONSUMER,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            on_done=results.append,
        )
        return [read.size_bytes for _, read in results[0]]

    assert sizes(1 << 20, 1 << 20) == [0, 2 * BATCH_BYTES, 2 * BATCH_BYTES]
    assert sizes(10, 10) == [0, BATCH_BYTES, 0], "larger than both limits, yet whole; nothing after it"
    assert sizes(1 << 20, 80) == [0, 80, 80], "the last batch may be cut"
    assert sizes(2 * BATCH_BYTES + 10, 1 << 20) == [0, 2 * BATCH_BYTES, 0]


@pytest.mark.spec("BRK-96")
def test_partitions_are_read_in_the_order_of_the_request(broker: World) -> None:
    for number in range(3):
        broker.lead(TopicPartition("t", number))
        broker.produce(TopicPartition("t", number))
    results: list[FetchResults] = []
    asked = [(TopicPartition("t", p), wanted(p, 0)) for p in (2, 0, 1)]
    broker.manager.fetches.fetch(
        asked, CONSUMER, max_wait_ms=0, min_bytes=1, max_bytes=BATCH_BYTES + 10, on_done=results.append
    )
    assert [(tp.partition, read.size_bytes) for tp, read in results[0]] == [(2, BATCH_BYTES), (0, 0), (1, 0)]


@pytest.mark.spec("BRK-97", "BRK-98")
def test_a_fetch_is_parked_for_as_long_as_it_asks(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    add = Timer.add

    def noted(timer: Timer, delay_ms: float, task: Callable[[], None]) -> TimerTask:
        delays.append(delay_ms)
        return add(timer, delay_ms, task)

    monkeypatch.setattr(Timer, "add", noted)
    broker.lead(isr=(1, 2))
    assert broker.fetch(0, max_wait_ms=12_345) == []
    assert delays == [12_345]


@pytest.mark.spec("BRK-97")
def test_no_wait_without_wait_time_partitions_or_need(broker: World) -> None:
    broker.lead()
    assert len(broker.fetch(0, max_wait_ms=0)) == 1
    assert len(broker.fetch(9, max_wait_ms=60_000)) == 1, "an error is told at once"
    assert len(broker.fetch(0, max_wait_ms=60_000, min_bytes=0)) == 1
    broker.produce()
    assert len(broker.fetch(0, max_wait_ms=60_000, min_bytes=BATCH_BYTES)) == 1, "there is enough"
    waiting = broker.fetch(0, max_wait_ms=60_000, min_bytes=BATCH_BYTES + 1)
    assert waiting == [], "one byte is missing"
    broker.manager.delayed.fetches.expire_all()
    assert len(waiting) == 1
    nothing: list[FetchResults] = []
    broker.manager.fetches.fetch([], CONSUMER, max_wait_ms=60_000, min_bytes=1, max_bytes=1, on_done=nothing.append)
    assert nothing == [[]]
    one_fails: list[FetchResults] = []
    asked = [(TP, wanted(1, 0)), (TopicPartition("unknown", 0), wanted(0, 0))]  # the first is well, and at its end
    broker.manager.fetches.fetch(
        asked, CONSUMER, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, on_done=one_fails.append
    )
    assert len(one_fails) == 1, "one partition that failed is enough"
    assert len(broker.fetch(0, max_wait_ms=-1, min_bytes=BATCH_BYTES + 1)) == 1


@pytest.mark.spec("BRK-97", "BRK-98", "BRK-99")
def test_a_parked_fetch_gives_what_is_there_when_the_time_is_out(broker: World) -> None:
    broker.lead()
    broker.produce()
    done = threading.Event()
    results: list[FetchResults] = []

    def note(outcome: FetchResults) -> None:
        results.append(outcome)
        done.set()

    broker.manager.fetches.fetch(
        [(TP, wanted(0, 0))], CONSUMER, max_wait_ms=50, min_bytes=1 << 20, max_bytes=1 << 20, on_done=note
    )
    assert done.wait(60)
    assert results[0][0][1].size_bytes == BATCH_BYTES


@pytest.mark.spec("BRK-98")
def test_min_bytes_counts_over_all_partitions_each_within_its_limit(broker: World) -> None:
    broker.lead(TP)
    broker.lead(TP1)
    results: list[FetchResults] = []
    broker.manager.fetches.fetch(
        [(TP, wanted(0, 0, max_bytes=BATCH_BYTES)), (TP1, wanted(1, 0))],
        CONSUMER,
        max_wait_ms=60_000,
        min_bytes=2 * BATCH_BYTES,
        max_bytes=1 << 20,
        on_done=results.append,
    )
    broker.produce(TP)
    broker.produce(TP)
    assert results == [], "only one batch of the first partition counts"
    broker.produce(TP1)
    assert len(results) == 1


@pytest.mark.spec("BRK-98")
def test_a_parked_fetch_ends_when_the_end_moves_to_another_segment(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock(), log_segment_bytes=str(BATCH_BYTES + 10)) as broker:
        broker.lead()
        broker.produce()
        waiting = broker.fetch(0, max_wait_ms=60_000, min_bytes=1 << 20)
        assert waiting == []
        broker.produce()
        assert len(waiting) == 1


@pytest.mark.spec("BRK-98")
def test_a_parked_fetch_whose_epoch_got_fenced_is_told(broker: World) -> None:
    broker.lead(epoch=1)
    waiting = broker.fetch(0, epoch=1, max_wait_ms=60_000)
    broker.lead(epoch=2)
    assert waiting[0].error == 74


@pytest.mark.spec("BRK-99")
def test_a_debuggers_fetch_waits_like_others(broker: World) -> None:
    broker.lead()
    waiting = broker.fetch(0, DEBUGGER, max_wait_ms=60_000)
    assert waiting == []
    broker.produce()
    assert waiting[0].size_bytes == BATCH_BYTES


@pytest.mark.spec("BRK-95", "BRK-101")
def test_a_follower_is_told_the_high_watermark_from_before_its_own_fetch(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    read = broker.fetch(1, follower(2))[0]
    assert (read.high_watermark, partition.high_watermark.offset) == (0, 1)


@pytest.mark.spec("BRK-102", "BRK-76")
def test_a_throttled_replica_gets_nothing_while_it_is_behind_but_is_recorded(tmp_path: Path) -> None:
    clock = Clock()
    with world(tmp_path, clock=clock) as broker:
        partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
        broker.logs.update_topic_config("t", {"leader.replication.throttled.replicas": "0:1"})
        broker.manager.on_broker_config({"leader.replication.throttled.rate": "1"})
        for _ in range(3):
            broker.produce(count=100)
        broker.fetch(300, follower(2))
        assert broker.fetch(0, follower(3))[0].size_bytes > 0, "the rate is not exceeded yet"
        held_back = broker.fetch(100, follower(3))[0]
        assert (held_back.error, held_back.size_bytes) == (0, 0)
        assert partition.remote[3].end.offset == 100
        waiting = broker.fetch(100, follower(3), max_wait_ms=60_000)
        assert waiting == [], "bytes that are held back do not count"
        assert broker.fetch(0, follower(2))[0].size_bytes > 0, "one in sync is never held back"
        assert broker.fetch(0, CONSUMER)[0].size_bytes > 0
        clock.pass_ms(60_000)
        assert broker.fetch(100, follower(3))[0].size_bytes > 0


@pytest.mark.spec("BRK-102")
def test_of_a_replica_that_is_held_back_in_one_partition_the_others_are_filled(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.manager.on_broker_config({"leader.replication.throttled.rate": "1"})
        for tp in (TP, TP1):
            broker.lead(tp, isr=(1,), replicas=(1, 3))
        broker.logs.update_topic_config("t", {"leader.replication.throttled.replicas": "0:1"})
        for tp in (TP, TP1):
            broker.produce(tp, count=100)
        assert broker.fetch(0, follower(3))[0].size_bytes > 0, "from now on the rate is exceeded"
        results: list[FetchResults] = []
        asked = [(tp, wanted(tp.partition, 0)) for tp in (TP, TP1)]
        broker.manager.fetches.fetch(
            asked, follower(3), max_wait_ms=0, min_bytes=1, max_bytes=10, on_done=results.append
        )
        sizes = [(tp.partition, read.size_bytes) for tp, read in results[0]]
        assert sizes == [(0, 0), (1, broker.partition(TP1).log.size_bytes)], "the first that is given comes whole"


@pytest.mark.spec("BRK-95")
def test_what_is_appended_while_the_log_is_read_is_not_in_the_positions_told(
    broker: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = broker.lead(isr=(1, 2))
    for _ in range(2):
        broker.produce()
    broker.fetch(1, follower(2))
    read = partition.log.read

    def slowly(*args: Any, **options: Any) -> LogRead:
        found = read(*args, **options)
        broker.produce()
        broker.fetch(3, follower(2))
        return found

    monkeypatch.setattr(partition.log, "read", slowly)
    told = broker.fetch(0, CONSUMER)[0]
    assert (told.high_watermark, told.leader_end) == (1, 2)
    assert (partition.high_watermark.offset, partition.log.log_end_offset) == (3, 3)


@pytest.mark.spec("BRK-95")
def test_a_followers_lag_goes_by_the_end_from_before_its_read(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = broker.lead(isr=(1, 2))
    for _ in range(2):
        broker.produce()
    read = partition.log.read

    def slowly(*args: Any, **options: Any) -> LogRead:
        found = read(*args, **options)
        broker.produce()
        return found

    monkeypatch.setattr(partition.log, "read", slowly)
    told = broker.fetch(0, follower(2))[0]
    assert (told.size_bytes, told.high_watermark, partition.log.log_end_offset) == (2 * BATCH_BYTES, 0, 3)
    assert partition.remote[2].leader_end_at_last_fetch == 2


@pytest.mark.spec("BRK-98")
def test_a_parked_fetch_ends_when_its_disk_fails(broker: World) -> None:
    broker.lead(isr=(1, 2))
    waiting = [broker.fetch(0, reader, max_wait_ms=60_000) for reader in (CONSUMER, follower(2))]
    assert waiting == [[], []]
    broker.fail_disk(broker.partition().log.directory.parent)
    assert [[read.error for read in told] for told in waiting] == [[56], [56]]


@pytest.mark.spec("BRK-98")
def test_a_new_segment_alone_ends_no_wait_at_the_logs_end(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce()
    waiting = broker.fetch(1, follower(2), max_wait_ms=60_000)
    partition.log.roll(1)
    assert partition.log.end.segment_base == 1
    broker.manager.delayed.fetches.check(TP)
    assert waiting == []
    broker.produce()
    assert waiting[0].size_bytes == BATCH_BYTES


@pytest.mark.spec("BRK-98", "BRK-102")
def test_a_new_segment_ends_no_wait_of_a_replica_that_is_held_back(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
        broker.logs.update_topic_config("t", {"leader.replication.throttled.replicas": "0:1"})
        broker.manager.on_broker_config({"leader.replication.throttled.rate": "1"})
        broker.produce(count=100)
        broker.fetch(100, follower(2))
        assert broker.fetch(0, follower(3))[0].size_bytes > 0, "from now on the rate is exceeded"
        waiting = broker.fetch(0, follower(3), max_wait_ms=60_000)
        consumer = broker.fetch(0, CONSUMER, max_wait_ms=60_000, min_bytes=1 << 20)
        partition.log.roll(100)
        broker.produce()
        broker.fetch(101, follower(2))
        assert waiting == []
        assert len(consumer) == 1, "the end it may read to lies in another segment"
        broker.manager.delayed.fetches.expire_all()
        assert [(read.error, read.size_bytes) for read in waiting] == [(0, 0)]


@pytest.mark.spec("BRK-99", "BRK-92", "TXN-63")
def test_a_parked_read_committed_fetch_waits_for_the_last_stable_offset(broker: World) -> None:
    log = broker.lead().log
    log.append_as_leader(batch(2, producer=(7, 0, 0), attributes=0x10), 0, origin_client=False, verification=UNVERIFIED)
    committed = broker.fetch(0, COMMITTED, max_wait_ms=60_000)
    broker.produce()
    assert (broker.partition().high_watermark.offset, log.last_stable_offset, committed) == (3, 0, [])
    assert broker.fetch(0, CONSUMER, max_wait_ms=60_000)[0].size_bytes > 0
    end = marker(commit=False, producer=(7, 0), base_offset=0)
    broker.manager.appends.append({TP: end}, acks=1, timeout_ms=1, internal=True, on_done=lambda _: None)
    assert log.last_stable_offset == 4
    assert committed[0].size_bytes == log.size_bytes
    assert [(a.producer_id, a.first_offset) for a in committed[0].aborted or ()] == [(7, 0)]


@pytest.mark.spec("BRK-99", "TXN-63", "TXN-40")
def test_a_parked_read_committed_fetch_is_woken_when_the_other_replicas_have_the_marker(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2))
    log = partition.log
    log.append_as_leader(batch(2, producer=(7, 0, 0), attributes=0x10), 0, origin_client=False, verification=UNVERIFIED)
    broker.fetch(2, follower(2))
    committed = broker.fetch(0, COMMITTED, max_wait_ms=60_000)
    end = marker(commit=True, producer=(7, 0), base_offset=0)
    broker.manager.appends.append({TP: end}, acks=1, timeout_ms=1, internal=True, on_done=lambda _: None)
    assert (partition.high_watermark.offset, log.last_stable_offset, committed) == (2, 0, [])
    broker.fetch(3, follower(2))  # no data came meanwhile, the marker alone
    assert (partition.high_watermark.offset, log.last_stable_offset) == (3, 3)
    assert committed[0].size_bytes == log.size_bytes


@pytest.mark.spec("BRK-101")
def test_a_followers_fetch_is_answered_after_it_has_moved_everything(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    acknowledged = broker.produce(acks=-1)
    broker.fetch(1, follower(2))
    acknowledged += broker.produce(acks=-1)
    seen: list[tuple[int, int, int, int]] = []

    def answered(_: FetchResults) -> None:
        jobs = len(broker.scheduler.jobs)
        seen.append((partition.remote[2].end.offset, partition.high_watermark.offset, len(acknowledged), jobs))

    def fetch(replica: int) -> None:
        broker.manager.fetches.fetch(
            [(TP, wanted(0, 2))], follower(replica), max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, on_done=answered
        )

    fetch(2)
    assert seen == [(2, 2, 1, 0)]
    fetch(3)
    assert seen[1][3] == 1, "the write that takes it into the ISR"
    broker.scheduler.run()
    assert partition.isr == (1, 2, 3)


@pytest.mark.spec("BRK-101")
def test_a_fetch_of_a_partition_dropped_meanwhile_is_told(
    broker: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = broker.lead(isr=(1, 2))
    read = partition.log.read

    def then_dropped(*args: Any, **options: Any) -> LogRead:
        broker.manager.partitions.remove(TP)
        return read(*args, **options)

    broker.produce()
    broker.produce()
    monkeypatch.setattr(partition.log, "read", then_dropped)
    assert broker.fetch(0, follower(2))[0].error == 0
    assert "While recording the replica LEO, the partition t-0 hasn't been created." in caplog.messages
