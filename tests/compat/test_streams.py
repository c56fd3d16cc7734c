"""Kafka Streams with exactly_once_v2 on three brokers of ours: a word count while brokers and application are killed."""

import random
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import MissingError, word_count
from tests.integration.load import await_in_sync
from tests.steady import STEADY, crash
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1500)]

APPLICATION: Final = "word-count"
WORDS: Final = [f"word-{number}" for number in range(12)]
PARTITIONS: Final = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
WAIT_S: Final = 240
OPTIONS: Final = {
    **STEADY,
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "unclean.leader.election.enable": "false",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


class Lines:
    """Lines of words at random, sent by an idempotent producer; ``counts``: how often each was acknowledged."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._chance = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            words = self._chance.choices(WORDS, range(1, len(WORDS) + 1), k=3)
            self._producer.produce("lines", " ".join(words).encode(), on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        self.counts.update((message.value() or b"").decode().split())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0 and self.errors == []


class Told:
    """What a read_committed reader has seen of each word, in order."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
        )
        self._consumer.assign([TopicPartition("counts", number, OFFSET_BEGINNING) for number in PARTITIONS])

    def read(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            if message.error() is None:
                self.counts[(message.key() or b"").decode()].append(int(message.value() or b""))

    def last(self) -> dict[str, int]:
        self.read()
        return {word: counts[-1] for word, counts in self.counts.items()}

    def wait_for_more(self) -> None:
        """Until every word that came was counted on."""
        before = sum(self.last().values())
        eventually(lambda: sum(self.last().values()) > before + 30, "words to be counted", WAIT_S)

    def close(self) -> None:
        self._consumer.close()


def words_in(bootstrap: str) -> Counter[str]:
    """Read the lines that were sent, and count their words."""
    counts: Counter[str] = Counter()
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "log_level": 0})
    try:
        places = [TopicPartition("lines", number, OFFSET_BEGINNING) for number in PARTITIONS]
        left = {place.partition: reader.get_watermark_offsets(place, timeout=60)[1] for place in places}
        reader.assign(places)
        deadline = time.monotonic() + WAIT_S
        while any(left.values()):
            assert time.monotonic() < deadline, f"not read: {left}"
            for message in reader.consume(500, 1.0):
                if message.error() is None:
                    partition = message.partition()
                    assert partition is not None
                    left[partition] -= 1
                    counts.update((message.value() or b"").decode().split())
    finally:
        reader.close()
    return counts


@pytest.mark.spec("TXN-108", "TXN-101", "TXN-97")
def test_every_word_is_counted_once_whoever_is_killed(tmp_path: Path) -> None:
    try:
        program = word_count()
    except MissingError as e:
        pytest.skip(str(e))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with (
        EmbeddedCluster(3, directory=tmp_path / "cluster", options=OPTIONS) as cluster,
        ZooKeeper(cluster.zookeeper) as zk,
        ExitStack() as processes,
    ):
        for topic in ("lines", "counts"):
            create_topic(zk, topic, PARTITIONS, {})
        await_in_sync(zk, seconds=WAIT_S)

        def start(number: int) -> ClientProcess:
            arguments = (cluster.bootstrap, "lines", "counts", APPLICATION, str(tmp_path / f"state-{number}"))
            return processes.enter_context(ClientProcess(program, tmp_path / f"{number}.log", *arguments))

        told = Told(cluster.bootstrap)
        processes.callback(told.close)
        lines = Lines(cluster.bootstrap, seed)
        try:
            application = start(0)
            told.wait_for_more()
            for victim in (1, 2, 3):
                await_in_sync(zk, seconds=WAIT_S)
                crash(cluster, zk, victim)
                told.wait_for_more()
                if victim == 2:  # the application dies too, in the middle of its transactions
                    application.kill()
                    application = start(1)
                cluster.start_broker(victim)
                told.wait_for_more()
            await_in_sync(zk, seconds=WAIT_S)
        finally:
            lines.stop()
        there = words_in(cluster.bootstrap)
        assert lines.counts <= there  # librdkafka may have sent a line twice, under another number
        eventually(lambda: told.last() == there, "every word to be counted", WAIT_S)
        application.end()
        told.read()
        assert {
            word: counts == list(range(1, len(counts) + 1)) for word, counts in told.counts.items()
        } == dict.fromkeys(lines.counts, True), "each count once, in order"
        asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": APPLICATION, "log_level": 0})
        processes.callback(asking.close)
        places = [TopicPartition("lines", number) for number in PARTITIONS]
        committed = [place.offset for place in asking.committed(places, timeout=60)]
        # Of an input without transactions the committed offset is its end.
        assert committed == [asking.get_watermark_offsets(place, timeout=60)[1] for place in places]
