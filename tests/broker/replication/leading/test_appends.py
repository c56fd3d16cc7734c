"""Produce on the leader: what is refused, what is acknowledged, and when."""

import threading
from collections.abc import Callable, Hashable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.replication.leading.delayed_produce import AppendResult, AppendResults, DelayedProduce
from kafkatool.broker.runtime.purgatory import DelayedOperation
from kafkatool.broker.runtime.timer import Timer, TimerTask
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.zookeeper.session import SessionState
from tests.broker.replication.world import CONSUMER, TP, Clock, World, follower, role, world
from tests.broker.runtime.timers import standing_still
from tests.broker.storage.batch_builders import batch

TP1 = TopicPartition("t", 1)


@pytest.mark.spec("BRK-82")
@pytest.mark.parametrize("acks", [2, 3, -2, 32767, -32768])
def test_other_acks_are_refused_for_every_partition_and_nothing_is_written(broker: World, acks: int) -> None:
    led = [broker.lead(TP), broker.lead(TP1)]
    entries = {TP: batch(), TP1: batch(), TopicPartition("unknown", 0): batch()}
    results: list[AppendResults] = []
    broker.manager.appends.append(entries, acks=acks, timeout_ms=1000, on_done=results.append)
    assert {tp: (r.error, r.base_offset) for tp, r in results[0].items()} == dict.fromkeys(entries, (21, -1))
    assert [partition.log.log_end_offset for partition in led] == [0, 0]


@pytest.mark.spec("BRK-83")
def test_partitions_elsewhere_unknown_and_internal_are_told_apart(broker: World) -> None:
    assert broker.produce()[0].error == 3
    broker.know(TP)
    assert broker.produce()[0].error == 6
    for topic in ("__consumer_offsets", "__transaction_state"):
        internal = TopicPartition(topic, 0)
        broker.lead(internal)
        assert broker.produce(internal)[0].error == 17
        assert broker.partition(internal).log.log_end_offset == 0
        assert broker.produce(internal, allow_internal_topics=True)[0].error == 0
        assert broker.produce(internal, internal=True)[0].error == 0


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
        assert [broker.produce(acks=acks)[0].error for acks in (0, 1, -1)] == [6] * 3


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


@pytest.mark.spec("BRK-86", "BRK-91")
@pytest.mark.parametrize(
    ("refused", "code", "log_start"),
    [
        (batch(producer=(7, 0, 5)), ErrorCode.UNKNOWN_PRODUCER_ID, 2),  # a Java producer resets its sequence only then
        (batch(producer=(8, 0, 5)), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2),
        (batch(value=bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE, -1),
    ],
)
def test_a_batch_that_is_refused_is_told_the_log_start_where_kafka_tells_it(
    broker: World, refused: bytearray, code: ErrorCode, log_start: int
) -> None:
    partition = broker.lead()
    broker.produce(count=3)
    broker.produce(records=batch(producer=(8, 0, 0)))
    partition.log.advance_log_start(2)
    result = broker.produce(records=refused)[0]
    assert (result.error, result.base_offset, result.log_start_offset) == (code, -1, log_start)


@pytest.mark.spec("BRK-58", "BRK-88", "BRK-90")
def test_acks_all_waits_for_every_in_sync_replica_and_the_last_fetch_answers_it(broker: World) -> None:
    broker.lead(isr=(1, 2, 3))
    produced = broker.produce(acks=-1, count=3)
    broker.fetch(3, follower(2))
    broker.fetch(2, follower(3))
    assert produced == []
    broker.fetch(3, follower(3))
    assert (produced[0].error, produced[0].base_offset) == (0, 0)


@pytest.mark.spec("BRK-58", "BRK-89")
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


class Probe(DelayedOperation):
    """Notes for which partition what waits is tried."""

    def __init__(self) -> None:
        super().__init__(60_000)
        self.tried: list[Hashable] = []

    def try_complete(self, key: Hashable | None = None) -> bool:
        if key is not None:
            self.tried.append(key)
        return False

    def on_complete(self) -> None: ...


@pytest.mark.spec("BRK-90")
def test_whatever_raises_the_high_watermark_has_the_produces_of_that_partition_tried(broker: World) -> None:
    for tp in (TP, TP1):
        broker.lead(tp, replicas=(1, 2))
    waiting = Probe()
    broker.manager.delayed.produces.watch(waiting, [TP, TP1])
    broker.produce(TP1)
    assert waiting.tried == [TP1], "the leader, alone in sync, appended"
    broker.lead(TP, epoch=1, isr=(1, 2))
    waiting.tried.clear()
    broker.produce(TP)
    assert waiting.tried == [], "an append that raises nothing"
    broker.fetch(0, follower(2), TP)
    assert waiting.tried == [], "nor does this fetch"
    broker.fetch(1, follower(2), TP)
    assert waiting.tried == [TP], "a follower's fetch"
    waiting.complete()


@pytest.mark.spec("BRK-89")
@pytest.mark.parametrize(
    ("acknowledged", "told"), [((False, 0), []), ((False, 6), [6]), ((True, 0), [0]), ((True, 20), [20])]
)
def test_a_partition_is_settled_when_there_are_enough_and_when_there_cannot_be(
    acknowledged: tuple[bool, int], told: list[int]
) -> None:
    enough, code = acknowledged
    partition: Any = SimpleNamespace(acknowledged=lambda *_: (enough, ErrorCode(code)))
    results = {TP: AppendResult(base_offset=3, next_offset=4)}
    answers: list[int] = []
    produce = DelayedProduce(1000, lambda _: partition, results, lambda r: answers.append(r[TP].error))
    assert produce.try_complete() is bool(told)
    assert answers == told


@pytest.mark.spec("BRK-58", "BRK-89")
def test_what_was_appended_before_another_led_is_not_acknowledged_by_the_next_term(broker: World) -> None:
    """The next leader may have cut it off, and others have written there since; it is told late as its other partition."""
    partition = broker.lead(isr=(1, 2))
    told = broker.produce(acks=-1, count=3)
    partition.make_follower(role(TP, 2, 1, [2], [1, 2]))  # nothing is tried meanwhile
    partition.make_leader(role(TP, 1, 2, [1, 2], [1, 2], 2))
    assert told == []
    broker.fetch(3, follower(2), epoch=2)
    assert partition.high_watermark.offset == 3 and [one.error for one in told] == [6]


@pytest.mark.spec("BRK-89")
def test_a_produce_waits_for_as_long_as_it_is_told(broker: World, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    add = Timer.add

    def noted(timer: Timer, delay_ms: float, task: Callable[[], None]) -> TimerTask:
        delays.append(delay_ms)
        return add(timer, delay_ms, task)

    monkeypatch.setattr(Timer, "add", noted)
    broker.lead(isr=(1, 2))
    assert broker.produce(acks=-1, timeout_ms=12_345) == []
    assert delays == [12_345]


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


@pytest.mark.spec("BRK-49", "BRK-99", "BRK-100")
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


@pytest.mark.spec("BRK-87")
def test_acks_1_is_answered_when_only_the_leader_has_it(broker: World) -> None:
    partition = broker.lead(isr=(1, 2))
    assert [(r.error, r.base_offset) for r in broker.produce(acks=1, count=2)] == [(0, 0)]
    assert (partition.log.log_end_offset, partition.high_watermark.offset) == (2, 0)


@pytest.mark.spec("BRK-88", "BRK-89", "BRK-86")
def test_acks_all_waits_for_what_was_appended_beside_what_was_refused(broker: World) -> None:
    broker.lead(TP, isr=(1, 2))
    broker.lead(TP1, isr=(1, 2))
    corrupt = batch()
    corrupt[-1] ^= 1
    results: list[AppendResults] = []
    broker.manager.appends.append({TP: corrupt, TP1: batch(2)}, acks=-1, timeout_ms=60_000, on_done=results.append)
    assert results == [], "one was appended"
    broker.fetch(1, follower(2), TP1)
    assert results == []
    broker.fetch(2, follower(2), TP1)
    assert [(r.error, r.base_offset) for r in results[0].values()] == [(2, -1), (0, 0)]


@pytest.mark.spec("BRK-89")
@pytest.mark.parametrize("delete", [False, True])
def test_a_settled_partition_keeps_its_result_though_its_replica_is_stopped_before_the_others_are_settled(
    broker: World, delete: bool
) -> None:
    broker.lead(TP, isr=(1, 2))
    broker.lead(TP1, isr=(1, 2))
    results: list[AppendResults] = []
    entries = {TP: batch(), TP1: batch()}
    broker.manager.appends.append(entries, acks=-1, timeout_ms=60_000, on_done=results.append)
    broker.fetch(1, follower(2), TP)
    request = StopReplicaRequest(
        controller_id=9, controller_epoch=1, broker_epoch=-1, delete_partitions=delete, partitions=[TP]
    )
    broker.manager.control.stop_replicas(request)
    assert results == []
    broker.fetch(1, follower(2), TP1)
    assert [(r.error, r.base_offset) for r in results[0].values()] == [(0, 0), (0, 0)]


@pytest.mark.spec("BRK-89", "BRK-90")
@pytest.mark.parametrize(("known", "code"), [(True, 6), (False, 3)])
def test_a_produce_whose_partition_is_deleted_is_told_whether_its_topic_is_still_there(
    broker: World, known: bool, code: int
) -> None:
    broker.lead(TP, isr=(1, 2))
    broker.lead(TP1, isr=(1, 2))
    if known:
        broker.know(TP)
    results: list[AppendResults] = []
    entries = {TP: batch(), TP1: batch()}
    broker.manager.appends.append(entries, acks=-1, timeout_ms=60_000, on_done=results.append)
    request = StopReplicaRequest(
        controller_id=9, controller_epoch=1, broker_epoch=-1, delete_partitions=True, partitions=[TP]
    )
    broker.manager.control.stop_replicas(request)
    assert results == [], "the other one is not settled"
    broker.fetch(1, follower(2), TP1)
    assert [(r.error, r.base_offset) for r in results[0].values()] == [(code, -1), (0, 0)]
