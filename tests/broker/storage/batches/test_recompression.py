import gzip

import crc32c
import pytest

from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import (
    HEADER_BYTES,
    Record,
    check_crc,
    decode_records,
    encode_batch,
    read_header,
)
from kafkatool.core.protocol.records.compression import Codec
from kafkatool.core.protocol.records.legacy import LOG_APPEND_TIME
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.logs import everything, make_log

_RECORDS = [Record(i, 5000 + i, b"k%d" % i, b"value " * 20, (("h", b"x"),)) for i in range(4)]
_CONFIGS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.spec("BRK-130")
@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("name", _CONFIGS)
def test_a_batch_is_stored_in_the_topics_codec_with_everything_else_as_sent(
    tmp_path_factory: pytest.TempPathFactory, name: str, sent: Codec
) -> None:
    log = make_log(tmp_path_factory.mktemp("log"), compression_type=name)
    log.append_as_leader(batch(1), 3)
    produced = encode_batch(_RECORDS, codec=sent, producer_id=9, producer_epoch=2, base_sequence=0)
    before = read_header(produced)
    size_before = log.size_bytes
    info = log.append_as_leader(produced, 3)
    stored = log.read(1, 10_000, 5, min_one_batch=True)
    assert (info.first_offset, info.last_offset, log.size_bytes - size_before) == (1, 4, stored.size_bytes)
    kept = everything(log)[-stored.size_bytes :]
    header = read_header(kept)
    assert header is not None and before is not None
    assert header.codec == _CONFIGS[name]
    assert check_crc(kept)
    assert [r._replace(offset=r.offset - 1) for r in decode_records(kept)] == _RECORDS
    same = before._replace(base_offset=1, partition_leader_epoch=3, attributes=header.attributes, crc=header.crc)
    assert header == same._replace(batch_length=header.batch_length)
    again = encode_batch(_RECORDS, codec=sent, producer_id=9, producer_epoch=2, base_sequence=0)
    assert log.append_as_leader(again, 3).duplicate


@pytest.mark.spec("BRK-130")
def test_with_producer_the_bytes_are_those_sent(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = make_log(tmp_path_factory.mktemp("log"))
    sent = encode_batch(_RECORDS, codec=Codec.ZSTD)
    log.append_as_leader(sent, -1)
    assert everything(log) == sent


@pytest.mark.spec("BRK-130")
def test_a_batch_in_the_topics_codec_already_is_not_packed_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Another writer's gzip, of another level: packed here the bytes would be others."""
    here = encode_batch(_RECORDS, codec=Codec.GZIP)
    packed = gzip.compress(bytes(encode_batch(_RECORDS)[HEADER_BYTES:]), 1, mtime=5)
    sent = here[:HEADER_BYTES] + packed
    sent[8:12] = (len(sent) - 12).to_bytes(4, "big")
    sent[17:21] = crc32c.crc32c(bytes(sent[21:])).to_bytes(4, "big")
    assert sent != here
    log = make_log(tmp_path_factory.mktemp("log"), compression_type="gzip")
    log.append_as_leader(bytearray(sent), -1)
    assert everything(log) == sent


@pytest.mark.spec("BRK-130", "BRK-85")
def test_the_size_limit_counts_for_what_is_stored_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = make_log(tmp_path_factory.mktemp("log"), compression_type="uncompressed", max_message_bytes="200")
    sent = encode_batch(_RECORDS, codec=Codec.ZSTD)
    assert len(sent) < 200
    with pytest.raises(AppendError) as refused:
        log.append_as_leader(sent, 0)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0


@pytest.mark.spec("BRK-130")
def test_what_cannot_be_unpacked_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = make_log(tmp_path_factory.mktemp("log"), compression_type="gzip")
    with pytest.raises(AppendError) as refused:
        log.append_as_leader(batch(3, attributes=Codec.SNAPPY), 0)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.spec("BRK-130")
def test_the_brokers_time_is_stamped_on_what_is_stored(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = make_log(tmp_path_factory.mktemp("log"), compression_type="lz4", message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(encode_batch(_RECORDS), 0)
    stored = everything(log)
    header = read_header(stored)
    assert header is not None
    assert header.attributes == Codec.LZ4 | LOG_APPEND_TIME
    assert check_crc(stored)
    assert {r.timestamp for r in decode_records(stored)} == {info.log_append_time_ms}


@pytest.mark.spec("BRK-130")
def test_markers_and_what_followers_fetch_stay_as_they_are(tmp_path_factory: pytest.TempPathFactory) -> None:
    log = make_log(tmp_path_factory.mktemp("log"), compression_type="gzip")
    sent = marker(commit=True, producer=(9, 0), base_offset=0)
    log.append_as_leader(sent, 0, origin_client=False)
    fetched = bytes(encode_batch([r._replace(offset=r.offset + 1) for r in _RECORDS], codec=Codec.LZ4, leader_epoch=0))
    log.append_as_follower(memoryview(fetched))
    assert everything(log).endswith(fetched)
    assert everything(log)[: -len(fetched)] == sent
