"""confluent-kafka (librdkafka); see README.md here."""

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition, libversion

from tests.compat.clients.common import Assignment, emit, emit_record, paced, run, stdin_ended, value

FLUSH_S = 120


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"not delivered: {error}")
    emit(acknowledged=int(message.key()))


def produce(bootstrap: str, topic: str, prefix: str, count: int, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(count):
        producer.produce(topic, value(prefix, number), str(number), on_delivery=_delivered)
    assert producer.flush(FLUSH_S) == 0


def load(bootstrap: str, topic: str, prefix: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in paced(stdin_ended()):
        producer.produce(topic, value(prefix, number), str(number), on_delivery=_delivered)
        producer.poll(0)
    assert producer.flush(FLUSH_S) == 0


def _emit_message(message: Message | None) -> int:
    if message is None or message.error() is not None:  # an error here is news of something librdkafka tries again
        return 0
    emit_record(message.topic(), message.partition(), message.offset(), message.key(), message.value())
    return 1


def consume(bootstrap: str, topics: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "not-joined", "enable.auto.commit": False})
    found = consumer.list_topics(timeout=30).topics
    consumer.assign([TopicPartition(t, p, 0) for t in topics.split(",") for p in found[t].partitions])
    while count > 0:
        count -= _emit_message(consumer.poll(1))
    consumer.close()


def group(bootstrap: str, topic: str, name: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    ended, assignment = stdin_ended(), Assignment()
    while not ended.is_set():
        _emit_message(consumer.poll(0.1))
        assignment.note(p.partition for p in consumer.assignment())
    consumer.close()


if __name__ == "__main__":
    emit(client=f"librdkafka {libversion()[0]}")
    run({"produce": produce, "load": load, "consume": consume, "group": group})
