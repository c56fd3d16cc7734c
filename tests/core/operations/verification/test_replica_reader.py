"""The entries of a replica, in each format of records (RPV-3)."""

import struct
import zlib
from typing import Any

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification import replica_reader
from kafkatool.core.operations.verification.comparison import ROTTEN, Entry, Fetched, Layout
from kafkatool.core.protocol.messages import fetch
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.core.operations.verification.answering import answering


def message(offset: int, *, magic: int, attributes: int = 0) -> bytes:
    """Encode one of format 0 or 1; what is inside a compressed one is not looked at."""
    stamp = struct.pack(">q", 77) if magic else b""
    body = struct.pack(">bb", magic, attributes) + stamp + struct.pack(">i", -1) + struct.pack(">i", 3) + b"abc"
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def read(records: bytes) -> Any:
    def send(_api: Any, request: fetch.FetchRequest, **_: Any) -> fetch.FetchResponse:
        assert request.replica_id == -2
        found = fetch.FetchResponsePartition(partition=0, high_watermark=40, records=records)
        return fetch.FetchResponse(topics=[fetch.FetchResponseTopic(topic="t", partitions=[found])])

    reader = replica_reader.BrokerReader(
        Layout({1: ("h", 1)}, {}, {}, {}), answering(send), fetch_size_bytes=1 << 20, max_wait_ms=10
    )
    return reader.fetch(1, {TopicPartition("t", 0): 0}, wait=True)[TopicPartition("t", 0)]


@pytest.mark.spec("RPV-12X")
def test_a_broker_holds_an_answer_back_only_where_that_is_wanted() -> None:
    held_back: list[int] = []

    def send(_api: Any, request: fetch.FetchRequest, **_: Any) -> fetch.FetchResponse:
        held_back.append(request.max_wait_ms)
        return fetch.FetchResponse(topics=[])

    layout = Layout({1: ("h", 1)}, {}, {}, {})
    reader = replica_reader.BrokerReader(layout, answering(send), fetch_size_bytes=1 << 20, max_wait_ms=10)
    for wait in (False, True):
        reader.fetch(1, {TopicPartition("t", 0): 0}, wait=wait)
    assert held_back == [0, 10]


@pytest.mark.spec("RPV-3")
@pytest.mark.parametrize("magic", [0, 1])
def test_an_entry_of_the_old_formats_is_the_outer_message_with_its_own_checksum(magic: int) -> None:
    plain, wrapper = message(5, magic=magic), message(12, magic=magic, attributes=1)
    crcs = [struct.unpack_from(">I", data, 12)[0] for data in (plain, wrapper)]
    assert read(plain + wrapper) == Fetched(40, (Entry(5, crcs[0]), Entry(12, crcs[1])))


@pytest.mark.spec("RPV-3")
def test_an_entry_of_format_2_is_a_batch_with_its_last_offset_and_checksum() -> None:
    data = bytes(encode_batch([Record(20 + i, 0, None, b"v", ()) for i in range(4)], base_offset=20))
    (crc,) = struct.unpack_from(">I", data, 17)
    assert read(data) == Fetched(40, (Entry(23, crc),))
    assert read(data[:-1] + b"\xff") == Fetched(40, (Entry(23, ROTTEN),))
