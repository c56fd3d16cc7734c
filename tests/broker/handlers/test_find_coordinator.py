"""FindCoordinator over raw sockets: any broker answers it, from what the controller told it."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.groups.ownership import partition_for
from kafkatool.broker.handlers import find_coordinator
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.protocol.messages import find_coordinator as api
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import TopicZnode
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update

SERVED = {10: find_coordinator.SERVED}
OFFSETS = TopicZnode.path("__consumer_offsets")
NOWHERE = (-1, "", -1)


@pytest.fixture
def cache() -> MetadataCache:
    return MetadataCache(1)


@pytest.fixture
def client(zk: ZooKeeper, cache: MetadataCache) -> Iterator[Client]:
    make_base_paths(zk)
    config = BrokerConfig.from_properties(
        {"zookeeper.connect": "x:1", "offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "2"}
    )
    timer = Timer("waits")
    admin = TopicAdmin(zk, config, cache, timer)
    groups: Any = SimpleNamespace(partition_of=lambda group: partition_for(group, 4))
    with broker_of(SERVED, handler_context(metadata_cache=cache, topic_admin=admin, groups=groups)) as made:
        yield made
    timer.close()


def find(client: Client, key: str, key_type: int = 0, version: int = 2) -> tuple[int, tuple[int, str, int]]:
    answer = client.call(api.API, version, api.FindCoordinatorRequest(key=key, key_type=key_type))
    assert bool(answer.error_code) is bool(answer.error_message) or version == 0
    return answer.error_code, (answer.node_id, answer.host, answer.port)


@pytest.mark.spec("BRK-164", "GRP-1", "GRP-3")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_leader_of_the_groups_partition_coordinates(client: Client, cache: MetadataCache, version: int) -> None:
    led = {0: 2, 1: 1, 2: -1, 3: 9}  # no leader; a leader that is not alive
    states = [state("__consumer_offsets", p, leader, [1, 2]) for p, leader in led.items()]
    cache.update(update(*states, brokers=[live(1), live(2)]))
    assert [partition_for(group, 4) for group in ("", "kt", "test-group", "h", "c")] == [0, 1, 0, 0, 3]
    assert find(client, "", version=version) == (0, (2, "h2", 9002))
    assert find(client, "test-group", version=version) == (0, (2, "h2", 9002))
    assert find(client, "kt", version=version) == (0, (1, "h1", 9001))
    assert find(client, "b", version=version) == (15, NOWHERE)
    assert find(client, "c", version=version) == (15, NOWHERE)


@pytest.mark.spec("BRK-164")
def test_transactions_have_a_coordinator_only_where_their_topic_exists(client: Client, cache: MetadataCache) -> None:
    cache.update(update(brokers=[live(1)]))
    assert find(client, "tx", key_type=1) == (53, NOWHERE)
    assert find(client, "tx", key_type=7) == (42, NOWHERE)
    cache.update(update(state("__transaction_state", 0, 1, [1]), brokers=[live(1)]))
    assert find(client, "tx", key_type=1) == (0, (1, "h1", 9001))


@pytest.mark.spec("BRK-164", "BRK-166", "GRP-4", "GRP-5")
def test_the_first_look_up_with_enough_brokers_creates_the_topic(
    client: Client, cache: MetadataCache, zk: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    cache.update(update(brokers=[live(1)]))
    with caplog.at_level(logging.WARNING):
        assert find(client, "g") == (15, NOWHERE)
    assert "Replication factor: 2 larger than available brokers: 1" in caplog.text
    assert zk.get(OFFSETS) is None
    cache.update(update(brokers=[live(1, rack="a"), live(2, rack="b"), live(3, rack="b")]))
    for _ in range(2):  # made by another broker meanwhile: success too
        assert find(client, "g") == (15, NOWHERE)
    node = zk.get(OFFSETS)
    assert node is not None
    assignment = TopicZnode.decode("", node.data).assignment
    assert len(assignment) == 4 and all(1 in replicas and len(replicas) == 2 for replicas in assignment.values())
