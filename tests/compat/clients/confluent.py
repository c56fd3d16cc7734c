"""confluent-kafka (librdkafka); see README.md here."""

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition, libversion

from tests.compat.clients.common import (
    ONLY_NAMES_A_GROUP,
    SESSION_OF_SEVERAL_MS,
    Assignment,
    emit,
    emit_record,
    login,
    paced,
    run,
    stdin_ended,
    transact,
    value,
)

FLUSH_S = 120


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise RuntimeError(f"not delivered: {error}")
    emit(acknowledged=int(message.key()))


def produce(bootstrap: str, topic: str, prefix: str, count: int, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, **login()})
    for number in range(count):
        producer.produce(topic, value(prefix, number), str(number), on_delivery=_delivered)
    assert producer.flush(FLUSH_S) == 0


def load(bootstrap: str, topic: str, prefix: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **login()})
    for number in paced(stdin_ended()):
        producer.produce(topic, value(prefix, number), str(number), on_delivery=_delivered)
        producer.poll(0)
    assert producer.flush(FLUSH_S) == 0


def _emit_message(message: Message | None) -> int:
    if message is None or message.error() is not None:  # an error here is news of something librdkafka tries again
        return 0
    emit_record(message.topic(), message.partition(), message.offset(), message.key(), message.value())
    return 1


def consume(bootstrap: str, topics: str, count: int, isolation: str = "read_uncommitted") -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "not-joined",
        "enable.auto.commit": False,
        "isolation.level": isolation,
    }
    consumer = Consumer(config | login())
    found = consumer.list_topics(timeout=FLUSH_S).topics
    consumer.assign([TopicPartition(t, p, 0) for t in topics.split(",") for p in found[t].partitions])
    while count > 0:
        count -= _emit_message(consumer.poll(1))
    consumer.close()


def group(bootstrap: str, topic: str, name: str) -> None:
    config = {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    consumer = Consumer(config | login())
    consumer.subscribe([topic])
    ended, assignment = stdin_ended(), Assignment()
    while not ended.is_set():
        _emit_message(consumer.poll(0.1))
        assignment.note(p.partition for p in consumer.assignment())
    consumer.close()


def _transactional(
    bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, client_id: str = "rdkafka"
) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "client.id": client_id,
            **login(),
        }
    )


def _send(producer: Producer, topic: str, partition: int, key: str, content: bytes) -> None:
    producer.produce(topic, content, key, partition, on_delivery=_delivered)
    assert producer.flush(FLUSH_S) == 0


def transactions(bootstrap: str) -> None:
    def offsets(producer: Producer, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": ONLY_NAMES_A_GROUP})
        try:
            places = [TopicPartition(topic, partition, offset)]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
        finally:
            consumer.close()

    transact(lambda id_, timeout_ms: _transactional(bootstrap, id_, timeout_ms), _send, offsets)


def copy(bootstrap: str, source: str, sink: str, name: str, member: str = "") -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **({"client.id": member, "session.timeout.ms": SESSION_OF_SEVERAL_MS} if member else {}),
        }
    )
    consumer.subscribe([source])
    producer = _transactional(bootstrap, member or name, client_id=member or "rdkafka")
    producer.init_transactions()
    ended, first = stdin_ended(), True
    while not ended.is_set():
        messages = [m for m in consumer.consume(100, 0.1) if m.error() is None]
        if not messages:
            continue
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        producer.begin_transaction()
        for message in messages:
            partition, offset = message.partition(), message.offset()
            starts.setdefault(partition, offset)
            ends[partition] = offset + 1
            producer.produce(sink, message.value(), message.key(), partition)
        offsets = [TopicPartition(source, p, o) for p, o in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        if first:
            assert producer.flush(FLUSH_S) == 0
            producer.abort_transaction()
            for partition, offset in starts.items():
                consumer.seek(TopicPartition(source, partition, offset))
        else:
            producer.commit_transaction()
        first = False
    consumer.close()


if __name__ == "__main__":
    emit(client=f"librdkafka {libversion()[0]}")
    run(
        {
            "produce": produce,
            "load": load,
            "consume": consume,
            "group": group,
            "transactions": transactions,
            "copy": copy,
        }
    )
