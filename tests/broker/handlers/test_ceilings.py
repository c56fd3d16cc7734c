"""Hostile but well-formed requests: the largest of each API costs memory, and is answered, in proportion to its size.

The requests are made from the declarations of the messages: for each array of each API one that has as many elements as
fit, all the same or all different. What they name exists, and is as large as a client can make it.
"""

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkatool.broker.handlers.call import Served, load_handlers
from kafkatool.broker.limits import Limit
from kafkatool.broker.server import Broker
from kafkatool.core.errors import ProtocolError
from kafkatool.core.protocol.codec.schema import Array, Blob, Field, Struct, Text, WireType, fields_of
from kafkatool.core.protocol.codec.types import NO_UUID, UUID
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_request
from kafkatool.core.protocol.messages import (
    find_coordinator,
    join_group,
    metadata,
    offset_commit,
    offset_for_leader_epoch,
    sync_group,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.broker.handlers.served import Client, broker_of, handler_context
from tests.broker.network.raw_client import network_config, wait_until
from tests.broker.test_server import client_of, config, create

KIB, MIB = 1 << 10, 1 << 20
MEMORY_PER_BYTE = 250  # of a request: a small object, and another in its answer, for two bytes on the wire
ANSWER_PER_BYTE = 100
FIXED_BYTES = 4 * MIB
CPU_S_PER_BYTE = 30e-6  # while memory is traced, on any machine: what is quadratic takes hours
FIXED_S = 10.0

Path_ = tuple[str, ...]

# What elements name, so that there is much to say of it; and what keeps a request from changing the broker.
HOT: dict[str, Any] = {
    "topic": "t",
    "topic_names": "t",
    "group_id": "g",
    "groups": "g",
    "group_names": "g",
    "resource_type": 4,
    "resource_name": "1",
    "records": bytes(encode_batch([Record(0, 0, b"k", b"v")])),
    "replica_id": -1,
    "max_bytes": MIB,
    "partition_max_bytes": MIB,
    "session_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "current_leader_epoch": -1,
    "generation_id": -1,
    "broker_id": 99,
    "acks": 1,
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "include_synonyms": True,
    "timestamp": 0,
}


def value_of(field: Field, wire_type: WireType, index: int | None, wide: Path_, count: int, version: int) -> Any:
    """Make a field's value; ``wide`` leads to the array of ``count`` elements, ``index`` tells one from another."""
    match wire_type:
        case Array(element=element):
            size = count if len(wide) == 1 and wide[0] == field.name else 1
            rest = wide[1:] if len(wide) > 1 and wide[0] == field.name else ()
            if index is None or size == 1:
                return [value_of(field, element, None, rest, count, version)] * size
            return [value_of(field, element, i, rest, count, version) for i in range(size)]
        case Struct(type=cls):
            return made(cls, version, index, wide, count)
        case Text():
            return HOT.get(field.name, "x") if index is None else f"{index:x}"
        case Blob():
            return HOT.get(field.name, b"")
    if wire_type == UUID:
        return NO_UUID
    if wire_type.code == "?":
        return HOT.get(field.name, False)
    return index % 100 if index is not None and field.name == "partition" else HOT.get(field.name, 0)


def made(cls: type[object], version: int, index: int | None, wide: Path_, count: int) -> Any:
    fields = {f.name: value_of(f, f.type, index, wide, count, version) for f in fields_of(cls) if f.exists(version)}
    return cls(**fields)


def arrays(cls: type[object], version: int) -> Iterator[Path_]:
    """Yield the way to each array of a message."""
    for field in fields_of(cls):
        if isinstance(field.type, Array) and field.exists(version):
            yield (field.name,)
            if isinstance(field.type.element, Struct):
                yield from ((field.name, *rest) for rest in arrays(field.type.element.type, version))


def request(served: Served, wide: Path_, size_bytes: int, *, distinct: bool, elements: int = 0) -> bytes:
    """Make the frame of about that size, or with so many elements."""
    version = served.versions[1]

    def frame(count: int) -> bytes:
        message = made(served.api.request, version, 0 if distinct else None, wide, count)
        return encode_request(served.api, version, 1, "hostile", message)

    if elements:
        return frame(elements)
    one, many = len(frame(1)), len(frame(101))
    count = max(1, (size_bytes - one) * 100 // max(many - one, 100))
    limit = served.api.request.most_elements  # type: ignore[attr-defined]
    if limit is not None:  # above it the request is not even read
        count = min(count, (limit - 100) // (1 + arrays_below(served, wide)))
    return frame(count)


def arrays_below(served: Served, wide: Path_) -> int:
    """Return how many arrays each element of that one has."""
    return sum(path[: len(wide)] == wide for path in arrays(served.api.request, served.versions[1])) - 1


class Cost(NamedTuple):
    """The cost of a request: the peak of memory beyond what there was, CPU time of all threads, bytes of the answer."""

    memory_bytes: int
    cpu_s: float
    answer_bytes: int


def cost(broker: Broker, frame: bytes) -> Cost:
    """Send it and wait for the answer."""
    with closing(Client(broker.port)) as client:
        client.socket.settimeout(300)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        begun_s = time.process_time()
        try:
            client.socket.sendall(frame)
            answered = len(client.receive())
        except (EOFError, ConnectionError):
            answered = 0  # refused: the connection was closed
        _, peak = tracemalloc.get_traced_memory()
    return Cost(peak - before - answered, time.process_time() - begun_s, answered)


@pytest.fixture
def broker(zk_connect: str, tmp_path: Path) -> Iterator[Broker]:
    """A broker with a topic, a large group on it, and an offset with as much metadata as is taken."""
    more: dict[str, Any] = {
        "delete.topic.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        "num.partitions": "1",
    }
    with Broker(config(zk_connect, tmp_path / "data", **more)) as made, client_of(made) as client:
        wait_until(lambda: client.send(metadata.API, 1, metadata.MetadataRequest(topics=[])).controller_id == 1)
        assert create(client, "t", 1, 1) == 0
        partition = offset_commit.OffsetCommitRequestPartition(
            partition=0, committed_offset=1, committed_metadata="m" * 4096
        )
        topic = offset_commit.OffsetCommitRequestTopic(topic="t", partitions=[partition])
        commit = offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])

        def committed() -> bool:
            client.send(find_coordinator.API, 1, find_coordinator.FindCoordinatorRequest(key="g"))
            return client.send(offset_commit.API, 2, commit).topics[0].partitions[0].error_code == 0

        wait_until(committed)
        protocol = join_group.JoinGroupProtocol(name="range", metadata=b"s" * 500_000)
        member = client.send(
            join_group.API,
            3,
            join_group.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=300_000,
                rebalance_timeout_ms=300_000,
                member_id="",
                protocol_type="consumer",
                protocols=[protocol],
            ),
        )
        assignment = sync_group.SyncGroupAssignment(member_id=member.member_id, assignment=b"a" * 400_000)
        sync = sync_group.SyncGroupRequest(
            group_id="g", generation_id=1, member_id=member.member_id, assignments=[assignment]
        )
        assert client.send(sync_group.API, 2, sync).error_code == 0
        yield made


def excesses(broker: Broker, size_bytes: int, *, distinct: bool) -> Iterator[str]:
    """Yield what took more than it may, or was not answered at all: of each array of each API that is served."""
    for served in load_handlers().values():
        for wide in arrays(served.api.request, served.versions[1]):
            frame = request(served, wide, size_bytes, distinct=distinct)
            tracemalloc.start()
            try:
                found = cost(broker, frame)
            finally:
                tracemalloc.stop()
            size = len(frame)
            if (
                found.memory_bytes > FIXED_BYTES + MEMORY_PER_BYTE * size
                or found.answer_bytes > FIXED_BYTES + ANSWER_PER_BYTE * size
                or found.cpu_s > FIXED_S + CPU_S_PER_BYTE * size
                or not found.answer_bytes
            ):
                yield (
                    f"{served.api.name} {'.'.join(wide)}: {size} bytes took {found.memory_bytes / MIB:.0f} MiB, "
                    f"{found.cpu_s:.1f} s, answered by {found.answer_bytes / MIB:.1f} MiB"
                )


@pytest.mark.slow
@pytest.mark.spec("SEC-99")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("distinct", [False, True], ids=["same", "different"])
def test_no_request_costs_more_than_its_size_allows(broker: Broker, distinct: bool) -> None:
    assert list(excesses(broker, 8 * KIB, distinct=distinct)) == []


@pytest.mark.spec("SEC-99")
@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(3600)
def test_no_request_of_megabytes_costs_more_than_its_size_allows(broker: Broker) -> None:
    assert list(excesses(broker, 2 * MIB, distinct=True)) == []


@pytest.mark.spec("BRK-10", "SEC-99")
@pytest.mark.parametrize("served", load_handlers().values(), ids=lambda served: served.api.name)
def test_a_request_of_more_elements_than_anyone_needs_is_not_even_read(served: Served) -> None:
    version, limit = served.versions[1], served.api.request.most_elements  # type: ignore[attr-defined]
    assert (limit is None) == served.from_controller, "the controller alone speaks of all partitions there are"
    most = 2_000_000 if served.api.name in ("CreateTopics", "CreatePartitions") else 250_000
    assert limit in (None, most)
    for wide in arrays(served.api.request, version):
        if limit is None or (limit > 250_000 and wide[-1] != "broker_ids"):
            continue  # so many objects take long to make; numbers do not
        frame = request(served, wide, 0, distinct=False, elements=limit + 1)[4:]
        _, body = decode_header(served.api, frame)
        with pytest.raises(ProtocolError, match="more elements"):
            decode_request(served.api, version, frame, body)


def codes_in(message: Any) -> Iterator[int]:
    """Yield all codes of an answer."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, list):
            for item in value:
                if is_dataclass(item):
                    yield from codes_in(item)


NAMES_PARTITIONS = [
    served
    for served in load_handlers().values()
    if ("topics", "partitions") in arrays(served.api.request, served.versions[1]) and not served.from_controller
]


@pytest.mark.spec("SEC-99")
@pytest.mark.parametrize("served", NAMES_PARTITIONS, ids=lambda served: served.api.name)
def test_more_partitions_than_a_request_may_name_are_refused_by_every_api(served: Served) -> None:
    context = handler_context(config=network_config(kt_max_partitions_per_request="10"))
    version = served.versions[1]
    with broker_of({served.api.key: served}, context) as client:
        message = made(served.api.request, version, 0, ("topics", "partitions"), 11)
        told = client.call(served.api, version, message)
    assert set(codes_in(told)) == {ErrorCode.INVALID_REQUEST}
    assert context.limits.count(Limit.PARTITIONS) == 1


@pytest.mark.spec("SEC-99")
def test_who_replicates_may_name_all_the_partitions_there_are() -> None:
    asked: list[int] = []

    def note(request: Any, call: Any) -> Any:
        asked.append(len(request.topics[0].partitions))
        return offset_for_leader_epoch.OffsetForLeaderEpochResponse(topics=[])

    served = replace(load_handlers()[offset_for_leader_epoch.API.key], handle=note)
    context = handler_context(config=network_config(kt_max_partitions_per_request="10"))
    with broker_of({served.api.key: served}, context) as client:
        for replica_id in (-1, 2):
            message = made(served.api.request, 3, 0, ("topics", "partitions"), 11)
            client.call(served.api, 3, replace(message, replica_id=replica_id))
    assert asked == [11]
