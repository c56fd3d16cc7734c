"""Produce on the leader: what is refused, what is acknowledged, and when."""

import threading
from pathlib import Path

import pytest

from kafkatool.broker.replication.leading.delayed_produce import AppendResults
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.session import SessionState
from tests.broker.replication.world import CONSUMER, TP, Clock, World, follower, world
from tests.broker.runtime.timers import standing_still
from tests.broker.storage.batch_builders import batch

TP1 = TopicPartition("t", 1)


@pytest.mark.spec("BRK-82")
def test_other_acks_are_refused_for_every_partition_and_nothing_is_written(broker: World) -> None:
    partition = broker.lead()
    result = broker.produce(acks=2)[0]
    assert (result.error, result.base_offset, partition.log.log_end_offset) == (21, -1, 0)


@pytest.mark.spec("BRK-83")
def test_partitions_elsewhere_unknown_and_internal_are_told_apart(broker: World) -> None:
    assert broker.produce()[0].error == 3
    broker.know(TP)
    assert broker.produce()[0].error == 6
    offsets = TopicPartition("__consumer_offsets", 0)
    broker.lead(offsets)
    assert broker.produce(offsets)[0].error == 17
    assert broker.produce(offsets, allow_internal_topics=True)[0].error == 0
    assert broker.produce(offsets, internal=True)[0].error == 0


@pytest.mark.spec("BRK-48", "BRK-44")
def test_only_the_leader_takes_writes_and_only_acks_all_looks_at_the_isr(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock(), min_insync_replicas="2") as broker:
        partition = broker.lead(isr=(1,), replicas=(1, 2))
        assert broker.produce(acks=-1)[0].error == 19
        assert partition.log.log_end_offset == 0, "nothing written"
        assert broker.produce(acks=1)[0].error == 0
        assert broker.produce(acks=0)[0].error == 0
        broker.follow(epoch=1)
        assert not partition.is_leader
        assert broker.produce(acks=1)[0].error == 6


@pytest.mark.spec("BRK-86", "BRK-87", "BRK-84")
def test_partitions_succeed_or_fail_one_by_one(broker: World) -> None:
    broker.lead(TP)
    broker.lead(TP1)
    broker.produce(TP1, count=4)
    corrupt = batch()
    corrupt[-1] ^= 1
    results: list[AppendResults] = []
    entries = {TP: corrupt, TP1: batch(3)}
    broker.manager.appends.append(entries, acks=1, timeout_ms=1000, on_done=results.append)
    bad, good = results[0][TP], results[0][TP1]
    assert (bad.error, bad.base_offset, bad.log_start_offset) == (2, -1, -1)
    assert (good.error, good.base_offset, good.log_append_time_ms, good.log_start_offset) == (0, 4, -1, 0)


@pytest.mark.spec("BRK-58", "BRK-88", "BRK-90")
def test_acks_all_waits_for_every_in_sync_replica_and_the_last_fetch_answers_it(broker: World) -> None:
    broker.lead(isr=(1, 2, 3))
    produced = broker.produce(acks=-1, count=3)
    broker.fetch(3, follower(2))
    broker.fetch(2, follower(3))
    assert produced == []
    broker.fetch(3, follower(3))
    assert (produced[0].error, produced[0].base_offset) == (0, 0)


@pytest.mark.spec("BRK-58")
def test_an_isr_that_became_too_small_meanwhile_is_told_with_the_data_in_the_log(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock(), min_insync_replicas="2") as broker:
        partition = broker.lead(isr=(1, 2))
        produced = broker.produce(acks=-1)
        broker.clock.pass_ms(10_001)
        broker.manager.shrink_isrs()
        assert partition.isr == (1,)
        assert produced[0].error == 20
        assert partition.log.log_end_offset == 1


@pytest.mark.spec("BRK-88")
def test_without_anything_appended_the_answer_comes_at_once(broker: World) -> None:
    broker.know(TP)
    assert broker.produce(acks=-1)[0].error == 6


@pytest.mark.spec("BRK-89")
def test_settled_partitions_keep_their_result_when_the_time_is_out(broker: World) -> None:
    broker.lead(TP, isr=(1, 2))
    broker.lead(TP1, isr=(1, 2))
    done = threading.Event()
    results: list[AppendResults] = []

    def note(outcome: AppendResults) -> None:
        results.append(outcome)
        done.set()

    with standing_still():
        broker.manager.appends.append({TP: batch(), TP1: batch()}, acks=-1, timeout_ms=150, on_done=note)
        broker.fetch(1, follower(2), TP)
        assert results == []
    assert done.wait(60)
    assert (results[0][TP].error, results[0][TP].base_offset) == (0, 0)
    assert (results[0][TP1].error, results[0][TP1].base_offset) == (7, -1)
    assert broker.partition(TP1).log.log_end_offset == 1, "the data stays"


@pytest.mark.spec("BRK-49", "BRK-100")
def test_an_append_answers_followers_that_wait_and_no_consumer_before_the_high_watermark(broker: World) -> None:
    broker.lead(isr=(1, 2))
    of_follower = broker.fetch(0, follower(2), max_wait_ms=60_000)
    of_consumer = broker.fetch(0, CONSUMER, max_wait_ms=60_000)
    broker.produce()
    assert of_follower[0].size_bytes > 0
    assert of_consumer == []
    broker.fetch(1, follower(2))
    assert of_consumer[0].size_bytes > 0


@pytest.mark.spec("BRK-88", "BRK-91")
def test_a_repeated_idempotent_batch_waits_for_its_first_copy(broker: World) -> None:
    broker.lead(isr=(1, 2))
    outcomes: list[AppendResults] = []
    for _ in range(2):
        records = batch(2, producer=(77, 0, 0))
        broker.manager.appends.append({TP: records}, acks=-1, timeout_ms=60_000, on_done=outcomes.append)
    assert outcomes == []
    broker.fetch(2, follower(2))
    assert [(o[TP].error, o[TP].base_offset) for o in outcomes] == [(0, 0), (0, 0)]


@pytest.mark.spec("BRK-48")
@pytest.mark.parametrize("configured", [True, False])
def test_with_the_session_in_doubt_acks_all_is_refused_if_so_configured(tmp_path: Path, configured: bool) -> None:
    with world(tmp_path, clock=Clock(), kt_fence_on_zk_session_loss=str(configured).lower()) as broker:
        broker.lead()
        broker.zookeeper.memory.tell(SessionState.SUSPENDED)
        assert broker.produce(acks=-1)[0].error == (19 if configured else 0)
        assert broker.produce(acks=1)[0].error == 0
        broker.zookeeper.memory.tell(SessionState.CONNECTED)
        assert broker.produce(acks=-1)[0].error == 0
