"""Topics of formats 0 and 1 over a socket: what clients of each age write, and what they read of it (ADM-89 to 98)."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkatool.broker.coordination.log_walk import walk
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import fetch, list_offsets, offset_for_leader_epoch, produce
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import (
    BatchHeader,
    Record,
    check_crc,
    decode_records,
    encode_batch,
    iter_batches,
)
from kafkatool.core.protocol.records.compression import Codec, compress
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.replication.world import TP, Clock, World, wanted, world
from tests.broker.storage.batch_builders import batch, entry
from tests.broker.storage.logs import everything

VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "2.3"}
MADE = [Record(0, 2000, b"k", b"v"), Record(1, 3000, None, b""), Record(2, 1500, b"", None)]


class Stage(NamedTuple):
    """A broker whose topics are of one format, and a connection to it."""

    broker: World
    client: Client
    magic: int

    def produce(self, version: int, records: bytes | bytearray, partition: int = 0) -> produce.ProduceResponsePartition:
        sent = produce.ProduceRequestPartition(partition=partition, records=bytearray(records))
        topics = [produce.ProduceRequestTopic(topic="t", partitions=[sent])]
        response = self.client.call(
            produce.API, version, produce.ProduceRequest(acks=1, timeout_ms=1000, topics=topics)
        )
        found: produce.ProduceResponsePartition = response.topics[0].partitions[0]
        return found

    def fetch(self, version: int, offset: int, *, replica: int = -1) -> bytes:
        topics = [fetch.FetchRequestTopic(topic="t", partitions=[wanted(0, offset)])]
        request = fetch.FetchRequest(replica_id=replica, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
        answer = self.client.call(fetch.API, version, request).topics[0].partitions[0]
        assert answer.error_code == 0
        return bytes(answer.records)

    def offset_of(self, version: int, timestamp: int) -> list_offsets.ListOffsetsResponsePartition:
        asked = list_offsets.ListOffsetsRequestPartition(partition=0, timestamp=timestamp)
        topics = [list_offsets.ListOffsetsRequestTopic(topic="t", partitions=[asked])]
        response = self.client.call(list_offsets.API, version, list_offsets.ListOffsetsRequest(topics=topics))
        found: list_offsets.ListOffsetsResponsePartition = response.topics[0].partitions[0]
        return found


@pytest.fixture(params=[0, 1])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    handlers = {key: s for key, s in load_handlers().items() if key in (0, 1, 2, 23)}
    with world(tmp_path, clock=Clock(), log_message_format_version=VERSIONS[request.param]) as broker:
        broker.lead(epoch=2, replicas=(1, 2))
        context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache)
        with broker_of(handlers, context) as client:
            yield Stage(broker, client, request.param)


def sent(version: int, codec: int) -> bytes:
    """Make what a client that speaks that version of Produce sends of MADE."""
    if version >= 3:
        return bytes(encode_batch(MADE, codec=codec))
    magic = 1 if version == 2 else 0
    plain = b"".join(entry(r.offset, r.value, key=r.key, magic=magic, timestamp=r.timestamp) for r in MADE)
    if not codec:
        return plain
    return entry(0, compress(codec, plain, magic=magic), key=None, magic=magic, attributes=codec, timestamp=3000)


def read(data: bytes) -> list[Record]:
    assert all(check_crc(data, at) for at, _ in iter_batches(data))
    return [record for at, _ in iter_batches(data) for record in decode_records(data[at:])]


@pytest.mark.spec("ADM-89", "ADM-91", "ADM-92", "ADM-93", "ADM-98")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", range(10))
def test_what_clients_of_each_age_write_clients_of_each_age_read(stage: Stage, version: int, codec: Codec) -> None:
    for number in range(2):
        answer = stage.produce(version, sent(version, codec))
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 3 * number, -1)
    data = everything(stage.broker.partition().log)
    assert {(h.magic, h.codec) for _, h in iter_batches(data)} == {(stage.magic, codec)}
    timed = stage.magic and version >= 2
    expected = [Record(3 * n + r.offset, r.timestamp if timed else -1, r.key, r.value) for n in (0, 1) for r in MADE]
    assert read(data) == expected
    for reader in range(13):
        found = stage.fetch(reader, 0)
        if reader < 2:
            assert {h.magic for _, h in iter_batches(found)} == {0}
            assert read(found) == [r._replace(timestamp=-1) for r in expected]
        else:
            assert found == data, "sent from the file as it lies there"
    second = min(at for at, header in iter_batches(data) if header.base_offset >= 3)
    assert stage.fetch(3, 3) == stage.fetch(12, 4 if codec else 3) == data[second:]
    assert stage.fetch(3, 0, replica=2) == data


@pytest.mark.spec("ADM-92")
def test_an_idempotent_producer_is_told_that_it_cannot_be_one_here(stage: Stage) -> None:
    assert stage.produce(7, batch(2, producer=(5, 0, 0))).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert stage.broker.partition().log.log_end_offset == 0
    assert stage.produce(7, batch(2)).error_code == 0


@pytest.mark.spec("ADM-92")
@pytest.mark.parametrize("version", range(3, 10))
def test_zstd_is_newer_than_the_log(stage: Stage, version: int) -> None:
    code = stage.produce(version, encode_batch(MADE, codec=Codec.ZSTD)).error_code
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert stage.broker.partition().log.log_end_offset == 0


@pytest.mark.spec("ADM-90", "BRK-84")
def test_what_each_version_of_produce_may_carry_is_the_same_whatever_the_log_is_of(stage: Stage) -> None:
    for version in range(3):
        assert stage.produce(version, sent(3, Codec.NONE)).error_code == ErrorCode.CORRUPT_MESSAGE
        damaged = bytearray(sent(version, Codec.NONE))
        damaged[-1] ^= 1
        assert stage.produce(version, damaged).error_code == ErrorCode.CORRUPT_MESSAGE
    for version in range(3, 10):
        assert stage.produce(version, sent(2, Codec.NONE)).error_code == ErrorCode.CORRUPT_MESSAGE
        damaged = bytearray(sent(version, Codec.NONE))
        damaged[-1] ^= 1
        assert stage.produce(version, damaged).error_code == ErrorCode.CORRUPT_MESSAGE
    assert stage.broker.partition().log.log_end_offset == 0


@pytest.mark.spec("ADM-98", "ADM-91")
@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_by_time_are_there_from_format_1_on(stage: Stage, version: int) -> None:
    stage.produce(2, sent(2, Codec.GZIP))
    assert [stage.offset_of(version, at).offset for at in (-2, -1)] == [0, 3]
    found = stage.offset_of(version, 2500)
    if stage.magic:
        assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, 1, 3000, -1)
    else:
        assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)
    assert stage.offset_of(0, -1).offsets == [3]


@pytest.mark.spec("ADM-98", "BRK-61")
def test_no_epoch_is_known_in_it(stage: Stage) -> None:
    stage.produce(7, batch(3))
    stage.broker.lead(epoch=5)
    stage.produce(7, batch(3))
    asked = offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=2)
    topics = [offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic(topic="t", partitions=[asked])]
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=topics)
    for version in range(4):
        answer = stage.client.call(offset_for_leader_epoch.API, version, request).topics[0].partitions[0]
        assert (answer.error_code, answer.end_offset) == (0, -1)


@pytest.mark.spec("ADM-91", "GRP-9", "ADM-92")
def test_a_coordinator_reads_back_what_it_wrote(stage: Stage) -> None:
    partition = TopicPartition("__consumer_offsets", 0)
    stage.broker.lead(partition)
    records = [Record(0, 1000, b"group", b"one"), Record(1, 1000, b"offset", None)]
    codes: list[ErrorCode] = []
    stage.broker.manager.appends.append(
        {partition: encode_batch(records)},
        acks=1,
        timeout_ms=1000,
        internal=True,
        on_done=lambda results: codes.append(results[partition].error),
    )
    assert codes == [ErrorCode.NONE]
    found: list[tuple[int, Record]] = []

    def apply(header: BatchHeader, walked: Iterable[Record]) -> None:
        found.extend((header.magic, record) for record in walked)

    assert walk(stage.broker.partition(partition).log, 1 << 20, lambda: True, apply)
    assert found == [(stage.magic, r._replace(timestamp=1000 if stage.magic else -1)) for r in records]


@pytest.mark.spec("ADM-89")
def test_a_topic_may_differ_from_the_brokers_format(tmp_path: Path) -> None:
    """And changes while it is written to: each record is of the format that held then."""
    with world(tmp_path, clock=Clock(), log_message_format_version="0.10.2") as broker:
        broker.lead()
        for version in (None, "0.9.0", "2.3", "0.10.0"):
            if version is not None:
                broker.logs.update_topic_config("t", {"message.format.version": version})
            assert [r.error for r in broker.produce()] == [ErrorCode.NONE]
        data = everything(broker.partition(TP).log)
    assert [h.magic for _, h in iter_batches(data)] == [1, 0, 2, 1]
