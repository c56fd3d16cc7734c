"""Requests that wait for other brokers wait no longer than an idle connection lives, whatever the client asks for."""

from threading import RLock
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.administration.waiting_topics import TopicPurgatory
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.fetch_sessions import FetchSessions
from kafkatool.broker.runtime.purgatory import Purgatory
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.protocol.messages import create_partitions, create_topics, delete_records, delete_topics
from kafkatool.core.protocol.messages import fetch as fetch_api
from kafkatool.core.protocol.messages import produce as produce_api
from tests.broker.handlers.served import broker_of, handler_context, live, state, update
from tests.broker.network.raw_client import network_config

FOR_WEEKS = 2**31 - 1
TIMED_OUT = 7

_GROWTH = create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)
_RECORDS = delete_records.DeleteRecordsTopic(
    name="t", partitions=[delete_records.DeleteRecordsPartition(partition=0, offset=3)]
)
REQUESTS: dict[Any, Any] = {
    create_topics: create_topics.CreateTopicsRequest(
        topics=[create_topics.CreateTopicsTopic(name="new")], timeout_ms=FOR_WEEKS
    ),
    delete_topics: delete_topics.DeleteTopicsRequest(topic_names=["t"], timeout_ms=FOR_WEEKS),
    create_partitions: create_partitions.CreatePartitionsRequest(topics=[_GROWTH], timeout_ms=FOR_WEEKS),
    delete_records: delete_records.DeleteRecordsRequest(topics=[_RECORDS], timeout_ms=FOR_WEEKS),
}


def lagging() -> Any:
    """Make a partition led here, whose follower never drops a record."""
    log = SimpleNamespace(
        config=SimpleNamespace(cleanup_policy={"delete"}), log_start_offset=3, advance_log_start=lambda offset: None
    )
    follower = SimpleNamespace(log_start_offset=0)
    high_watermark = SimpleNamespace(offset=5)
    return SimpleNamespace(lock=RLock(), leader_log=log, high_watermark=high_watermark, remote={2: follower})


@pytest.mark.spec("BRK-18")
@pytest.mark.parametrize("asked", REQUESTS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_client_that_would_wait_for_weeks_is_answered(asked: Any) -> None:
    cache, timer = MetadataCache(1), Timer("waits")
    cache.update(update(state("t", 0, 1, [1, 2]), brokers=[live(1), live(2)]))

    def does_nothing(*_: object, **__: object) -> None:
        """Nor does anybody else: the wait has no end of its own."""

    admin: Any = SimpleNamespace(
        create=lambda *_, **__: SimpleNamespace(partitions=1, replication_factor=1),
        delete=does_nothing,
        grow=does_nothing,
        existing=frozenset,  # all that are named
        waiting=TopicPurgatory(cache, timer),
    )
    manager: Any = SimpleNamespace(
        partitions=SimpleNamespace(leader=lambda _: lagging()),
        delayed=SimpleNamespace(deletions=Purgatory(timer), fetches=SimpleNamespace(check=does_nothing)),
    )
    logs: Any = SimpleNamespace(write_log_starts=lambda: None)
    controller: Any = SimpleNamespace(is_active=True)
    context = handler_context(
        config=network_config(connections_max_idle_ms="80", delete_topic_enable="true"),
        metadata_cache=cache,
        topic_admin=admin,
        replica_manager=manager,
        log_manager=logs,
        controller=controller,
    )
    key = asked.API.key
    with broker_of({key: load_handlers()[key]}, context) as client:
        assert f"error_code={TIMED_OUT!r}" in repr(client.call(asked.API, 1, REQUESTS[asked]))
    timer.close()


@pytest.mark.spec("BRK-18", "BRK-89", "BRK-97")
@pytest.mark.parametrize(
    ("asked_ms", "waits_ms"), [(1000, 1000), (60_000, 60_000), (60_001, 60_000), (FOR_WEEKS, 60_000)]
)
def test_a_produce_and_a_fetch_wait_as_asked_but_no_longer_than_three_quarters_of_an_idle_connections_life(
    asked_ms: int, waits_ms: int
) -> None:
    waits: list[float] = []

    def append(entries: Any, *, timeout_ms: float, on_done: Any, **_: object) -> None:
        waits.append(timeout_ms)
        on_done({})

    def fetch(entries: Any, reader: object, *, max_wait_ms: float, on_done: Any, **_: object) -> None:
        waits.append(max_wait_ms)
        on_done([])

    manager: Any = SimpleNamespace(
        appends=SimpleNamespace(append=append),
        fetches=SimpleNamespace(fetch=fetch),
        fetch_sessions=FetchSessions(0, lambda: 0.0),
    )
    context = handler_context(config=network_config(connections_max_idle_ms="80000"), replica_manager=manager)
    produced = produce_api.ProduceRequest(acks=-1, timeout_ms=asked_ms, topics=[])
    fetched = fetch_api.FetchRequest(max_wait_ms=asked_ms, min_bytes=1, max_bytes=1, topics=[])
    with broker_of({key: load_handlers()[key] for key in (0, 1)}, context) as client:
        client.call(produce_api.API, 8, produced)
        client.call(fetch_api.API, 11, fetched)
    assert waits == [waits_ms, waits_ms]
