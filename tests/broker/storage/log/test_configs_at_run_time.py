"""Each of the sixteen topic configs, changed while the broker runs: what is different from then on (BRK-125).

The change goes the way ``kt topics alter`` goes: the topic's node in ZooKeeper, then a notification. What is asserted is
what the log or the answer to a producer shows, never the parsed value.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkatool.broker import server
from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.broker.server import Broker
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.client.connection import Connection
from kafkatool.core.model.topic_configs import DOCUMENTED
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.operations.topics.configs import change_configs
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages import produce
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.broker.controller.fake_cluster import FakeCluster
from tests.broker.storage.compaction.compacting import consumed
from tests.broker.test_server import client_of, config
from tests.waiting import eventually

PATIENCE_S = 90
_TESTED: set[str] = set()


def changes(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Note which config's effect is tested."""
    _TESTED.add(name)
    return lambda test: test


class Topic:
    """One topic of one partition on the running broker."""

    def __init__(self, world: "World", name: str, configs: dict[str, str]) -> None:
        self._world = world
        self.name = name
        create_topic(world.zk, name, {0: (1,)}, configs)
        eventually(lambda: self.send([("a", "first")]) == ErrorCode.NONE, f"{name} to take records", PATIENCE_S)
        self.log: Log = world.manager.get(TopicPartition(name, 0))  # type: ignore[assignment]

    def send(self, pairs: list[tuple[str, str | None]], *, timestamp: int | None = None, acks: int = -1) -> int:
        """Produce one batch; return the error code."""
        at = int(time.time() * 1000) if timestamp is None else timestamp
        records = [Record(i, at, k.encode(), None if v is None else v.encode()) for i, (k, v) in enumerate(pairs)]
        partition = produce.ProduceRequestPartition(partition=0, records=bytes(encode_batch(records)))
        topics = [produce.ProduceRequestTopic(topic=self.name, partitions=[partition])]
        request = produce.ProduceRequest(acks=acks, timeout_ms=60_000, topics=topics)
        return self._world.connection.send(produce.API, 7, request).topics[0].partitions[0].error_code

    def change(self, name: str, value: str) -> None:
        """Alter the config and wait until the broker has heard of it."""
        before = self.log.config
        change_configs(self._world.zk, self.name, {name: value})
        eventually(lambda: self.log.config is not before, f"the broker to hear of {name}={value}", PATIENCE_S)

    def offsets(self) -> list[int]:
        return [r.offset for r in consumed(self.log)]

    def segments(self) -> int:
        return len(self.log.segments)

    def files(self, suffix: str) -> set[str]:
        return {path.name for path in self.log.directory.glob("*" + suffix)}


class World:
    """A broker whose background tasks run all the time."""

    def __init__(self, broker: Broker, connection: Connection, zk: ZooKeeper, manager: LogManager) -> None:
        self.broker = broker
        self.connection = connection
        self.zk = zk
        self.manager = manager

    def topic(self, name: str, **configs: str) -> Topic:
        """Make topics; configs are given with ``_`` for ``.``."""
        return Topic(self, name, {k.replace("_", "."): v for k, v in configs.items()})


@pytest.fixture(scope="module")
def world(zookeeper_server: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    connect = f"{zookeeper_server.connect}/configs-at-run-time"
    managers: list[LogManager] = []

    def remembered(*arguments: Any, **options: Any) -> LogManager:
        managers.append(LogManager(*arguments, **options))
        return managers[-1]

    settings = config(
        connect,
        tmp_path_factory.mktemp("data"),
        log_retention_check_interval_ms="100",
        log_flush_scheduler_interval_ms="100",
        log_cleaner_backoff_ms="100",
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(server, "LogManager", remembered)
        with Broker(settings) as broker, client_of(broker) as connection, ZooKeeper(connect) as zk:
            yield World(broker, connection, zk, managers[0])


@pytest.mark.spec("BRK-125")
def test_all_sixteen_are_tested() -> None:
    assert {one.name for one in DOCUMENTED} == _TESTED


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("cleanup.policy")
def test_a_topic_begins_to_be_compacted(world: World) -> None:
    topic = world.topic("policy", segment_bytes="200", min_cleanable_dirty_ratio="0.01")
    for number in range(12):
        topic.send([("a", str(number))])
    assert topic.offsets() == list(range(13))
    topic.change("cleanup.policy", "compact")
    eventually(lambda: len(topic.offsets()) < 5, "old values of the key to go", PATIENCE_S)
    assert topic.offsets()[-1] == 12


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("delete.retention.ms")
def test_tombstones_go_sooner(world: World) -> None:
    topic = world.topic("tombstones", segment_bytes="100", min_cleanable_dirty_ratio="0.01", cleanup_policy="compact")
    topic.send([("gone", None)])
    for number in range(3):
        topic.send([("a", str(number))])
    eventually(lambda: (topic.log.state.cleaned_to or 0) > 1, "the first cleaning", PATIENCE_S)
    topic.send([("a", "more")])
    topic.send([("a", "more")])
    end = topic.log.log_end_offset
    eventually(lambda: (topic.log.state.cleaned_to or 0) >= end - 2, "the second cleaning", PATIENCE_S)
    assert 1 in topic.offsets()
    topic.change("delete.retention.ms", "0")

    def cleaned() -> bool:
        topic.send([("a", "again")])
        return 1 not in topic.offsets()

    eventually(cleaned, "the tombstone to go", PATIENCE_S)


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("file.delete.delay.ms")
def test_removed_files_are_erased_sooner(world: World) -> None:
    topic = world.topic("delay", segment_bytes="100", retention_bytes="1", file_delete_delay_ms="600000")
    topic.send([("a", "1")])
    eventually(lambda: bool(topic.files(".log.deleted")), "a segment to be removed", PATIENCE_S)
    eventually(lambda: topic.log.log_start_offset >= 1, "it to be gone", PATIENCE_S)
    before = topic.files(".log.deleted")
    topic.change("file.delete.delay.ms", "0")
    topic.send([("b", "1")])
    topic.send([("c", "1")])
    end = topic.log.log_end_offset
    eventually(lambda: topic.log.log_start_offset >= end - 1, "later segments to be removed", PATIENCE_S)
    late = {f"{offset:020d}.log.deleted" for offset in range(topic.log.log_start_offset)} - before
    eventually(lambda: not late & topic.files(".log.deleted"), "their files to be erased at once", PATIENCE_S)
    assert before <= topic.files(".log.deleted")


@pytest.mark.spec("BRK-125", "TOP-21", "BRK-140")
@changes("flush.messages")
def test_every_record_is_flushed(world: World) -> None:
    topic = world.topic("flushed-by-number")
    topic.send([("a", "1")])
    assert topic.log.state.recovery_point == 0
    topic.change("flush.messages", "1")
    topic.send([("a", "2")])
    assert topic.log.state.recovery_point == topic.log.log_end_offset


@pytest.mark.spec("BRK-125", "TOP-21", "BRK-140")
@changes("flush.ms")
def test_records_are_flushed_after_a_time(world: World) -> None:
    topic = world.topic("flushed-by-time")
    topic.send([("a", "1")])
    assert topic.log.state.recovery_point == 0
    topic.change("flush.ms", "1")
    eventually(lambda: topic.log.state.recovery_point == topic.log.log_end_offset, "the flush", PATIENCE_S)


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("index.interval.bytes")
def test_the_index_gets_denser(world: World) -> None:
    topic = world.topic("indexed")
    for _ in range(10):
        topic.send([("a", "1")])
    index = topic.log.segments.active.offset_index
    assert index.count == 0
    topic.change("index.interval.bytes", "1")
    for _ in range(10):
        topic.send([("a", "1")])
    assert index.count == 10


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("max.message.bytes")
def test_a_smaller_limit_refuses_what_was_taken(world: World) -> None:
    topic = world.topic("limited")
    assert topic.send([("a", "x" * 500)]) == ErrorCode.NONE
    topic.change("max.message.bytes", "200")
    assert topic.send([("a", "x" * 500)]) == ErrorCode.MESSAGE_TOO_LARGE
    assert topic.send([("a", "x")]) == ErrorCode.NONE


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("min.cleanable.dirty.ratio")
def test_less_dirt_is_enough(world: World) -> None:
    topic = world.topic("dirty", segment_bytes="100", min_cleanable_dirty_ratio="1", cleanup_policy="compact")
    for number in range(5):
        topic.send([("a", str(number))])
    other = world.topic("dirtier", segment_bytes="100", min_cleanable_dirty_ratio="0", cleanup_policy="compact")
    for number in range(5):
        other.send([("a", str(number))])
    eventually(lambda: len(other.offsets()) < 4, "another topic to be cleaned", PATIENCE_S)
    assert topic.offsets() == list(range(6))  # never more dirty than all of it
    topic.change("min.cleanable.dirty.ratio", "0.1")
    eventually(lambda: len(topic.offsets()) < 4, "it to be cleaned too", PATIENCE_S)


@pytest.mark.spec("BRK-48", "BRK-125", "TOP-21")
@changes("min.insync.replicas")
def test_more_replicas_are_asked_for(world: World) -> None:
    topic = world.topic("in-sync")
    assert topic.send([("a", "1")]) == ErrorCode.NONE
    topic.change("min.insync.replicas", "2")
    assert topic.send([("a", "1")]) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert topic.send([("a", "1")], acks=1) == ErrorCode.NONE


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("retention.bytes")
def test_what_is_too_much_goes(world: World) -> None:
    topic = world.topic("sized", segment_bytes="100")
    for number in range(8):
        topic.send([("a", str(number))])
    assert topic.log.log_start_offset == 0
    topic.change("retention.bytes", "200")
    eventually(lambda: topic.log.size_bytes < 300 and topic.log.log_start_offset > 4, "old segments to go", PATIENCE_S)


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("retention.ms")
def test_what_is_too_old_goes(world: World) -> None:
    topic = world.topic("aged", retention_ms="-1")
    topic.send([("a", "1")], timestamp=1_500_000_000_000)
    topic.send([("a", "2")], timestamp=1_500_000_000_000)
    assert topic.log.log_start_offset == 0
    topic.change("retention.ms", "1")
    eventually(lambda: topic.log.log_start_offset == topic.log.log_end_offset, "all records to go", PATIENCE_S)


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("segment.bytes")
def test_segments_get_smaller(world: World) -> None:
    topic = world.topic("rolled-by-size")
    topic.send([("a", "1")])
    topic.send([("a", "1")])
    assert topic.segments() == 1
    topic.change("segment.bytes", "100")
    topic.send([("a", "1")])
    topic.send([("a", "1")])
    assert topic.segments() == 3


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("segment.index.bytes")
def test_a_full_index_ends_the_segment(world: World) -> None:
    topic = world.topic("rolled-by-index", index_interval_bytes="1")
    for _ in range(6):
        topic.send([("a", "1")])
    assert topic.segments() == 1
    topic.change("segment.index.bytes", "24")
    for _ in range(6):
        topic.send([("a", "1")])
    assert topic.segments() > 3


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("segment.ms")
def test_segments_get_shorter_in_time(world: World) -> None:
    topic = world.topic("rolled-by-time", retention_ms="-1")
    now = int(time.time() * 1000)
    topic.send([("a", "1")], timestamp=now + 60_000)
    assert topic.segments() == 1
    topic.change("segment.ms", "30000")
    topic.send([("a", "1")], timestamp=now + 60_000)
    assert topic.segments() == 2
    topic.send([("a", "1")], timestamp=now + 60_001)
    assert topic.segments() == 2


@pytest.mark.spec("BRK-125", "TOP-21", "BRK-131")
@changes("segment.jitter.ms")
def test_new_segments_roll_earlier_by_up_to_the_jitter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = world.topic("jittered", segment_ms="100000", retention_ms="-1")
    now = int(time.time() * 1000)
    monkeypatch.setattr(random, "randrange", lambda limit: limit - 1)
    topic.change("segment.jitter.ms", "90000")
    topic.send([("a", "1")], timestamp=now + 60_000)
    assert topic.segments() == 1  # begun without jitter
    topic.send([("a", "1")], timestamp=now + 200_000)
    assert topic.segments() == 2
    topic.send([("a", "1")], timestamp=now + 215_000)
    assert topic.segments() == 3


@pytest.mark.spec("BRK-125", "BRK-130")
def test_batches_are_stored_in_another_codec(world: World) -> None:
    topic = world.topic("packed")
    topic.send([("a", "x" * 1000)])
    before = topic.log.size_bytes
    topic.change("compression.type", "gzip")
    topic.send([("a", "x" * 1000)])
    assert topic.log.size_bytes - before < 200
    assert consumed(topic.log)[-1].value == b"x" * 1000


@pytest.mark.spec("BRK-125", "TOP-21")
@changes("unclean.leader.election.enable")
def test_the_next_election_may_take_a_replica_that_was_not_in_sync() -> None:
    """The controller reads it when it elects; it is its simulation that runs here."""
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]}, unclean_leader_election_enable="false")
    for broker in (3, 2):
        cluster.kill(broker)
        cluster.run()
    change_configs(cluster.zk, "t", {"unclean.leader.election.enable": "true"})
    cluster.restart(3)
    assert cluster.state("t") == LeaderAndIsr(3, 3, (3,), 1)
