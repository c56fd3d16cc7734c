"""The writer of ``__consumer_offsets``, which turns the outcome of an append into codes clients know (GRP-50, 51)."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkatool.broker.coordination import tombstones
from kafkatool.broker.groups.records import GroupKey, GroupValue, Key, OffsetKey, OffsetValue, encode_group, encode_key
from kafkatool.broker.groups.records import encode_offset as encode_offset_value
from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.replication.replica_manager import ReplicaManager
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.topic_names import OFFSETS_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, Record, encode_batch, read_header

log = logging.getLogger(__name__)

_COMMIT_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
_SYNC_CODES = {
    **_COMMIT_CODES,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def protocol_version(config: BrokerConfig) -> tuple[int, ...]:
    """Return the inter-broker protocol version as numbers: it decides what may be stored."""
    return tuple(int(part) for part in config.inter_broker_protocol_version.split("."))


class TransactionalProducer(NamedTuple):
    """Who commits offsets in a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


class GroupsWriter:
    """The writer. One batch per request; versions by the inter-broker protocol version.

    It raises nothing: what cannot be written is told to ``done`` like any other failure, once.
    """

    def __init__(self, config: BrokerConfig, replica_manager: ReplicaManager) -> None:
        self._config = config
        self._replica_manager = replica_manager
        version = protocol_version(config)
        self._offset_with_epoch = version >= (2, 1)
        self._group_version = 3 if version >= (2, 3) else 2 if version >= (2, 1) else 1

    def store_group(self, partition: int, group: str, value: GroupValue, done: Callable[[ErrorCode], None]) -> None:
        """Append a group's record; ``done`` hears SyncGroup's code."""

        def records() -> list[tuple[bytes, bytes | None]]:
            return [(encode_key(GroupKey(group)), encode_group(value, version=self._group_version))]

        self._append(partition, records, lambda code, _: done(_SYNC_CODES.get(code, code)))

    def store_offsets(
        self,
        partition: int,
        group: str,
        offsets: Mapping[TopicPartition, OffsetValue],
        done: Callable[[ErrorCode, int], None],
    ) -> None:
        """Append commits; ``done`` hears OffsetCommit's code and the first record's offset, the others follow in order."""

        def records() -> list[tuple[bytes, bytes | None]]:
            return self._offset_records(group, offsets)

        self._append(partition, records, lambda code, base: done(_COMMIT_CODES.get(code, code), base))

    def store_offsets_in_transaction(
        self,
        partition: int,
        group: str,
        offsets: Mapping[TopicPartition, OffsetValue],
        producer: TransactionalProducer,
        done: Callable[[ErrorCode, int], None],
    ) -> None:
        """Append commits that count once their transaction does; ``done`` as of ``store_offsets`` (TXN-83)."""

        def append(tp: TopicPartition, told: Callable[[AppendResult], None]) -> None:
            records = self._offset_records(group, offsets)
            batch = self._batch(
                records,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=0,
                attributes=TRANSACTIONAL,
            )
            header = read_header(batch)
            assert header is not None  # it was made here
            self._replica_manager.verified_appends.append(
                {tp: batch},
                {tp: header},
                producer.transactional_id,
                acks=self._config.offsets_commit_required_acks,
                timeout_ms=self._config.offsets_commit_timeout_ms,
                group=group,
                on_done=lambda results: told(results[tp]),
            )

        self._tell_once(partition, append, lambda code, base: done(_COMMIT_CODES.get(code, code), base))

    def delete_keys(
        self, partition: int, keys: Sequence[Key], done: Callable[[ErrorCode, Sequence[int]], None]
    ) -> None:
        """Append tombstones in as few batches as the topic takes. Without keys there is nothing to do.

        ``done`` hears OffsetCommit's code, the first that is not NONE, and the offsets of the tombstones, in the order of
        the keys: fewer than these, if not all could be stored.
        """
        batches = list(self._tombstones(partition, keys))
        offsets: list[int] = []

        def append_next() -> None:
            if batches:
                batch = batches.pop(0)
                self._append(partition, lambda: batch, lambda code, base: stored(code, base, len(batch)))
            else:
                done(ErrorCode.NONE, offsets)

        def stored(code: ErrorCode, base_offset: int, count: int) -> None:
            if code is ErrorCode.NONE:
                offsets.extend(range(base_offset, base_offset + count))
                append_next()
            else:
                done(_COMMIT_CODES.get(code, code), offsets)

        append_next()

    def store_tombstones(self, partition: int, keys: Sequence[Key]) -> None:
        """Append tombstones, not waited for: what fails comes back with a later load and expires again (GRP-55)."""

        def stored(code: ErrorCode, _base: int) -> None:
            if code is not ErrorCode.NONE:
                log.warning(
                    "tombstones were not written to %s: %s", TopicPartition(OFFSETS_TOPIC, partition), code.name
                )

        for batch in self._tombstones(partition, keys):
            self._append(partition, lambda batch=batch: batch, stored, acks=0)  # type: ignore[misc]

    def _tombstones(self, partition: int, keys: Sequence[Key]) -> Iterator[list[tuple[bytes, None]]]:
        largest_bytes = tombstones.largest_batch(self._replica_manager, TopicPartition(OFFSETS_TOPIC, partition))
        for batch in tombstones.in_batches(map(encode_key, keys), len, largest_bytes):
            yield [(key, None) for key in batch]

    def _append(
        self,
        partition: int,
        records: Callable[[], Sequence[tuple[bytes, bytes | None]]],
        done: Callable[[ErrorCode, int], None],
        acks: int | None = None,
    ) -> None:
        def append(tp: TopicPartition, told: Callable[[AppendResult], None]) -> None:
            self._replica_manager.appends.append(
                {tp: self._batch(records())},
                acks=self._config.offsets_commit_required_acks if acks is None else acks,
                timeout_ms=self._config.offsets_commit_timeout_ms,
                internal=True,
                on_done=lambda results: told(results[tp]),
            )

        self._tell_once(partition, append, done)

    def _offset_records(
        self, group: str, offsets: Mapping[TopicPartition, OffsetValue]
    ) -> list[tuple[bytes, bytes | None]]:
        return [
            (encode_key(OffsetKey(group, t, p)), encode_offset_value(value, with_epoch=self._offset_with_epoch))
            for (t, p), value in offsets.items()
        ]

    def _batch(self, records: Sequence[tuple[bytes, bytes | None]], **producer: int) -> bytearray:
        now_ms = int(time.time() * 1000)
        return encode_batch(
            [Record(i, now_ms, key, value, ()) for i, (key, value) in enumerate(records)],
            codec=self._config.offsets_topic_compression_codec,
            **producer,
        )

    def _tell_once(
        self,
        partition: int,
        append: Callable[[TopicPartition, Callable[[AppendResult], None]], None],
        done: Callable[[ErrorCode, int], None],
    ) -> None:
        """Append; ``done`` hears the outcome once, also when it cannot even be tried."""
        tp = TopicPartition(OFFSETS_TOPIC, partition)
        told = False

        def tell(code: ErrorCode, base_offset: int) -> None:
            nonlocal told
            if not told:
                told = True
                done(code, base_offset)

        try:
            append(tp, lambda result: tell(result.error, result.base_offset))
        except Exception:
            if told:
                raise  # it was not the append that failed
            log.exception("a record of a group could not be written to %s", tp)
            tell(ErrorCode.UNKNOWN_SERVER_ERROR, -1)
