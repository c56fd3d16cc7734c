"""Topics of an embedded cluster, made and known to every broker: what a test produces to next is led. And filled."""

import contextlib
import itertools
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkatool.broker.embedded.ports import HOST
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError, RefusedError
from kafkatool.core.protocol.messages import create_topics, find_coordinator, metadata, produce
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch

if TYPE_CHECKING:
    from kafkatool.core.security.client_security import ClientSecurity

_CREATE_VERSION = 3
_COORDINATOR_VERSION = 2
_METADATA_VERSION = 5
_PRODUCE_VERSION = 7
_TIMEOUT_MS = 30_000
_HEARD_OF_S = 10

RECORD_BYTES: Final = 1000
BATCH_RECORDS: Final = 250


ConfigValue = str | int | float  # of a topic; a bool is one, too


def create_topic(
    ports: Mapping[int, int],
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, ConfigValue],
    *,
    expected: int,
    security: "ClientSecurity | None" = None,
) -> None:
    """Make it, and return when every broker that answers names a leader and all replicas in sync of each partition.

    Where enough brokers are ``expected``, the controller is asked again until it knows of them: one may be coming back.
    Raises RefusedError with the controller's words, KafkatoolError when that takes too long.
    """
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreateTopicsTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[create_topics.CreateTopicsConfig(name=k, value=_text(v)) for k, v in configs.items()],
            )
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    asked = lost = False
    refusal: RefusedError | None = None
    while not asked or not all(_is_there(port, name, partitions, security) for port in ports.values()):
        if time.monotonic() > deadline:
            raise refusal or KafkatoolError(f"topic {name} is not there after {_TIMEOUT_MS} ms")
        if asked:
            time.sleep(0.005)
            continue
        refusal = None
        made, lost_now = _ask(ports, request, security)
        lost |= lost_now
        if made is not None:
            asked = made.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
            # One that exists was made by the controller whose answer was lost.
            asked |= lost and made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            if not asked:
                words = made.error_message or ErrorCode(made.error_code).name
                refusal = RefusedError(f"topic {name} is not made: {words}")
                few = made.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
                if not (few and 0 < replication_factor <= expected):
                    raise refusal
        if not asked:
            time.sleep(0.02)


def create_offsets_topic(ports: Mapping[int, int], security: "ClientSecurity | None" = None) -> None:
    """Have the topic of the groups' offsets made, as a first group would; return when it is of use.

    Raises KafkatoolError when that takes too long: its replication factor may be above the number of brokers.
    """
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    request = find_coordinator.FindCoordinatorRequest(key="kt-cluster")
    for port in itertools.cycle(ports.values()):
        with contextlib.suppress(BrokerUnreachableError), _connect(port, security) as connection:
            answer = connection.send(find_coordinator.API, _COORDINATOR_VERSION, request)
            if answer.error_code == ErrorCode.NONE:
                return
        if time.monotonic() > deadline:
            raise KafkatoolError(f"the topic of the groups' offsets is not there after {_TIMEOUT_MS} ms")
        time.sleep(0.02)


def fill_topic(ports: Mapping[int, int], name: str, megabytes: int, security: "ClientSecurity | None" = None) -> int:
    """Write records of RECORD_BYTES to the partitions in turn; return how many, acknowledged by all that are in sync.

    A batch whose acknowledgement is lost is written again. Raises RefusedError, KafkatoolError when one takes too long.
    """
    now_ms = time.time_ns() // 1_000_000
    records = [Record(i, now_ms, None, f"record {i} ".encode().ljust(RECORD_BYTES, b".")) for i in range(BATCH_RECORDS)]
    batch = encode_batch(records)
    batches = megabytes * 1_000_000 // (RECORD_BYTES * BATCH_RECORDS)
    leaders = _leaders(ports, name, security)
    for partition in itertools.islice(itertools.cycle(sorted(leaders)), batches):
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while (refusal := _refusal(ports, leaders[partition], name, partition, batch, security)) is not None:
            if time.monotonic() > deadline:
                raise KafkatoolError(f"{name}-{partition} takes no records: {refusal}")
            time.sleep(0.1)
            leaders = _leaders(ports, name, security)
    return batches * BATCH_RECORDS


def _leaders(ports: Mapping[int, int], name: str, security: "ClientSecurity | None") -> dict[int, int]:
    """Return the leader of each partition, -1 for none, as the first broker knows that knows the topic.

    One that was just made all may hear of a moment later. Raises RefusedError.
    """
    asked = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic=name)], allow_auto_topic_creation=False
    )
    deadline = time.monotonic() + _HEARD_OF_S
    while True:
        last = time.monotonic() > deadline
        told = None
        for port in ports.values():
            with contextlib.suppress(BrokerUnreachableError), _connect(port, security) as connection:
                (topic,) = connection.send(metadata.API, _METADATA_VERSION, asked).topics
                if topic.error_code == ErrorCode.NONE:
                    return {p.partition: p.leader_id for p in topic.partitions}
                told = ErrorCode(topic.error_code)
        if told is None:
            raise RefusedError("no broker of the cluster answers", now="kt cluster up")
        if last or told is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise RefusedError(f"topic {name}: {told.name}")
        time.sleep(0.1)


def _refusal(
    ports: Mapping[int, int],
    leader: int,
    name: str,
    partition: int,
    batch: bytearray,
    security: "ClientSecurity | None",
) -> str | None:
    """Write a batch; return why it was not taken, if it was not."""
    part = produce.ProduceRequestPartition(partition=partition, records=batch)
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=_TIMEOUT_MS, topics=[produce.ProduceRequestTopic(topic=name, partitions=[part])]
    )
    if leader not in ports:
        return "it has no leader"
    try:
        with _connect(ports[leader], security) as connection:
            (topic,) = connection.send(produce.API, _PRODUCE_VERSION, request).topics
    except BrokerUnreachableError as e:
        return str(e)
    (answer,) = topic.partitions
    return None if answer.error_code == ErrorCode.NONE else ErrorCode(answer.error_code).name


def _text(value: ConfigValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _ask(
    ports: Mapping[int, int], request: create_topics.CreateTopicsRequest, security: "ClientSecurity | None"
) -> tuple[create_topics.CreateTopicsResponseTopic | None, bool]:
    """Ask the controller; None when there is none to ask now. True: an answer was lost, so it may have been made."""
    lost = False
    for port in ports.values():
        try:
            with _connect(port, security) as any_broker:
                nobody = metadata.MetadataRequest(topics=[])
                controller = any_broker.send(metadata.API, _METADATA_VERSION, nobody).controller_id
            connected = _connect(ports[controller], security)
        except (BrokerUnreachableError, KeyError):
            continue  # that one is down, or knows no controller now
        try:
            with connected as connection:
                (made,) = connection.send(create_topics.API, _CREATE_VERSION, request).topics
        except BrokerUnreachableError:
            lost = True
            continue
        if made.error_code != ErrorCode.NOT_CONTROLLER:
            return made, lost
    return None, lost


def _is_there(port: int, name: str, partitions: int, security: "ClientSecurity | None") -> bool:
    try:
        with _connect(port, security) as connection:
            asked = metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(topic=name)], allow_auto_topic_creation=False
            )
            (topic,) = connection.send(metadata.API, _METADATA_VERSION, asked).topics
    except BrokerUnreachableError:
        return True  # it is down: no client will ask it
    return len(topic.partitions) == partitions and all(
        p.error_code == ErrorCode.NONE and p.leader_id >= 0 and set(p.isr_nodes) == set(p.replica_nodes)
        for p in topic.partitions
    )


def _connect(port: int, security: "ClientSecurity | None") -> Connection:
    return Connection(HOST, port, client_id="kt-cluster", timeout_ms=_TIMEOUT_MS, security=security)
