"""kafka-python; see README.md here."""

import kafka

from tests.compat.clients.common import Assignment, emit, emit_record, paced, run, stdin_ended, value

FLUSH_S = 120


def _tell(number: int, future: object) -> None:
    future.add_callback(lambda _: emit(acknowledged=number))  # type: ignore[attr-defined]


def produce(bootstrap: str, topic: str, prefix: str, count: int, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","), compression_type=None if codec == "none" else codec
    )
    for number in range(count):
        _tell(number, producer.send(topic, value(prefix, number), str(number).encode()))
    producer.flush(FLUSH_S)
    producer.close()


def load(bootstrap: str, topic: str, prefix: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    for number in paced(stdin_ended()):
        _tell(number, producer.send(topic, value(prefix, number), str(number).encode()))
    producer.flush(FLUSH_S)
    producer.close()


def _emit_polled(consumer: kafka.KafkaConsumer, timeout_ms: int) -> int:
    messages = [m for batch in consumer.poll(timeout_ms=timeout_ms).values() for m in batch]
    for message in messages:
        emit_record(message.topic, message.partition, message.offset, message.key, message.value)
    return len(messages)


def consume(bootstrap: str, topics: str, count: int) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","))
    consumer.assign([kafka.TopicPartition(t, p) for t in topics.split(",") for p in consumer.partitions_for_topic(t)])
    consumer.seek_to_beginning()
    while count > 0:
        count -= _emit_polled(consumer, 1000)
    consumer.close()


def group(bootstrap: str, topic: str, name: str) -> None:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=name, auto_offset_reset="earliest"
    )
    ended, assignment = stdin_ended(), Assignment()
    while not ended.is_set():
        _emit_polled(consumer, 100)
        assignment.note(p.partition for p in consumer.assignment())
    consumer.close()


if __name__ == "__main__":
    emit(client=f"kafka-python {kafka.__version__}")
    run({"produce": produce, "load": load, "consume": consume, "group": group})
