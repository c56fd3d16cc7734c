"""Reads replicas from the brokers that hold them, as a debugging consumer (replica id -2), which followers serve too.

Versions are agreed with each broker by ApiVersions: real Kafka from 0.10.1 on and the broker of this project. From
version 13 of Fetch on topics are named by their ids: whoever has none of one reads in the versions before (ADM-15).
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kafkatool.core.client.addresses import Address
from kafkatool.core.client.connections import Connections
from kafkatool.core.client.rights import NEVER_CREATES, about_every_topic, note_topics_left_out, refusal
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import BrokerTooOldError, BrokerUnreachableError, CorruptRecordsError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification.comparison import ROTTEN, Entry, Fetched, Layout
from kafkatool.core.operations.verification.read_rate import ReadRate
from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import NO_UUID, Buffer
from kafkatool.core.protocol.messages import fetch, list_offsets, metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchResponsePartition

if TYPE_CHECKING:  # who asks brokers starts without
    from kafkatool.core.zookeeper.session import ZooKeeper

CONSUMER_ID: Final = -1
DEBUGGING_CONSUMER_ID: Final = -2
TIMEOUT_MS: Final = 10_000
MAX_RESPONSE_BYTES: Final = 50 * 1024 * 1024  # of one fetch over all its partitions

_LEAST: Final = {fetch.API.key: 3, list_offsets.API.key: 1}
"""First version that says what is asked here: how much in all, and the one offset of a time."""
_OTHER_ID: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
"""The topic of that name has another id by now, or the broker has not heard of it yet."""

TopicSelection = Callable[[Sequence[str]], Sequence[str]]
_Response = TypeVar("_Response")


# --- layout ----------------------------------------------------------------------------------------------------


def layout_from_brokers(
    addresses: Sequence[Address], choose: TopicSelection, connections: Connections, *, unseen: Unseen | None = None
) -> Layout:
    """Ask the first broker that answers for the layout. Raises BrokerUnreachableError when none does.

    ``unseen`` is told what it may not tell us.
    """
    errors = []
    for address in addresses:
        try:
            answer = _ask(connections, address, metadata.API, _about_topics(None))
            if unseen is not None:
                _note_topics_left_out(connections, address, answer, unseen)
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
            {name: known for name, known in _ids_told(answer).items() if name in chosen},
        )
    raise BrokerUnreachableError("; ".join(errors))


def layout_from_zookeeper(zk: "ZooKeeper", choose: TopicSelection, connections: Connections) -> Layout:
    """Read the layout from the znodes, of which topics' ids are not taken (RPV-8X).

    Raises RefusedError where no broker has a listener that we speak to.
    """
    from kafkatool.core.zookeeper.cluster_view import read_cluster

    view = read_cluster(zk)
    access = connections.access
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


def _note_topics_left_out(
    connections: Connections, address: Address, answer: metadata.MetadataResponse, unseen: Unseen
) -> None:
    """Ask whether we may describe any topic there could be; brokers too old to say so are not asked."""
    connection = connections.to(address, timeout_ms=TIMEOUT_MS)
    if connection.version_of(metadata.API, least=NEVER_CREATES) is None:
        return
    of_none = connection.send(metadata.API, about_every_topic(), timeout_ms=TIMEOUT_MS)
    broker = next((f"broker {b.node_id}" for b in answer.brokers if (b.host, b.port) == address), str(address))
    note_topics_left_out(of_none, unseen, broker=broker, principal=connections.access.security.principal)


# --- reading ---------------------------------------------------------------------------------------------------


class BrokerReader:
    """The ReplicaReader over the network. Each broker is read by one thread at a time."""

    def __init__(
        self,
        layout: Layout,
        connections: Connections,
        *,
        fetch_size_bytes: int,
        max_wait_ms: int,
        max_bytes_per_second: int | None = None,
    ) -> None:
        """Read from the layout's addresses; ``max_bytes_per_second`` is for each broker (RPV-12X)."""
        self._addresses = layout.addresses
        self._topic_ids = dict(layout.topic_ids)
        self._connections = connections
        self._fetch_size_bytes = fetch_size_bytes
        self._max_wait_ms = max_wait_ms
        self._rate = max_bytes_per_second and ReadRate(max_bytes_per_second, time.monotonic)
        self._closed = threading.Event()

    def close(self) -> None:
        """End all connections; a thread that waits, for an answer or for its turn, is woken."""
        self._closed.set()
        self._connections.close()

    def fetch(
        self, broker_id: int, offsets: Mapping[TopicPartition, int], *, wait: bool
    ) -> Mapping[TopicPartition, Fetched | str]:
        """Fetch entries from those offsets on, as the fetch size allows; ``wait`` a moment for one if there is none.

        Raises BrokerUnreachableError.
        """
        wait_ms = self._max_wait_ms if wait else 0
        found = self._fetch(broker_id, offsets, wait_ms)
        if renewed := {p.topic for p, answer in found.items() if answer.error_code in _OTHER_ID}:
            self._read_ids(broker_id, renewed)
            found |= self._fetch(broker_id, {p: o for p, o in offsets.items() if p.topic in renewed}, wait_ms)
        why = {topic: self._why(broker_id, fetch.API, topic) for topic in {p.topic for p in found}}
        return {p: _fetched(answer, why[p.topic]) for p, answer in found.items()}

    def _fetch(
        self, broker_id: int, offsets: Mapping[TopicPartition, int], wait_ms: int
    ) -> dict[TopicPartition, FetchResponsePartition]:
        most_bytes = max(self._fetch_size_bytes, MAX_RESPONSE_BYTES)
        if self._rate:
            self._closed.wait(self._rate.wait_s(broker_id))
            most_bytes = min(most_bytes, self._rate.burst_bytes)
        topics: defaultdict[str, list[fetch.FetchRequestPartition]] = defaultdict(list)
        for (topic, number), offset in offsets.items():
            topics[topic].append(
                fetch.FetchRequestPartition(
                    partition=number, fetch_offset=offset, partition_max_bytes=self._fetch_size_bytes
                )
            )
        ids = {topic: self._topic_ids.get(topic, NO_UUID) for topic in topics}
        request = fetch.FetchRequest(
            replica_id=DEBUGGING_CONSUMER_ID,
            replica_state=fetch.ReplicaState(replica_id=DEBUGGING_CONSUMER_ID),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=most_bytes,
            topics=[fetch.FetchRequestTopic(topic=t, topic_id=ids[t], partitions=p) for t, p in topics.items()],
        )
        api = fetch.BY_NAME if NO_UUID in ids.values() else fetch.API
        answer = self._ask(broker_id, api, request, wait_ms=wait_ms)
        if self._rate:
            self._rate.spend(broker_id, sum(_size_bytes(p) for t in answer.topics for p in t.partitions))
        names = {topic_id: topic for topic, topic_id in ids.items()}
        return {
            TopicPartition(t.topic or names.get(t.topic_id, ""), p.partition): p
            for t in answer.topics
            for p in t.partitions
        }

    def _read_ids(self, broker_id: int, topics: Collection[str]) -> None:
        """Read the ids of those topics anew; one that is gone has none. Raises BrokerUnreachableError."""
        told = _ids_told(self._ask(broker_id, metadata.API, _about_topics(topics)))
        for topic in topics:
            self._topic_ids[topic] = told.get(topic, NO_UUID)

    def offsets(
        self, broker_id: int, partitions: Sequence[TopicPartition], timestamp_ms: int, *, committed: bool
    ) -> Mapping[TopicPartition, int | str]:
        """Ask as a consumer (the leader alone answers: its high watermark) or as a debugger (any answers: its end)."""
        topics: defaultdict[str, list[list_offsets.ListOffsetsRequestPartition]] = defaultdict(list)
        for topic, number in partitions:
            wanted = list_offsets.ListOffsetsRequestPartition(partition=number, timestamp=timestamp_ms)
            topics[topic].append(wanted)
        request = list_offsets.ListOffsetsRequest(
            replica_id=CONSUMER_ID if committed else DEBUGGING_CONSUMER_ID,
            topics=[list_offsets.ListOffsetsRequestTopic(topic=t, partitions=p) for t, p in topics.items()],
        )
        answer = self._ask(broker_id, list_offsets.API, request)
        return {
            TopicPartition(t.topic, p.partition): self._why(broker_id, list_offsets.API, t.topic)(p.error_code)
            if p.error_code
            else p.offset
            for t in answer.topics
            for p in t.partitions
        }

    def _why(self, broker_id: int, api: Api, topic: str) -> Callable[[int], str]:
        """Return what says what a code of that broker about the topic means."""
        about = {"broker": f"broker {broker_id}", "principal": self._connections.access.security.principal}
        return lambda code: str(refusal(api, code, None, topic, **about))

    def _ask(self, broker_id: int, api: Api, request: Request[_Response], *, wait_ms: int = 0) -> _Response:
        if broker_id not in self._addresses:
            raise BrokerUnreachableError(f"broker {broker_id} is not registered")
        return _ask(self._connections, Address(*self._addresses[broker_id]), api, request, wait_ms=wait_ms)


def _ask(
    connections: Connections, address: Address, api: Api, request: Request[_Response], *, wait_ms: int = 0
) -> _Response:
    """Return the answer, which the broker may hold back for ``wait_ms``. Raises BrokerUnreachableError."""
    connection = connections.to(address, timeout_ms=TIMEOUT_MS)
    least = _LEAST.get(api.key, api.min_version)
    if connection.version_of(api, least=least) is None:
        _, highest = connection.versions.get(api.key, (0, -1))
        raise BrokerTooOldError(
            f"{address} serves {api.name} up to version {highest}, kt needs {least}: is it older than Kafka 0.10.1?"
        )
    return connection.send(api, request, timeout_ms=TIMEOUT_MS + wait_ms, least=least)


def _about_topics(topics: Collection[str] | None) -> metadata.MetadataRequest:
    """Make the request for what there is of those topics, None: of all."""
    asked = None if topics is None else [metadata.MetadataRequestTopic(topic=t) for t in topics]
    return metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)


def _ids_told(answer: metadata.MetadataResponse) -> dict[str, bytes]:
    return {t.topic: t.topic_id for t in answer.topics if t.topic_id != NO_UUID}


def _size_bytes(partition: FetchResponsePartition) -> int:
    assert not isinstance(partition.records, FileRegion)  # decoded messages hold bytes
    return len(partition.records or b"")


def _fetched(partition: FetchResponsePartition, why: Callable[[int], str]) -> Fetched | str:
    if not (partition.error_code or partition.records):  # most: nothing new
        return Fetched(partition.high_watermark, ())
    if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Fetched(partition.high_watermark, (), out_of_range=True)
    if partition.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return Fetched(partition.high_watermark, (), tiered=True)
    if partition.error_code != ErrorCode.NONE:
        return why(partition.error_code)
    assert partition.records is not None and not isinstance(
        partition.records, FileRegion
    )  # decoded messages hold bytes
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
