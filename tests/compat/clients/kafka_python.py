"""kafka-python; see README.md here."""

import logging
from typing import Any

import kafka

from tests.compat.clients.common import (
    Assignment,
    emit,
    emit_record,
    paced,
    python_login,
    run,
    stdin_ended,
    transact,
    value,
)

FLUSH_S = 120


def _tell(number: int, future: object) -> None:
    future.add_callback(lambda _: emit(acknowledged=number))  # type: ignore[attr-defined]


def produce(bootstrap: str, topic: str, prefix: str, count: int, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","), compression_type=None if codec == "none" else codec, **python_login()
    )
    for number in range(count):
        _tell(number, producer.send(topic, value(prefix, number), str(number).encode()))
    producer.flush(FLUSH_S)
    producer.close()


def load(bootstrap: str, topic: str, prefix: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", **python_login())
    for number in paced(stdin_ended()):
        _tell(number, producer.send(topic, value(prefix, number), str(number).encode()))
    producer.flush(FLUSH_S)
    producer.close()


def _emit_polled(consumer: kafka.KafkaConsumer, timeout_ms: int) -> int:
    messages = [m for batch in consumer.poll(timeout_ms=timeout_ms).values() for m in batch]
    for message in messages:
        emit_record(message.topic, message.partition, message.offset, message.key, message.value)
    return len(messages)


def consume(bootstrap: str, topics: str, count: int, isolation: str = "read_uncommitted") -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","), isolation_level=isolation, **python_login())
    consumer.assign([kafka.TopicPartition(t, p) for t in topics.split(",") for p in consumer.partitions_for_topic(t)])
    consumer.seek_to_beginning()
    while count > 0:
        count -= _emit_polled(consumer, 1000)
    consumer.close()


def group(bootstrap: str, topic: str, name: str) -> None:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=name, auto_offset_reset="earliest", **python_login()
    )
    ended, assignment = stdin_ended(), Assignment()
    while not ended.is_set():
        _emit_polled(consumer, 100)
        assignment.note(p.partition for p in consumer.assignment())
    consumer.close()


def _transactional(bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, **also: str) -> kafka.KafkaProducer:
    return kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        **also,
    )


def _send(producer: kafka.KafkaProducer, topic: str, partition: int, key: str, content: bytes) -> None:
    producer.send(topic, content, key.encode(), partition=partition).get(FLUSH_S)


def _offsets(producer: kafka.KafkaProducer, group: str, topic: str, partition: int, offset: int) -> None:
    offsets = {kafka.TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)}
    producer.send_offsets_to_transaction(offsets, group)


def transactions(bootstrap: str) -> None:
    transact(lambda id_, timeout_ms: _transactional(bootstrap, id_, timeout_ms), _send, _offsets)


def copy(bootstrap: str, source: str, sink: str, name: str) -> None:
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=bootstrap.split(","),
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = _transactional(bootstrap, name)
    producer.init_transactions()
    _copy_on(consumer, producer, sink)


def copy_one(bootstrap: str, source: str, sink: str, name: str, partition: int) -> None:
    place = kafka.TopicPartition(source, partition)
    producer = _transactional(bootstrap, name, client_id=name)
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        client_id=name,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.assign([place])
    consumer.seek(place, consumer.committed(place) or 0)
    _copy_on(consumer, producer, sink)


def _copy_on(consumer: Any, producer: Any, sink: str) -> None:
    """Copy what comes until stdin ends, the first time in vain; then end both."""
    ended, first = stdin_ended(), True
    while not ended.is_set():
        polled = consumer.poll(timeout_ms=100)
        if not polled:
            continue
        producer.begin_transaction()
        for place, messages in polled.items():
            for message in messages:
                producer.send(sink, message.value, message.key, partition=place.partition)
        offsets = {tp: kafka.OffsetAndMetadata(ms[-1].offset + 1, "", -1) for tp, ms in polled.items()}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if first:
            producer.flush(FLUSH_S)
            producer.abort_transaction()
            for place, messages in polled.items():
                consumer.seek(place, messages[0].offset)
        else:
            producer.commit_transaction()
        first = False
    consumer.close()
    producer.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    emit(client=f"kafka-python {kafka.__version__}")
    run(
        {
            "produce": produce,
            "load": load,
            "consume": consume,
            "group": group,
            "transactions": transactions,
            "copy": copy,
            "copy-one": copy_one,
        }
    )
