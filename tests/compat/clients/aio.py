"""aiokafka; see README.md here."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.compat.clients.common import (
    PAUSE_S,
    Assignment,
    emit,
    emit_record,
    python_login,
    run,
    stdin_ended,
    transact,
    value,
)

SESSION_MS = 30_000  # its default of 10 s does not last while a busy machine lets a process stand still


async def _tell(number: int, sent: asyncio.Future[Any]) -> None:
    await sent
    emit(acknowledged=number)


async def produce(bootstrap: str, topic: str, prefix: str, count: int, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, **python_login()
    )
    await producer.start()
    try:
        sent = [await producer.send(topic, value(prefix, n), str(n).encode()) for n in range(count)]
        await asyncio.gather(*[_tell(n, s) for n, s in enumerate(sent)])
    finally:
        await producer.stop()


async def load(bootstrap: str, topic: str, prefix: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **python_login())
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


async def consume(bootstrap: str, topics: str, count: int, isolation: str = "read_uncommitted") -> None:
    consumer = AIOKafkaConsumer(
        *topics.split(","),
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation,
        **python_login(),
    )
    await consumer.start()
    try:
        while count > 0:
            count -= await _emit_polled(consumer, 1000)
    finally:
        await consumer.stop()


async def group(bootstrap: str, topic: str, name: str) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        **python_login(),
    )
    await consumer.start()
    ended, assignment = stdin_ended(), Assignment()
    try:
        while not ended.is_set():
            await _emit_polled(consumer, 100)
            assignment.note(p.partition for p in consumer.assignment() if isinstance(p, TopicPartition))
    finally:
        await consumer.stop()


class _Transactor:
    """An aiokafka producer, used as if it were none of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = loop
        self._settings = {
            "bootstrap_servers": bootstrap,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }

    def _do(self, what: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def init_transactions(self) -> None:
        async def start() -> None:
            self._producer = AIOKafkaProducer(**self._settings)
            await self._producer.start()  # which is its init_transactions too

        self._do(start())

    def begin_transaction(self) -> None:
        self._do(self._producer.begin_transaction())

    def commit_transaction(self) -> None:
        self._do(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        self._do(self._producer.abort_transaction())

    def send(self, topic: str, partition: int, key: str, content: bytes) -> None:
        self._do(self._producer.send_and_wait(topic, content, key.encode(), partition))

    def offsets(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._do(self._producer.send_offsets_to_transaction({TopicPartition(topic, partition): offset}, group))


async def transactions(bootstrap: str) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(
        None,
        transact,
        lambda id_, timeout_ms: _Transactor(loop, bootstrap, id_, timeout_ms),
        _Transactor.send,
        _Transactor.offsets,
    )


async def copy(bootstrap: str, source: str, sink: str, name: str) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await consumer.start()
    await producer.start()
    await _copy_on(consumer, producer, sink, name)


async def copy_one(bootstrap: str, source: str, sink: str, name: str, partition: int) -> None:
    place = TopicPartition(source, partition)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=name,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=name, transactional_id=name)
    await producer.start()
    await consumer.start()
    consumer.assign([place])
    consumer.seek(place, await consumer.committed(place) or 0)
    await _copy_on(consumer, producer, sink, name)


async def _copy_on(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, sink: str, name: str) -> None:
    """Copy what comes until stdin ends, the first time in vain; then end both."""
    ended, first = stdin_ended(), True
    try:
        while not ended.is_set():
            polled = await consumer.getmany(timeout_ms=100)
            if not polled:
                continue
            await producer.begin_transaction()
            for place, messages in polled.items():
                sent = [await producer.send(sink, m.value, m.key, place.partition) for m in messages]
                await asyncio.gather(*sent)
            await producer.send_offsets_to_transaction({tp: ms[-1].offset + 1 for tp, ms in polled.items()}, name)
            if first:
                await producer.abort_transaction()
                for place, messages in polled.items():
                    consumer.seek(place, messages[0].offset)
            else:
                await producer.commit_transaction()
            first = False
    finally:
        await consumer.stop()
        await producer.stop()


def _run(command: Coroutine[Any, Any, None]) -> None:
    asyncio.run(command)


if __name__ == "__main__":
    emit(client=f"aiokafka {aiokafka.__version__}")
    commands = {
        "produce": produce,
        "load": load,
        "consume": consume,
        "group": group,
        "transactions": transactions,
        "copy": copy,
        "copy-one": copy_one,
    }
    run({name: lambda *a, c=command: _run(c(*a)) for name, command in commands.items()})
