"""Clients at work while leaders and group coordinators move: nobody is told of an error, nothing is lost."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.model.values import TopicPartition as Partition
from kafkatool.core.protocol.messages import list_offsets, metadata
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.access import OPEN, Access
from tests.integration.load import Load, await_in_sync, check_records, make_topic
from tests.steady import STEADY, crash
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 3
OFFSETS = "__consumer_offsets"
OPTIONS = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "5",
    **STEADY,
}

# A commit that meets the change of coordinator is simply made again; nothing new to commit is none.
PASSING = {
    KafkaError._NO_OFFSET,
    KafkaError._UNSUPPORTED_FEATURE,  # what librdkafka says of a coordinator it is not yet connected to
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
}


class Member:
    """A group member that reads, notes what it got, and commits each batch before it counts."""

    def __init__(self, bootstrap: str, topic: str, group: str, access: Access = OPEN) -> None:
        self.got: set[int] = set()
        self.committed: dict[int, int] = {}
        self.errors: list[str] = []
        self.assignments = 0  # the first may be of nothing, from a broker that has not heard of the topic yet
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
                **access.librdkafka,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.2):
                self._note(message)
            if self.got:
                try:
                    for done in self._consumer.commit(asynchronous=False) or ():
                        self.committed[done.partition] = done.offset
                except KafkaException as e:
                    error: KafkaError = e.args[0]
                    if error.code() not in PASSING:
                        self.errors.append(str(error))

    def _note(self, message: Message) -> None:
        if (error := message.error()) is not None:
            # A broker that has just started says so of every topic until the controller has spoken (BRK-123).
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.errors.append(str(error))
        else:
            self.got.add(int(message.key()))

    def has_all_of(self, load: Load) -> None:
        wanted = set(load.acknowledged)
        eventually(lambda: wanted <= self.got, "every acknowledged record to be read", 60)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    directory: Path = tmp_path_factory.mktemp("going-on")
    with EmbeddedCluster(3, directory=directory, options=OPTIONS) as running:
        yield running


@contextmanager
def at_work(cluster: EmbeddedCluster, name: str) -> Iterator[tuple[Load, Member, ZooKeeper]]:
    """Give a producer and a group member on a topic of that name; afterwards everything was read and nothing told."""
    with ZooKeeper(cluster.zookeeper) as zk:
        make_topic(zk, name, PARTITIONS)
        await_in_sync(zk, [name])
        load = Load(cluster.bootstrap, name, idempotent=True, records_per_step=5)
        member = Member(cluster.bootstrap, name, name)
        try:
            load.goes_on(200)
            eventually(lambda: len(member.committed) == PARTITIONS, "the first commits", 60)
            await_in_sync(zk)
            yield load, member, zk
            load.goes_on(200)
            load.stop()
            member.has_all_of(load)
        finally:
            load.stop()
            member.stop()
    check_records(cluster, name, PARTITIONS, load, once=True)
    assert member.errors == []


def leaders(zk: ZooKeeper, topic: str) -> list[int | None]:
    states = read_cluster(zk, [topic]).states
    return [states[Partition(topic, p)].leader_and_isr.leader for p in range(PARTITIONS)]


def coordinator_of(zk: ZooKeeper, group: str) -> int:
    """Wait for a coordinator: there is none for a moment while leaders change."""

    def leader() -> int | None:
        view = read_cluster(zk, [OFFSETS])
        partition = Partition(OFFSETS, partition_for(group, len(view.topics[OFFSETS].assignment)))
        return view.states[partition].leader_and_isr.leader

    return awaited(leader, f"a coordinator of {group}", 60)


def connected(broker: BrokerInfo) -> Connection:
    (endpoint,) = broker.endpoints
    return Connection(endpoint.host, endpoint.port, client_id="test", timeout_ms=60_000, security=None)


def told_leaders(broker: BrokerInfo, topic: str) -> list[int]:
    """Return the leaders by the metadata of that broker."""
    with connected(broker) as connection:
        request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic=topic)])
        (found,) = connection.send(metadata.API, 1, request).topics
    return [p.leader_id for p in sorted(found.partitions, key=lambda p: p.partition)]


def error_for_consumers(broker: BrokerInfo, topic: str, number: int) -> int:
    """Ask that broker for an offset, as a consumer does who takes it for the leader."""
    wanted = list_offsets.ListOffsetsRequestPartition(partition=number, timestamp=-1)
    request = list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsRequestTopic(topic=topic, partitions=[wanted])]
    )
    with connected(broker) as connection:
        (answered,) = connection.send(list_offsets.API, 1, request).topics
    return int(answered.partitions[0].error_code)


@pytest.mark.spec("CTL-123", "ELE-7", "CTL-102")
def test_clients_go_on_through_a_preferred_election(cluster: EmbeddedCluster) -> None:
    with at_work(cluster, "elected") as (load, member, zk):
        preferred = leaders(zk, "elected")
        assert sorted(p for p in preferred if p) == [1, 2, 3]
        cluster.stop_broker(2)
        cluster.start_broker(2)
        await_in_sync(zk)
        former = leaders(zk, "elected")
        assert 2 not in former, "it came back as a follower"
        load.goes_on(100)
        command = [sys.executable, "-m", "kafkatool", "elect", "--zookeeper", cluster.zookeeper, "--topic", "elected"]
        elected = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert elected.returncode == 0, elected.stdout + elected.stderr
        assert leaders(zk, "elected") == preferred
        brokers = read_cluster(zk, [], states=False).brokers
        for broker in brokers.values():
            eventually(lambda b=broker: told_leaders(b, "elected") == preferred, "all brokers to know", 60)  # type: ignore[misc]
        moved = preferred.index(2)
        assert error_for_consumers(brokers[former[moved] or 0], "elected", moved) == 6
        # 5 until its high watermark has reached where it began to lead: what consumers were told before may lie above
        eventually(lambda: error_for_consumers(brokers[2], "elected", moved) == 0, "the new leader to tell its end", 60)
        load.goes_on(300)
        member.has_all_of(load)


@pytest.mark.spec("GRP-62", "GRP-15", "GRP-16")
def test_a_controlled_stop_of_the_coordinator_causes_no_rebalance(cluster: EmbeddedCluster) -> None:
    with at_work(cluster, "moved") as (load, member, zk):
        coordinator, assignments = coordinator_of(zk, "moved"), member.assignments
        cluster.stop_broker(coordinator)
        try:
            eventually(lambda: coordinator_of(zk, "moved") != coordinator, "another coordinator", 60)
            before = dict(member.committed)
            load.goes_on(300)
            eventually(lambda: all(member.committed[p] > before[p] for p in before), "commits to go on", 60)
            member.has_all_of(load)
            assert member.assignments == assignments
        finally:
            cluster.start_broker(coordinator)
        await_in_sync(zk)


@pytest.mark.spec("GRP-61", "GRP-9", "GRP-43")
def test_no_commit_is_lost_when_the_coordinator_is_killed(cluster: EmbeddedCluster) -> None:
    with at_work(cluster, "killed") as (load, member, zk):
        assignments = member.assignments
        for _ in range(2):
            coordinator = coordinator_of(zk, "killed")
            crash(cluster, zk, coordinator)
            before = dict(member.committed)
            load.goes_on(300)
            eventually(lambda b=before: all(member.committed[p] > b[p] for p in b), "commits to go on", 60)  # type: ignore[misc]
            eventually(lambda c=coordinator: coordinator_of(zk, "killed") != c, "another coordinator", 60)  # type: ignore[misc]
            cluster.start_broker(coordinator)
            await_in_sync(zk)
        assert member.assignments == assignments, "sessions outlived the fail-over"
        acknowledged = dict(member.committed)
    asking = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "killed", "log_level": 0})
    try:
        stored = asking.committed([TopicPartition("killed", p) for p in range(PARTITIONS)], timeout=120)
    finally:
        asking.close()
    assert all(found.offset >= acknowledged[found.partition] for found in stored)
