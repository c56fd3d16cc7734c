"""Fixed bytes: the example of the specification, and messages worked out by hand."""

import struct

import pytest

from kafkatool.core.errors import ProtocolError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import (
    RequestHeader,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from kafkatool.core.protocol.messages import (
    api_versions,
    controlled_shutdown,
    elect_leaders,
    fetch,
    heartbeat,
    leader_and_isr,
    metadata,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    update_metadata,
)


def _request(api: Api, version: int, message: object) -> str:
    """Hex of the frame after length and header (client id ``x``)."""
    frame = encode_request(api, version, 1, "x", message)
    return frame[4 + 11 + api.is_flexible(version) :].hex()


def _response(api: Api, version: int, message: object) -> str:
    (chunk,) = encode_response(api, version, 1, message)
    assert isinstance(chunk, bytearray)
    return chunk[4:].hex()


@pytest.mark.spec("BRK-9", "BRK-162")
def test_the_example_of_the_specification() -> None:
    request = api_versions.ApiVersionsRequest(client_software_name="kt", client_software_version="1.0")
    frame = encode_request(api_versions.API, 3, 1, "test", request)
    assert frame.hex() == "00000017001200030000000100047465737400036b7404312e3000"
    header, body = decode_header(api_versions.API, frame[4:])
    assert header == RequestHeader(18, 3, 1, "test")
    assert decode_request(api_versions.API, 3, frame[4:], body) == request


@pytest.mark.spec("BRK-9", "ADM-13")
def test_tagged_fields_of_a_header_are_passed_over() -> None:
    tagged = bytes.fromhex("00120003000000010004 74657374" + "02 00 03 aabbcc 07 01 05" + "036b7404312e3000")
    header, body = decode_header(api_versions.API, tagged)
    assert header == RequestHeader(18, 3, 1, "test")
    request = decode_request(api_versions.API, 3, tagged, body)
    assert (request.client_software_name, request.client_software_version) == ("kt", "1.0")


@pytest.mark.spec("BRK-9")
def test_controlled_shutdown_0_has_no_client_id() -> None:
    frame = encode_request(
        controlled_shutdown.API, 0, 5, "x", controlled_shutdown.ControlledShutdownRequest(broker_id=3)
    )
    assert frame.hex() == "0000000c000700000000000500000003"
    assert decode_header(controlled_shutdown.API, frame[4:]) == (RequestHeader(7, 0, 5, None), 8)


@pytest.mark.spec("BRK-9")
def test_a_header_1_has_the_client_id_with_its_length_in_two_bytes_and_nothing_behind_it() -> None:
    frame = encode_request(metadata.API, 1, 5, "\u00e4b", metadata.MetadataRequest(topics=None))
    assert frame.hex() == "00000011" + "0003000100000005" + "0003c3a462" + "ffffffff"
    assert decode_header(metadata.API, frame[4:]) == (RequestHeader(3, 1, 5, "\u00e4b"), 13)


@pytest.mark.spec("BRK-9")
def test_a_null_client_id() -> None:
    frame = encode_request(metadata.API, 1, 5, None, metadata.MetadataRequest(topics=None))
    assert frame.hex() == "0000000e0003000100000005ffffffffffff"
    assert decode_header(metadata.API, frame[4:]) == (RequestHeader(3, 1, 5, None), 10)


@pytest.mark.spec("BRK-11")
def test_the_response_header_of_api_versions_is_never_flexible() -> None:
    response = api_versions.ApiVersionsResponse(
        error_code=0, api_keys=[api_versions.ApiVersionsResponseKey(api_key=18, min_version=0, max_version=3)]
    )
    assert _response(api_versions.API, 3, response) == "00000001000002001200000003000000000000"
    assert _response(api_versions.API, 0, response) == "00000001000000000001001200000003"


@pytest.mark.spec("BRK-162")
def test_metadata_9_is_flexible_with_a_flexible_response_header() -> None:
    response = metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node_id=1, host="h", port=9092)], controller_id=1, topics=[]
    )
    assert _response(metadata.API, 9, response) == (
        "000000010000000000020000000102680000238400000000000001018000000000"
    )
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic="t")])
    assert _request(metadata.API, 9, request) == "0202740001000000"
    assert _request(metadata.API, 9, metadata.MetadataRequest(topics=None)) == "0001000000"


@pytest.mark.spec("BRK-162")
def test_the_error_stands_before_the_partition_in_offset_for_leader_epoch() -> None:
    partition = offset_for_leader_epoch.OffsetForLeaderEpochResponsePartition(
        error_code=6, partition=2, leader_epoch=3, end_offset=4
    )
    topic = offset_for_leader_epoch.OffsetForLeaderEpochResponseTopic(topic="t", partitions=[partition])
    response = offset_for_leader_epoch.OffsetForLeaderEpochResponse(throttle_time_ms=9, topics=[topic])
    tail = "0000000100017400000001000600000002"
    assert _response(offset_for_leader_epoch.API, 0, response) == "00000001" + tail + "0000000000000004"
    assert _response(offset_for_leader_epoch.API, 2, response) == (
        "0000000100000009" + tail + "000000030000000000000004"
    )


def _partition_state(topic: str, partition: int) -> leader_and_isr.LeaderAndIsrPartition:
    return leader_and_isr.LeaderAndIsrPartition(
        topic=topic,
        partition=partition,
        controller_epoch=5,
        leader=1,
        leader_epoch=7,
        isr=[1],
        zk_version=8,
        replicas=[1, 2],
        is_new=True,
    )


@pytest.mark.spec("BRK-162")
def test_leader_and_isr_is_flat_below_version_2_and_grouped_from_it_on() -> None:
    request = leader_and_isr.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=5,
        broker_epoch=6,
        partition_states=[_partition_state("a", 0), _partition_state("b", 0), _partition_state("a", 1)],
        live_leaders=[leader_and_isr.LeaderAndIsrLiveLeader(broker_id=1, host="h", port=9)],
    )
    head, leaders = "0000000100000005", "000000010000000100016800000009"
    state = "000000050000000100000007000000010000000100000008000000020000000100000002"
    a0, b0, a1 = "00000000" + state, "00000000" + state, "00000001" + state
    assert _request(leader_and_isr.API, 0, request) == (
        head + "00000003" + "000161" + a0 + "000162" + b0 + "000161" + a1 + leaders
    )
    assert _request(leader_and_isr.API, 2, request) == (
        f"{head}00000000000000060000000200016100000002{a0}01{a1}0100016200000001{b0}01{leaders}"
    )


@pytest.mark.spec("BRK-162")
def test_stop_replica_in_its_three_forms() -> None:
    request = stop_replica.StopReplicaRequest(
        controller_id=1,
        controller_epoch=5,
        broker_epoch=6,
        delete_partitions=True,
        partitions=[TopicPartition("a", 1), TopicPartition("a", 2)],
    )
    head = "0000000100000005"
    assert _request(stop_replica.API, 0, request) == (head + "01000000020001610000000100016100000002")
    assert _request(stop_replica.API, 1, request) == (head + "00000000000000060100000001000161000000020000000100000002")
    assert _request(stop_replica.API, 2, request) == (head + "0000000000000006010202610300000001000000020000")


@pytest.mark.spec("BRK-162")
def test_update_metadata_0_has_one_address_and_later_versions_endpoints_with_the_port_first() -> None:
    broker = update_metadata.UpdateMetadataBroker(
        id=1,
        host="h",
        port=9,
        endpoints=[update_metadata.UpdateMetadataEndpoint(port=9, host="h", listener_name="L", security_protocol=0)],
        rack="r",
    )
    request = update_metadata.UpdateMetadataRequest(
        controller_id=1, controller_epoch=5, partition_states=[], live_brokers=[broker]
    )
    head = "0000000100000005"
    assert _request(update_metadata.API, 0, request) == head + "00000000000000010000000100016800000009"
    assert _request(update_metadata.API, 3, request) == (
        head + "000000000000000100000001000000010000000900016800014c0000000172"
    )


@pytest.mark.spec("BRK-155")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_produce_request_too_old_can_be_answered_in_its_own_layout(version: int) -> None:
    body = "00010000006400000001000174000000010000000300000002abcd"
    frame = bytes.fromhex(f"0000{version:04x}00000001000178" + body)
    header, offset = decode_header(produce.API, frame)
    request = decode_request(produce.API, header.api_version, frame, offset)
    assert request.transactional_id is None
    assert bytes(request.topics[0].partitions[0].records) == b"\xab\xcd"
    partition = produce.ProduceResponsePartition(partition=3, error_code=35)
    topic = produce.ProduceResponseTopic(topic="t", partitions=[partition])
    expected = "000000010000000100017400000001000000030023" + "ff" * (8 if version < 2 else 16)
    assert _response(produce.API, version, produce.ProduceResponse(topics=[topic])) == (
        expected + "00000000" * (version > 0)
    )


@pytest.mark.spec("BRK-10")
@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("null where it may not be", "ffff00000001ffff"),
        ("string of length -2", "fffe00000001000178"),
        ("string past the end", "7fff00000001000178"),
    ],
)
def test_lengths_that_cannot_be(why: str, body: str) -> None:
    with pytest.raises(ProtocolError, match=r"group_id: length"):
        decode_request(heartbeat.API, 0, bytes.fromhex(body), 0)


@pytest.mark.spec("BRK-10")
@pytest.mark.parametrize("count", [0x7FFFFFFF, 0x10000000, -2, -1])
def test_a_count_is_bounded_by_the_bytes_left(count: int) -> None:
    frame = struct.pack(">i", count) + bytes(64)
    with pytest.raises(ProtocolError, match="topics: length"):
        decode_request(metadata.API, 0, frame, 0)


@pytest.mark.spec("BRK-9", "ADM-13")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 125, 126, 127, 128, 300])
def test_numbers_in_a_row_however_many(count: int, version: int) -> None:
    """Few are read and written by what is made beforehand; from 127 on their count takes two bytes in the flexible form."""
    wanted = elect_leaders.ElectLeadersTopic(topic="t", partitions=list(range(count)))
    request = elect_leaders.ElectLeadersRequest(election_type=0, topics=[wanted], timeout_ms=1)
    frame = encode_request(elect_leaders.API, version, 1, "x", request)[4:]
    counted = struct.pack(">i", count)
    if version == 2:
        more = count + 1
        counted = bytes([more]) if more < 128 else bytes([more & 0x7F | 0x80, more >> 7])
    assert counted + struct.pack(f">{count}i", *range(count)) in frame
    _, body = decode_header(elect_leaders.API, frame)
    assert decode_request(elect_leaders.API, version, frame, body) == request


@pytest.mark.spec("BRK-162", "ADM-13")
def test_unknown_tagged_fields_are_skipped() -> None:
    plain = bytes.fromhex("01010000")
    tagged = plain + bytes.fromhex("020003aabbccc80100")
    assert decode_request(metadata.API, 9, tagged, 0) == decode_request(metadata.API, 9, plain + b"\0", 0)


@pytest.mark.spec("ADM-13")
def test_unknown_tagged_fields_of_an_answer_are_passed_over_in_its_header_its_parts_and_at_its_end() -> None:
    topic = "11" * 16 + "01"
    plain = "00000001 {} 00000000 0000 00000000 02" + topic + "{} {}"
    answer = fetch.FetchResponse(topics=[fetch.FetchResponseTopic(topic_id=b"\x11" * 16, partitions=[])])
    frame = bytes.fromhex(plain.format("00", "00", "00"))
    assert _response(fetch.API, 17, answer) == frame.hex()
    tagged = bytes.fromhex(plain.format("010502aabb", "020000630101", "02000101c80101ff"))
    assert decode_response(fetch.API, 17, tagged) == decode_response(fetch.API, 17, frame) == (1, answer)


@pytest.mark.spec("BRK-10")
@pytest.mark.parametrize(
    "tags",
    [
        "0205000500",  # the same tag twice
        "0205000400",  # falling
        "01057f",  # past the end
        "01ffffffffff0100",  # a varint of six bytes
        "0105",  # cut off
    ],
)
def test_malformed_tagged_fields(tags: str) -> None:
    with pytest.raises(ProtocolError):
        decode_request(metadata.API, 9, bytes.fromhex("01010000" + tags), 0)


@pytest.mark.spec("BRK-162")
def test_invalid_utf_8_is_read_with_replacement_characters_and_any_non_zero_byte_is_true() -> None:
    frame = bytes.fromhex("000000010002ff6107")
    request = decode_request(metadata.API, 4, frame, 0)
    assert request.topics[0].topic == "\ufffda"
    assert request.allow_auto_topic_creation is True


@pytest.mark.spec("BRK-10")
@pytest.mark.parametrize(("api", "version"), [(fetch.API, 18), (leader_and_isr.API, 3), (api_versions.API, 4)])
def test_a_version_that_is_not_known_is_refused(api: Api, version: int) -> None:
    header, body = decode_header(api, struct.pack(">hhih", api.key, version, 1, -1) + bytes(50))
    with pytest.raises(ProtocolError, match=rf"{api.name} has no version {version}"):
        decode_request(api, header.api_version, bytes(50), body)


@pytest.mark.parametrize(
    "message",
    [
        heartbeat.HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m"),
        heartbeat.HeartbeatRequest(group_id="g" * 40_000, generation_id=1, member_id="m"),
        heartbeat.HeartbeatRequest(group_id=None, generation_id=1, member_id="m"),  # type: ignore[arg-type]
        heartbeat.HeartbeatRequest(group_id="g", generation_id="1", member_id="m"),  # type: ignore[arg-type]
    ],
    ids=["too large", "too long", "null", "wrong type"],
)
def test_a_field_that_cannot_be_written_is_a_protocol_error(message: heartbeat.HeartbeatRequest) -> None:
    with pytest.raises(ProtocolError, match="HeartbeatRequest version 0 cannot be written"):
        encode_request(heartbeat.API, 0, 1, None, message)


def test_records_are_views_into_the_frame() -> None:
    partition = fetch.FetchResponsePartition(partition=0, records=b"r" * 5000)
    response = fetch.FetchResponse(topics=[fetch.FetchResponseTopic(topic="t", partitions=[partition])])
    chunks = encode_response(fetch.API, 11, 1, response)
    assert chunks[1] is partition.records
    frame = bytearray(b"".join(chunk for chunk in chunks if isinstance(chunk, bytes | bytearray))[4:])
    _, decoded = decode_response(fetch.API, 11, frame)
    records = decoded.topics[0].partitions[0].records
    assert isinstance(records, memoryview) and records.obj is frame
