"""Keys and values of ``__transaction_state`` (Kafka 2.8.0 coordinator/transaction/TransactionLog.scala; KIP-915).

Values are written in version 0, which every broker reads; version 1 of newer ones is read.
"""

from collections import defaultdict
from collections.abc import Iterable

from kafkatool.broker.coordination.record_codec import RecordReader, RecordWriter
from kafkatool.broker.transactions.states import STORABLE, TransactionState
from kafkatool.broker.transactions.transaction import IllegalMoveError, Transaction
from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition


def encode_key(transactional_id: str) -> bytes:
    writer = RecordWriter(0)
    writer.string(transactional_id)
    return bytes(writer.data)


def decode_key(data: bytes | memoryview) -> str | None:
    """Decode; None for a version of a newer broker. Raises CorruptRecordsError."""
    reader = RecordReader(data, TRANSACTION_TOPIC)
    return reader.string() if reader.take("h") == 0 else None


def encode_value(value: Transaction) -> bytes:
    """Encode version 0. Raises IllegalMoveError for a state that is never stored."""
    if value.state not in STORABLE:
        raise IllegalMoveError(f"{value.state.label} is never stored")
    writer = RecordWriter(0)
    writer.add("qhib", value.producer_id, value.epoch, value.timeout_ms, value.state)
    if value.state is TransactionState.EMPTY:
        writer.add("i", -1)
    else:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in value.partitions:  # there may be thousands, and numbers are sorted faster than they are
            topics[topic].append(number)
        writer.add("i", len(topics))
        for topic, numbers in sorted(topics.items()):
            numbers.sort()
            writer.string(topic)
            writer.add(f"i{len(numbers)}i", len(numbers), *numbers)
    writer.add("qq", value.update_ms, value.start_ms)
    return bytes(writer.data)


def decode_value(data: bytes | memoryview) -> Transaction:
    """Decode versions 0 and 1. Raises CorruptRecordsError, also for a newer version and for an unknown state."""
    reader = RecordReader(data, TRANSACTION_TOPIC)
    version = reader.take("h")
    if version not in (0, 1):
        raise CorruptRecordsError(f"value of version {version} in {TRANSACTION_TOPIC} is not known")
    producer_id, epoch, timeout_ms, number = (reader.take(code) for code in "qhib")
    if number not in STORABLE:
        raise CorruptRecordsError(f"state {number} in {TRANSACTION_TOPIC} is not known")
    partitions = frozenset(_partitions(reader) if version == 0 else _compact_partitions(reader))
    return Transaction(
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=TransactionState(number),
        partitions=partitions,
        update_ms=reader.take("q"),
        start_ms=reader.take("q"),
    )


def _partitions(reader: RecordReader) -> Iterable[TopicPartition]:
    for _ in range(reader.take("i")):
        topic = reader.string()
        for _ in range(reader.take("i")):
            yield TopicPartition(topic, reader.take("i"))


def _compact_partitions(reader: RecordReader) -> Iterable[TopicPartition]:
    for _ in range(reader.unsigned_varint() - 1):
        topic = reader.compact_string()
        for _ in range(reader.unsigned_varint() - 1):
            yield TopicPartition(topic, reader.take("i"))
        reader.skip_tags()
