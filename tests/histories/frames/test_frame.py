"""Frames out of bytes, however these come, and what is read of them."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import encode_request, encode_response
from kafkatool.core.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    fetch,
    heartbeat,
    init_producer_id,
    join_group,
    metadata,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from tests.histories.frames.frame import (
    Asked,
    NotFramesError,
    Splitter,
    correlation_of,
    read_answer,
    read_request,
)

JOIN = join_group.JoinGroupRequest(
    group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
)
SYNC = sync_group.SyncGroupRequest(group_id="g", generation_id=4, member_id="m")
INIT = init_producer_id.InitProducerIdRequest(transactional_id="t")
ADD = add_partitions_to_txn.AddPartitionsToTxnRequest(transactional_id="t")
ADD_OFFSETS = add_offsets_to_txn.AddOffsetsToTxnRequest(
    transactional_id="t", producer_id=7, producer_epoch=2, group_id="g"
)
COMMIT = txn_offset_commit.TxnOffsetCommitRequest(
    transactional_id="t", group_id="g", producer_id=7, producer_epoch=2, topics=[]
)
MARKERS = write_txn_markers.WriteTxnMarkersRequest(
    markers=[
        write_txn_markers.TxnMarker(producer_id=id_, producer_epoch=2, committed=True, topics=[], coordinator_epoch=0)
        for id_ in (7, 8)
    ]
)
END = end_txn.EndTxnRequest(transactional_id="t", producer_id=7, producer_epoch=2, committed=True)
FETCH = fetch.FetchRequest(
    max_wait_ms=1,
    min_bytes=1,
    topics=[
        fetch.FetchRequestTopic(
            topic="t",
            partitions=[fetch.FetchRequestPartition(partition=3, fetch_offset=17, partition_max_bytes=1)],
        )
    ],
)
STREAM = [
    encode_request(metadata.API, 9, 1, "c", metadata.MetadataRequest(topics=[])),
    encode_request(end_txn.API, 3, 2, None, END),
    encode_request(join_group.API, 5, 3, "another", JOIN),
]


@pytest.mark.spec("HIS-46")
def test_frames_cut_at_any_byte_are_the_same_frames() -> None:
    data = b"".join(STREAM)
    for cut in range(len(data) + 1):
        splitter = Splitter()
        assert [*splitter.feed(data[:cut]), *splitter.feed(data[cut:])] == STREAM
        assert splitter.rest == b""


@pytest.mark.spec("HIS-46")
@given(cuts=st.lists(st.integers(0, sum(map(len, STREAM)))))
def test_several_in_a_segment_and_several_segments_a_frame(cuts: list[int]) -> None:
    data, splitter, found = b"".join(STREAM), Splitter(), list[bytes]()
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        found += splitter.feed(data[start:end])
        assert b"".join(found) + splitter.rest == data[:end]
    assert found == STREAM


@pytest.mark.spec("HIS-46")
@pytest.mark.parametrize("start", [b"\x16\x03\x01\x02\x00", b"\xff\xff\xff\xff"], ids=["TLS", "a length below 0"])
def test_what_is_another_protocol_is_told_apart(start: bytes) -> None:
    with pytest.raises(NotFramesError):
        Splitter().feed(STREAM[0] + start)


@pytest.mark.spec("HIS-46")
@pytest.mark.parametrize(
    ("api", "version", "message", "body"),
    [
        (metadata.API, 9, metadata.MetadataRequest(topics=[]), {}),
        (fetch.API, 11, FETCH, {"from": {"t-3": 17}}),
        (join_group.API, 0, JOIN, {"group": "g", "member": "m"}),
        (sync_group.API, 3, SYNC, {"group": "g", "member": "m", "generation": 4}),
        (init_producer_id.API, 4, INIT, {"transactional_id": "t", "producer_id": -1, "epoch": -1}),
        (end_txn.API, 0, END, {"transactional_id": "t", "producer_id": 7, "epoch": 2, "committed": True}),
        (end_txn.API, 3, END, {"transactional_id": "t", "producer_id": 7, "epoch": 2, "committed": True}),
        (add_partitions_to_txn.API, 3, ADD, {"transactional_id": "t"}),
        (add_offsets_to_txn.API, 3, ADD_OFFSETS, {"transactional_id": "t"}),
        (txn_offset_commit.API, 3, COMMIT, {"transactional_id": "t"}),
        (write_txn_markers.API, 1, MARKERS, {"producers": [7, 8]}),
    ],
)
def test_a_request_says_what_it_is(api: Api, version: int, message: object, body: dict[str, Any]) -> None:
    frame = encode_request(api, version, 5, "anna", message)
    assert read_request(frame) == Asked(api.key, api.name, version, 5, "anna", len(frame), body)


@pytest.mark.spec("HIS-46")
def test_a_request_that_is_not_known_here_has_a_header_all_the_same() -> None:
    of_api_900 = b"\0\0\0\x0b" + b"\x03\x84" + b"\0\x01" + b"\0\0\0\x09" + b"\0\x01" + b"c"
    assert read_request(of_api_900) == Asked(900, "900", 1, 9, "c", 15, {})
    newer = bytearray(STREAM[1])
    newer[6:8] = b"\0\x63"
    asked = read_request(bytes(newer))
    assert asked is not None and (asked.api, asked.version, asked.client, asked.body) == ("EndTxn", 99, None, {})
    assert read_request(b"\0\0\0\x03abc") is None


@pytest.mark.spec("HIS-46")
def test_answers_tell_their_codes() -> None:
    def told(api: Api, version: int, request: object, response: object) -> tuple[int, dict[str, Any]]:
        asked = read_request(encode_request(api, version, 8, "c", request))
        chunks: Sequence[Any] = encode_response(api, version, 8, response)
        frame = b"".join(chunks)
        assert asked is not None
        return correlation_of(frame), dict(read_answer(asked, frame))

    assert told(end_txn.API, 3, END, end_txn.EndTxnResponse(error_code=48)) == (8, {"code": 48})
    beat = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert told(heartbeat.API, 0, beat, heartbeat.HeartbeatResponse(error_code=27)) == (8, {"code": 27})
    joined = join_group.JoinGroupResponse(error_code=0, generation_id=3, member_id="m")
    assert told(join_group.API, 5, JOIN, joined) == (8, {"code": 0, "member": "m", "generation": 3})
    asked_offsets = offset_fetch.OffsetFetchRequest(group_id="g", topics=None)
    committed = offset_fetch.OffsetFetchResponse(
        topics=[
            offset_fetch.OffsetFetchResponseTopic(
                topic="t",
                partitions=[offset_fetch.OffsetFetchResponsePartition(partition=3, committed_offset=17)],
            )
        ]
    )
    assert told(offset_fetch.API, 7, asked_offsets, committed) == (8, {"code": 0, "offsets": {"t-3": 17}})
    asked_metadata = metadata.MetadataRequest(topics=[])
    answered = metadata.MetadataResponse(brokers=[], controller_id=1, topics=[])
    assert told(metadata.API, 9, asked_metadata, answered) == (8, {})
    assert correlation_of(b"\0\0\0\x01a") == -1
