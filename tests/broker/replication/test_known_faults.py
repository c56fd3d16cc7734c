"""Faults of Kafka of that era, played as they were reported; docs/known-faults.md lists the tests of all of them."""

import re
import threading
from pathlib import Path

import pytest

from kafkatool.broker.replication.partition.partition_reads import PartitionRead
from kafkatool.broker.storage.checkpoint import REPLICATION_OFFSETS
from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.following.test_following import FAST, follow, lead_alone, same, served
from tests.broker.replication.world import CONSUMER, TP, follower, wanted, world
from tests.broker.storage.batch_builders import batch
from tests.paths import ROOT
from tests.waiting import eventually

_NOBODY = 1  # a port where nobody listens


@pytest.mark.spec("BRK-66", "BRK-59")
def test_a_follower_that_restarts_one_high_watermark_behind_and_then_leads_keeps_acknowledged_records(
    tmp_path: Path,
) -> None:
    """KIP-101, first scenario: truncated to its old high watermark, with the leader gone, it lost them."""
    with world(tmp_path / "1", **FAST) as one, served(one) as port:
        one.lead(isr=(1, 2))
        with world(tmp_path / "2", broker_id=2, **FAST) as two:
            follow(two, port)
            answers = [one.produce(acks=-1) for _ in range(3)]
            eventually(lambda: all(answers) and same(one, two), "three acknowledged records")
        checkpoint = tmp_path / "2" / "logs" / REPLICATION_OFFSETS
        assert checkpoint.exists()
        checkpoint.write_text("0\n1\nt 0 1\n")
        with world(tmp_path / "2", broker_id=2, **FAST) as two:
            follow(two, _NOBODY)
            assert two.partition().high_watermark.offset == 1
            eventually(lambda: two.manager.fetchers.traffic() != {}, "it to ask")
            lead_alone(two, 1)
            assert two.partition().log.log_end_offset == 3
            assert two.partition().high_watermark.offset == 3, "alone in sync"


@pytest.mark.spec("BRK-66", "BRK-73")
def test_one_follower_out_of_range_neither_stops_nor_blocks_the_brokers_shutdown(tmp_path: Path) -> None:
    """KAFKA-7414, KAFKA-4039: it halted the process, or waited for itself while that was stopping."""
    with world(tmp_path / "1", **FAST) as one, served(one) as port:
        one.lead(isr=(1, 2))
        with world(tmp_path / "2", broker_id=2, **FAST) as two:
            lead_alone(two, 0)
            two.manager.appends.append({TP: batch(9)}, acks=1, timeout_ms=100, on_done=lambda _: None)
            one.lead(epoch=1, isr=(1, 2))
            follow(two, port, epoch=1)
            stopping = threading.Thread(target=two.manager.shutdown)
            stopping.start()
            stopping.join(60)
            assert not stopping.is_alive()


@pytest.mark.spec("BRK-101", "SEC-51")
def test_a_sender_that_is_no_replica_of_one_partition_gets_the_others(tmp_path: Path) -> None:
    """KAFKA-5758: the whole request failed, and with it the replication of all its partitions."""
    other = TopicPartition("other", 0)
    with world(tmp_path) as broker:
        broker.lead(isr=(1,), replicas=(1,))
        broker.lead(other, isr=(1, 2))
        for partition in (TP, other):
            broker.produce(partition)
        answers: dict[TopicPartition, PartitionRead] = {}
        broker.manager.fetches.fetch(
            [(TP, wanted(0, 0)), (other, wanted(0, 0))],
            follower(2),
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            on_done=answers.update,
        )
        assert [(answers[p].error, answers[p].size_bytes > 0) for p in (TP, other)] == [(0, False), (0, True)]


@pytest.mark.spec("BRK-41", "BRK-45")
def test_no_reader_ever_sees_a_high_watermark_that_is_not_there(tmp_path: Path) -> None:
    """KAFKA-5745, KAFKA-3978: during a change of role it was negative, or had no place in the log yet."""
    with world(tmp_path) as broker:
        broker.lead()
        broker.produce(count=5)
        over = threading.Event()
        reads: list[PartitionRead] = []

        def read() -> None:
            while not over.is_set():
                reads.extend(broker.fetch(0, CONSUMER))

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for epoch in range(1, 60, 2):
                broker.follow(epoch=epoch)
                broker.lead(epoch=epoch + 1)
            eventually(lambda: any(r.error == 0 for r in reads), "a read that works")
        finally:
            over.set()
            for reader in readers:
                reader.join()
        assert {r.error for r in reads} <= {0, 6}
        assert {r.high_watermark for r in reads if r.error == 0} == {5}


def test_the_page_of_known_faults_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "known-faults.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 40
    for path, test in named:
        assert f"def {test}(" in (ROOT / "tests" / path).read_text(), f"{path}::{test}"
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| Fault (")]
    assert len(rows) == 33 and all("::" in row for row in rows)
