"""A fetcher's connection to its leader, made when first needed, and the three requests it sends (BRK-65).

The versions are those this broker's inter.broker.protocol.version implies; nothing is negotiated (BRK-3).
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkatool.broker.replication.following.follower_session import FetchQuestion
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, KafkatoolError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import API as FETCH
from kafkatool.core.protocol.messages.fetch import FetchRequest, FetchRequestTopic, FetchResponse, ForgottenTopic
from kafkatool.core.protocol.messages.list_offsets import API as LIST_OFFSETS
from kafkatool.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from kafkatool.core.protocol.messages.offset_for_leader_epoch import API as OFFSET_FOR_LEADER_EPOCH
from kafkatool.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponsePartition,
)

_KNOWS_SESSIONS = 7
_LISTS_SEGMENTS = 0


class LookupRefusedError(KafkatoolError):
    """The leader answered a question about one partition with an error code."""


@dataclass(eq=False)
class LeaderEndpoint:
    """The connection to one leader. Used by its fetcher's thread; ``close`` by any.

    Methods raise BrokerUnreachableError or ProtocolError; the next call then connects anew.
    """

    _config: BrokerConfig
    _broker_id: int  # this broker's own
    _client_id: str
    host: str
    port: int
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _connection: Connection | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    @property
    def own_id(self) -> int:
        """Return the id of the broker that asks."""
        return self._broker_id

    @property
    def knows_sessions(self) -> bool:
        """Tell whether the version of Fetch spoken has incremental sessions (BRK-160)."""
        return self._config.protocol_versions.fetch >= _KNOWS_SESSIONS

    @property
    def knows_epochs(self) -> bool:
        """Tell whether the leader can be asked where an epoch ends; one of before 0.11 cannot (ADM-98)."""
        return self._config.protocol_versions.offset_for_leader_epoch is not None

    def fetch(self, question: FetchQuestion) -> FetchResponse:
        """Ask for records (BRK-68, 160)."""
        config = self._config
        request = FetchRequest(
            replica_id=self._broker_id,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=question.session_id,
            session_epoch=question.session_epoch,
            topics=[FetchRequestTopic(topic=t, partitions=p) for t, p in question.wanted.items()],
            forgotten_topics=[ForgottenTopic(topic=t, partitions=p) for t, p in question.forgotten.items()],
        )
        return self._connected().send(FETCH, self._config.protocol_versions.fetch, request)

    def epoch_ends(
        self, asked: Iterable[tuple[TopicPartition, OffsetForLeaderEpochRequestPartition]]
    ) -> dict[TopicPartition, OffsetForLeaderEpochResponsePartition]:
        """Ask where those epochs end in the leader's log (BRK-66); only one that ``knows_epochs``."""
        topics: dict[str, list[OffsetForLeaderEpochRequestPartition]] = {}
        for partition, wanted in asked:
            topics.setdefault(partition.topic, []).append(wanted)
        request = OffsetForLeaderEpochRequest(
            replica_id=self._broker_id,
            topics=[OffsetForLeaderEpochRequestTopic(topic=t, partitions=p) for t, p in topics.items()],
        )
        version = self._config.protocol_versions.offset_for_leader_epoch
        assert version is not None  # else nobody asks
        response = self._connected().send(OFFSET_FOR_LEADER_EPOCH, version, request)
        return {TopicPartition(t.topic, p.partition): p for t in response.topics for p in t.partitions}

    def log_edge(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        """Ask for the leader's latest (-1) or earliest (-2) offset (BRK-73, 74). Raises LookupRefusedError too."""
        wanted = ListOffsetsRequestPartition(
            partition=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        topics = [ListOffsetsRequestTopic(topic=partition.topic, partitions=[wanted])]
        request = ListOffsetsRequest(replica_id=self._broker_id, topics=topics)
        version = self._config.protocol_versions.list_offsets
        response = self._connected().send(LIST_OFFSETS, version, request)
        answer = next((p for t in response.topics for p in t.partitions), None)
        if answer is None or answer.error_code != ErrorCode.NONE:
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
            raise LookupRefusedError(f"the leader of {partition} answered with error {code}")
        if version == _LISTS_SEGMENTS:  # of -1 the end alone, of -2 the start: one offset was asked for
            return answer.offsets[0]
        return answer.offset

    def disconnect(self) -> None:
        """Drop the connection; the next question connects anew."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close it for good; a question under way fails at once."""
        with self._lock:
            self._closed = True
        self.disconnect()

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is not None and not connection.closed:
            return connection
        timeout_ms = self._config.replica_socket_timeout_ms
        security = self._config.inter_broker_security
        connection = Connection(
            self.host, self.port, client_id=self._client_id, timeout_ms=timeout_ms, security=security
        )
        with self._lock:
            if not self._closed:
                self._connection = connection
                return connection
        connection.close()
        raise BrokerUnreachableError(f"the fetcher for {self.host}:{self.port} is being closed")
