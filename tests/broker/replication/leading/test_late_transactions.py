"""A partition whose oldest transaction is open for longer than any may be is told of."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkatool.broker.replication.leading.late_transactions import LateTransactions
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.broker.transactions.marker_writes import Codes, MarkerWrite, MarkerWrites
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.world import TP, Clock, world
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.log.test_kafkas_transactions import DATA_PARTITIONS, Left

LONGEST_MS = 900_000 + 300_000
HOUR_MS = 3_600_000
_TRANSACTIONAL = 0x10


@pytest.mark.spec("TXN-70")
def test_a_partition_is_late_by_its_oldest_transaction_and_told_of_once_an_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    clock.now_ms = written_ms = time.time() * 1000 // 1
    with world(tmp_path) as broker:
        log = broker.lead().log
        broker.know(TP)
        rounds = LateTransactions(broker.manager.partitions, broker.config.transaction_max_timeout_ms, clock)

        def lines() -> list[str]:
            caplog.clear()
            rounds.run()
            return [r.message for r in caplog.records]

        for offset, producer in enumerate([(7, 3, 0), (8, 0, 0)]):
            log.append_as_leader(
                batch(producer=producer, attributes=_TRANSACTIONAL, timestamp=int(written_ms) + offset),
                0,
                origin_client=False,
                verification=UNVERIFIED,
            )
        clock.now_ms = written_ms + LONGEST_MS
        assert (lines(), rounds.partitions) == ([], ())
        clock.pass_ms(1)
        (line,) = lines()
        assert rounds.partitions == (TP,)
        assert str(TP) in line and "producer 7 epoch 3 from offset 0" in line
        clock.pass_ms(HOUR_MS - 1)
        assert (lines(), rounds.partitions) == ([], (TP,))
        clock.pass_ms(1)
        assert len(lines()) == 1
        for producer_id, epoch in ((7, 3), (8, 0)):
            log.append_as_leader(encode_marker(producer_id, epoch, Marker(False, 0), 1), 0, origin_client=False)
        assert (lines(), rounds.partitions) == ([], ())


@pytest.mark.spec("TXN-70")
def test_of_several_batches_of_a_transaction_the_last_counts(tmp_path: Path) -> None:
    clock = Clock()
    clock.now_ms = written_ms = time.time() * 1000 // 1
    with world(tmp_path) as broker:
        log = broker.lead().log
        rounds = LateTransactions(broker.manager.partitions, broker.config.transaction_max_timeout_ms, clock)
        for number in range(2):
            log.append_as_leader(
                batch(producer=(7, 3, number), attributes=_TRANSACTIONAL, timestamp=int(written_ms) + 5000 * number),
                0,
                origin_client=False,
                verification=UNVERIFIED,
            )
        for now_ms, late in ((LONGEST_MS + 5000, ()), (LONGEST_MS + 5001, (TP,))):
            clock.now_ms = written_ms + now_ms
            rounds.run()
            assert rounds.partitions == late


@pytest.mark.spec("TXN-70")
def test_the_rounds_run_every_minute_and_only_of_what_is_led_here(tmp_path: Path) -> None:
    with world(tmp_path, transaction_max_timeout_ms="1") as broker:
        log = broker.lead().log
        log.append_as_leader(
            batch(producer=(7, 3, 0), attributes=_TRANSACTIONAL, timestamp=1),
            0,
            origin_client=False,
            verification=UNVERIFIED,
        )
        run, period_ms = broker.scheduler.periodic["late-transactions"]
        assert period_ms == 60_000
        run()
        assert broker.manager.late_transactions.partitions == (TP,)
        broker.follow(epoch=1)
        run()
        assert broker.manager.late_transactions.partitions == ()


@pytest.mark.spec("TXN-106", "TXN-70", "TXN-92", "TXN-59")
@pytest.mark.parametrize(
    ("left", "hanging"), [("2.8.2-killed", ("in-1", "small-0")), ("3.9.1-stopped", ("in-0", "small-0"))]
)
def test_what_hangs_in_a_log_of_kafkas_is_told_of_and_ended_by_a_marker(
    tmp_path: Path, left: str, hanging: tuple[str, ...]
) -> None:
    Left(left, tmp_path / "logs")
    clock = Clock()
    clock.now_ms = time.time() * 1000 + LONGEST_MS  # the logs were written before this test
    with world(tmp_path) as broker:
        partitions = [broker.lead(_place(name)) for name in DATA_PARTITIONS]
        rounds = LateTransactions(broker.manager.partitions, broker.config.transaction_max_timeout_ms, clock)
        rounds.run()
        assert set(rounds.partitions) == set(map(_place, hanging))
        writes = MarkerWrites(broker.config, broker.manager, lambda _: None)
        outcomes: list[Sequence[Codes]] = []
        for partition in partitions:
            for producer in partition.log.active_producers():
                if producer.transaction_start >= 0:
                    assert partition.log.last_stable_offset == producer.transaction_start
                    identity = Identity(producer.producer_id, producer.epoch)
                    aborted = Marker(committed=False, coordinator_epoch=max(0, producer.coordinator_epoch))
                    writes.write([MarkerWrite(identity, aborted, [partition.tp])], outcomes.append)
        assert outcomes == [[{_place(name): 0}] for name in hanging]
        assert all(p.log.last_stable_offset == p.log.log_end_offset for p in partitions)
        rounds.run()
        assert rounds.partitions == ()


def _place(directory: str) -> TopicPartition:
    topic, _, number = directory.rpartition("-")
    return TopicPartition(topic, int(number))
