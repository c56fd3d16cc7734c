"""Real clients with their defaults against three broker processes: produce, consume, consume in a group."""

import asyncio
import shutil
import subprocess
import sys
import uuid

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from tests.waiting import eventually

RECORDS = 500
_SESSION_MS = 60_000  # by default it is 10 s: who stands still so long is expelled, and reads again what it had read


@pytest.fixture
def topic(kafka_cluster: EmbeddedCluster) -> str:
    """Give a topic with 3 partitions x 3 replicas that every broker knows: a client asks whichever it likes."""
    return kafka_cluster.create_topic(f"clients-{uuid.uuid4().hex[:8]}", partitions=3, replication_factor=3)


def values(count: int = RECORDS) -> list[bytes]:
    return [b"value-%d" % i for i in range(count)]


def produce(bootstrap: str, topic: str, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    failed: list[object] = []
    for value in values():
        producer.produce(topic, value, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(120) == 0
    assert failed == []


@pytest.mark.spec("BRK-1", "BRK-155", "BRK-156", "BRK-163", "BRK-164", "GRP-1")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_produces_and_consumes_in_a_group(kafka_cluster: EmbeddedCluster, topic: str, codec: str) -> None:
    produce(kafka_cluster.bootstrap, topic, **{"compression.type": codec, "enable.idempotence": codec == "none"})
    consumer = Consumer(
        {"bootstrap.servers": kafka_cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        got: list[bytes] = []

        def all_there() -> bool:
            for message in consumer.consume(RECORDS, 0.2):
                assert message.error() is None, message.error()
                got.append(message.value())
            return len(got) >= RECORDS

        eventually(all_there, "all records to arrive", 60)
        assert sorted(got) == sorted(values())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.spec("BRK-1", "BRK-14", "BRK-156")
def test_aiokafka(kafka_cluster: EmbeddedCluster, topic: str) -> None:
    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=kafka_cluster.bootstrap)
        await producer.start()
        try:
            await asyncio.gather(*[await producer.send(topic, v, key=v) for v in values()])
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=kafka_cluster.bootstrap,
            group_id=f"aio-{topic}",
            auto_offset_reset="earliest",
            session_timeout_ms=_SESSION_MS,
        )
        await consumer.start()
        try:
            got: list[bytes] = []
            while len(got) < RECORDS:
                message = await asyncio.wait_for(consumer.getone(), 60)
                got.append(message.value)
            return got
        finally:
            await consumer.stop()

    assert sorted(asyncio.run(run())) == sorted(values())


@pytest.mark.spec("BRK-1")
def test_kafka_python(kafka_cluster: EmbeddedCluster, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap)
    try:
        sent = [producer.send(topic, value, key=value) for value in values()]
        producer.flush(120)
        assert all(future.succeeded() for future in sent)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=kafka_cluster.bootstrap,
        group_id=f"python-{topic}",
        auto_offset_reset="earliest",
        session_timeout_ms=_SESSION_MS,
        consumer_timeout_ms=60_000,
    )
    try:
        got = []
        for message in consumer:
            got.append(message.value)
            if len(got) == RECORDS:
                break
    finally:
        consumer.close()
    assert sorted(got) == sorted(values())


@pytest.mark.spec("BRK-1")
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)")
def test_kcat(kafka_cluster: EmbeddedCluster, topic: str) -> None:
    base = ["kcat", "-b", kafka_cluster.bootstrap]
    lines = b"\n".join(values()) + b"\n"
    subprocess.run([*base, "-P", "-t", topic], input=lines, check=True, timeout=200, capture_output=True)
    read = subprocess.run([*base, "-C", "-e", "-q", "-t", topic], check=True, timeout=200, capture_output=True)
    assert sorted(read.stdout.splitlines()) == sorted(values())
    group = subprocess.run(
        [*base, "-G", f"kcat-{topic}", "-X", "auto.offset.reset=earliest", "-c", str(RECORDS), topic],
        check=True,
        timeout=200,
        capture_output=True,
    )
    assert sorted(group.stdout.splitlines()) == sorted(values())
    listing = subprocess.run([*base, "-L", "-J"], check=True, timeout=200, capture_output=True)
    assert topic.encode() in listing.stdout


@pytest.mark.spec("GRP-13", "GRP-26", "GRP-47")
def test_a_group_rebalances_commits_and_resumes(kafka_cluster: EmbeddedCluster, topic: str) -> None:
    settings = {
        "bootstrap.servers": kafka_cluster.bootstrap,
        "group.id": f"rebalance-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": _SESSION_MS,
    }
    first, second = Consumer(settings), Consumer(settings)
    try:
        first.subscribe([topic])
        eventually(lambda: first.poll(0.1) is None and len(first.assignment()) == 3, "one member to own all", 60)
        second.subscribe([topic])

        def shared() -> bool:
            first.poll(0.1)
            second.poll(0.1)
            return sorted([len(first.assignment()), len(second.assignment())]) == [1, 2]

        eventually(shared, "both members to own partitions, three between them", 60)
        second.close()
        eventually(lambda: first.poll(0.1) is None and len(first.assignment()) == 3, "the first to own all again", 60)
        produce(kafka_cluster.bootstrap, topic)
        got: list[bytes] = []

        def read_half() -> bool:
            got.extend(m.value() for m in first.consume(100, 0.2) if m.error() is None)
            return len(got) >= RECORDS // 2

        eventually(read_half, "half of the records", 60)
        first.commit(asynchronous=False)
    finally:
        first.close()
    third = Consumer(settings)
    try:
        third.subscribe([topic])

        def read_rest() -> bool:
            got.extend(m.value() for m in third.consume(100, 0.2) if m.error() is None)
            return len(got) >= RECORDS

        eventually(read_rest, "the rest, from where the group had committed", 60)
        assert sorted(got) == sorted(values())
    finally:
        third.close()


class Member:
    """A member of a group that notes what it is given, time after time."""

    def __init__(self, bootstrap: str, topic: str, **settings: object) -> None:
        self.given: list[set[int]] = []
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"members-{topic}", "log_level": 0, **settings}
        )
        self.consumer.subscribe([topic], on_assign=lambda _, given: self.given.append({p.partition for p in given}))

    def has(self) -> set[int]:
        self.consumer.poll(0.1)
        return {p.partition for p in self.consumer.assignment()}


@pytest.mark.spec("GRP-40", "GRP-38")
def test_a_static_consumer_that_restarts_gets_its_partitions_back_without_a_rebalance(
    kafka_cluster: EmbeddedCluster, topic: str
) -> None:
    def member(name: str) -> Member:
        return Member(kafka_cluster.bootstrap, topic, **{"group.instance.id": name, "session.timeout.ms": 120_000})

    first, second = member("first"), member("second")
    try:
        # both are polled each time: a rebalance waits for either to give up what it has
        eventually(lambda: all([first.has(), second.has()]), "both to own partitions", 60)
        eventually(lambda: first.has() | second.has() == {0, 1, 2}, "all partitions to be owned", 60)
        owned, rebalances = first.has(), len(second.given)
        first.consumer.close()  # says nothing to the coordinator: it is static
        first = member("first")
        eventually(lambda: first.has() == owned, "the restarted one to own what it had", 60)
        assert first.given == [owned], "at once"
        assert second.has() == {0, 1, 2} - owned and len(second.given) == rebalances
    finally:
        for one in (first, second):
            one.consumer.close()


@pytest.mark.spec("GRP-44")
@pytest.mark.slow
def test_a_consumer_that_is_killed_gives_up_its_partitions_after_its_session_and_one_that_closes_before_it(
    kafka_cluster: EmbeddedCluster, topic: str
) -> None:
    program = (
        "import sys; from confluent_kafka import Consumer\n"
        "c = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2], 'session.timeout.ms': 6000})\n"
        "c.subscribe([sys.argv[3]])\n"
        "while not c.assignment(): c.poll(0.1)\n"
        "print('assigned', flush=True)\n"
        "while True: c.poll(0.1)\n"
    )
    command = [sys.executable, "-c", program, kafka_cluster.bootstrap, f"members-{topic}", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        other: Member | None = None
        try:
            assert victim.stdout is not None and victim.stdout.readline() == "assigned\n"
            other = Member(kafka_cluster.bootstrap, topic)
            eventually(lambda: 0 < len(other.has()) < 3, "the two to share", 60)
            victim.kill()
            eventually(lambda: other.has() == {0, 1, 2}, "the other to own all", 60)
            leaving = Member(kafka_cluster.bootstrap, topic, **{"session.timeout.ms": 300_000})
            try:
                # both are polled each time: a rebalance waits for either
                eventually(lambda: all([leaving.has(), other.has()]), "the two to share", 60)
            finally:
                leaving.consumer.close()
            eventually(lambda: other.has() == {0, 1, 2}, "the other to own all, long before that session's end", 60)
        finally:
            victim.kill()
            if other is not None:
                other.consumer.close()
