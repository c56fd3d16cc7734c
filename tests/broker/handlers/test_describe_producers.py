"""DescribeProducers over a raw socket, of a real log."""

import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.yielding import yielding_gil
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log import log as log_module
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.producers.producer_state import ProducedBatch, ProducerEntry, ProducerState
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import describe_producers as api
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.network.raw_client import network_config
from tests.broker.replication.world import world
from tests.broker.storage.batch_builders import batch

TP = TopicPartition("t", 0)
ELSEWHERE = TopicPartition("t", 1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "data").mkdir()
    scheduler = Scheduler(1, "test")
    logs = LogManager(network_config(**{"log.dirs": str(tmp_path / "data")}), lambda _: {}, scheduler, "cluster")
    logs.load()
    yield logs.get_or_create(TP, is_new=True)
    scheduler.shutdown()
    logs.shutdown()


@pytest.fixture
def client(log: Log) -> Iterator[Client]:
    def find(partition: TopicPartition) -> Any:
        if partition == TP:
            return SimpleNamespace(log=log)
        return ErrorCode.NOT_LEADER_FOR_PARTITION if partition == ELSEWHERE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    manager = SimpleNamespace(partitions=SimpleNamespace(find=find))
    with broker_of({61: load_handlers()[61]}, handler_context(replica_manager=manager)) as made:
        yield made


def describe(client: Client, *partitions: TopicPartition) -> dict[TopicPartition, Any]:
    topics = [api.DescribeProducersTopic(topic=t, partitions=[p]) for t, p in partitions]
    answer = client.call(api.API, 0, api.DescribeProducersRequest(topics=topics))
    found = [(TopicPartition(t.topic, p.partition), p) for t in answer.topics for p in t.partitions]
    assert len(dict(found)) == len(found), "each once"
    return dict(found)


@pytest.mark.spec("ADM-81", "ADM-61", "TXN-92")
def test_each_producer_is_told_with_its_last_batch_and_its_open_transaction(log: Log, client: Client) -> None:
    assert describe(client, TP)[TP].active_producers == []
    log.append_as_leader(batch(3, producer=(9, 1, 0)), 0)
    log.append_as_leader(batch(2, producer=(9, 1, 3)), 0)
    log.append_as_leader(batch(1, producer=(7, 0, 0)), 0)
    entries = log.state.producers.entries
    entries[8] = ProducerEntry(4, coordinator_epoch=6, transaction_start=0)
    entries[10] = ProducerEntry(2)
    entries[10].batches += [ProducedBatch(9, 18, 0, 1000), ProducedBatch(11, 20, 0, 1234)]
    told = describe(client, TP, TP)[TP]
    assert (told.error_code, told.error_message) == (0, None)
    assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in told.active_producers] == [
        (7, 0, 0),
        (8, 4, -1),
        (9, 1, 4),
        (10, 2, 11),
    ]
    by_id = {p.producer_id: p for p in told.active_producers}
    assert (by_id[8].last_timestamp, by_id[8].coordinator_epoch, by_id[8].current_txn_start_offset) == (-1, 6, 0)
    assert (by_id[10].last_timestamp, by_id[10].coordinator_epoch, by_id[10].current_txn_start_offset) == (1234, -1, -1)


@pytest.mark.spec("ADM-81", "TXN-92")
def test_a_follower_may_be_asked(tmp_path: Path) -> None:
    with world(tmp_path) as broker:
        broker.follow().log.append_as_follower(memoryview(batch(producer=(9, 1, 0))))
        with broker_of({61: load_handlers()[61]}, handler_context(replica_manager=broker.manager)) as client:
            told = describe(client, TP)[TP]
    assert (told.error_code, [p.producer_id for p in told.active_producers]) == (0, [9])


@pytest.mark.spec("ADM-81", "ADM-61", "TXN-92")
def test_partitions_that_are_not_here_have_their_codes(client: Client) -> None:
    unknown = TopicPartition("gone", 0)
    told = describe(client, TP, ELSEWHERE, unknown)
    assert {p: d.error_code for p, d in told.items()} == {TP: 0, ELSEWHERE: 6, unknown: 3}
    assert not any(d.active_producers for d in told.values())


@pytest.mark.spec("ADM-81")
def test_a_hundred_thousand_producers_are_told_and_appends_come_through_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's lock is free between any two slices: an append that waits for it gets in before the last one."""
    count = 100_000
    slices: list[int] = []
    slices_cpu_s: list[float] = []
    paused: list[int] = []
    describe_some = ProducerState.describe

    def noting(self: ProducerState, producer_ids: Sequence[int]) -> Any:
        slices.append(len(producer_ids))
        began = time.thread_time()
        try:
            return describe_some(self, producer_ids)
        finally:
            slices_cpu_s.append(time.thread_time() - began)

    def pausing(starts: Iterable[int]) -> Iterator[int]:
        for start in yielding_gil(starts):
            yield start
            paused.append(start)

    monkeypatch.setattr(ProducerState, "describe", noting)
    monkeypatch.setattr(log_module, "yielding_gil", pausing)
    with log.state.lock:
        log.state.producers.entries.update((number, ProducerEntry(0)) for number in range(count))
    told = log.active_producers()
    first = next(told)
    appender = threading.Thread(target=lambda: log.append_as_leader(batch(1, producer=(count + 1, 0, 0)), 0))
    appender.start()
    appender.join()
    assert log.log_end_offset == 1
    assert [first.producer_id, *(p.producer_id for p in told)] == list(range(count))
    assert slices == [500] * (count // 500) and paused == list(range(0, count, 500))
    assert statistics.median(slices_cpu_s) < 0.02, "processor time, of its thread alone"
