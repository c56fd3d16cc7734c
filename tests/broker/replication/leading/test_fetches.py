"""Fetch: who reads how far, limits, and when a parked fetch is answered."""

import threading
from pathlib import Path

import pytest

from kafkatool.broker.replication.leading.fetch_session import FetchResults
from kafkatool.broker.replication.partition.partition_reads import Reader
from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.world import CONSUMER, TP, Clock, World, follower, wanted, world
from tests.broker.storage.batch_builders import batch

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
    assert broker.fetch(0, CONSUMER)[0].error == 6
    assert broker.fetch(0, follower(2))[0].error == 6
    assert broker.fetch(0, DEBUGGER)[0].size_bytes > 0
    failed = broker.fetch(0, CONSUMER)[0]
    assert (failed.high_watermark, failed.last_stable_offset, failed.log_start_offset, failed.records) == (
        -1,
        -1,
        -1,
        b"",
    )
    assert broker.fetch(0, CONSUMER, TP1)[0].error == 3
    broker.know(TP1)
    assert broker.fetch(0, CONSUMER, TP1)[0].error == 6
    assert broker.fetch(0, DEBUGGER, TP1)[0].error == 9


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


@pytest.mark.spec("BRK-63")
def test_the_leader_epoch_is_checked_before_leadership(broker: World) -> None:
    broker.lead(epoch=5)
    assert broker.fetch(0, epoch=4)[0].error == 74
    assert broker.fetch(0, epoch=6)[0].error == 75
    assert broker.fetch(0, epoch=5)[0].error == 0
    broker.follow(epoch=6)
    assert broker.fetch(0, epoch=5)[0].error == 74
    assert broker.fetch(0, epoch=6)[0].error == 6


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


@pytest.mark.spec("BRK-97")
def test_no_wait_without_wait_time_partitions_or_need(broker: World) -> None:
    broker.lead()
    assert len(broker.fetch(0, max_wait_ms=0)) == 1
    assert len(broker.fetch(9, max_wait_ms=60_000)) == 1, "an error is told at once"
    assert len(broker.fetch(0, max_wait_ms=60_000, min_bytes=0)) == 1
    nothing: list[FetchResults] = []
    broker.manager.fetches.fetch([], CONSUMER, max_wait_ms=60_000, min_bytes=1, max_bytes=1, on_done=nothing.append)
    assert nothing == [[]]


@pytest.mark.spec("BRK-97", "BRK-99")
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
