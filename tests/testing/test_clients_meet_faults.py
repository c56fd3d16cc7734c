"""kafka-python and aiokafka meet faults as the errors they stand for, and get over them; librdkafka does in the recipes."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import GroupAuthorizationFailedError

from kafkatool import EmbeddedCluster

Topic = Callable[..., str]


def test_kafka_python_sends_again_and_fetches_in_a_session(kafka_cluster: EmbeddedCluster, kafka_topic: Topic) -> None:
    topic = kafka_topic()
    refused = kafka_cluster.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=2)
    producer = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap, acks="all", retries=10)
    producer.send(topic, b"1").get(60)
    assert refused.hits == 2
    consumer = KafkaConsumer(bootstrap_servers=kafka_cluster.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    assert read(consumer) == b"1"  # in a session now, whose fetches name no topic
    with kafka_cluster.faults.answer("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic) as lost:
        producer.send(topic, b"2").get(60)
        while not lost.hits:
            assert not consumer.poll(100)
    assert read(consumer) == b"2"
    producer.close()
    consumer.close()


def test_kafka_python_is_told_that_its_commit_is_refused(kafka_broker: EmbeddedCluster, kafka_topic: Topic) -> None:
    partition = TopicPartition(kafka_topic(), 0)
    consumer = KafkaConsumer(bootstrap_servers=kafka_broker.bootstrap, group_id=partition.topic)
    consumer.assign([partition])
    offset = {partition: OffsetAndMetadata(1, "", -1)}
    refused = kafka_broker.faults.answer("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", topic=partition.topic)
    with refused, pytest.raises(GroupAuthorizationFailedError):
        consumer.commit(offset)
    consumer.commit(offset)
    assert consumer.committed(partition) == 1
    consumer.close()


def read(consumer: KafkaConsumer) -> bytes:
    while not (polled := consumer.poll(1000)):
        pass
    ((record,),) = polled.values()
    value: bytes = record.value
    return value


def test_aiokafka_gets_over_lost_connections_and_late_answers(
    kafka_broker: EmbeddedCluster, kafka_topic: Topic
) -> None:
    topic = kafka_topic()

    async def story() -> None:
        where = {"bootstrap_servers": kafka_broker.bootstrap}
        kafka_broker.faults.disconnect("Produce", topic=topic, times=1, carried_out=True)
        async with AIOKafkaProducer(**where, enable_idempotence=True) as producer:
            await producer.send_and_wait(topic, b"1")
            refused = kafka_broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=topic)
            with refused, pytest.raises(AioError, match="TopicAuthorizationFailed"):
                await producer.send_and_wait(topic, b"refused")
        late = kafka_broker.faults.delay("Fetch", 300, topic=topic)
        async with AIOKafkaConsumer(topic, **where, auto_offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"1" and late.hits >= 1
            assert await consumer.end_offsets(consumer.assignment()) == dict.fromkeys(consumer.assignment(), 1)

    asyncio.run(story())
