"""Clients of three libraries at work on topics of one partition, each in a thread, until they are ended: what they got
done of each topic, and what failed. What fails is noted and tried again, so that a refusal is seen to last.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClassicPartition

PACE_S: Final = 0.05  # between two turns of one client, so that two cores are left for the brokers
ANSWER_S: Final = 12.0  # for one record; who is out gets no answer


class ClientAtWork:
    """One client. ``turn`` has it do a little on every topic."""

    def __init__(self, user: str, configuration: dict[str, Any], topics: Sequence[str]) -> None:
        self.user = user
        self.configuration = configuration
        self.topics = topics
        self.done: Counter[str] = Counter()
        self.failed: list[tuple[str, str]] = []
        """The topic, "" where it is none's alone, and the name of the error."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=user)

    def __repr__(self) -> str:
        return f"{self.user}: {dict(self.done)}, failed {dict(Counter(self.failed))}"

    def start(self) -> None:
        self._thread.start()

    def tell_to_end(self) -> None:
        self._ended.set()

    def join(self) -> None:
        self._thread.join()

    def failures(self, name: str, topic: str = "") -> int:
        """Return how often that went wrong."""
        return sum(name in error and topic in (of, "") for of, error in list(self.failed))

    def _run(self) -> None:
        client = self.opened()
        try:
            while not self._ended.wait(PACE_S):
                self.turn(client)
        finally:
            self.close(client)

    def opened(self) -> Any:
        raise NotImplementedError

    def turn(self, client: Any) -> None:
        raise NotImplementedError

    def close(self, client: Any) -> None:
        client.close()


class LibrdkafkaProducer(ClientAtWork):
    """Producer of librdkafka, one record of each topic at a time."""

    def opened(self) -> Producer:
        more = {"message.timeout.ms": int(ANSWER_S * 1000), "log_level": 0}
        return Producer(self.configuration | more | {"error_cb": lambda e: self.failed.append(("", e.name()))})

    def turn(self, client: Producer) -> None:
        for topic in self.topics:

            def delivered(error: Any, _: object, topic: str = topic) -> None:
                if error:
                    self.failed.append((topic, error.name()))
                else:
                    self.done[topic] += 1

            try:
                client.produce(topic, self.user.encode(), partition=0, on_delivery=delivered)
            except KafkaException as e:  # it knows already
                self.failed.append((topic, e.args[0].name()))
        while client.flush(0.1) and not self._ended.is_set():
            pass

    def close(self, client: Producer) -> None:
        client.purge()
        client.flush(1)


class LibrdkafkaConsumer(ClientAtWork):
    """Consumer of librdkafka; it commits what it has read, counted as done of ``commits``."""

    def opened(self) -> Consumer:
        more = {"group.id": self.user, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        client = Consumer(self.configuration | more | {"error_cb": lambda e: self.failed.append(("", e.name()))})
        client.assign([TopicPartition(topic, 0) for topic in self.topics])
        return client

    def turn(self, client: Consumer) -> None:
        message = client.poll(1)
        if message is None:
            return
        topic = message.topic() or ""
        if error := message.error():
            self.failed.append((topic, error.name()))
            return
        self.done[topic] += 1
        try:
            client.commit(message, asynchronous=False)
        except KafkaException as e:
            self.failed.append(("commits", e.args[0].name()))
        else:
            self.done["commits"] += 1


class ClassicProducer(ClientAtWork):
    """Producer of kafka-python."""

    def opened(self) -> KafkaProducer:
        answer_ms = int(ANSWER_S * 1000)
        times = {"request_timeout_ms": answer_ms - 2000, "delivery_timeout_ms": answer_ms, "max_block_ms": answer_ms}
        return KafkaProducer(**self.configuration, **times, enable_idempotence=False)

    def turn(self, client: KafkaProducer) -> None:
        for topic in self.topics:
            try:
                client.send(topic, self.user.encode(), partition=0).get(2 * ANSWER_S)
                self.done[topic] += 1
            except Exception as e:  # noqa: BLE001  # whatever the library raises
                self.failed.append((topic, type(e).__name__))

    def close(self, client: KafkaProducer) -> None:
        client.close(1)


class ClassicConsumer(ClientAtWork):
    """Consumer of kafka-python, in no group."""

    def opened(self) -> KafkaConsumer:
        client = KafkaConsumer(**self.configuration, group_id=None, auto_offset_reset="earliest")
        client.assign([ClassicPartition(topic, 0) for topic in self.topics])
        return client

    def turn(self, client: KafkaConsumer) -> None:
        try:
            for partition, records in client.poll(500).items():
                self.done[partition.topic] += len(records)
        except Exception as e:  # noqa: BLE001  # whatever the library raises
            self.failed.append(("", type(e).__name__))


class AioClient(ClientAtWork):
    """What a client of aiokafka needs: a loop, which is its thread's own."""

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        client = self.opened()
        await client.start()
        try:
            while not self._ended.is_set():
                await self.act(client)
                await asyncio.sleep(PACE_S)
        finally:
            await client.stop()

    async def act(self, client: Any) -> None:
        raise NotImplementedError


class AioProducer(AioClient):
    """Producer of aiokafka."""

    def opened(self) -> AIOKafkaProducer:
        return AIOKafkaProducer(**self.configuration, request_timeout_ms=int(ANSWER_S * 1000))

    async def act(self, client: AIOKafkaProducer) -> None:
        for topic in self.topics:
            try:
                sending = client.send_and_wait(topic, self.user.encode(), partition=0)
                await asyncio.wait_for(sending, 2 * ANSWER_S)
                self.done[topic] += 1
            except Exception as e:  # noqa: BLE001  # whatever the library raises
                self.failed.append((topic, type(e).__name__))


class AioConsumer(AioClient):
    """Consumer of aiokafka, in no group."""

    def opened(self) -> AIOKafkaConsumer:
        client = AIOKafkaConsumer(**self.configuration, group_id=None, auto_offset_reset="earliest")
        client.assign([AioPartition(topic, 0) for topic in self.topics])
        return client

    async def act(self, client: AIOKafkaConsumer) -> None:
        try:
            for partition, records in (await client.getmany(timeout_ms=500)).items():
                self.done[partition.topic] += len(records)
        except Exception as e:  # noqa: BLE001  # whatever the library raises
            self.failed.append(("", type(e).__name__))
