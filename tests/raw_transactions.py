"""A transactional producer that does just what a test says, also what no client library does."""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from kafkatool.core.client.addresses import parse_addresses
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.errors import BrokerAnswerError, BrokerUnreachableError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.transactions import leader_of
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, Record, encode_batch

_T = TypeVar("_T")
LIMIT_MS: Final = 120_000
COMES_LATER: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class Brokers(Protocol):
    """A cluster, of ours or of Kafka's."""

    @property
    def bootstrap(self) -> str: ...


class RawProducer:
    """Each call is one request, repeated while its answer is that it will be another soon; it returns the last code.

    One that is not ``patient`` repeats nothing. ``codes`` are all answers of the latest call; a broker that is lost over a
    request has answered that it cannot be reached. ``lost`` counts those of all calls: none, where no broker is hurt.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        patient: bool = True,
        limit_ms: int = LIMIT_MS,
    ) -> None:
        settings = ClientSettings(client_id="raw", whole_timeout_ms=limit_ms)
        self.client = ClusterClient(parse_addresses(bootstrap), settings)
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        self.codes: list[int] = []
        self.lost = 0
        self._timeout_ms = timeout_ms
        self._patient = patient
        self._sequences: dict[TopicPartition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.client.close()

    @property
    def coordinator(self) -> int:
        """Ask who coordinates the id."""
        return self._until(lambda: (ErrorCode.NONE, self._find_own()))[1]

    def coordinator_of_group(self, group: str) -> int:
        """Ask who coordinates the group."""
        return self._until(lambda: (ErrorCode.NONE, self._find(group, key_type=0)))[1]

    def leader_of(self, partition: TopicPartition) -> int:
        """Ask who leads the partition."""
        return self._until(lambda: (ErrorCode.NONE, leader_of(self.client, partition)))[1]

    def _find_own(self) -> int:
        return self._find(self.transactional_id, key_type=1)

    def _find(self, key: str, *, key_type: int) -> int:
        """Ask within the time of the call that needs to know."""
        request = find_coordinator.FindCoordinatorRequest(key=key, key_type=key_type, keys=[key])

        def ask() -> tuple[int, int]:
            answer = self.client.any(find_coordinator.API, request, least=1)
            one = answer.coordinators[0] if answer.coordinators else answer
            return one.error_code, one.node_id

        while True:
            code, broker = ask()
            if code not in COMES_LATER or self.client.left_ms < 1000:
                return broker
            time.sleep(0.1)
            self.client.refresh()

    def lose_patience(self) -> None:
        """Take the next answer as it is; may be called on another thread."""
        self._patient = False

    def init(self) -> int:
        """Get an identity."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )

        def ask() -> tuple[int, Any]:
            answer = self._coordinator(init_producer_id.API, request)
            return answer.error_code, answer

        code, answer = self._until(ask)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        return code

    def add(self, *partitions: TopicPartition) -> int:
        """Add partitions to the transaction; the first one begins it."""
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(topic=p.topic, partitions=[p.partition])
                for p in partitions
            ],
        )

        def ask() -> tuple[int, None]:
            address = self.client._address_of(self._find_own())  # noqa: SLF001
            connection = self.client._connection(address)  # noqa: SLF001 - brokers alone use 4
            version = min(3, connection.versions[add_partitions_to_txn.API.key][1])
            answer = connection._send(add_partitions_to_txn.API, version, request, 30_000)  # noqa: SLF001
            return max(p.error_code for t in answer.topics for p in t.partitions), None

        return self._until(ask)[0]

    def send(self, partition: TopicPartition, *values: str, sequence: int | None = None) -> int:
        """Write records, one batch; of that ``sequence``, where it is not the one that comes next."""
        now_ms = int(time.time() * 1000)
        sequence = self._sequences.get(partition, 0) if sequence is None else sequence
        batch = encode_batch(
            [Record(n, now_ms, None, value.encode()) for n, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        request = produce.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topics=[
                produce.ProduceRequestTopic(
                    topic=partition.topic,
                    partitions=[produce.ProduceRequestPartition(partition=partition.partition, records=batch)],
                )
            ],
        )

        def ask() -> tuple[int, None]:
            answer = self.client.broker(leader_of(self.client, partition), produce.API, request)
            return answer.topics[0].partitions[0].error_code, None

        code = self._until(ask)[0]
        if code == ErrorCode.NONE:
            self._sequences[partition] = sequence + len(values)
        return code

    def add_offsets(self, group: str) -> int:
        """Add the group's partition of ``__consumer_offsets`` to the transaction."""
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return self._until(lambda: (self._coordinator(add_offsets_to_txn.API, request).error_code, None))[0]

    def commit_offsets(
        self, group: str, topic: str, metadata: Mapping[int, str | None], offset: int = 1
    ) -> dict[int, int]:
        """Commit that offset of those partitions; return each one's code."""
        partitions = [
            txn_offset_commit.TxnOffsetCommitRequestPartition(
                partition=p, committed_offset=offset, committed_metadata=m
            )
            for p, m in metadata.items()
        ]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(topic=topic, partitions=partitions)],
        )

        def ask() -> tuple[int, dict[int, int]]:
            answer = self.client.broker(self._find(group, key_type=0), txn_offset_commit.API, request)
            codes = {p.partition: p.error_code for p in answer.topics[0].partitions}
            return next((c for c in codes.values() if c in COMES_LATER), 0), codes

        return self._until(ask)[1]

    def fetch_offset(self, group: str, place: TopicPartition, *, stable: bool = True) -> tuple[int, int]:
        """Ask once for a group's offset; return code and offset. ``stable``: only one that no transaction may change.

        The code of a broker that is lost over it is NETWORK_EXCEPTION.
        """
        asked = [offset_fetch.OffsetFetchRequestTopic(topic=place.topic, partitions=[place.partition])]
        request = offset_fetch.OffsetFetchRequest(group_id=group, topics=asked, require_stable=stable)
        self.client.begin_anew()
        try:
            answer = self.client.broker(self._find(group, key_type=0), offset_fetch.API, request, least=7)
        except BrokerUnreachableError:
            return ErrorCode.NETWORK_EXCEPTION, -1
        (partition,) = answer.topics[0].partitions
        return answer.error_code or partition.error_code, partition.committed_offset

    def end(self, *, committed: bool) -> int:
        """End the transaction."""
        request = end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        return self._until(lambda: (self._coordinator(end_txn.API, request).error_code, None))[0]

    def _coordinator(self, api: Api, request: Any) -> Any:
        return self.client.broker(self._find_own(), api, request)

    def _until(self, ask: Callable[[], tuple[int, _T]]) -> tuple[int, _T]:
        self.client.begin_anew()
        self.codes = []
        while True:
            try:
                if self.codes:
                    self.client.refresh()
                answer = ask()
            except BrokerUnreachableError:
                if self._is_over():
                    raise
                self.codes.append(ErrorCode.NETWORK_EXCEPTION)
                self.lost += 1
            except BrokerAnswerError as e:  # nobody leads the partition
                if self._is_over() or e.code not in COMES_LATER:
                    raise
                self.codes.append(e.code)
            else:
                self.codes.append(answer[0])
                if self._is_over() or answer[0] not in COMES_LATER:
                    return answer
            time.sleep(0.1)

    def _is_over(self) -> bool:
        return not self._patient or self.client.left_ms < 1000
