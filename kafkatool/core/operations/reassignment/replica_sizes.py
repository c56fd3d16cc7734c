"""Sizes of replicas, as the brokers tell them (DescribeLogDirs, Kafka 1.0 and later); for plans and progress."""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import BrokerInfo, TopicPartition

if TYPE_CHECKING:  # the wire protocol takes as long to import as all else: who asks no broker starts without it
    from kafkatool.core.client.access import BrokerAccess
    from kafkatool.core.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

TIMEOUT_MS: Final = 2000  # of connecting, and of each answer; sizes are good to have, not worth a long wait
AT_ONCE: Final = 32  # brokers asked at the same time, so that many silent ones cost little more than one

ReplicaSizes = Mapping[int, Mapping[TopicPartition, int]]
"""Broker -> partition -> bytes of its replica. Brokers that told nothing are absent."""


class SizeReader(AbstractContextManager["SizeReader"]):
    """Connections to brokers that are asked as often as wanted, and stay open. Not for two threads at once.

    Brokers that do not answer, do not know the question, do not tell us, or have no listener that we speak to, tell
    nothing.
    """

    def __init__(
        self, brokers: Iterable[BrokerInfo], access: "BrokerAccess | None" = None, *, unseen: Unseen | None = None
    ) -> None:
        """Ask those brokers; ``unseen`` is told which of them may not tell us."""
        from kafkatool.core.client.access import PLAINTEXT_ACCESS
        from kafkatool.core.client.connections import Connections

        self._access = access = access or PLAINTEXT_ACCESS
        found = ((b.id, access.endpoint(b)) for b in brokers)
        self._endpoints = {broker: endpoint for broker, endpoint in found if endpoint is not None}
        self._connections = Connections(access)
        self._unseen = unseen
        self._refusing: set[int] = set()

    def __exit__(self, *_: object) -> None:
        self._connections.close()

    def read(self, partitions: Collection[TopicPartition]) -> ReplicaSizes:
        """Read the sizes of those of ``partitions`` that each broker holds."""
        if not self._endpoints or not partitions:
            return {}
        from kafkatool.core.protocol.messages.describe_log_dirs import (
            DescribeLogDirsRequest,
            DescribeLogDirsRequestTopic,
        )

        request = DescribeLogDirsRequest(
            topics=[
                DescribeLogDirsRequestTopic(topic=topic, partitions=[p.partition for p in group])
                for topic, group in groupby(sorted(partitions), key=lambda p: p.topic)
            ]
        )
        with ThreadPoolExecutor(min(AT_ONCE, len(self._endpoints)), thread_name_prefix="kt-sizes") as threads:
            answers = threads.map(lambda broker: (broker, self._ask(broker, request)), self._endpoints)
            told = {broker: sizes for broker, sizes in answers if sizes is not None}
        self._note_refusals()
        return told

    def _note_refusals(self) -> None:
        if self._unseen is None or not self._refusing:
            return
        from kafkatool.core.client.rights import refusal
        from kafkatool.core.errors import NotPermittedError
        from kafkatool.core.protocol.messages import describe_log_dirs
        from kafkatool.core.protocol.messages.error_codes import ErrorCode

        code, principal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, self._access.security.principal
        for broker in sorted(self._refusing):
            error = refusal(describe_log_dirs.API, code, None, None, broker=f"broker {broker}", principal=principal)
            if isinstance(error, NotPermittedError):
                self._unseen.note(error, "sizes of replicas are not known", only_maybe=True)

    def _ask(self, broker: int, request: "DescribeLogDirsRequest") -> dict[TopicPartition, int] | None:
        from kafkatool.core.client.addresses import Address
        from kafkatool.core.protocol.messages import describe_log_dirs
        from kafkatool.core.protocol.messages.error_codes import ErrorCode

        endpoint = self._endpoints[broker]
        try:
            connection = self._connections.to(Address(endpoint.host, endpoint.port), timeout_ms=TIMEOUT_MS)
            if connection.version_of(describe_log_dirs.API) is None:
                return None
            answer = connection.send(describe_log_dirs.API, request, timeout_ms=TIMEOUT_MS)
        except BrokerUnreachableError:
            return None
        if answer.error_code or not answer.results:
            # No directory is named to who may not ask, and versions below 3 say no more than that (SEC-40).
            if answer.error_code in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
                self._refusing.add(broker)
            return None
        return {
            TopicPartition(topic.topic, p.partition): p.partition_size
            for result in answer.results
            for topic in result.topics
            for p in topic.partitions
            if not p.is_future_key
        }


def read_sizes(
    brokers: Iterable[BrokerInfo],
    partitions: Collection[TopicPartition],
    access: "BrokerAccess | None" = None,
    *,
    unseen: Unseen | None = None,
) -> dict[TopicPartition, int]:
    """Read the bytes of the largest replica of each partition, of those that some broker told.

    ``unseen`` is told which brokers may not tell us.
    """
    with SizeReader(brokers, access, unseen=unseen) as reader:
        sizes = largest(reader.read(partitions))
    return {p: sizes[p] for p in partitions if p in sizes}


def largest(sizes: ReplicaSizes) -> dict[TopicPartition, int]:
    """Return the bytes of the largest replica of each partition: what a new replica has to copy."""
    found: dict[TopicPartition, int] = {}
    for of_broker in sizes.values():
        for partition, size in of_broker.items():
            found[partition] = max(found.get(partition, 0), size)
    return found
