"""Load on a cluster while something is done to it, and the questions asked afterwards: what is there, is it equal?"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.model import values as model
from kafkatool.core.model.assignment import assign_replicas
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.access import OPEN, Access
from tests.integration.renumbered import superseded
from tests.waiting import eventually

_DELIVERY_MS = 120_000
_RESTS = 4  # as long as a look at all replicas took
_LONGEST_REST_S = 1.0
_BROKERS_COME_S = 0.2  # so often it is worth a look whether one is there again


class Load:
    """A producer with acks=all that numbers its records and notes the acknowledged ones, until stopped.

    At most 4,000 records a second, so that two cores are left for the brokers. ``errors`` are those of records whose
    delivery failed for good.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        idempotent: bool = False,
        records_per_step: int = 20,
        in_flight: int = 5,
        access: Access = OPEN,
    ) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.errors: list[str] = []
        self.access = access
        self._topic = topic
        self._records_per_step = records_per_step
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight": in_flight,
                "linger.ms": 2,
                "message.timeout.ms": _DELIVERY_MS,
                "log_level": 0,
                **access.librdkafka,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(self._records_per_step):
                try:
                    self._producer.produce(
                        self._topic, b"value-%d" % number, str(number), on_delivery=self._noter(number)
                    )
                except BufferError:
                    break  # everything waits: nothing is sent meanwhile
                number += 1
            self._producer.poll(0)
            time.sleep(0.005)

    def _noter(self, number: int):  # type: ignore[no-untyped-def]
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.errors.append(str(error))
                return
            offset = message.offset()  # None: of a repeat that the broker knew already, for one
            self.acknowledged[number] = (message.partition(), -1 if offset is None else offset)

        return delivered

    def goes_on(self, records: int = 500, seconds: float = 90) -> None:
        """Wait until that many more records are acknowledged."""
        wanted = len(self.acknowledged) + records
        eventually(lambda: len(self.acknowledged) >= wanted, f"{records} more acknowledged records", seconds)

    def stop(self) -> None:
        """Stop producing; everything under way gets its outcome."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(_DELIVERY_MS / 1000) == 0


def make_topic(
    zk: ZooKeeper,
    topic: str,
    partitions: int,
    replication_factor: int = 3,
    *,
    configs: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Create it over all live brokers; it is not yet in sync. Waits for as many as it needs: a session may have ended."""
    brokers: list[model.BrokerInfo] = []

    def enough() -> bool:
        brokers[:] = read_cluster(zk, [], states=False).brokers.values()
        if len(brokers) < replication_factor:
            time.sleep(_BROKERS_COME_S)
        return len(brokers) >= replication_factor

    eventually(enough, f"{replication_factor} brokers for {topic}", 60)
    assignment = assign_replicas(brokers, partitions, replication_factor, start_index=0, replica_shift=0)
    create_topic(zk, topic, assignment, configs)


def out_of_sync(zk: ZooKeeper, topics: Iterable[str] | None = None) -> list[str]:
    """Return the partitions that lack a leader, a state or an in-sync replica; None: of all topics."""
    return [told for of_topic in _lacking(zk, topics).values() for told in of_topic]


def _lacking(zk: ZooKeeper, topics: Iterable[str] | None) -> dict[str, list[str]]:
    """Return what ``out_of_sync`` does, by topic."""
    view = read_cluster(zk, topics)
    found: dict[str, list[str]] = defaultdict(list)
    for topic, znode in view.topics.items():
        for number, replicas in znode.assignment.items():
            state = view.states.get(model.TopicPartition(topic, number))
            if state is None or state.leader_and_isr.leader is None:
                found[topic].append(f"{topic}-{number} has no leader")
            elif set(state.leader_and_isr.isr) != set(replicas):
                told = f"{topic}-{number}: replicas {replicas}, in sync {state.leader_and_isr.isr}"
                found[topic].append(told)
    return found


def await_in_sync(zk: ZooKeeper, topics: Iterable[str] | None = None, seconds: float = 90) -> None:
    """Wait until every partition has a leader and all its replicas are in sync.

    Topics that lack nothing are looked at again when no other lacks anything, and a look is followed by a rest that is
    longer than it: with hundreds of topics this would keep a core from those it waits for.
    """
    wanted = None if topics is None else list(topics)
    looked_at = wanted

    def are_in_sync() -> bool:
        nonlocal looked_at
        begun = time.monotonic()
        lacking = list(_lacking(zk, looked_at))
        if not lacking and looked_at is not wanted:
            lacking = list(_lacking(zk, wanted))
        looked_at = lacking or wanted
        if lacking:
            time.sleep(min(_RESTS * (time.monotonic() - begun), _LONGEST_REST_S))
        return not lacking

    try:
        eventually(are_in_sync, "all replicas to be in sync", seconds)
    except AssertionError as e:
        raise AssertionError(f"{e}: {out_of_sync(zk, wanted)[:10]}") from e


class Found(NamedTuple):
    partition: int
    offset: int
    number: int
    value: bytes


def read_all(bootstrap: str, topic: str, partitions: int, access: Access = OPEN) -> list[Found]:
    """Return every record from start to end, partition by partition in its order."""
    asking = {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(asking | dict(access.librdkafka))
    try:
        seen: list[Found] = []
        ends = [end_of(consumer, TopicPartition(topic, p)) for p in range(partitions)]
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        reached = [0] * partitions

        def done() -> bool:
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None, message.error()
                reached[message.partition()] = message.offset() + 1
                seen.append(Found(message.partition(), message.offset(), int(message.key()), message.value()))
            return all(r >= e for r, e in zip(reached, ends, strict=True))

        eventually(done, "all records to be read", 120)
        return seen
    finally:
        consumer.close()


def edges_of(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return the partition's start and high watermark; a leader that is new may not know them yet, and says so."""
    found: list[tuple[int, int]] = []
    refusals: list[KafkaException] = []

    def is_told() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, timeout=30))
        except KafkaException as e:
            refusals.append(e)
        return bool(found)

    try:
        eventually(is_told, f"start and end of {partition.topic}-{partition.partition}", 90)
    except AssertionError as e:
        raise AssertionError(f"{e}: {refusals[-1]}") from e
    return found[0]


def end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the partition's high watermark."""
    return edges_of(consumer, partition)[1]


def check_records(cluster: EmbeddedCluster, topic: str, partitions: int, load: Load, *, once: bool = False) -> None:
    """Check that nothing acknowledged is lost, moved or garbled.

    ``once``, for an idempotent load: no broker took a batch twice, and all is in the order of sending. Without
    idempotence a client that waits for an old leader's answer sends later records to the new leader first.
    """
    seen = read_all(cluster.bootstrap, topic, partitions, load.access)
    numbers = {found.number for found in seen}
    lost = sorted(set(load.acknowledged) - numbers)
    assert not lost, (
        f"{len(lost)} acknowledged records lost, the first: {[(n, load.acknowledged[n]) for n in lost[:5]]}"
    )
    assert all(found.value == b"value-%d" % found.number for found in seen)
    if once:
        assert not load.errors, load.errors[:5]
        seen = _without_renumbered(cluster.bootstrap, topic, seen, load.access)
        order: dict[int, list[int]] = defaultdict(list)
        for found in seen:
            order[found.partition].append(found.number)
        for partition, sent in order.items():
            assert sent == sorted(sent), f"partition {partition} is out of order"
    places = {(found.partition, found.offset): found.number for found in seen}
    moved = [
        (number, place)
        for number, place in load.acknowledged.items()
        if place[1] >= 0 and places.get(place) != number  # the offset of a repeat may be unknown to the client
    ]
    assert not moved, f"{len(moved)} records are not where they were acknowledged: {moved[:5]}"


def _without_renumbered(bootstrap: str, topic: str, seen: list[Found], access: Access) -> list[Found]:
    """Return them without the copies that the client itself left behind; assert that all others are there once."""
    copies: dict[int, list[Found]] = defaultdict(list)
    for found in seen:
        copies[found.number].append(found)
    repeated = [same for same in copies.values() if len(same) > 1]
    left_behind = set(superseded(bootstrap, topic, repeated, access)) if repeated else set()
    if left_behind:
        print(f"{len(left_behind)} records were written again by a client that changed its producer epoch")
    return [found for found in seen if found not in left_behind]


def is_unsure(verified: str) -> bool:
    """Tell whether that text of kt replica-verify leaves it open: it gives up a replica that stands still for 5 s."""
    return re.search(r" (incomplete|unreadable|unreachable): replicas ", verified) is not None


def check_replicas_equal(cluster: EmbeddedCluster, access: Access = OPEN) -> None:
    """Compare as an operator would: kt replica-verify, with its exit code.

    Where it is not sure it is asked again. What it once called different is different.
    """
    command = [sys.executable, "-m", "kafkatool", "replica-verify", "--zookeeper", cluster.zookeeper, "--once"]
    said: list[str] = []

    def equal() -> bool:
        environment = {**os.environ, **access.environment}
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
        said.append(outcome.stdout + outcome.stderr)
        unsure = is_unsure(outcome.stdout)
        assert outcome.returncode == 0 or (unsure and " different: replicas " not in outcome.stdout), said[-1]
        return outcome.returncode == 0

    try:
        eventually(equal, "all replicas to be verified", 120)
    except AssertionError as e:
        raise AssertionError(f"{e}: {said[-1]}") from e
