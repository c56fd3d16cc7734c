"""Positions of followers, and the high watermark that follows from them."""

from pathlib import Path

import pytest

from kafkatool.broker.replication.partition.replica import NEVER, RemoteReplica
from kafkatool.broker.storage.log.log_offset import LogOffset
from tests.broker.replication.world import CONSUMER, Clock, World, follower, world


@pytest.mark.spec("BRK-35", "BRK-36")
def test_the_leader_has_positions_of_the_other_replicas_only(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3))
    assert sorted(partition.remote) == [2, 3]
    assert {r.end.offset for r in partition.remote.values()} == {-1}
    with pytest.raises(AttributeError):
        partition.log.log_end_offset = 5  # type: ignore[misc]
    assert not hasattr(partition.remote[2], "high_watermark")


@pytest.mark.spec("BRK-38", "BRK-39")
def test_caught_up_is_when_it_had_the_leaders_end_of_this_or_of_the_previous_fetch() -> None:
    replica = RemoteReplica(2)
    replica.record_fetch(LogOffset(10), 10, 3, 1000)
    assert (replica.caught_up_ms, replica.log_start_offset) == (1000, 3)
    replica.record_fetch(LogOffset(10), 20, 3, 1100)
    assert replica.caught_up_ms == 1000, "has what the leader had at 1000, not at 1100"
    replica.record_fetch(LogOffset(20), 30, 3, 1200)
    assert replica.caught_up_ms == 1100
    replica.record_fetch(LogOffset(25), 40, 3, 1300)
    assert replica.caught_up_ms == 1100
    assert (replica.end, replica.leader_end_at_last_fetch, replica.last_fetch_ms) == (LogOffset(25), 40, 1300)


@pytest.mark.spec("BRK-40")
def test_a_failed_read_says_nothing_about_the_follower(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce(count=3)
    broker.fetch(3, follower(2))
    before = partition.remote[2].end
    assert broker.fetch(99, follower(2))[0].error == 1
    assert partition.remote[2].end == before


@pytest.mark.spec("BRK-41", "BRK-80")
def test_the_checkpointed_high_watermark_is_taken_up_within_the_log(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        broker.lead()
        broker.produce(count=4)
        assert broker.partition().high_watermark.offset == 4
    with world(tmp_path, clock=Clock()) as broker:
        assert (tmp_path / "logs/replication-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"
        assert broker.follow(epoch=1).high_watermark.offset == 4
    (tmp_path / "logs/replication-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    with world(tmp_path, clock=Clock()) as broker:
        assert broker.follow(epoch=1).high_watermark.offset == 4, "not above the log's end"


@pytest.mark.spec("BRK-46", "BRK-45")
def test_after_a_change_of_leader_it_stands_until_every_in_sync_replica_has_fetched(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3))
    broker.produce(count=2)
    assert partition.high_watermark.offset == 0
    broker.fetch(2, follower(2))
    assert partition.high_watermark.offset == 0
    broker.fetch(2, follower(3))
    assert partition.high_watermark == LogOffset(2, 0, partition.log.end.position)


@pytest.mark.spec("BRK-56")
def test_a_replica_about_to_join_holds_it_back(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.produce(count=2)
    broker.fetch(2, follower(3))  # at the end: caught up, and proposed for the ISR, which is not written yet
    broker.fetch(2, follower(2))
    assert partition.high_watermark.offset == 2
    broker.produce(count=1)
    broker.fetch(3, follower(2))
    assert partition.isr == (1, 2)
    assert partition.high_watermark.offset == 2, "3 is about to join and has not got the record"
    broker.fetch(3, follower(3))
    assert partition.high_watermark.offset == 3


@pytest.mark.spec("BRK-56", "BRK-57")
def test_a_replica_outside_the_isr_that_is_behind_does_not_hold_it_back(broker: World) -> None:
    partition = broker.lead(isr=(1, 2), replicas=(1, 2, 3))
    broker.produce(count=2)
    broker.fetch(2, follower(2))
    broker.produce(count=1)
    broker.fetch(0, follower(3))
    broker.fetch(3, follower(2))
    assert partition.high_watermark.offset == 3


@pytest.mark.spec("BRK-57")
def test_it_never_goes_down_and_compares_as_64_bit(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    broker.produce(count=5)
    broker.fetch(5, follower(2))
    assert partition.high_watermark.offset == 5
    broker.fetch(3, follower(2))
    assert partition.high_watermark.offset == 5
    far = 3_000_000_000
    partition.log.truncate_fully_and_start_at(far)  # offsets further apart than 32 bits tell
    assert partition.record_fetch(2, LogOffset(4, 0, 0), far, 0) == (False, None)
    assert partition.record_fetch(2, LogOffset(far, far, 0), far, 0) == (True, None)
    assert partition.high_watermark.offset == far


@pytest.mark.spec("BRK-37", "BRK-45")
def test_a_followers_high_watermark_gets_its_place_when_it_becomes_leader(broker: World) -> None:
    partition = broker.lead()
    broker.produce(count=3)
    broker.produce(count=3)
    broker.follow(epoch=1)
    partition.high_watermark = LogOffset(3)
    broker.lead(epoch=2, isr=(1, 2))
    assert partition.high_watermark.segment_base == 0
    assert partition.high_watermark.position == (partition.log.end.position or 0) // 2


@pytest.mark.spec("BRK-46")
def test_one_outside_the_log_becomes_the_log_start(broker: World) -> None:
    partition = broker.follow()
    partition.log.truncate_fully_and_start_at(40)
    partition.high_watermark = LogOffset(7)
    broker.lead(epoch=1, isr=(1, 2))
    assert partition.high_watermark.offset == 40


@pytest.mark.spec("BRK-45", "BRK-59")
def test_a_new_leader_notes_where_its_epoch_begins_even_if_it_writes_nothing(broker: World) -> None:
    partition = broker.lead(epoch=3)
    broker.produce(count=4)
    broker.lead(epoch=5)
    assert partition.log.leader_epochs.entries == [(3, 0), (5, 4)]
    assert partition.epoch_start == 4


@pytest.mark.spec("BRK-45")
def test_refreshing_a_leader_keeps_what_its_followers_reached(broker: World) -> None:
    partition = broker.lead(isr=(1, 2, 3))
    broker.produce(count=2)
    broker.fetch(2, follower(2))
    broker.lead(epoch=1, isr=(1, 2), replicas=(1, 2, 4), version=3)
    assert sorted(partition.remote) == [2, 4]
    assert partition.remote[2].end.offset == 2
    assert partition.remote[2].caught_up_ms == broker.clock.now_ms
    assert partition.remote[4].caught_up_ms == NEVER
    assert partition.high_watermark.offset == 2, "3 holds it back no longer"
    assert (partition.in_sync.version, partition.leader_epoch) == (3, 1)


@pytest.mark.spec("BRK-49", "BRK-99")
def test_the_leader_alone_in_sync_commits_with_its_own_append(broker: World) -> None:
    broker.lead(isr=(1,), replicas=(1, 2))
    waiting = broker.fetch(0, CONSUMER, max_wait_ms=60_000)
    assert waiting == []
    assert broker.produce(acks=-1)[0].error == 0
    assert waiting[0].size_bytes > 0
