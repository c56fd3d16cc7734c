"""Fetch, ListOffsets and OffsetForLeaderEpoch over a socket."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.handlers.served import load_handlers
from kafkatool.core.protocol.messages import fetch, list_offsets, offset_for_leader_epoch
from kafkatool.core.protocol.messages.fetch import (
    AbortedTransaction,
    FetchRequest,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from kafkatool.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponsePartition,
)
from kafkatool.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from kafkatool.core.protocol.records.batches import decode_records
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import TP, Clock, World, follower, wanted, world
from tests.broker.storage.batch_builders import batch, marker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock()) as made:
        made.lead(epoch=2)
        yield made


@pytest.fixture
def client(broker: World) -> Iterator[Client]:
    handlers = {key: s for key, s in load_handlers().items() if key in (1, 2, 23)}
    context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache)
    with broker_of(handlers, context) as made:
        yield made


def ask(
    client: Client, version: int, offset: int, *, session: tuple[int, int] = (0, -1), **options: int
) -> FetchResponse:
    settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | options
    topics = [FetchRequestTopic(topic="t", partitions=[wanted(0, offset)])] if offset >= 0 else []
    message = FetchRequest(topics=topics, session_id=session[0], session_epoch=session[1], **settings)
    response: FetchResponse = client.call(fetch.API, version, message)
    return response


def only(response: FetchResponse) -> FetchResponsePartition:
    return response.topics[0].partitions[0]


@pytest.mark.spec("BRK-92", "BRK-94", "BRK-103", "BRK-104", "BRK-162")
@pytest.mark.parametrize("version", range(4, 12))
def test_records_come_back_as_they_lie_in_the_log(broker: World, client: Client, version: int) -> None:
    broker.produce(count=3)
    answer = only(ask(client, version, 0))
    assert [r.offset for r in decode_records(bytes(answer.records or b""))] == [0, 1, 2]  # type: ignore[arg-type]
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 3)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert (answer.aborted_transactions, answer.preferred_read_replica) == (None, -1)
    assert only(ask(client, version, 0, isolation_level=1)).aborted_transactions == []
    assert bytes(only(ask(client, version, 3)).records or b"!") == b"!"  # type: ignore[arg-type]


@pytest.mark.spec("BRK-103")
@pytest.mark.parametrize("version", [4, 11])
def test_a_read_committed_consumer_is_told_what_was_aborted_and_reads_below_open_transactions(
    broker: World, client: Client, version: int
) -> None:
    sent = (
        batch(2, base_offset=0, producer=(7, 0, 0), attributes=0x10)
        + marker(commit=False, producer=(7, 0), base_offset=2)
        + batch(2, base_offset=3, producer=(8, 0, 0), attributes=0x10)
    )
    broker.follow(epoch=3).log.append_as_follower(memoryview(sent))
    broker.lead(epoch=4)
    answer = only(ask(client, version, 1, isolation_level=1))
    assert answer.aborted_transactions == [AbortedTransaction(producer_id=7, first_offset=0)]
    assert (answer.high_watermark, answer.last_stable_offset) == (5, 3)
    assert bytes(answer.records or b"") == sent[: len(sent) - len(batch(2))]  # type: ignore[arg-type]
    assert only(ask(client, version, 1)).aborted_transactions is None


@pytest.mark.spec("BRK-158")
def test_a_failed_disk_is_told_in_words_the_client_knows(broker: World, client: Client) -> None:
    broker.logs.take_offline(broker.partition().log.directory.parent, OSError("gone"))
    broker.scheduler.run()
    assert only(ask(client, 5, 0)).error_code == 6
    assert only(ask(client, 6, 0)).error_code == 56


@pytest.mark.spec("BRK-104")
def test_a_topic_that_asks_for_zstd_is_not_for_old_clients(broker: World, client: Client) -> None:
    broker.logs.update_topic_config("t", {"compression.type": "zstd"})
    assert only(ask(client, 9, 0, max_wait_ms=60_000)).error_code == 76
    assert only(ask(client, 10, 0)).error_code == 0


@pytest.mark.spec("BRK-105")
def test_a_session_over_the_wire(broker: World, client: Client) -> None:
    full = ask(client, 11, 0, session=(0, 0))
    assert full.session_id > 0
    assert ask(client, 11, -1, session=(full.session_id, 1)).topics == []
    broker.produce()
    assert only(ask(client, 11, -1, session=(full.session_id, 2))).high_watermark == 1
    assert ask(client, 11, -1, session=(full.session_id, 9)).error_code == 71
    assert ask(client, 11, -1, session=(12345, 1)).error_code == 70


def offset_of(
    client: Client, version: int, timestamp: int, *, replica: int = -1, twice: bool = False
) -> ListOffsetsResponsePartition:
    partition = ListOffsetsRequestPartition(partition=0, timestamp=timestamp)
    topics = [ListOffsetsRequestTopic(topic="t", partitions=[partition] * (2 if twice else 1))]
    response = client.call(list_offsets.API, version, ListOffsetsRequest(replica_id=replica, topics=topics))
    found: ListOffsetsResponsePartition = response.topics[0].partitions[0]
    return found


@pytest.mark.spec("BRK-107", "BRK-162")
@pytest.mark.parametrize("version", range(1, 6))
def test_offsets_by_time(broker: World, client: Client, version: int) -> None:
    broker.lead(epoch=3, isr=(1, 2))
    broker.produce(count=3)
    broker.fetch(3, follower(2))
    broker.produce(count=2)
    epoch = 3 if version >= 4 else -1
    latest, of_replica = offset_of(client, version, -1), offset_of(client, version, -1, replica=2)
    assert (latest.offset, latest.leader_epoch, of_replica.offset) == (3, epoch, 5)
    assert (offset_of(client, version, -2).offset, latest.timestamp) == (0, -1)
    by_time = offset_of(client, version, 500)
    assert (by_time.offset, by_time.timestamp, by_time.leader_epoch) == (0, 1000, epoch)
    nothing = offset_of(client, version, 5000)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)
    assert offset_of(client, version, -1, twice=True).error_code == 42


@pytest.mark.spec("BRK-108")
def test_until_the_high_watermark_reaches_the_epoch_the_latest_offset_is_not_told(
    broker: World, client: Client
) -> None:
    broker.lead(epoch=3, isr=(1, 2))
    broker.produce(count=3)
    broker.lead(epoch=4, isr=(1, 2))
    assert offset_of(client, 5, -1).error_code == 78
    assert offset_of(client, 4, -1).error_code == 5
    assert offset_of(client, 5, 99_000).error_code == 78
    assert offset_of(client, 5, -2).offset == 0
    assert offset_of(client, 5, -1, replica=2).offset == 3
    broker.fetch(3, follower(2))
    assert offset_of(client, 5, -1).offset == 3


def epoch_end(client: Client, version: int, epoch: int, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
    wanted_epoch = OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    topics = [OffsetForLeaderEpochRequestTopic(topic=topic, partitions=[wanted_epoch])]
    response = client.call(offset_for_leader_epoch.API, version, OffsetForLeaderEpochRequest(topics=topics))
    answer = response.topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.spec("BRK-61", "BRK-62", "BRK-63", "BRK-162")
@pytest.mark.parametrize("version", range(4))
def test_where_an_epoch_ends(broker: World, client: Client, version: int) -> None:
    broker.produce(count=3)
    broker.lead(epoch=5)
    broker.produce(count=2)

    def named(epoch: int) -> int:
        return epoch if version >= 1 else -1

    assert epoch_end(client, version, -1) == (0, -1, -1)
    assert epoch_end(client, version, 5) == (0, named(5), 5)
    assert epoch_end(client, version, 6) == (0, -1, -1)
    assert epoch_end(client, version, 1) == (0, named(1), 0)
    assert epoch_end(client, version, 4) == (0, named(2), 3)
    if version >= 2:
        assert epoch_end(client, version, 5, current=4)[0] == 74
        assert epoch_end(client, version, 5, current=6)[0] == 75
    assert epoch_end(client, version, 5, topic="unknown")[0] == 3
    broker.follow(epoch=6)
    assert epoch_end(client, version, 5)[0] == 6
    assert TP in [p.tp for p in broker.manager.partitions.all()]
