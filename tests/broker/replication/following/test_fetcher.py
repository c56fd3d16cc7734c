"""One fetcher's rounds against a scripted leader: whose turn it is, who waits, what is counted; and becoming follower."""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.replication.following import leader_endpoint
from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.fetcher import ReplicaFetcher
from kafkatool.broker.replication.following.follow import Follow, FollowStep
from kafkatool.broker.replication.following.follower_session import FetchQuestion, FollowerSession
from kafkatool.broker.replication.following.leader_endpoint import LeaderEndpoint
from kafkatool.broker.replication.partition.partition_reads import EARLIEST, LATEST
from kafkatool.broker.storage.checkpoint import LOG_START_OFFSETS, read_offsets
from kafkatool.core.errors import BrokerUnreachableError, StorageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from tests.broker.replication.world import TP, Clock, World, follower, role, world
from tests.broker.storage.batch_builders import batch

PARTITIONS = tuple(TopicPartition("t", p) for p in range(3))


class FullResponses:
    """A leader without sessions whose every answer is filled by the first partition asked for."""

    knows_sessions = False
    knows_epochs = True

    def __init__(self, high_watermark: int = 100) -> None:
        self.high_watermark = high_watermark
        self.asked: list[list[int]] = []
        self.down = False

    def fetch(self, question: FetchQuestion) -> FetchResponse:
        if self.down:
            raise BrokerUnreachableError("nobody there")
        asked = question.wanted["t"]
        self.asked.append([p.partition for p in asked])
        answers = [
            FetchResponsePartition(
                partition=p.partition,
                high_watermark=self.high_watermark,
                log_start_offset=0,
                records=memoryview(bytes(batch(base_offset=p.fetch_offset, epoch=0))) if p is asked[0] else b"",
            )
            for p in asked
        ]
        return FetchResponse(topics=[FetchResponseTopic(topic="t", partitions=answers)])

    def disconnect(self) -> None:
        """Do nothing: no connection is held."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock(), replica_fetch_backoff_ms="1000") as made:
        yield made


def fetcher_of(broker: World, leader: Any, *partitions: TopicPartition) -> ReplicaFetcher:
    made = ReplicaFetcher(
        "test",
        broker.config,
        leader,
        broker.manager.follower_quota,
        check_delayed=lambda _: None,
        on_failed=lambda _: None,
        keep_log_starts=broker.logs.write_log_starts,
        clock_ms=broker.clock,
    )
    followed = [FollowedPartition(broker.follow(tp), 0) for tp in partitions]
    for one in followed:
        one.truncating = False
    made.add(followed)
    return made


class RaisedStarts(FullResponses):
    """A leader of whose partitions the first record was deleted; notes what it is told, and what is on the disk then."""

    def __init__(self, broker: World) -> None:
        super().__init__()
        self.told: list[dict[int, int]] = []
        self.kept: list[dict[int, int]] = []
        self._file = broker.logs.live_dirs[0] / LOG_START_OFFSETS

    def fetch(self, question: FetchQuestion) -> FetchResponse:
        asked = question.wanted["t"]
        self.told.append({p.partition: p.log_start_offset for p in asked})
        self.kept.append({tp.partition: start for tp, start in read_offsets(self._file).items()})
        answers = [
            FetchResponsePartition(
                partition=p.partition,
                high_watermark=1,
                log_start_offset=1,
                records=memoryview(bytes(batch(epoch=0))) if p.fetch_offset == 0 else b"",
            )
            for p in asked
        ]
        return FetchResponse(topics=[FetchResponseTopic(topic="t", partitions=answers)])


@pytest.mark.spec("BRK-141", "BRK-162")
def test_a_leader_is_told_of_a_raised_log_start_once_it_is_on_the_disk(broker: World) -> None:
    """Else records whose deletion was answered could be there again once all brokers have been killed."""
    leader = RaisedStarts(broker)
    fetcher = fetcher_of(broker, leader, *PARTITIONS)
    for _ in range(3):
        fetcher.run_once()
    before, after = {0: 0, 1: 0, 2: 0}, {0: 1, 1: 1, 2: 1}
    assert leader.told == [before, after, after]
    assert leader.kept == [{}, after, after]


@pytest.mark.spec("BRK-76")
def test_bytes_of_a_listed_replica_count_while_it_lags_by_nothing_and_of_others_never(broker: World) -> None:
    leader = FullResponses(high_watermark=0)
    fetcher, quota = fetcher_of(broker, leader, *PARTITIONS[:2]), broker.manager.follower_quota
    broker.logs.update_topic_config("t", {"follower.replication.throttled.replicas": "0:1"})
    broker.manager.on_broker_config({"follower.replication.throttled.rate": "1"})
    fetcher.run_once()
    broker.clock.pass_ms(60_000)
    for listed in (False, True):  # the first has had its data, so that the other's turn comes first
        assert not quota.holds_back(broker.partition(PARTITIONS[0]), in_sync=False)
        assert fetcher.lags() == dict.fromkeys(PARTITIONS[:2], 0)
        fetcher.run_once()
        assert quota.holds_back(broker.partition(PARTITIONS[0]), in_sync=False) is listed
    assert [asked[0] for asked in leader.asked] == [0, 1, 0], "without lag it was asked for all the while"


@pytest.mark.spec("BRK-69")
def test_who_got_data_goes_to_the_end_so_that_all_have_their_turn(broker: World) -> None:
    leader = FullResponses()
    fetcher = fetcher_of(broker, leader, *PARTITIONS)
    for _ in range(6):
        assert fetcher.run_once()
    assert [asked[0] for asked in leader.asked] == [0, 1, 2, 0, 1, 2]
    assert [broker.partition(tp).log.log_end_offset for tp in PARTITIONS] == [2, 2, 2]


@pytest.mark.spec("BRK-157")
def test_lag_is_known_from_the_first_answer_until_the_partition_is_dropped(broker: World) -> None:
    leader = FullResponses(high_watermark=3)
    fetcher = fetcher_of(broker, leader, TP)
    assert fetcher.lags() == {TP: None}
    seen = []
    for _ in range(4):
        fetcher.run_once()
        seen.append(fetcher.lags()[TP])
    assert seen == [2, 1, 0, 0]
    assert (fetcher.requests, fetcher.received_bytes) == (4, 4 * len(batch()))
    fetcher.remove([TP])
    assert fetcher.lags() == {}


@pytest.mark.spec("BRK-157")
@pytest.mark.parametrize(("high_watermark", "lag"), [(4, 2), (2, 0), (1, 0)])
def test_who_is_ahead_of_the_leaders_high_watermark_lags_by_nothing(
    broker: World, high_watermark: int, lag: int
) -> None:
    partition = broker.follow(TP)
    partition.append_as_follower(
        memoryview(batch(2, epoch=0)), 0, fetched_at=0, high_watermark=high_watermark, log_start_offset=0
    )
    followed = FollowedPartition(partition, 0)
    followed.fetch_offset = 2
    answer = FetchResponsePartition(partition=0, high_watermark=high_watermark, log_start_offset=0, records=b"")
    endpoint: Any = FullResponses()
    follow = Follow(broker.config, endpoint, lambda _: None)
    assert follow.nothing_new(followed, answer) and followed.lag == lag
    followed.lag = None
    assert follow.take(followed, answer) is FollowStep.DONE and followed.lag == lag


@pytest.mark.spec("BRK-157")
def test_isr_changes_and_failed_writes_are_counted(broker: World) -> None:
    broker.lead(isr=(1,), replicas=(1, 2))
    counters = broker.manager.isr_writer
    broker.fetch(0, follower(2))
    broker.scheduler.run()
    assert (counters.expansions, counters.shrinks, counters.failures) == (1, 0, 0)
    broker.produce()
    broker.clock.pass_ms(10_001)
    broker.manager.shrink_isrs()
    assert (counters.expansions, counters.shrinks, counters.failures) == (1, 1, 0)
    broker.zookeeper.nodes.clear()
    broker.fetch(1, follower(2))
    broker.scheduler.run()
    assert (counters.expansions, counters.shrinks, counters.failures) == (1, 1, 1)


@pytest.mark.spec("ADM-75", "BRK-68", "BRK-76")
def test_a_throttled_replica_that_is_behind_is_left_out_of_the_request(broker: World) -> None:
    """As is one that a move adds: it is assigned, is not in sync, and has nothing yet."""
    leader = FullResponses(high_watermark=5)
    fetcher = fetcher_of(broker, leader, *PARTITIONS)
    broker.logs.update_topic_config("t", {"follower.replication.throttled.replicas": "0:1,1:1"})
    broker.manager.on_broker_config({"follower.replication.throttled.rate": "1"})
    fetcher.run_once()
    assert leader.asked == [[0, 1, 2]], "nothing had gone by yet"
    fetcher.run_once()
    assert leader.asked[1:] == [[2]]
    broker.clock.pass_ms(60_000)
    fetcher.run_once()
    assert sorted(leader.asked[-1]) == [0, 1, 2]


@pytest.mark.spec("BRK-71")
def test_a_failed_request_delays_all_partitions_by_one_backoff(broker: World) -> None:
    leader = FullResponses()
    fetcher = fetcher_of(broker, leader, *PARTITIONS)
    leader.down = True
    assert fetcher.run_once()
    leader.down = False
    broker.clock.pass_ms(999)
    assert not fetcher.run_once() and not leader.asked
    broker.clock.pass_ms(1)
    assert fetcher.run_once() and leader.asked == [[0, 1, 2]]


# --- becoming follower -----------------------------------------------------------------------------------------


@pytest.mark.spec("BRK-47", "BRK-44", "BRK-35", "BRK-42")
def test_a_follower_has_no_isr_and_no_epoch_start_and_knows_the_version(broker: World) -> None:
    partition = broker.lead(epoch=3, isr=(1, 2), replicas=(1, 2, 4))
    assert partition.is_leader and partition.epoch_start == 0 and set(partition.remote) == {2, 4}
    state = role(TP, 2, 4, [2, 1], [2, 1, 5], 9, controller_epoch=6)
    assert partition.make_follower(state), "leader and epoch are other ones"
    assert not partition.is_leader
    assert (partition.leader_id, partition.leader_epoch, partition.controller_epoch) == (2, 4, 6)
    assert (partition.isr, partition.epoch_start, partition.in_sync.version) == ((), -1, 9)
    assert partition.assigned == (2, 1, 5) and set(partition.remote) == {2, 5}


@pytest.mark.spec("BRK-47")
def test_another_epoch_of_the_same_leader_counts_as_a_change(broker: World) -> None:
    """KAFKA-7164: who missed an epoch must truncate."""
    partition = broker.follow(leader=2, epoch=4)
    assert partition.make_follower(role(TP, 2, 5, [2], [2, 1], 10))
    assert not partition.make_follower(role(TP, 2, 5, [2], [2, 1], 11)), "the same once more"
    assert partition.make_follower(role(TP, 3, 6, [3], [3, 1], 12))
    assert partition.make_follower(role(TP, -1, 7, [3], [3, 1], 13)) and partition.leader_id is None
    assert partition.make_follower(role(TP, 2, 7, [3], [3, 1], 13)), "another leader, though in the same epoch"


class OutOfRange(FullResponses):
    """A leader that has the offsets from ``earliest`` to ``latest``."""

    def __init__(self, earliest: int, latest: int) -> None:
        super().__init__()
        self.edges = {EARLIEST: earliest, LATEST: latest}

    def fetch(self, question: FetchQuestion) -> FetchResponse:
        answers = [
            FetchResponsePartition(partition=p.partition, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=b"")
            for p in question.wanted["t"]
        ]
        return FetchResponse(topics=[FetchResponseTopic(topic="t", partitions=answers)])

    def log_edge(self, partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        return self.edges[timestamp]


@pytest.mark.spec("BRK-73", "BRK-74")
@pytest.mark.parametrize(
    ("earliest", "latest", "edge", "reset_to", "starts_at"),
    [(0, 3, "latest offset 3", 3, 0), (8, 20, "start offset 8", 8, 8), (2, 20, "start offset 2", 5, 0)],
)
def test_an_offset_out_of_range_is_told_in_the_documents_words(
    broker: World,
    caplog: pytest.LogCaptureFixture,
    earliest: int,
    latest: int,
    edge: str,
    reset_to: int,
    starts_at: int,
) -> None:
    partition = broker.follow(TP)
    sent = b"".join(bytes(batch(base_offset=offset, epoch=0)) for offset in range(5))
    partition.append_as_follower(memoryview(sent), 0, fetched_at=0, high_watermark=0, log_start_offset=0)
    fetcher = fetcher_of(broker, OutOfRange(earliest, latest))
    followed = FollowedPartition(partition, 0)
    followed.truncating, followed.fetch_offset = False, 5
    fetcher.add([followed])
    fetcher.run_once()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", f"Replica 1 for partition t-0 reset its fetch offset from 5 to current leader 2's {edge}"),
        ("ERROR", f"Current offset 5 for partition [t,0] out of range; reset offset to {reset_to}"),
    ]
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (starts_at, reset_to)


@pytest.mark.spec("BRK-72")
def test_a_disk_that_fails_while_it_replicates_is_told(broker: World, caplog: pytest.LogCaptureFixture) -> None:
    fetcher = fetcher_of(broker, FullResponses(), TP)
    broker.partition(TP).log.abandon()
    fetcher.run_once()
    (told,) = [r for r in caplog.records if r.levelname == "CRITICAL"]
    assert told.getMessage() == "Disk error while replicating data for t-0"
    assert told.exc_info is not None and told.exc_info[0] is StorageError
    assert fetcher.lags() == {}


@pytest.mark.spec("BRK-161")
def test_after_batches_of_old_formats_the_next_cut_goes_by_the_high_watermark(broker: World) -> None:
    partition = broker.follow(TP)
    partition.append_as_follower(memoryview(batch(epoch=0)), 0, fetched_at=0, high_watermark=0, log_start_offset=0)
    assert partition.log.leader_epochs.latest == 0
    body = b"\0\0" + b"\xff" * 4 + (1).to_bytes(4, "big") + b"v"
    for offset in (1, 2):
        old = (
            offset.to_bytes(8, "big") + (4 + len(body)).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
        )
        partition.append_as_follower(memoryview(old), 0, fetched_at=offset, high_watermark=2, log_start_offset=0)
    assert (partition.log.log_end_offset, partition.log.leader_epochs.latest) == (3, None)
    leader = FullResponses()  # it has no answer to a question about epochs
    leader.down = True  # nor records
    fetcher = fetcher_of(broker, leader)
    fetcher.add([FollowedPartition(broker.follow(TP, epoch=1), 1)])
    fetcher.run_once()
    assert partition.log.log_end_offset == 2


@pytest.mark.spec("BRK-160")
@pytest.mark.parametrize("protocol", ["1.0", "2.3"])
def test_a_fetch_names_no_rack_and_beside_its_session_nothing(
    broker: World, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    sent: list[tuple[int, FetchRequest]] = []

    class Noted:
        """A connection that notes what is sent on it."""

        closed = False

        def __init__(self, *_: object, **__: object) -> None:
            """Connect to nobody."""

        def send(self, api: Any, version: int, request: FetchRequest) -> FetchResponse:
            sent.append((version, request))
            return FetchResponse(topics=[])

        def close(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(leader_endpoint, "Connection", Noted)
    config = replace(broker.config, inter_broker_protocol_version=protocol)
    endpoint = LeaderEndpoint(config, 1, "test", "127.0.0.1", 1)
    session = FollowerSession(sessions=endpoint.knows_sessions)
    session.want(FollowedPartition(broker.follow(TP), 0))
    endpoint.fetch(session.question())
    ((version, request),) = sent
    assert (version >= 7) is endpoint.knows_sessions is (protocol == "2.3")
    assert (request.rack_id, request.forgotten_topics, request.session_id) == ("", [], 0)
    assert request.session_epoch == (0 if protocol == "2.3" else -1)
