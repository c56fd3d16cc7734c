"""One fetcher's rounds against a scripted leader: whose turn it is, who waits, what is counted; and becoming follower."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.fetcher import ReplicaFetcher
from kafkatool.broker.replication.following.follower_session import FetchQuestion
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from tests.broker.replication.world import TP, Clock, World, follower, role, world
from tests.broker.storage.batch_builders import batch

PARTITIONS = tuple(TopicPartition("t", p) for p in range(3))


class FullResponses:
    """A leader without sessions whose every answer is filled by the first partition asked for."""

    knows_sessions = False

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
        clock_ms=broker.clock,
    )
    followed = [FollowedPartition(broker.follow(tp), 0) for tp in partitions]
    for one in followed:
        one.truncating = False
    made.add(followed)
    return made


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


@pytest.mark.spec("BRK-76")
def test_a_throttled_replica_that_is_behind_is_left_out_of_the_request(broker: World) -> None:
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


@pytest.mark.spec("BRK-47", "BRK-44")
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
