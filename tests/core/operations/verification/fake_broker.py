"""A broker made of lists: answers ApiVersions, Metadata, Fetch and ListOffsets on a loopback socket, in real frames."""

import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.frames import decode_header, decode_request, encode_response
from kafkatool.core.protocol.messages import api_versions, fetch, list_offsets, metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.core.protocol.apis import APIS

SERVED = (api_versions.API, metadata.API, fetch.API, list_offsets.API)


KNOWS_IDS = 13
"""The first version of Fetch that names topics by their ids alone."""


def id_of(topic: str) -> bytes:
    """Return the id that a topic has at first."""
    return topic.encode().ljust(16, b"-")


def batch(offset: int, value: bytes) -> bytes:
    """Encode a batch of one record."""
    return bytes(encode_batch([Record(offset, 0, None, value, ())], base_offset=offset))


def batches(*values: bytes) -> list[bytes]:
    return [batch(offset, value) for offset, value in enumerate(values)]


@dataclass
class FakeBroker:
    """``logs`` hold one batch per offset, all committed. ``partitions``: topic partition -> (leader, replicas).

    ``topic_ids``: as it tells and takes them; a fetch by another is refused with ``other_id``.
    """

    id: int
    logs: dict[TopicPartition, list[bytes]]
    partitions: Mapping[TopicPartition, tuple[int, Sequence[int]]]
    addresses: dict[int, int]
    fetch_versions: tuple[int, int] = (fetch.API.min_version, fetch.API.max_version)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    other_id: ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
    replica_ids: set[int] = field(default_factory=set)
    asked: list[tuple[str, int, Any]] = field(default_factory=list)  # API's name, version, request
    client_ids: set[str | None] = field(default_factory=set)
    connections: int = 0
    start: int = 0  # of each log: what was before it has been deleted
    local_start: int = 0  # of each log: what is between start and it is in tiered storage

    def answer(self, key: int, version: int, request: Any) -> Any:
        if key == api_versions.API.key:
            keys = [(api.key, api.min_version, api.max_version) for api in SERVED if api is not fetch.API]
            keys.append((fetch.API.key, *self.fetch_versions))
            served = [
                api_versions.ApiVersionsResponseKey(api_key=k, min_version=low, max_version=high)
                for k, low, high in keys
            ]
            return api_versions.ApiVersionsResponse(api_keys=served)
        if key == metadata.API.key:
            return self._metadata()
        if key == fetch.API.key:
            state = request.replica_state or fetch.ReplicaState()
            self.replica_ids.add(request.replica_id if version < 15 else state.replica_id)
            return fetch.FetchResponse(topics=[self._read_topic(version, t) for t in request.topics])
        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsResponseTopic(
                    topic=t.topic, partitions=[self._offset(t.topic, p) for p in t.partitions]
                )
                for t in request.topics
            ]
        )

    def _metadata(self) -> metadata.MetadataResponse:
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(node_id=b, host="127.0.0.1", port=port)
                for b, port in self.addresses.items()
            ],
            topics=[
                metadata.MetadataResponseTopic(
                    topic=tp.topic,
                    topic_id=self.topic_ids.get(tp.topic, NO_UUID),
                    partitions=[
                        metadata.MetadataResponsePartition(
                            partition=tp.partition,
                            leader_id=leader,
                            replica_nodes=list(replicas),
                            isr_nodes=list(replicas),
                        )
                    ],
                )
                for tp, (leader, replicas) in self.partitions.items()
            ],
        )

    def _read_topic(self, version: int, wanted: Any) -> fetch.FetchResponseTopic:
        topic, names = wanted.topic, {known: name for name, known in self.topic_ids.items()}
        if version >= KNOWS_IDS and (topic := names.get(wanted.topic_id)) is None:
            refused = [
                fetch.FetchResponsePartition(partition=p.partition, error_code=self.other_id) for p in wanted.partitions
            ]
            return fetch.FetchResponseTopic(topic_id=wanted.topic_id, partitions=refused)
        read = [self._read(topic, p) for p in wanted.partitions]
        return fetch.FetchResponseTopic(topic=topic, topic_id=wanted.topic_id, partitions=read)

    def _read(self, topic: str, wanted: Any) -> fetch.FetchResponsePartition:
        log = self.logs.get(TopicPartition(topic, wanted.partition))
        if log is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return fetch.FetchResponsePartition(partition=wanted.partition, error_code=code)
        if not self.start <= wanted.fetch_offset <= len(log):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            return fetch.FetchResponsePartition(partition=wanted.partition, error_code=code)
        if wanted.fetch_offset < self.local_start:
            code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
            return fetch.FetchResponsePartition(partition=wanted.partition, error_code=code)
        records = b"".join(log[wanted.fetch_offset :])[: wanted.partition_max_bytes]
        return fetch.FetchResponsePartition(partition=wanted.partition, high_watermark=len(log), records=records)

    def _offset(self, topic: str, wanted: Any) -> list_offsets.ListOffsetsResponsePartition:
        log = self.logs[TopicPartition(topic, wanted.partition)]
        known = {-1: len(log), -2: self.start, -4: self.local_start}
        offset = known.get(wanted.timestamp, -1)
        return list_offsets.ListOffsetsResponsePartition(partition=wanted.partition, offset=offset)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        broker: FakeBroker = self.server.broker  # type: ignore[attr-defined]
        broker.connections += 1
        while len(length := self.rfile.read(4)) == 4:
            frame = self.rfile.read(struct.unpack(">i", length)[0])
            api = APIS[int.from_bytes(frame[:2], "big")]
            header, position = decode_header(api, frame)
            request = decode_request(api, header.api_version, frame, position)
            broker.asked.append((api.name, header.api_version, request))
            broker.client_ids.add(header.client_id)
            answer = broker.answer(header.api_key, header.api_version, request)
            for chunk in encode_response(api, header.api_version, header.correlation_id, answer):
                assert not isinstance(chunk, tuple)
                self.wfile.write(chunk)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def fake_cluster(
    logs: Mapping[int, dict[TopicPartition, list[bytes]]], *, down: Sequence[int] = ()
) -> Iterator[dict[int, FakeBroker]]:
    """Run one broker per entry, each holding its replica of the partitions it has; the lowest id leads. ``down`` refuse."""
    with ExitStack() as ends:
        servers = {}
        for broker_id in logs:
            server = _Server(("127.0.0.1", 0), _Handler)
            ends.callback(server.server_close)
            servers[broker_id] = server
        addresses = {b: server.server_address[1] for b, server in servers.items()}
        held = sorted({tp for log in logs.values() for tp in log})
        partitions = {tp: [b for b in logs if tp in logs[b]] for tp in held}
        layout = {tp: (min(replicas), replicas) for tp, replicas in partitions.items()}
        brokers = {b: FakeBroker(b, dict(log), layout, addresses) for b, log in logs.items()}
        for broker in brokers.values():
            broker.topic_ids = {tp.topic: id_of(tp.topic) for tp in held}
        for broker_id, server in servers.items():
            if broker_id in down:
                server.server_close()
                continue
            server.broker = brokers[broker_id]  # type: ignore[attr-defined]
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            ends.callback(thread.join)
            ends.callback(server.shutdown)
        yield brokers
