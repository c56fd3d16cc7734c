"""A real broker (2.8.2) understands every version of the data APIs, every codec, and is understood."""

from collections.abc import Iterator

import pytest

from kafkatool.core.client.connection import Connection
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import api_versions, create_topics, fetch, list_offsets, metadata, produce
from kafkatool.core.protocol.messages import offset_for_leader_epoch as epochs
from kafkatool.core.protocol.records.batches import Record, check_crc, decode_records, encode_batch, iter_batches
from kafkatool.core.protocol.records.compression import Codec
from tests.compat import real_kafka

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_TOPIC = "t"
_FIRST_TIME_MS = 1_700_000_000_000


def _versions(connection: Connection, api: Api, first: int = 0) -> range:
    """Return the versions that both know, from ``first`` on."""
    announced = connection.send(api_versions.API, 0, api_versions.ApiVersionsRequest()).api_keys
    last = next(a.max_version for a in announced if a.api_key == api.key)
    return range(max(first, api.min_version), min(last, api.max_version) + 1)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    real_kafka.require("2.8.2")
    with (
        real_kafka.RealKafka("2.8.2", tmp_path_factory.mktemp("kafka"), brokers=1) as kafka,
        Connection("127.0.0.1", kafka.ports[1], client_id="test", timeout_ms=60_000, security=None) as connection,
    ):
        yield connection


def _produce(connection: Connection, version: int, codec: Codec) -> produce.ProduceResponsePartition:
    records = [Record(i, _FIRST_TIME_MS + i, b"k%d" % i, b"v" * 100, (("h", b"x"),)) for i in range(3)]
    partition = produce.ProduceRequestPartition(partition=0, records=encode_batch(records, codec=codec))
    topic = produce.ProduceRequestTopic(topic=_TOPIC, partitions=[partition])
    request = produce.ProduceRequest(acks=-1, timeout_ms=10_000, topics=[topic])
    return connection.send(produce.API, version, request).topics[0].partitions[0]


def _fetch(connection: Connection, version: int) -> fetch.FetchResponsePartition:
    partition = fetch.FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = fetch.FetchRequestTopic(topic=_TOPIC, partitions=[partition])
    request = fetch.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    return connection.send(fetch.API, version, request).topics[0].partitions[0]


@pytest.mark.spec("BRK-162", "BRK-151", "BRK-152")
def test_every_version_of_the_data_apis_and_every_codec(connection: Connection) -> None:
    for version in _versions(connection, api_versions.API):
        software = api_versions.ApiVersionsRequest(client_software_name="kt", client_software_version="1.0")
        assert connection.send(api_versions.API, version, software).error_code == 0
    new = create_topics.CreateTopicsTopic(name=_TOPIC, num_partitions=1, replication_factor=1)
    creation = create_topics.CreateTopicsRequest(topics=[new], timeout_ms=30_000)
    assert connection.send(create_topics.API, 3, creation).topics[0].error_code == 0

    wanted = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic=_TOPIC)])
    for version in _versions(connection, metadata.API):
        answer = connection.send(metadata.API, version, wanted)
        assert [(t.topic, p.leader_id) for t in answer.topics for p in t.partitions] == [(_TOPIC, 1)]

    count = 0
    for version in _versions(connection, produce.API, 3):
        for codec in Codec:
            if codec is Codec.ZSTD and version < 7:
                continue
            appended = _produce(connection, version, codec)
            assert (appended.error_code, appended.base_offset) == (0, count)
            count += 3

    # For 3, meant for Kafka 0.10, this broker would rewrite the batches.
    for version in _versions(connection, fetch.API, 4):
        fetched = _fetch(connection, version)
        assert (fetched.error_code, fetched.high_watermark) == (0, count)
        data = fetched.records
        assert data is not None and not isinstance(data, FileRegion)
        batches = list(iter_batches(data))
        assert all(check_crc(data, position) for position, _ in batches)
        records = [r for p, h in batches for r in decode_records(data[p : p + h.size_bytes])]
        assert [r.offset for r in records] == list(range(count))
        assert {r.headers for r in records} == {(("h", b"x"),)}

    for version in _versions(connection, list_offsets.API, 1):  # 0 tells where segments begin, by their files' times
        asked = list_offsets.ListOffsetsRequestPartition(partition=0, timestamp=_FIRST_TIME_MS + 1)
        topic = list_offsets.ListOffsetsRequestTopic(topic=_TOPIC, partitions=[asked])
        found = connection.send(list_offsets.API, version, list_offsets.ListOffsetsRequest(topics=[topic]))
        assert found.topics[0].partitions[0].offset == 1

    for version in _versions(connection, epochs.API):
        epoch = epochs.OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0)
        epoch_topic = epochs.OffsetForLeaderEpochRequestTopic(topic=_TOPIC, partitions=[epoch])
        end = connection.send(epochs.API, version, epochs.OffsetForLeaderEpochRequest(topics=[epoch_topic]))
        assert end.topics[0].partitions[0].end_offset == count
