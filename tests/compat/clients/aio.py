"""aiokafka; see README.md here."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.compat.clients.common import PAUSE_S, Assignment, emit, emit_record, run, stdin_ended, value


async def _tell(number: int, sent: asyncio.Future[Any]) -> None:
    await sent
    emit(acknowledged=number)


async def produce(bootstrap: str, topic: str, prefix: str, count: int, codec: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec)
    await producer.start()
    try:
        sent = [await producer.send(topic, value(prefix, n), str(n).encode()) for n in range(count)]
        await asyncio.gather(*[_tell(n, s) for n, s in enumerate(sent)])
    finally:
        await producer.stop()


async def load(bootstrap: str, topic: str, prefix: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    ended = stdin_ended()
    telling: list[asyncio.Task[None]] = []
    try:
        while not ended.is_set():
            number = len(telling)
            sent = await producer.send(topic, value(prefix, number), str(number).encode())
            telling.append(asyncio.create_task(_tell(number, sent)))
            await asyncio.sleep(PAUSE_S)
        await asyncio.gather(*telling)
    finally:
        await producer.stop()


async def _emit_polled(consumer: AIOKafkaConsumer, timeout_ms: int) -> int:
    messages = [m for batch in (await consumer.getmany(timeout_ms=timeout_ms)).values() for m in batch]
    for message in messages:
        emit_record(message.topic, message.partition, message.offset, message.key, message.value)
    return len(messages)


async def consume(bootstrap: str, topics: str, count: int) -> None:
    consumer = AIOKafkaConsumer(*topics.split(","), bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        while count > 0:
            count -= await _emit_polled(consumer, 1000)
    finally:
        await consumer.stop()


async def group(bootstrap: str, topic: str, name: str) -> None:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest")
    await consumer.start()
    ended, assignment = stdin_ended(), Assignment()
    try:
        while not ended.is_set():
            await _emit_polled(consumer, 100)
            assignment.note(p.partition for p in consumer.assignment() if isinstance(p, TopicPartition))
    finally:
        await consumer.stop()


def _run(command: Coroutine[Any, Any, None]) -> None:
    asyncio.run(command)


if __name__ == "__main__":
    emit(client=f"aiokafka {aiokafka.__version__}")
    commands = {"produce": produce, "load": load, "consume": consume, "group": group}
    run({name: lambda *a, c=command: _run(c(*a)) for name, command in commands.items()})
