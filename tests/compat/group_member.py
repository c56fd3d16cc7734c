"""A group member of raw requests, in versions that Kafka 1.1 knows too: it is in whatever state a test wants it in."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import (
    delete_groups,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

SESSION_MS: Final = 250_000
"""Longer than any test: members go only if they leave or are thrown out."""


@dataclass(slots=True)
class RawMember:
    """Member of ``group``. ``port`` is the coordinator's: set it when that moves."""

    port: int
    group: str
    topic: str
    id: str = ""
    generation: int = -1

    def join(self, *, metadata: bytes = b"one") -> int:
        """Join and, alone in the group, lead the next generation; the code."""
        answer = self._ask(join_group.API, 1, self._join_request(metadata))
        if answer.error_code == 0:
            self.id, self.generation = answer.member_id, answer.generation_id
        return int(answer.error_code)

    def sync(self) -> int:
        """Take all partitions, as the leader; return the code."""
        mine = sync_group.SyncGroupAssignment(member_id=self.id, assignment=b"mine")
        request = sync_group.SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, assignments=[mine]
        )
        return int(self._ask(sync_group.API, 0, request).error_code)

    def heartbeat(self, generation: int | None = None) -> int:
        wanted = self.generation if generation is None else generation
        request = heartbeat.HeartbeatRequest(group_id=self.group, generation_id=wanted, member_id=self.id)
        return int(self._ask(heartbeat.API, 0, request).error_code)

    def commit(self, offset: int) -> int:
        partition = offset_commit.OffsetCommitRequestPartition(
            partition=0, committed_offset=offset, committed_metadata="m"
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
            topics=[offset_commit.OffsetCommitRequestTopic(topic=self.topic, partitions=[partition])],
        )
        return int(self._ask(offset_commit.API, 2, request).topics[0].partitions[0].error_code)

    def committed(self) -> tuple[int, int]:
        """Offset and code."""
        topic = offset_fetch.OffsetFetchRequestTopic(topic=self.topic, partitions=[0])
        request = offset_fetch.OffsetFetchRequest(group_id=self.group, topics=[topic])
        (partition,) = self._ask(offset_fetch.API, 1, request).topics[0].partitions
        return partition.committed_offset, partition.error_code

    def delete(self) -> int:
        """Delete the group; the code."""
        answer = self._ask(delete_groups.API, 0, delete_groups.DeleteGroupsRequest(group_names=[self.group]))
        return int(answer.results[0].error_code)

    @contextmanager
    def another_joining(self) -> Iterator[None]:
        """Park a second member's JoinGroup: the group prepares to rebalance."""
        connection = self._connection()

        def wait() -> None:
            with contextlib.suppress(BrokerUnreachableError):  # the coordinator goes, and its connections with it
                connection.send(join_group.API, 1, self._join_request(b"two", member_id=""))

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            yield
        finally:
            connection.close()
            thread.join()

    def _join_request(self, metadata: bytes, member_id: str | None = None) -> Any:
        return join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.id if member_id is None else member_id,
            protocol_type="raw",  # of consumers Kafka 2.8 reads what subscription they bring
            protocols=[join_group.JoinGroupProtocol(name="range", metadata=metadata)],
        )

    def _connection(self) -> Connection:
        return Connection("127.0.0.1", self.port, client_id="raw", timeout_ms=2 * SESSION_MS, security=None)

    def _ask(self, api: Api, version: int, request: Any) -> Any:
        with self._connection() as connection:
            return connection.send(api, version, request, timeout_ms=60_000)
