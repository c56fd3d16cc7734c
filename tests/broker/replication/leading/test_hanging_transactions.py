"""A log with a transaction that nobody can end is freed; one that a coordinator may end is left alone."""

from pathlib import Path

import pytest

from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.partition_reads import Reader
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import TP, Clock, World, role, world
from tests.broker.storage.batch_builders import batch

READ_COMMITTED = Reader(-1, True)
TRANSACTIONS = TopicPartition("__transaction_state", 0)


def round_of(broker: World) -> None:
    run, period_ms = broker.scheduler.periodic["hanging-transactions"]
    assert period_ms == 600_000
    run()


def led_with_open_transactions(broker: World) -> Partition:
    """Have what an earlier version took from anyone: two transactions, and a record after them."""
    log = broker.lead().log
    for producer in [(7, 3, 0), (8, 0, 0)]:
        log.append_as_leader(
            batch(2, producer=producer, attributes=0x10), 0, origin_client=False, verification=UNVERIFIED
        )
    broker.know(TP)
    assert [r.error for r in broker.produce()] == [0]
    partition = broker.partition()
    assert (partition.high_watermark.offset, log.last_stable_offset) == (5, 0)
    return partition


@pytest.mark.spec("TXN-73", "BRK-102", "BRK-103")
def test_the_leader_aborts_what_nobody_can_end_in_the_second_round(broker: World) -> None:
    log = led_with_open_transactions(broker).log
    round_of(broker)
    assert (log.log_end_offset, log.last_stable_offset) == (5, 0), "seen for the first time"
    round_of(broker)
    assert (log.log_end_offset, log.last_stable_offset, log.open_transactions()) == (7, 7, [])
    (read,) = broker.fetch(0, READ_COMMITTED)
    assert read.error is ErrorCode.NONE and read.size_bytes > 0
    assert [(a.producer_id, a.first_offset) for a in read.aborted or ()] == [(7, 0), (8, 2)]
    round_of(broker)
    assert log.log_end_offset == 7, "once"
    assert [r.error for r in broker.produce()] == [0]
    assert log.last_stable_offset == 8


@pytest.mark.spec("TXN-73")
def test_where_a_coordinator_may_be_nothing_is_aborted(broker: World) -> None:
    log = led_with_open_transactions(broker).log
    broker.know(TP, TRANSACTIONS)
    for _ in range(3):
        round_of(broker)
    assert (log.log_end_offset, log.last_stable_offset) == (5, 0)


@pytest.mark.spec("TXN-73")
def test_only_the_leader_aborts_and_only_what_the_metadata_knows(broker: World) -> None:
    log = led_with_open_transactions(broker).log
    round_of(broker)
    broker.follow(epoch=1)
    round_of(broker)
    assert log.log_end_offset == 5
    broker.lead(epoch=2)
    round_of(broker)
    assert log.log_end_offset == 5, "seen anew"
    round_of(broker)
    assert log.log_end_offset == 7


@pytest.mark.spec("TXN-73")
def test_a_log_is_freed_after_a_restart_too_and_stays_free(tmp_path: Path) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        led_with_open_transactions(broker)
        broker.manager.shutdown()
        broker.logs.shutdown()
    for ends in (7, 7):
        with world(tmp_path, clock=Clock()) as broker:
            state = role(TP, 1, 1, [1], [1], is_new=False)
            assert [p.error_code for p in broker.leader_and_isr(state).partitions] == [0]
            broker.know(TP)
            for _ in range(2):
                round_of(broker)
            log = broker.partition().log
            assert (log.log_end_offset, log.last_stable_offset) == (ends, ends)
            broker.manager.shutdown()
            broker.logs.shutdown()


@pytest.mark.spec("TXN-73", "BRK-91")
def test_what_comes_by_replication_is_taken(broker: World) -> None:
    partition = broker.follow()
    sent = batch(2, producer=(7, 0, 0), attributes=0x10)
    partition.append_as_follower(memoryview(sent), 0, fetched_at=0, high_watermark=2, log_start_offset=0)
    assert (partition.log.log_end_offset, partition.log.last_stable_offset) == (2, 0)
