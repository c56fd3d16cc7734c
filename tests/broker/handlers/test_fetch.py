"""Fetch, ListOffsets and OffsetForLeaderEpoch over a socket."""

import gc
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.replication.leading.conversions import Converted
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import fetch, list_offsets, offset_for_leader_epoch
from kafkatool.core.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEnd,
    FetchRequest,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    LeaderIdAndEpoch,
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
from kafkatool.core.protocol.records.batches import Record, check_crc, decode_records, encode_batch, iter_batches
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.legacy import LegacyEntry, parse_entries, read_entries
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import TP, Clock, World, follower, wanted, world
from tests.broker.storage.batch_builders import batch, entry, marker
from tests.broker.storage.logs import broker_config, everything
from tests.waiting import eventually


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
@pytest.mark.parametrize("version", range(4, 13))
def test_records_come_back_as_they_lie_in_the_log(broker: World, client: Client, version: int) -> None:
    broker.produce(count=3)
    answer = only(ask(client, version, 0))
    assert [r.offset for r in decode_records(bytes(answer.records or b""))] == [0, 1, 2]  # type: ignore[arg-type]
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 3)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert (answer.aborted_transactions, answer.preferred_read_replica) == (None, -1)
    assert only(ask(client, version, 0, isolation_level=1)).aborted_transactions == []
    assert bytes(only(ask(client, version, 3)).records or b"!") == b"!"  # type: ignore[arg-type]


@pytest.mark.spec("BRK-103", "TXN-65", "TXN-63")
@pytest.mark.parametrize("version", range(4, 13))
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
    assert [only(ask(client, version, 0)).error_code for version in range(13)] == [*[6] * 6, *[56] * 7]


@pytest.mark.spec("BRK-93")
@pytest.mark.parametrize("version", range(4, 13))
def test_what_cannot_be_read_has_its_code_and_neither_positions_nor_records(
    broker: World, client: Client, version: int
) -> None:
    def told(topic: str, *, replica: int = -1, offset: int = 0) -> tuple[int, int, int, int, bytes]:
        topics = [FetchRequestTopic(topic=topic, partitions=[wanted(0, offset)])]
        message = FetchRequest(replica_id=replica, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
        found = only(client.call(fetch.API, version, message))
        records = bytes(found.records or b"")  # type: ignore[arg-type]
        return found.error_code, found.high_watermark, found.last_stable_offset, found.log_start_offset, records

    broker.produce()
    nothing = (-1, -1, -1, b"")
    assert told("t", offset=99) == (1, *nothing)
    assert told("u") == (3, *nothing)
    broker.know(TopicPartition("u", 0))
    assert told("u") == (6, *nothing)
    assert told("u", replica=-2) == (9, *nothing)


@pytest.mark.spec("BRK-104")
def test_a_topic_that_asks_for_zstd_is_not_for_old_clients(broker: World, client: Client) -> None:
    broker.logs.update_topic_config("t", {"compression.type": "zstd"})
    for version in range(4, 10):
        assert only(ask(client, version, 0, max_wait_ms=60_000)).error_code == 76
    for version in (10, 11, 12):
        assert only(ask(client, version, 0)).error_code == 0


@pytest.mark.spec("BRK-104")
@pytest.mark.parametrize(("version", "code"), [(4, 76), (9, 76), (10, 0)])
def test_the_other_topics_of_that_request_are_read(broker: World, client: Client, version: int, code: int) -> None:
    broker.lead(TopicPartition("u", 0))
    for name in "tu":
        broker.produce(TopicPartition(name, 0))
    broker.logs.update_topic_config("t", {"compression.type": "zstd"})
    topics = [FetchRequestTopic(topic=name, partitions=[wanted(0, 0)]) for name in "tu"]
    message = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
    response: FetchResponse = client.call(fetch.API, version, message)
    told = {t.topic: (p.error_code, len(p.records or b"")) for t in response.topics for p in t.partitions}
    assert told == {"t": (code, 0 if code else len(batch())), "u": (0, len(batch()))}


@pytest.mark.spec("BRK-104")
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", range(4, 13))
def test_zstd_batches_of_other_topics_and_old_formats_go_out_as_they_lie(
    broker: World, client: Client, version: int, magic: int
) -> None:
    log = broker.partition().log
    log.append_as_leader(encode_batch([Record(0, 1000, b"k", b"v" * 99)], codec=4), 2)
    body = bytes([magic, 0]) + bytes(8 * magic) + b"\xff" * 4 + (1).to_bytes(4, "big") + b"v"
    old = (1).to_bytes(8, "big") + (4 + len(body)).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    log.append_as_follower(memoryview(old))
    broker.lead(epoch=3)
    stored = everything(log)
    assert stored.endswith(old)
    answer = only(ask(client, version, 0))
    assert (answer.error_code, bytes(answer.records or b"")) == (0, stored)  # type: ignore[arg-type]


@pytest.mark.spec("BRK-105")
@pytest.mark.parametrize("version", range(7, 13))
def test_a_session_over_the_wire(broker: World, client: Client, version: int) -> None:
    full = ask(client, version, 0, session=(0, 0))
    assert full.session_id > 0
    assert ask(client, version, -1, session=(full.session_id, 1)).topics == []
    broker.produce()
    assert only(ask(client, version, -1, session=(full.session_id, 2))).high_watermark == 1
    for named, code in (((full.session_id, 9), 71), ((full.session_id, 2), 71), ((full.session_id ^ 1, 3), 70)):
        answer = ask(client, version, 0, session=named)
        assert (answer.error_code, answer.topics) == (code, []), "at the top, whatever is listed"
    assert ask(client, version, -1, session=(full.session_id, 3)).error_code == 0, "they changed nothing"


@pytest.mark.spec("BRK-105")
def test_before_version_7_no_session_is_opened(broker: World, client: Client) -> None:
    for version in range(7):
        assert only(ask(client, version, 0)).error_code == 0
    assert len(broker.manager.fetch_sessions) == 0


def offset_of(
    client: Client,
    version: int,
    timestamp: int,
    *,
    replica: int = -1,
    isolation: int = 0,
    topic: str = "t",
    twice: bool = False,
    current: int = -1,
    max_offsets: int = 1,
) -> ListOffsetsResponsePartition:
    partition = ListOffsetsRequestPartition(
        partition=0, timestamp=timestamp, current_leader_epoch=current, max_offsets=max_offsets
    )
    topics = [ListOffsetsRequestTopic(topic=topic, partitions=[partition] * (2 if twice else 1))]
    request = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=topics)
    response = client.call(list_offsets.API, version, request)
    found: ListOffsetsResponsePartition = response.topics[0].partitions[0]
    return found


@pytest.mark.spec("BRK-107", "BRK-162")
@pytest.mark.parametrize("version", range(1, 8))
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
    assert (nothing.error_code, nothing.offset, nothing.timestamp, nothing.leader_epoch) == (0, -1, -1, -1)
    assert offset_of(client, version, -1, twice=True).error_code == 42


@pytest.mark.spec("BRK-162")
def test_the_newest_time_is_found_from_version_7_on_once_it_may_be_read(broker: World, client: Client) -> None:
    """Times are not in the order of offsets. What nobody may read yet is not told, as Kafka does it."""
    log = broker.lead(epoch=3, isr=(1, 2)).log
    assert offset_of(client, 7, -3).offset == -1, "of an empty log"
    for time_ms in (1000, 3000, 2000, 3000):
        log.append_as_leader(batch(2, timestamp=time_ms, step_ms=5), 3)
    assert offset_of(client, 7, -3).offset == -1
    assert offset_of(client, 7, -3, replica=2).offset == 3
    broker.fetch(8, follower(2))
    found = offset_of(client, 7, -3)
    assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, 3, 3005, 3)
    assert offset_of(client, 6, -3).offset == 0, "in older versions it is a time like any"


@pytest.mark.spec("BRK-107")
@pytest.mark.parametrize("version", range(2, 8))
def test_each_reader_has_its_own_latest_offset_and_finds_no_record_behind_it(
    broker: World, client: Client, version: int
) -> None:
    """In the log: 0 to 2 at 1000, an open transaction from 3 on at 2000, 6 at 3000 not replicated."""
    log = broker.lead(epoch=3, isr=(1, 2)).log
    broker.produce(count=3)
    open_one = batch(2, producer=(7, 0, 0), attributes=0x10, timestamp=2000)
    log.append_as_leader(open_one, 3, origin_client=False, verification=UNVERIFIED)
    broker.fetch(5, follower(2))
    log.append_as_leader(batch(timestamp=3000), 3)
    log.advance_log_start(1)

    def found(timestamp: int, replica: int = -1, isolation: int = 0) -> int:
        return offset_of(client, version, timestamp, replica=replica, isolation=isolation).offset

    readers = {"consumer": (-1, 0), "committed": (-1, 1), "debugger": (-2, 0), "follower": (2, 0)}
    assert {n: found(-1, *r) for n, r in readers.items()} == {
        "consumer": 5,
        "committed": 3,
        "debugger": 6,
        "follower": 6,
    }
    assert {found(-2, *r) for r in readers.values()} == {1}
    assert {n: found(1500, *r) for n, r in readers.items()} == {
        "consumer": 3,
        "committed": -1,
        "debugger": 3,
        "follower": 3,
    }
    assert {n: found(2001, *r) for n, r in readers.items()} == {
        "consumer": -1,
        "committed": -1,
        "debugger": 5,
        "follower": 5,
    }


@pytest.mark.spec("BRK-107")
@pytest.mark.parametrize("apart", [False, True])
def test_a_partition_listed_twice_is_refused_each_time_and_the_others_are_not(
    broker: World, client: Client, apart: bool
) -> None:
    broker.lead(TopicPartition("t", 1))
    t0, t1 = (ListOffsetsRequestPartition(partition=p, timestamp=-1) for p in (0, 1))
    lists = [[t0], [t1, t0]] if apart else [[t0, t1, t0]]
    topics = [ListOffsetsRequestTopic(topic="t", partitions=listed) for listed in lists]
    response = client.call(list_offsets.API, 5, ListOffsetsRequest(replica_id=-1, topics=topics))
    told = [
        (p.partition, p.error_code, p.offset, p.timestamp, p.leader_epoch)
        for t in response.topics
        for p in t.partitions
    ]
    assert told == [(0, 42, -1, -1, -1), (1, 0, 0, -1, 0), (0, 42, -1, -1, -1)]


@pytest.mark.spec("BRK-107")
def test_offsets_are_told_by_the_leader_and_to_a_debugger_by_any_replica(broker: World, client: Client) -> None:
    broker.produce(count=2)
    broker.follow(epoch=3)
    for timestamp in (-1, -2, 500):
        assert offset_of(client, 5, timestamp).error_code == 6
        assert offset_of(client, 5, timestamp, replica=2).error_code == 6
        assert offset_of(client, 5, timestamp, replica=-2).error_code == 0
    assert offset_of(client, 5, -1, topic="u").error_code == 3
    broker.know(TopicPartition("u", 0))
    assert offset_of(client, 5, -1, topic="u").error_code == 6
    assert offset_of(client, 5, -1, topic="u", replica=-2).error_code == 9


@pytest.mark.spec("BRK-108")
@pytest.mark.parametrize("version", range(1, 8))
def test_a_record_found_by_its_time_comes_with_the_epoch_it_was_written_in(
    broker: World, client: Client, version: int
) -> None:
    broker.produce(count=3)
    broker.lead(epoch=7)
    epochs = (2, 7) if version >= 4 else (-1, -1)
    assert (offset_of(client, version, 500).leader_epoch, offset_of(client, version, -1).leader_epoch) == epochs


@pytest.mark.spec("BRK-63")
@pytest.mark.parametrize("version", range(1, 8))
def test_a_question_for_an_offset_in_another_epoch_is_refused(broker: World, client: Client, version: int) -> None:
    def codes() -> list[int]:
        return [offset_of(client, version, -1, current=epoch).error_code for epoch in (-1, 1, 2, 3, 4)]

    assert codes() == [0, *([74, 0, 75, 75] if version >= 4 else [0] * 4)]
    broker.follow(epoch=3)
    assert codes() == [6, *([74, 74, 6, 75] if version >= 4 else [6] * 4)], "the epoch is checked before leadership"


@pytest.mark.spec("BRK-63")
@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_in_another_epoch_is_refused(broker: World, client: Client, version: int) -> None:
    def codes() -> list[int]:
        asked = [
            FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchRequestTopic(topic="t", partitions=[wanted(0, 0, epoch=epoch)])],
            )
            for epoch in (-1, 1, 2, 3, 4)
        ]
        return [only(client.call(fetch.API, version, message)).error_code for message in asked]

    assert codes() == [0, *([74, 0, 75, 75] if version >= 9 else [0] * 4)]
    broker.follow(epoch=3)
    not_here = 6 if version < 11 else 0  # a follower serves consumers of 2.4 and later
    assert codes() == [not_here, *([74, 74, not_here, 75] if version >= 9 else [6] * 4)]


@pytest.mark.spec("BRK-38")
@pytest.mark.parametrize(("version", "known"), [(4, -1), *((version, 1) for version in range(5, 13))])
def test_where_a_followers_log_begins_is_known_from_version_5_on(
    broker: World, client: Client, version: int, known: int
) -> None:
    broker.produce(count=3)
    partition = broker.lead(epoch=3, isr=(1,), replicas=(1, 2))
    message = FetchRequest(
        replica_id=2,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequestTopic(topic="t", partitions=[wanted(0, 2, log_start=1)])],
    )
    assert only(client.call(fetch.API, version, message)).error_code == 0
    assert (partition.remote[2].end.offset, partition.remote[2].log_start_offset) == (2, known)


@pytest.mark.spec("BRK-108")
def test_until_the_high_watermark_reaches_the_epoch_the_latest_offset_is_not_told(
    broker: World, client: Client
) -> None:
    broker.lead(epoch=3, isr=(1, 2))
    broker.produce(count=3)
    broker.lead(epoch=4, isr=(1, 2))
    for asked in (-1, 99_000):
        assert offset_of(client, 5, asked).error_code == 78
        assert {offset_of(client, version, asked).error_code for version in range(1, 5)} == {5}
        assert {offset_of(client, version, asked).error_code for version in (6, 7)} == {78}
    assert offset_of(client, 5, -2).offset == 0
    assert offset_of(client, 5, -1, replica=2).offset == 3
    broker.fetch(3, follower(2))
    assert offset_of(client, 5, -1).offset == 3


@pytest.mark.spec("BRK-108")
@pytest.mark.parametrize("isolation", [0, 1])
def test_until_then_a_record_below_the_high_watermark_is_found_by_its_time(
    broker: World, client: Client, isolation: int
) -> None:
    partition = broker.lead(epoch=3, isr=(1, 2))
    broker.produce()
    broker.fetch(1, follower(2))
    partition.log.append_as_leader(batch(2, timestamp=2000), 3)
    broker.lead(epoch=4, isr=(1, 2))
    assert (partition.high_watermark.offset, partition.epoch_start) == (1, 3)
    found = offset_of(client, 5, 500, isolation=isolation)
    assert (found.error_code, found.offset, found.leader_epoch) == (0, 0, 3)
    for asked in (2000, -1):
        assert offset_of(client, 5, asked, isolation=isolation).error_code == 78
    assert [offset_of(client, 5, t, replica=-2).offset for t in (2000, -1)] == [1, 3], "a debugger is no consumer"


@pytest.mark.spec("BRK-123")
@pytest.mark.parametrize(("known", "code"), [(False, 3), (True, 6)], ids=["nothing told", "told of, not led yet"])
def test_before_the_controller_spoke_a_fetch_does_not_wait(
    broker: World, client: Client, known: bool, code: int
) -> None:
    if known:
        broker.know(TopicPartition("untold", 0))
    partitions = [wanted(0, 0)]
    for replica in (-1, 2):
        message = FetchRequest(
            replica_id=replica,
            max_wait_ms=3_600_000,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchRequestTopic(topic="untold", partitions=partitions)],
        )
        assert only(client.call(fetch.API, 11, message)).error_code == code
    assert offset_of(client, 5, -1, topic="untold").error_code == code


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
        assert epoch_end(client, version, 5, current=5) == (0, 5, 5)
        assert epoch_end(client, version, 5, current=4)[0] == 74
        assert epoch_end(client, version, 5, current=6)[0] == 75
    else:
        assert [epoch_end(client, version, 5, current=current) for current in (4, 6)] == [(0, named(5), 5)] * 2
    assert epoch_end(client, version, 5, topic="elsewhere")[0] == 3
    broker.know(TopicPartition("elsewhere", 0))
    assert epoch_end(client, version, 5, topic="elsewhere")[0] == 6, "there, but not here"
    broker.follow(epoch=6)
    assert epoch_end(client, version, 5)[0] == 6
    if version >= 2:
        assert [epoch_end(client, version, 5, current=e)[0] for e in (5, 6, 7)] == [74, 6, 75], "before leadership"
    assert TP in [p.tp for p in broker.manager.partitions.all()]


# --- versions from before record batches --------------------------------------------------------------------------


def entries_of(answer: FetchResponsePartition) -> list[LegacyEntry]:
    """The entries of an answer, checksums held against them."""
    data = bytes(answer.records or b"")  # type: ignore[arg-type]
    assert all(check_crc(data, at) for at, _ in iter_batches(data))
    return list(read_entries(data[: sum(header.size_bytes for _, header in iter_batches(data))]))


@pytest.mark.spec("ADM-87", "ADM-93")
@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_older_consumers_get_entries_of_their_format(broker: World, client: Client, version: int, codec: int) -> None:
    made = [
        Record(0, 2000, b"k", b"v", (("h", b"1"),)),
        Record(1, 3000, None, b""),
        Record(2, 1500, b"", None),
    ]
    magic = 0 if version < 2 else 1
    broker.partition().append_as_leader(encode_batch(made, codec=codec))
    broker.produce()
    answer = only(ask(client, version, 1))
    assert (answer.error_code, answer.high_watermark) == (0, 4)
    found = entries_of(answer)
    # Of a compressed batch all records come, as it is one entry; of another those from the offset on.
    expected = [(r.offset, magic, r.timestamp if magic else -1, r.key, r.value) for r in made[0 if codec else 1 :]]
    assert [(e.offset, e.magic, e.timestamp, e.key, e.value) for e in found[:-1]] == expected
    assert found[-1].offset == 3
    headers = [header for _, header in iter_batches(bytes(answer.records or b""))]  # type: ignore[arg-type]
    assert [(h.base_offset, h.codec) for h in headers] == ([(2, codec)] if codec else [(1, 0), (2, 0)]) + [(3, 0)]
    if magic:
        assert headers[0].max_timestamp == 3000


@pytest.mark.spec("ADM-93")
def test_the_brokers_time_is_that_of_each_entry(broker: World, client: Client) -> None:
    broker.logs.update_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    broker.produce(count=2)
    (time_ms,) = {r.timestamp for r in decode_records(bytes(only(ask(client, 4, 0)).records or b""))}  # type: ignore[arg-type]
    assert [(e.timestamp, e.attributes) for e in entries_of(only(ask(client, 3, 0)))] == [(time_ms, 8)] * 2
    broker.partition().append_as_leader(encode_batch([Record(i, 1, b"k", b"v") for i in range(2)], codec=1))
    answer = only(ask(client, 3, 2))
    stored = {r.timestamp for r in decode_records(bytes(only(ask(client, 4, 2)).records or b""))}  # type: ignore[arg-type]
    (wrapper,) = parse_entries(bytes(answer.records or b""))  # type: ignore[arg-type]
    assert ({wrapper.timestamp}, wrapper.attributes) == (stored, 8 | 1)
    assert {e.timestamp for e in entries_of(answer)} == stored != {1}


@pytest.mark.spec("ADM-93")
@pytest.mark.parametrize("version", range(4))
def test_zstd_has_no_older_form(broker: World, client: Client, version: int) -> None:
    broker.partition().append_as_leader(encode_batch([Record(0, 1, b"k", b"v" * 99)], codec=4))
    broker.produce()
    assert only(ask(client, version, 0)).error_code == 76
    assert only(ask(client, version, 1)).error_code == 0


@pytest.mark.spec("ADM-93")
def test_what_comes_before_zstd_is_read_first(broker: World, client: Client) -> None:
    broker.produce(count=2)
    broker.partition().append_as_leader(encode_batch([Record(0, 1, b"k", b"v" * 99)], codec=4))
    broker.produce()
    assert [e.offset for e in entries_of(only(ask(client, 3, 0)))] == [0, 1]
    assert only(ask(client, 3, 2)).error_code == 76


@pytest.mark.spec("ADM-93", "ADM-95")
@pytest.mark.parametrize("version", range(4))
def test_markers_of_transactions_are_passed_over_and_waited_behind(broker: World, client: Client, version: int) -> None:
    sent = (
        batch(2, base_offset=0, producer=(7, 0, 0), attributes=0x10)
        + marker(commit=False, producer=(7, 0), base_offset=2)
        + marker(commit=True, producer=(8, 0), base_offset=3)
    )
    broker.follow(epoch=3).log.append_as_follower(memoryview(sent))
    broker.lead(epoch=4)
    assert [e.offset for e in entries_of(only(ask(client, version, 0)))] == [0, 1]  # aborted ones too
    assert bytes(only(ask(client, version, 2)).records or b"") == b""  # type: ignore[arg-type]
    waiting = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequestTopic(topic="t", partitions=[wanted(0, 2)])],
    )
    client.send_request(fetch.API, version, waiting)
    eventually(lambda: bool(broker.manager.delayed.fetches), "the fetch to wait")
    broker.produce()
    found: FetchResponse = client.receive_response(fetch.API, version)
    assert [e.offset for e in entries_of(only(found))] == [4]


@pytest.mark.spec("ADM-93", "ADM-95", "BRK-167")
@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_a_batch_whose_last_records_went_with_compaction_is_passed_over_once_the_rest_is_read(
    broker: World, client: Client, version: int, codec: int
) -> None:
    """Of a wrapper below its position a consumer takes nothing: it would ask for the same offset again and again."""
    compacted = encode_batch([Record(offset, 1, b"k", b"v") for offset in range(8)], codec=codec, last_offset=9)
    broker.follow(epoch=3).log.append_as_follower(memoryview(compacted))
    broker.lead(epoch=4)

    def asked(offset: int, limit: int = 1 << 20) -> FetchRequest:
        topics = [FetchRequestTopic(topic="t", partitions=[wanted(0, offset, max_bytes=limit)])]
        return FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)

    assert entries_of(only(ask(client, version, 7)))[-1].offset == 7
    for offset in (8, 9):
        assert bytes(only(ask(client, version, offset)).records or b"") == b""  # type: ignore[arg-type]
    client.send_request(fetch.API, version, asked(8))
    eventually(lambda: bool(broker.manager.delayed.fetches), "the fetch to wait")
    broker.produce()
    waited: FetchResponse = client.receive_response(fetch.API, version)
    assert [e.offset for e in entries_of(only(waited))] == [10]
    for limit in (40, 1 << 20):
        found: FetchResponse = client.call(fetch.API, version, asked(9, limit))
        assert [e.offset for e in entries_of(only(found))] == [10]


@pytest.mark.spec("ADM-95")
def test_an_entry_larger_than_the_partitions_limit_is_cut_below_version_3_and_whole_from_it_on(
    broker: World, client: Client
) -> None:
    broker.partition().append_as_leader(encode_batch([Record(i, 1, b"k", b"v" * 500) for i in range(3)]))

    def got(version: int, limit: int) -> bytes:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchRequestTopic(topic="t", partitions=[wanted(0, 0, max_bytes=limit)])],
        )
        return bytes(only(client.call(fetch.API, version, request)).records or b"")  # type: ignore[arg-type]

    assert [len(got(version, 100)) for version in range(4)] == [100, 100, 100, 535]
    assert [len(got(version, 535 * 2)) for version in (2, 3)] == [535 * 2] * 2
    assert [len(got(version, 535 * 2 + 1)) for version in (2, 3)] == [535 * 2] * 2


@pytest.mark.spec("ADM-94")
def test_conversion_may_be_switched_off_for_a_topic(broker: World, client: Client) -> None:
    broker.produce()
    broker.logs.update_topic_config("t", {"message.downconversion.enable": "false"})
    for version in range(4):
        for reader in (-1, -2):
            assert only(ask(client, version, 0, replica_id=reader)).error_code == 35
    assert only(ask(client, 4, 0)).error_code == 0
    broker.logs.update_topic_config("t", {})
    assert only(ask(client, 3, 0)).error_code == 0
    broker.logs.update_defaults(broker_config(log_message_downconversion_enable="false"))
    assert only(ask(client, 3, 0)).error_code == 35, "the broker's property is the default"
    broker.lead(epoch=3, isr=(1, 2))
    for version in range(4):  # a broker of that age follows
        entries = entries_of(only(ask(client, version, 0, replica_id=2)))
        assert [(e.offset, e.magic) for e in entries] == [(0, 0 if version < 2 else 1)]


@pytest.mark.spec("ADM-94")
@pytest.mark.parametrize("version", range(4))
def test_only_the_partition_whose_topic_is_not_converted_is_refused(
    broker: World, client: Client, version: int
) -> None:
    other = TopicPartition("u", 0)
    broker.lead(other)
    for partition in (TP, other):
        broker.produce(partition)
    broker.logs.update_topic_config("t", {"message.downconversion.enable": "false"})
    topics = [FetchRequestTopic(topic=topic, partitions=[wanted(0, 0)]) for topic in "tu"]
    message = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    response: FetchResponse = client.call(fetch.API, version, message)
    assert [(t.topic, t.partitions[0].error_code) for t in response.topics] == [("t", 35), ("u", 0)]
    assert [e.offset for e in entries_of(response.topics[1].partitions[0])] == [0]


@pytest.mark.spec("ADM-94")
def test_what_lies_in_the_log_as_it_is_wanted_needs_no_conversion(broker: World, client: Client) -> None:
    old = entry(0, timestamp=77)
    broker.follow(epoch=3).log.append_as_follower(memoryview(old))
    broker.lead(epoch=4)
    broker.logs.update_topic_config("t", {"message.downconversion.enable": "false"})
    for version, code in ((0, 35), (1, 35), (2, 0), (3, 0)):
        answer = only(ask(client, version, 0))
        assert (answer.error_code, bytes(answer.records or b"")) == (code, b"" if code else old)  # type: ignore[arg-type]


@pytest.mark.spec("ADM-93", "ADM-98")
def test_entries_that_lie_in_the_log_as_they_are_wanted_are_sent_as_they_are(broker: World, client: Client) -> None:
    old = entry(0, timestamp=77) + entry(1, None, key=None, timestamp=78)
    broker.follow(epoch=3).log.append_as_follower(memoryview(old))
    broker.lead(epoch=4)
    for version in (2, 3, 4):
        assert bytes(only(ask(client, version, 0)).records or b"") == old  # type: ignore[arg-type]
    assert [(e.offset, e.magic, e.value) for e in entries_of(only(ask(client, 1, 0)))] == [(0, 0, b"v"), (1, 0, None)]


@pytest.mark.spec("ADM-97")
def test_a_damaged_batch_is_called_corrupt(broker: World, client: Client) -> None:
    """Its checksum is the reader's to test; here its records cannot even be told apart."""
    sent = batch(2)
    broker.partition().append_as_leader(sent)
    file = next(broker.partition().log.directory.glob("*.log"))
    with file.open("r+b") as log:
        log.seek(61)
        log.write(b"\x7f")
    broker.partition().log.state.newest = None
    assert only(ask(client, 3, 0)).error_code == 2


@pytest.mark.spec("ADM-97")
def test_while_64_mib_are_held_for_others_who_has_waited_is_answered_empty(broker: World, client: Client) -> None:
    broker.produce(count=3)
    held = broker.manager.conversions.hold(Converted(64 * 1024 * 1024 - 1))
    assert only(ask(client, 3, 0)).records, "one byte less is no reason to wait"
    last = broker.manager.conversions.hold(Converted(1))
    for version in range(4):
        answer = only(ask(client, version, 0, max_wait_ms=1))
        assert (answer.error_code, bytes(answer.records or b""), answer.high_watermark) == (0, b"", 3)  # type: ignore[arg-type]
    assert only(ask(client, 4, 0, max_wait_ms=1)).records, "what needs no conversion waits for none"
    del held, last
    gc.collect()
    assert only(ask(client, 3, 0, max_wait_ms=60_000)).records


@pytest.mark.spec("ADM-97")
def test_a_batch_that_inflates_to_more_than_100_mib_is_not_converted(broker: World, client: Client) -> None:
    most = 104_857_600
    records = [Record(0, 1, b"k", bytes(most))]
    stored = bytearray(encode_batch(records, codec=Codec.GZIP))  # from a leader that has no such bound
    broker.follow(epoch=3).log.append_as_follower(memoryview(stored))
    broker.lead(epoch=4)
    assert [only(ask(client, version, 0)).error_code for version in range(4)] == [76] * 4
    assert only(ask(client, 4, 0)).error_code == 0


@pytest.mark.spec("ADM-97")
def test_a_conversion_reads_a_megabyte_of_the_log_at_a_time_and_a_larger_batch_whole(
    broker: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.logs.update_topic_config("t", {"max.message.bytes": "10000000"})
    sizes = [600_000, 600_000, 600_000, 3_000_000]
    for size in sizes:
        broker.partition().append_as_leader(bytearray(encode_batch([Record(0, 1, b"k", bytes(size))])))
    read: list[int] = []
    from_disk = os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        read.append(size)
        return from_disk(fd, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    topics = [FetchRequestTopic(topic="t", partitions=[wanted(0, 0, max_bytes=64 << 20)])]
    message = FetchRequest(topics=topics, max_wait_ms=0, min_bytes=1, max_bytes=64 << 20)
    found = entries_of(only(client.call(fetch.API, 3, message)))
    assert [len(e.value or b"") for e in found] == sizes
    assert 3_000_000 < max(read) < 3_000_100 and [size for size in read if size > 1 << 20] == [max(read)]


@pytest.mark.spec("ADM-96")
def test_list_offsets_0_tells_where_segments_begin(broker: World, client: Client) -> None:
    log = broker.partition().log
    for _ in range(3):
        broker.produce(count=10)
        with log.state.lock:
            log.roll(log.log_end_offset)
    broker.produce(count=2)
    for age, segment in enumerate(log.segments):
        os.utime(log.directory / f"{segment.base_offset:020d}.log", (1000 + age, 1000 + age))

    def offsets(asked: int, most: int = 10, replica: int = -1) -> list[int]:
        return offset_of(client, 0, asked, replica=replica, max_offsets=most).offsets

    assert offsets(-1) == [32, 30, 20, 10, 0]
    assert offsets(-1, 1) == [32] and offsets(-1, 2) == [32, 30] and offsets(-1, 0) == []
    assert offsets(-2) == [0]
    assert offsets(1_001_000) == [10, 0] and offsets(1_001_000, 1) == [10]
    assert offsets(999_999) == [] and offset_of(client, 0, 999_999, max_offsets=10).error_code == 0
    broker.lead(epoch=3, isr=(1, 2))
    broker.produce(count=5)  # above the high watermark
    assert (offsets(-1, 1), offsets(-1, 1, -2), offsets(-1, 1, 2)) == ([32], [37], [37])
    log.advance_log_start(5)
    assert offsets(-1) == [32, 30, 20, 10, 5] and offsets(-2) == [5]
    broker.follow(epoch=4)
    assert offset_of(client, 0, -1).error_code == 6


# --- version 12 ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("ADM-85")
def test_another_clusters_client_is_told_so(broker: World, client: Client) -> None:
    for cluster, code in ((None, 0), ("test-cluster", 0), ("another", 104)):
        message = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=[], cluster_id=cluster)
        assert client.call(fetch.API, 12, message).error_code == code


@pytest.mark.spec("ADM-85")
def test_a_reader_of_another_history_is_told_where_it_ends(broker: World, client: Client) -> None:
    broker.produce(count=3)
    broker.lead(epoch=5)
    broker.produce(count=4)

    def answer(offset: int, last_epoch: int) -> FetchResponsePartition:
        asked = replace(wanted(0, offset), last_fetched_epoch=last_epoch)
        topics = [FetchRequestTopic(topic="t", partitions=[asked])]
        message = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
        return only(client.call(fetch.API, 12, message))

    diverging = answer(4, 2)
    assert (diverging.error_code, diverging.high_watermark, bytes(diverging.records or b"")) == (0, 7, b"")  # type: ignore[arg-type]
    assert diverging.diverging_epoch == EpochEnd(epoch=2, end_offset=3)
    unknown = answer(5, 4)
    assert unknown.diverging_epoch == EpochEnd(epoch=2, end_offset=3) and not unknown.records
    for offset, epoch in ((3, 2), (4, 5), (0, -1)):
        fine = answer(offset, epoch)
        assert fine.diverging_epoch is None and fine.records


@pytest.mark.spec("ADM-85")
def test_who_asks_the_wrong_broker_is_told_the_leader(broker: World, client: Client) -> None:
    broker.know(TP, brokers={1: 9001, 2: 9002}, leader=2)
    broker.follow(epoch=3)
    assert (answer := only(ask(client, 12, 0, replica_id=3))).error_code == 6
    assert answer.current_leader == LeaderIdAndEpoch(leader_id=2, leader_epoch=0)
    assert only(ask(client, 11, 0, replica_id=3)).current_leader is None
    broker.lead(epoch=5)
    broker.know(TP, brokers={1: 9001, 2: 9002}, leader=1)
    for epoch, code in ((4, 74), (6, 75)):
        topics = [FetchRequestTopic(topic="t", partitions=[replace(wanted(0, 0), current_leader_epoch=epoch)])]
        message = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
        fenced = only(client.call(fetch.API, 12, message))
        assert fenced.error_code == code
        assert fenced.current_leader == LeaderIdAndEpoch(leader_id=1, leader_epoch=0)
