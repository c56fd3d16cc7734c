"""DeleteRecords: what the leader does at once, and when the request is answered. The log is real, followers are told."""

from collections.abc import Iterator
from pathlib import Path
from threading import RLock
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.runtime.purgatory import Purgatory
from kafkatool.broker.runtime.scheduler import Scheduler
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.broker.storage.checkpoint import LOG_START_OFFSETS, read_offsets
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import delete_records as api
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL, Record, encode_batch
from tests.broker.handlers.served import Client, broker_of, handler_context, live, update
from tests.broker.network.raw_client import network_config
from tests.broker.replication.world import world
from tests.broker.storage.batch_builders import batch
from tests.waiting import eventually

SERVED = {21: load_handlers()[21]}
TP = TopicPartition("t", 0)
RECORDS = 10
HIGH_WATERMARK = 8


class Leader:
    """Stands for the replica manager of a broker that leads one partition with followers 2 (alive) and 3 (dead)."""

    def __init__(self, directory: Path) -> None:
        self.scheduler = Scheduler(1, "test")
        config = network_config(**{"log.dirs": str(directory)})
        self.logs = LogManager(config, lambda _: {}, self.scheduler, "cluster")
        self.logs.load()
        self.log = self.logs.get_or_create(TP, is_new=True)
        for i in range(RECORDS):
            self.log.append_as_leader(encode_batch([Record(0, i, b"k", b"v", ())]), 0)
        self.log.high_watermark = HIGH_WATERMARK
        self.raised: list[tuple[TopicPartition, int]] = []
        self.follower, self.dead = SimpleNamespace(log_start_offset=-1), SimpleNamespace(log_start_offset=-1)
        self.partition: Any = SimpleNamespace(
            lock=RLock(),
            leader_log=self.log,
            high_watermark=SimpleNamespace(offset=HIGH_WATERMARK),
            remote={2: self.follower, 3: self.dead},
        )
        self.timer = Timer("waits")
        self.partitions = SimpleNamespace(leader=self._leader)
        self.delayed = SimpleNamespace(
            deletions=Purgatory(self.timer), fetches=SimpleNamespace(check=self._note_raised)
        )

    def _leader(self, partition: TopicPartition) -> Any:
        return self.partition if partition == TP else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _note_raised(self, partition: TopicPartition) -> None:
        self.raised.append((partition, self.kept))

    @property
    def kept(self) -> int:
        """The log start that a broker would begin with that is killed now."""
        return read_offsets(self.log.directory.parent / LOG_START_OFFSETS).get(TP, 0)

    def close(self) -> None:
        self.timer.close()
        self.scheduler.shutdown()
        self.logs.shutdown()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    (tmp_path / "data").mkdir()
    made = Leader(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def client(leader: Leader) -> Iterator[Client]:
    cache = MetadataCache(1)
    cache.update(update(brokers=[live(1), live(2)]))
    replicas: Any = leader
    with broker_of(
        SERVED, handler_context(replica_manager=replicas, metadata_cache=cache, log_manager=leader.logs)
    ) as made:
        yield made


def request(offset: int, topic: str = "t", timeout_ms: int = 60_000) -> Any:
    wanted = [api.DeleteRecordsPartition(partition=0, offset=offset)]
    return api.DeleteRecordsRequest(
        topics=[api.DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=timeout_ms
    )


def ask(client: Client, wanted: Any, version: int = 1) -> tuple[int, int]:
    (topic,) = client.call(api.API, version, wanted).topics
    (partition,) = topic.partitions
    return partition.low_watermark, partition.error_code


@pytest.mark.spec("BRK-162", "BRK-141")
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("offset", "start"), [(3, 3), (-1, HIGH_WATERMARK), (0, 0)])
def test_records_are_gone_when_the_live_followers_have_dropped_them_too(
    leader: Leader, client: Client, version: int, offset: int, start: int
) -> None:
    client.send_request(api.API, version, request(offset))
    eventually(lambda: leader.log.log_start_offset == start, "the leader's log start")
    eventually(lambda: leader.raised == [(TP, start)], "its fetch sessions to hear of it, once it is on the disk")
    leader.follower.log_start_offset = start
    leader.delayed.deletions.check(TP)
    (topic,) = client.receive_response(api.API, version).topics
    assert [(p.low_watermark, p.error_code) for p in topic.partitions] == [(start, 0)]


@pytest.mark.spec("BRK-162")
def test_a_follower_that_does_not_follow_ends_in_a_time_out(leader: Leader, client: Client) -> None:
    assert ask(client, request(3, timeout_ms=1)) == (-1, 7)
    assert leader.log.log_start_offset == 3, "gone here all the same"
    assert ask(client, request(3, timeout_ms=0)) == (-1, 7)


@pytest.mark.spec("BRK-162")
def test_what_cannot_be_deleted_says_why(leader: Leader, client: Client) -> None:
    leader.follower.log_start_offset = 0
    assert ask(client, request(HIGH_WATERMARK + 1)) == (-1, 1)
    assert ask(client, request(-2)) == (-1, 1)
    assert ask(client, request(0, topic="gone")) == (-1, 3)
    assert ask(client, request(0, topic="__consumer_offsets")) == (-1, 17)
    compacted = LogConfig.from_broker(network_config(), {"cleanup.policy": "compact"})
    before = leader.log.config
    leader.log.update_config(compacted)
    assert ask(client, request(1)) == (-1, 44)
    leader.log.update_config(before)
    leader.partition.leader_log = None
    assert ask(client, request(1)) == (-1, 6)
    assert (leader.log.log_start_offset, leader.raised) == (0, [])


@pytest.mark.spec("BRK-162")
def test_a_leader_that_is_deposed_meanwhile_says_so(leader: Leader, client: Client) -> None:
    client.send_request(api.API, 1, request(3))
    eventually(lambda: leader.log.log_start_offset == 3, "the leader's log start")
    leader.partition.leader_log = None
    leader.delayed.deletions.check(TP)
    (topic,) = client.receive_response(api.API, 1).topics
    assert [(p.low_watermark, p.error_code) for p in topic.partitions] == [(-1, 6)]


@pytest.mark.spec("TXN-69")
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("offset", [-1, 1, 3])
def test_records_are_deleted_across_an_open_transaction_that_stays_open(
    tmp_path: Path, version: int, offset: int
) -> None:
    with world(tmp_path) as broker:
        partition = broker.lead(TP)
        log = partition.log
        broker.know(TP)
        log.append_as_leader(
            batch(2, producer=(7, 0, 0), attributes=TRANSACTIONAL), 0, origin_client=False, verification=UNVERIFIED
        )
        broker.produce(TP)
        assert (partition.high_watermark.offset, log.last_stable_offset) == (3, 0)
        context = handler_context(replica_manager=broker.manager, metadata_cache=broker.cache, log_manager=broker.logs)
        with broker_of(SERVED, context) as client:
            assert ask(client, request(4), version) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE), "beyond the high watermark"
            start = 3 if offset < 0 else offset
            assert ask(client, request(offset), version) == (start, ErrorCode.NONE)
        assert (log.log_start_offset, log.last_stable_offset) == (start, start)
        assert [one.first_offset for one in log.open_transactions()] == [0]
        broker.manager.appends.append(
            {TP: encode_marker(7, 0, Marker(committed=False, coordinator_epoch=0), 1)},
            acks=1, timeout_ms=0, internal=True, on_done=lambda _: None,
        )  # fmt: skip
        assert log.last_stable_offset == log.log_end_offset == 4
