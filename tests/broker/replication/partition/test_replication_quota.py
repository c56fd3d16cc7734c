"""What the replication throttle holds back: listed replicas that are behind, while the rate is exceeded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.replication.partition.replication_quota import NO_RATE, RateWindow, ReplicationQuota
from kafkatool.core.model.values import TopicPartition
from tests.broker.replication.world import TP, Clock, World, follower, world

LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, clock=Clock(), replication_quota_window_num="3") as made:
        yield made


@pytest.mark.spec("BRK-76")
def test_the_rate_is_over_the_last_windows_and_the_one_under_way() -> None:
    clock = Clock()
    window = RateWindow(3, 1000, clock)
    clock.now_ms = 10_000
    assert window.bytes_per_second() == 0
    window.add(4000)
    assert window.bytes_per_second() == 2000  # two full windows count, empty ones too
    clock.pass_ms(1000)
    window.add(2000)
    clock.pass_ms(500)
    assert window.bytes_per_second() == 2400
    clock.pass_ms(500)
    assert window.bytes_per_second() == 3000
    clock.pass_ms(1000)
    assert window.bytes_per_second() == 1000, "the first window no longer counts"
    clock.pass_ms(5000)
    assert window.bytes_per_second() == 0


@pytest.mark.spec("BRK-76")
@pytest.mark.parametrize(
    ("listed", "throttled"), [("*", True), ("0:1", True), ("1:1,0:1", True), ("0:2,1:1", False), ("", False)]
)
def test_only_listed_replicas_that_are_behind_wait(broker: World, listed: str, throttled: bool) -> None:
    partition = broker.lead()
    broker.logs.update_topic_config("t", {LEADER_REPLICAS: listed})
    quota = ReplicationQuota(1, lambda c: c.leader_replication_throttled_replicas, RateWindow(3, 1000, broker.clock))
    assert not quota.holds_back(partition, in_sync=False), "no rate is set"
    quota.set_rate(100)
    assert not quota.holds_back(partition, in_sync=False), "nothing has gone by yet"
    quota.count(partition, 1000)
    assert quota.holds_back(partition, in_sync=False) is throttled
    assert not quota.holds_back(partition, in_sync=True)
    quota.set_rate(500)
    assert not quota.holds_back(partition, in_sync=False), "at the rate, not over it"
    quota.set_rate(NO_RATE)
    assert not quota.holds_back(partition, in_sync=False)


@pytest.mark.spec("BRK-76", "BRK-125")
def test_rates_and_lists_come_from_dynamic_configs_for_each_direction(broker: World) -> None:
    partition = broker.lead(isr=(1,), replicas=(1, 2))
    broker.logs.update_topic_config("t", {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:2"})
    broker.manager.on_broker_config(
        {"leader.replication.throttled.rate": "10", "follower.replication.throttled.rate": "20"}
    )
    for quota in (broker.manager.leader_quota, broker.manager.follower_quota):
        quota.count(partition, 1 << 20)
    broker.manager.on_broker_config({"leader.replication.throttled.rate": str(1 << 40)})
    assert not broker.manager.leader_quota.holds_back(partition, in_sync=False), "each has its own rate"
    broker.manager.on_broker_config(
        {"leader.replication.throttled.rate": "10", "follower.replication.throttled.rate": str(1 << 40)}
    )
    assert broker.manager.leader_quota.holds_back(partition, in_sync=False)
    assert not broker.manager.follower_quota.holds_back(partition, in_sync=False), "0:2 is another broker's replica"
    broker.logs.update_topic_config("t", {FOLLOWER_REPLICAS: "*"})
    broker.manager.follower_quota.count(partition, 1 << 20)
    assert not broker.manager.follower_quota.holds_back(partition, in_sync=False), "its rate is high"
    broker.manager.on_broker_config({"follower.replication.throttled.rate": "20"})
    assert broker.manager.follower_quota.holds_back(partition, in_sync=False)
    broker.manager.on_broker_config({})
    assert not broker.manager.follower_quota.holds_back(partition, in_sync=False)


@pytest.mark.spec("BRK-76", "BRK-102")
def test_bytes_of_a_listed_replica_count_while_it_is_in_sync(broker: World) -> None:
    broker.lead(isr=(1, 2))
    broker.logs.update_topic_config("t", {LEADER_REPLICAS: "*"})
    broker.manager.on_broker_config({"leader.replication.throttled.rate": "1"})
    broker.produce(count=3)
    assert broker.fetch(0, follower(2))[0].size_bytes > 0, "in sync: not held back"
    assert broker.manager.leader_quota.holds_back(broker.partition(TP), in_sync=False), "but counted"
    unlisted = TopicPartition("u", 0)
    broker.lead(unlisted)
    assert not broker.manager.leader_quota.holds_back(broker.partition(unlisted), in_sync=False)
    broker.clock.pass_ms(60_000)
    broker.manager.leader_quota.count(broker.partition(unlisted), 1 << 20)
    assert not broker.manager.leader_quota.holds_back(broker.partition(TP), in_sync=False), "nor do its bytes count"
