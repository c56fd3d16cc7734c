"""Headers, versions and failures, over raw sockets."""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import Call, Served, load_handlers
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.core.errors import (
    CorruptRecordsError,
    KafkatoolError,
    OffsetOutOfRangeError,
    RefusedError,
    StorageError,
)
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import encode_request
from kafkatool.core.protocol.messages import (
    api_versions,
    fetch,
    heartbeat,
    leader_and_isr,
    list_offsets,
    metadata,
    produce,
    update_metadata,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.network.raw_client import frame
from tests.waiting import eventually


def served(api: Api, handle: Callable[[Any, Call], Any]) -> dict[int, Served]:
    """Serve the API as the broker does, but for its handler."""
    return {api.key: replace(load_handlers()[api.key], handle=handle)}


def fail_with(error: Exception) -> Callable[[Any, Call], Any]:
    def handle(request: Any, call: Call) -> Any:
        raise error

    return handle


def beat(request: heartbeat.HeartbeatRequest, call: Call) -> heartbeat.HeartbeatResponse:
    return heartbeat.HeartbeatResponse(error_code=ErrorCode.NONE)


BEAT = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.spec("BRK-10")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\x0c\0\0",  # cut off in the header
        struct.pack(">hhih", 99, 0, 1, -1),  # no such API
        struct.pack(">hhih", 12, 4, 1, -1),  # no such version
        struct.pack(">hhih", 12, -1, 1, -1),
        struct.pack(">hhih", 12, 0, 1, 50),  # client id beyond the end
        struct.pack(">hhih", 12, 0, 1, -1) + b"\0\x05g",  # group id beyond the end
        struct.pack(">hhih", 18, -1, 1, -1),
    ],
)
def test_what_cannot_be_understood_is_logged_and_closes_the_connection_without_reply(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_of(served(heartbeat.API, beat), handler_context()) as client:
        assert client.call(heartbeat.API, 3, BEAT).error_code == 0
        caplog.clear()
        client.send(body)
        assert client.is_closed_by_server()
    (told,) = [r.getMessage() for r in caplog.records if r.name == "kafkatool.broker.handlers.dispatch"]
    assert told.startswith("closing 127.0.0.1:")


@pytest.mark.spec("BRK-10")
@pytest.mark.parametrize(
    ("key", "version", "client", "told"),
    [
        (12, 5, "orders", "Heartbeat in version 5 from client 'orders' is not served, versions 0 to 4 are"),
        (12, -1, "", "Heartbeat in version -1 is not served, versions 0 to 4 are"),
        (99, 7, "orders\n\u2028", r"request 99 in version 7 from client 'orders\n\u2028' is not served"),
        (99, 0, "x" * 300, f"request 99 in version 0 from client '{'x' * 100}' is not served"),
    ],
)
def test_the_owner_of_a_client_that_never_asked_for_versions_learns_what_is_not_served(
    key: int, version: int, client: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_of(served(heartbeat.API, beat), handler_context()) as raw:
        name = client.encode()
        raw.send(struct.pack(">hhih", key, version, 1, len(name)) + name)
        assert raw.is_closed_by_server()
    (line,) = [r.getMessage() for r in caplog.records if r.name == "kafkatool.broker.handlers.dispatch"]
    assert line.partition(": ")[2] == told


@pytest.mark.spec("BRK-4")
def test_a_newer_controllers_request_closes_the_connection_and_says_what_to_lower(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = served(leader_and_isr.API, fail_with(AssertionError())) | served(
        update_metadata.API, fail_with(AssertionError())
    )
    for key, version in [(4, 3), (4, 4), (6, 6), (6, 7)]:
        caplog.clear()
        with broker_of(both, handler_context()) as client:
            for _ in range(3):
                with closing(Client(client.socket.getpeername()[1])) as controller:
                    controller.send(struct.pack(">hhih", key, version, 1, -1))
                    assert controller.is_closed_by_server()
            told = [r.getMessage() for r in caplog.records if "inter.broker.protocol.version to 2.3" in r.getMessage()]
            assert len(told) == 1 and "controller at 127.0.0.1 " in told[0], "once for each peer"
            address = client.socket.getpeername()
            with socket.create_connection(address, 60, source_address=("127.0.0.2", 0)) as another:
                another.sendall(frame(struct.pack(">hhih", key, version, 1, -1)))
                assert another.recv(1) == b""
            assert "controller at 127.0.0.2 " in caplog.text and caplog.text.count("version to 2.3") == 2


@pytest.mark.spec("BRK-11")
@pytest.mark.parametrize("version", [4, 9, 32767])
@pytest.mark.parametrize("body", [b"", b"whatever it brings", b"\x01\x03kt\x021\x00"])
def test_a_newer_api_versions_is_answered_in_the_oldest_layout_and_the_connection_stays(
    version: int, body: bytes
) -> None:
    both = served(heartbeat.API, beat) | served(api_versions.API, fail_with(AssertionError()))
    with broker_of(both, handler_context()) as client:
        client.send(struct.pack(">hhih", 18, version, 77, -1) + body)
        assert client.receive() == struct.pack(">ihihhh", 77, 35, 1, 18, 0, 3)
        assert client.call(heartbeat.API, 0, BEAT).error_code == 0


@pytest.mark.spec("BRK-17")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("on purpose"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (StorageError("disk"), ErrorCode.KAFKA_STORAGE_ERROR),
        (KafkatoolError("odd"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (AppendError(ErrorCode.MESSAGE_TOO_LARGE, "it carries its code"), ErrorCode.MESSAGE_TOO_LARGE),
        (CorruptRecordsError("odd"), ErrorCode.CORRUPT_MESSAGE),
        (OffsetOutOfRangeError("odd"), ErrorCode.OFFSET_OUT_OF_RANGE),
        (RefusedError("odd"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_failing_handler_becomes_the_apis_error_reply_and_survives(error: Exception, code: ErrorCode) -> None:
    with broker_of(served(heartbeat.API, fail_with(error)), handler_context(), num_io_threads="1") as client:
        for _ in range(3):
            assert client.call(heartbeat.API, 3, BEAT).error_code == code


@pytest.mark.spec("BRK-17")
def test_an_error_reply_names_every_partition_of_the_request() -> None:
    partitions = [fetch.FetchRequestPartition(partition=p, fetch_offset=0, partition_max_bytes=1) for p in (4, 5)]
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        topics=[fetch.FetchRequestTopic(topic="t", partitions=partitions)],
    )
    with broker_of(served(fetch.API, fail_with(RuntimeError("on purpose"))), handler_context()) as client:
        for version in (4, 11):
            (topic,) = client.call(fetch.API, version, request).topics
            assert topic.topic == "t"
            assert [(p.partition, p.error_code) for p in topic.partitions] == [(4, -1), (5, -1)]


def _produce(acks: int) -> produce.ProduceRequest:
    partition = produce.ProduceRequestPartition(partition=1, records=b"some")
    topic = produce.ProduceRequestTopic(topic="t", partitions=[partition])
    return produce.ProduceRequest(acks=acks, timeout_ms=100, topics=[topic])


@pytest.mark.spec("BRK-17")
def test_a_failing_produce_without_acks_closes_the_connection() -> None:
    with broker_of(served(produce.API, fail_with(RuntimeError("on purpose"))), handler_context()) as client:
        answer = client.call(produce.API, 7, _produce(1))
        assert answer.topics[0].partitions[0].error_code == -1, "one that expects an answer has it"
        client.send_request(produce.API, 7, _produce(0))
        assert client.is_closed_by_server()


@pytest.mark.spec("BRK-17")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_failing_produce_below_3_is_answered_partition_by_partition_in_its_own_layout(version: int) -> None:
    with broker_of(served(produce.API, fail_with(RuntimeError("on purpose"))), handler_context()) as client:
        one = _produce(1)
        another = produce.ProduceRequestPartition(partition=4, records=b"more")
        topics = [
            produce.ProduceRequestTopic(topic="t", partitions=[*one.topics[0].partitions, another]),
            produce.ProduceRequestTopic(topic="u", partitions=[another]),
        ]
        answer = client.call(produce.API, version, replace(one, topics=topics))
        told = [
            (topic.topic, p.partition, p.error_code, p.base_offset) for topic in answer.topics for p in topic.partitions
        ]
        assert told == [("t", 1, -1, -1), ("t", 4, -1, -1), ("u", 4, -1, -1)]


@pytest.mark.spec("BRK-13")
def test_a_second_answer_is_dropped() -> None:
    def twice(request: Any, call: Call) -> None:
        call.respond(heartbeat.HeartbeatResponse(error_code=1))
        call.respond(heartbeat.HeartbeatResponse(error_code=2))

    with broker_of(served(heartbeat.API, twice), handler_context()) as client:
        assert [client.call(heartbeat.API, 0, BEAT).error_code for _ in range(3)] == [1, 1, 1]


@pytest.mark.spec("BRK-17")
def test_an_answer_that_cannot_be_written_ends_its_connection_and_harms_nobody_else() -> None:
    parked: list[Call] = []
    name = b"\xff" * (2**15 - 1)  # no UTF-8: three times as long when it is written again

    def park(request: Any, call: Call) -> metadata.MetadataResponse | None:
        if request.topics:
            parked.append(call)
            return None
        unwritable = metadata.MetadataResponseTopic(topic=name.decode(errors="replace"), partitions=[])
        parked.pop().respond(metadata.MetadataResponse(brokers=[], topics=[unwritable]))
        return metadata.MetadataResponse(brokers=[], topics=[])

    with broker_of(served(metadata.API, park), handler_context()) as waiting:
        waiting.send(struct.pack(">hhihih", 3, 1, 1, -1, 1, len(name)) + name)
        eventually(lambda: bool(parked), "the request to be parked")
        with closing(Client(waiting.socket.getpeername()[1])) as other:
            answer = other.call(metadata.API, 1, metadata.MetadataRequest(topics=[]))
            assert answer == metadata.MetadataResponse(brokers=[], topics=[])
        assert waiting.is_closed_by_server()


@pytest.mark.spec("BRK-22")
def test_from_which_version_on_a_reply_goes_out_at_once_and_what_is_charged() -> None:
    served_apis = load_handlers()
    assert {key: served_apis[key].throttled_at_once_from for key in (0, 1, 2, 3, 18)} == {0: 6, 1: 8, 2: 3, 3: 6, 18: 2}
    assert {key for key, api in served_apis.items() if api.charge is not None} == {0, 1}, "no control request is"


@pytest.mark.spec("SEC-101", "BRK-22")
def test_of_a_clients_name_so_much_tells_whose_quota_is_charged() -> None:
    charged: list[str] = []

    def note(_kind: str, _user: str, client_id: str, _size_bytes: int) -> int:
        charged.append(client_id)
        return 0

    context = handler_context(client_quotas=SimpleNamespace(active=True, charge=note))
    api = replace(
        served(metadata.API, lambda request, call: metadata.MetadataResponse(brokers=[], topics=[]))[3],
        charge=lambda _request, call, size_bytes: call.charge("produce", size_bytes),
    )
    with broker_of({3: api}, context) as client:
        client.send(encode_request(metadata.API, 1, 1, "x" * 4000, metadata.MetadataRequest(topics=[]))[4:])
        client.receive()
    assert charged == ["x" * 255]


@pytest.mark.spec("BRK-22")
@pytest.mark.parametrize(("version", "at_once"), [(5, False), (6, True)])
def test_a_throttled_client_is_told_at_once_and_kept_muted_or_answered_late(version: int, at_once: bool) -> None:
    def throttle(request: Any, call: Call) -> None:
        response = metadata.MetadataResponse(brokers=[], topics=[])
        call.respond(response, throttle_time_ms=150 if len(told) == 0 else 0)
        told.append(True)

    told: list[bool] = []
    request = metadata.MetadataRequest(topics=[])
    with broker_of(served(metadata.API, throttle), handler_context()) as client:
        started = time.monotonic()
        client.send_request(metadata.API, version, request)
        if at_once:
            client.receive_response(metadata.API, version)
            client.send_request(metadata.API, version, request)
        client.receive_response(metadata.API, version)
        assert time.monotonic() - started >= 0.15
    assert len(told) == 1 + at_once


@pytest.mark.spec("BRK-22")
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("api", "at_once_from", "request_", "response"),
    [
        (produce.API, 6, produce.ProduceRequest(acks=1, timeout_ms=0, topics=[]), produce.ProduceResponse(topics=[])),
        (
            fetch.API,
            8,
            fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=0, topics=[]),
            fetch.FetchResponse(topics=[]),
        ),
        (list_offsets.API, 3, list_offsets.ListOffsetsRequest(topics=[]), list_offsets.ListOffsetsResponse(topics=[])),
        (metadata.API, 6, metadata.MetadataRequest(topics=[]), metadata.MetadataResponse(brokers=[], topics=[])),
        (api_versions.API, 2, api_versions.ApiVersionsRequest(), api_versions.ApiVersionsResponse(api_keys=[])),
    ],
    ids=lambda value: value.name if isinstance(value, Api) else "",
)
def test_an_answer_goes_out_before_a_long_throttling_is_over_or_does_not(
    api: Api, at_once_from: int, request_: Any, response: Any, at_once: bool
) -> None:
    def throttle(request: Any, call: Call) -> None:
        call.respond(response, throttle_time_ms=3_600_000)

    version = at_once_from if at_once else at_once_from - 1
    with broker_of(served(api, throttle), handler_context()) as client:
        client.send_request(api, version, request_)
        if at_once:
            assert client.receive_response(api, version).throttle_time_ms == 3_600_000
            client.send_request(api, version, request_)
        assert client.answers_nothing_for(0.1)


@pytest.mark.spec("BRK-14", "BRK-117")
def test_api_versions_0_followed_at_once_by_metadata_0_yields_both_answers_in_order() -> None:
    from kafkatool.broker.handlers.metadata import handle as metadata_handle

    def ranges(request: Any, call: Call) -> api_versions.ApiVersionsResponse:
        return api_versions.ApiVersionsResponse(api_keys=[])

    both = served(api_versions.API, ranges) | served(metadata.API, metadata_handle)
    with broker_of(both, handler_context()) as client:
        client.socket.sendall(frame(struct.pack(">hhih", 18, 0, 1, -1)) + frame(struct.pack(">hhihi", 3, 0, 2, -1, 0)))
        assert client.receive() == struct.pack(">ihi", 1, 0, 0)
        assert client.receive() == struct.pack(">iii", 2, 0, 0)


@pytest.mark.spec("ADM-82")
def test_what_kafka_2_8_serves_clients_is_served_in_its_versions() -> None:
    """A client that is told a version of 2.8 or earlier asks for none, and sends these."""
    newest = {
        "Produce": 9, "Fetch": 12, "ListOffsets": 6, "Metadata": 11, "OffsetCommit": 8, "OffsetFetch": 7,
        "FindCoordinator": 3, "JoinGroup": 7, "Heartbeat": 4, "LeaveGroup": 4, "SyncGroup": 5, "DescribeGroups": 5,
        "ListGroups": 4, "SaslHandshake": 1, "ApiVersions": 3, "CreateTopics": 7, "DeleteTopics": 6, "DeleteRecords": 2,
        "InitProducerId": 4, "OffsetForLeaderEpoch": 4, "AddPartitionsToTxn": 3, "AddOffsetsToTxn": 3, "EndTxn": 3,
        "WriteTxnMarkers": 1, "TxnOffsetCommit": 3, "DescribeAcls": 2, "CreateAcls": 2, "DeleteAcls": 2,
        "DescribeConfigs": 4, "AlterConfigs": 2, "AlterReplicaLogDirs": 2, "DescribeLogDirs": 2, "SaslAuthenticate": 2,
        "CreatePartitions": 3, "DeleteGroups": 2, "ElectLeaders": 2, "IncrementalAlterConfigs": 1,
        "AlterPartitionReassignments": 0, "ListPartitionReassignments": 0, "OffsetDelete": 0, "DescribeClientQuotas": 1,
        "AlterClientQuotas": 1, "DescribeUserScramCredentials": 0, "AlterUserScramCredentials": 0, "DescribeCluster": 0,
        "DescribeProducers": 0,
    }  # fmt: skip
    served = {s.api.name: s.versions[1] for s in load_handlers().values()}
    assert {name: version for name, version in newest.items() if served.get(name, -1) < version} == {}
