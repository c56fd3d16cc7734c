"""Reads replicas from the brokers that hold them, as a debugging consumer (replica id -2), which followers serve too.

Versions are agreed with each broker by ApiVersions: real Kafka from 0.10.1 on and the broker of this project.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, TypeVar

from kafkatool.core.client.access import PLAINTEXT_ACCESS, BrokerAccess
from kafkatool.core.client.rights import NEVER_CREATES, about_every_topic, note_topics_left_out, refusal
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import BrokerUnreachableError, CorruptRecordsError, ProtocolError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification.comparison import ROTTEN, Entry, Fetched, Layout
from kafkatool.core.operations.verification.read_rate import ReadRate
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Buffer
from kafkatool.core.protocol.messages import api_versions, fetch, list_offsets, metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper

CLIENT_ID: Final = "kt-replica-verify"
CONSUMER_ID: Final = -1
DEBUGGING_CONSUMER_ID: Final = -2
TIMEOUT_MS: Final = 10_000
MAX_RESPONSE_BYTES: Final = 50 * 1024 * 1024  # of one fetch over all its partitions

_LEAST: Final = {fetch.API.key: 3, list_offsets.API.key: 1}
"""First version that says what is asked here: how much in all, and the one offset of a time."""

TopicSelection = Callable[[Sequence[str]], Sequence[str]]
_Response = TypeVar("_Response")


class NegotiatedConnection:
    """A connection that speaks the newest version of each request that both sides know (BRK-11)."""

    def __init__(
        self, host: str, port: int, *, timeout_ms: int = TIMEOUT_MS, access: BrokerAccess = PLAINTEXT_ACCESS
    ) -> None:
        """Connect, log in and agree on versions. Raises BrokerUnreachableError."""
        self._connection = access.connect(host, port, client_id=CLIENT_ID, timeout_ms=timeout_ms)
        self._timeout_ms = timeout_ms
        answer = self._send(api_versions.API, 0, api_versions.ApiVersionsRequest(), timeout_ms)
        self._served = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}

    def send(self, api: Api, request: Request[_Response], *, wait_ms: int = 0) -> _Response:
        """Send and return the answer, which the broker may hold back for ``wait_ms``. Raises BrokerUnreachableError."""
        lowest, highest = self._served.get(api.key, (0, -1))
        version = min(highest, api.max_version)
        least = _LEAST.get(api.key, api.min_version)
        if version < max(lowest, least):
            self.close()
            raise BrokerUnreachableError(
                f"{self._connection.host}:{self._connection.port} serves {api.name} up to version {highest}, "
                f"kt needs {least}: is it older than Kafka 0.10.1?"
            )
        return self._send(api, version, request, self._timeout_ms + wait_ms)

    def serves(self, api: Api, least: int) -> bool:
        """Tell whether both sides know a version of ``api`` from ``least`` on."""
        return min(self._served.get(api.key, (0, -1))[1], api.max_version) >= least

    def _send(self, api: Api, version: int, request: Request[_Response], timeout_ms: int) -> _Response:
        try:
            return self._connection.send(api, version, request, timeout_ms=timeout_ms)
        except ProtocolError as e:
            self.close()
            raise BrokerUnreachableError(f"{self._connection.host}:{self._connection.port}: {e}") from e

    def close(self) -> None:
        self._connection.close()


# --- layout ----------------------------------------------------------------------------------------------------


def layout_from_brokers(
    addresses: Sequence[tuple[str, int]],
    choose: TopicSelection,
    access: BrokerAccess = PLAINTEXT_ACCESS,
    *,
    unseen: Unseen | None = None,
) -> Layout:
    """Ask the first broker that answers for the layout. Raises BrokerUnreachableError when none does.

    ``unseen`` is told what it may not tell us.
    """
    errors = []
    for host, port in addresses:
        try:
            with closing(NegotiatedConnection(host, port, access=access)) as connection:
                answer = connection.send(
                    metadata.API, metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
                )
                if unseen is not None and connection.serves(metadata.API, NEVER_CREATES):
                    of_none = connection.send(metadata.API, about_every_topic())
                    who = {(b.host, b.port): f"broker {b.node_id}" for b in answer.brokers}
                    broker = who.get((host, port), f"{host}:{port}")
                    note_topics_left_out(of_none, unseen, broker=broker, principal=access.security.principal)
        except BrokerUnreachableError as e:
            errors.append(str(e))
            continue
        chosen = set(choose([t.topic for t in answer.topics]))
        partitions = {
            TopicPartition(t.topic, p.partition): p for t in answer.topics if t.topic in chosen for p in t.partitions
        }
        return Layout(
            {b.node_id: (b.host, b.port) for b in answer.brokers},
            {tp: tuple(p.replica_nodes) for tp, p in partitions.items()},
            {tp: p.leader_id if p.leader_id >= 0 else None for tp, p in partitions.items()},
            {tp: tuple(p.isr_nodes) for tp, p in partitions.items()},
            answer.cluster_id,
        )
    raise BrokerUnreachableError("; ".join(errors))


def layout_from_zookeeper(zk: ZooKeeper, choose: TopicSelection, access: BrokerAccess = PLAINTEXT_ACCESS) -> Layout:
    """Read the layout from the znodes (RPV-8X). Raises RefusedError where no broker has a listener that we speak to."""
    view = read_cluster(zk)
    access.check(view.brokers.values())
    chosen = set(choose(list(view.topics)))
    partitions = [p for p in view.partitions() if p.topic in chosen]
    states = {p: view.states[p].leader_and_isr for p in partitions if p in view.states}
    reached = {broker_id: access.endpoint(broker) for broker_id, broker in view.brokers.items()}
    return Layout(
        {broker_id: (endpoint.host, endpoint.port) for broker_id, endpoint in reached.items() if endpoint},
        {p: tuple(view.topics[p.topic].assignment[p.partition]) for p in partitions},
        {p: states[p].leader if p in states else None for p in partitions},
        {p: states[p].isr if p in states else () for p in partitions},
        view.cluster_id,
    )


# --- reading ---------------------------------------------------------------------------------------------------


class BrokerReader:
    """The ReplicaReader over the network. Each broker is read by one thread at a time; connections are kept."""

    def __init__(
        self,
        addresses: Mapping[int, tuple[str, int]],
        *,
        fetch_size_bytes: int,
        max_wait_ms: int,
        max_bytes_per_second: int | None = None,
        access: BrokerAccess = PLAINTEXT_ACCESS,
    ) -> None:
        """Read from those addresses; ``max_bytes_per_second`` is for each broker (RPV-12X)."""
        self._addresses = addresses
        self._access = access
        self._fetch_size_bytes = fetch_size_bytes
        self._max_wait_ms = max_wait_ms
        self._rate = max_bytes_per_second and ReadRate(max_bytes_per_second, time.monotonic)
        self._closed = threading.Event()
        self._connections: dict[int, NegotiatedConnection] = {}

    def close(self) -> None:
        """End all connections; a thread that waits, for an answer or for its turn, is woken."""
        self._closed.set()
        for connection in list(self._connections.values()):
            connection.close()

    def fetch(self, broker_id: int, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Fetched | str]:
        """Fetch entries from those offsets on, as the fetch size allows. Raises BrokerUnreachableError."""
        most_bytes = max(self._fetch_size_bytes, MAX_RESPONSE_BYTES)
        if self._rate:
            self._closed.wait(self._rate.wait_s(broker_id))
            most_bytes = min(most_bytes, self._rate.burst_bytes)
        topics: dict[str, list[fetch.FetchRequestPartition]] = {}
        for partition, offset in offsets.items():
            wanted = fetch.FetchRequestPartition(
                partition=partition.partition, fetch_offset=offset, partition_max_bytes=self._fetch_size_bytes
            )
            topics.setdefault(partition.topic, []).append(wanted)
        request = fetch.FetchRequest(
            replica_id=DEBUGGING_CONSUMER_ID,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=most_bytes,
            topics=[fetch.FetchRequestTopic(topic=t, partitions=p) for t, p in topics.items()],
        )
        answer = self._ask(broker_id, fetch.API, request, wait_ms=self._max_wait_ms)
        if self._rate:
            self._rate.spend(broker_id, sum(_size_bytes(p) for t in answer.topics for p in t.partitions))
        return {
            TopicPartition(t.topic, p.partition): _fetched(p, self._why(broker_id, fetch.API, t.topic))
            for t in answer.topics
            for p in t.partitions
        }

    def offsets(
        self, broker_id: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
    ) -> Mapping[TopicPartition, int | str]:
        """Ask as a consumer (the leader alone answers: its high watermark) or as a debugger (any answers: its end)."""
        topics: dict[str, list[list_offsets.ListOffsetsRequestPartition]] = {}
        for topic, number in partitions:
            wanted = list_offsets.ListOffsetsRequestPartition(partition=number, timestamp=timestamp_ms)
            topics.setdefault(topic, []).append(wanted)
        request = list_offsets.ListOffsetsRequest(
            replica_id=CONSUMER_ID if committed else DEBUGGING_CONSUMER_ID,
            topics=[list_offsets.ListOffsetsRequestTopic(topic=t, partitions=p) for t, p in topics.items()],
        )
        answer = self._ask(broker_id, list_offsets.API, request)
        return {
            TopicPartition(t.topic, p.partition): p.offset
            if p.error_code == ErrorCode.NONE
            else self._why(broker_id, list_offsets.API, t.topic)(p.error_code)
            for t in answer.topics
            for p in t.partitions
        }

    def _why(self, broker_id: int, api: Api, topic: str) -> Callable[[int], str]:
        """Return what says what a code of that broker about the topic means."""
        about = {"broker": f"broker {broker_id}", "principal": self._access.security.principal}
        return lambda code: str(refusal(api, code, None, topic, **about))

    def _ask(self, broker_id: int, api: Api, request: Request[_Response], *, wait_ms: int = 0) -> _Response:
        connection = self._connections.get(broker_id)
        if connection is None:
            if broker_id not in self._addresses:
                raise BrokerUnreachableError(f"broker {broker_id} is not registered")
            connection = self._connections[broker_id] = NegotiatedConnection(
                *self._addresses[broker_id], access=self._access
            )
        try:
            return connection.send(api, request, wait_ms=wait_ms)
        except BrokerUnreachableError:
            del self._connections[broker_id]
            raise


def _size_bytes(partition: fetch.FetchResponsePartition) -> int:
    assert not isinstance(partition.records, FileRegion)  # decoded messages hold bytes
    return len(partition.records or b"")


def _fetched(partition: fetch.FetchResponsePartition, why: Callable[[int], str]) -> Fetched | str:
    if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Fetched(partition.high_watermark, (), out_of_range=True)
    if partition.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return Fetched(partition.high_watermark, (), tiered=True)
    if partition.error_code != ErrorCode.NONE:
        return why(partition.error_code)
    assert not isinstance(partition.records, FileRegion)  # decoded messages hold bytes
    if not partition.records:
        return Fetched(partition.high_watermark, ())
    try:
        return Fetched(partition.high_watermark, _entries(partition.records))
    except CorruptRecordsError as e:
        return f"corrupt data: {e}"


def _entries(records: Buffer) -> tuple[Entry, ...]:
    """Read the batches; content that does not fit its own CRC is ROTTEN, so that it never looks equal."""
    # here, not above: who asks for offsets and sizes alone starts without checksums and compression
    from kafkatool.core.protocol.records.batches import check_crc, iter_batches

    return tuple(
        Entry(batch.last_offset, batch.crc if check_crc(records, position) else ROTTEN)
        for position, batch in iter_batches(records)
    )
