"""FindCoordinator over raw sockets: any broker answers it, from what the controller told it."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import find_coordinator as api
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, TopicsZnode, TopicZnode
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update

SERVED = {key: served for key, served in load_handlers().items() if key in (3, 10)}
OFFSETS = TopicZnode.path("__consumer_offsets")
NOWHERE = (-1, "", -1)


@pytest.fixture
def cache() -> MetadataCache:
    return MetadataCache(1)


@pytest.fixture
def client(zk: ZooKeeper, cache: MetadataCache) -> Iterator[Client]:
    make_base_paths(zk)
    config = BrokerConfig.from_properties(
        {
            "zookeeper.connect": "x:1",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "2",
            "offsets.topic.segment.bytes": "77777",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "5",
            "transaction.state.log.segment.bytes": "88888",
            "auto.create.topics.enable": "false",  # it says nothing of this topic
        }
    )
    timer = Timer("waits")
    admin = TopicAdmin(zk, config, 1, cache, timer)
    groups: Any = SimpleNamespace(partition_of=lambda group: partition_for(group, 4))
    context = handler_context(
        metadata_cache=cache, topic_admin=admin, groups=groups, transactions=groups, config=config
    )
    with broker_of(SERVED, context) as made:
        yield made
    timer.close()


def find(client: Client, key: str, key_type: int = 0, version: int = 2) -> tuple[int, tuple[int, str, int]]:
    if version >= 4:
        request = api.FindCoordinatorRequest(keys=[key, key], key_type=key_type)
        (answer,) = client.call(api.API, version, request).coordinators
        assert answer.key == key
    else:
        answer = client.call(api.API, version, api.FindCoordinatorRequest(key=key, key_type=key_type))
    if version > 0:
        assert answer.error_message if answer.error_code else answer.error_message is None
    return answer.error_code, (answer.node_id, answer.host, answer.port)


@pytest.mark.spec("BRK-164", "GRP-1", "GRP-3", "GRP-4")
@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
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


@pytest.mark.spec("BRK-164", "TXN-1", "TXN-2")
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_the_leader_of_the_ids_partition_coordinates_its_transactions(
    client: Client, cache: MetadataCache, version: int
) -> None:
    led = {0: 2, 1: 1, 2: -1, 3: 9}
    states = [state("__transaction_state", p, leader, [1, 2]) for p, leader in led.items()]
    cache.update(update(*states, brokers=[live(1), live(2)]))
    assert find(client, "kt", key_type=1, version=version) == (0, (1, "h1", 9001))
    assert find(client, "test-group", key_type=1, version=version) == (0, (2, "h2", 9002))
    for key in ("b", "c"):
        assert find(client, key, key_type=1, version=version) == (15, NOWHERE)
    assert find(client, "", key_type=1, version=version) == (42, NOWHERE)
    assert find(client, "tx", key_type=7, version=version) == (42, NOWHERE)


@pytest.mark.spec("TXN-3", "TXN-4", "BRK-164")
@pytest.mark.parametrize("by", ["a look-up", "its name in Metadata"])
def test_the_first_look_up_with_enough_brokers_makes_the_topic_of_transactions(
    client: Client, cache: MetadataCache, zk: ZooKeeper, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    cache.update(update(brokers=[live(1)]))
    assert find(client, "tx", key_type=1) == (15, NOWHERE)
    too_few = "Replication factor: 2 larger than available brokers: 1"
    assert [r.levelname for r in caplog.records if too_few in r.getMessage()] == ["WARNING"]
    assert zk.get(TopicZnode.path("__transaction_state")) is None
    cache.update(update(brokers=[live(1), live(2), live(3)]))
    for _ in range(2):
        if by == "a look-up":
            assert find(client, "tx", key_type=1) == (15, NOWHERE)
        else:
            wanted = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic="__transaction_state")])
            assert [t.error_code for t in client.call(metadata.API, 5, wanted).topics] == [5]
    node = zk.get(TopicZnode.path("__transaction_state"))
    assert node is not None
    assignment = TopicZnode.decode("", node.data).assignment
    assert len(assignment) == 3 and all(len(replicas) == 2 for replicas in assignment.values())
    config = zk.get(ConfigZnode.path("topics", "__transaction_state"))
    assert config is not None and ConfigZnode.decode("", config.data) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",  # 5 were asked for, of 2 replicas
        "segment.bytes": "88888",
        "unclean.leader.election.enable": "false",
    }
    lowered = "transaction.state.log.min.isr=5 cannot be met"
    assert {r.levelname for r in caplog.records if lowered in r.getMessage()} == {"WARNING"}


@pytest.mark.spec("TXN-3")
@pytest.mark.parametrize("min_isr", [None, "3", "4"])
def test_the_topic_of_transactions_has_as_many_in_sync_as_its_setting_says(
    zk: ZooKeeper, cache: MetadataCache, min_isr: str | None
) -> None:
    make_base_paths(zk)
    unset = BrokerConfig.from_properties({"zookeeper.connect": "x:1"})
    defaults = [getattr(unset, f"transaction_state_log_{name}") for name in ("num_partitions", "replication_factor")]
    assert defaults == [50, 3]
    given = {} if min_isr is None else {"transaction.state.log.min.isr": min_isr}
    factor = {"transaction.state.log.replication.factor": "4"}
    config = BrokerConfig.from_properties({"zookeeper.connect": "x:1", **factor, **given})
    timer = Timer("waits")
    admin = TopicAdmin(zk, config, 1, cache, timer)
    cache.update(update(brokers=[live(number) for number in (1, 2, 3, 4)]))
    with broker_of(SERVED, handler_context(metadata_cache=cache, topic_admin=admin, config=config)) as client:
        assert find(client, "tx", key_type=1) == (15, NOWHERE)
    timer.close()
    node = zk.get(TopicZnode.path("__transaction_state"))
    assert node is not None
    assignment = TopicZnode.decode("", node.data).assignment
    assert len(assignment) == 50 and all(len(set(replicas)) == 4 for replicas in assignment.values())
    stored = zk.get(ConfigZnode.path("topics", "__transaction_state"))
    assert stored is not None
    made = ConfigZnode.decode("", stored.data)
    assert (made["min.insync.replicas"], made["segment.bytes"]) == (min_isr or "2", "104857600"), "the factor allows it"


@pytest.mark.spec("TXN-1", "GRP-2")
def test_partitions_are_counted_as_zookeeper_has_them(zk: ZooKeeper, cache: MetadataCache) -> None:
    make_base_paths(zk)
    admin = TopicAdmin(zk, BrokerConfig.from_properties({"zookeeper.connect": "x:1"}), 1, cache, Timer("unused"))
    assert admin.count_partitions("__transaction_state") is None
    zk.create(TopicZnode.path("__transaction_state"), TopicZnode(dict.fromkeys(range(7), (1,))).encode())
    assert admin.count_partitions("__transaction_state") == 7


@pytest.mark.spec("TXN-55")
def test_deleted_is_what_zookeeper_does_not_have_and_what_is_marked_for_it(zk: ZooKeeper, cache: MetadataCache) -> None:
    make_base_paths(zk)
    admin = TopicAdmin(zk, BrokerConfig.from_properties({"zookeeper.connect": "x:1"}), 1, cache, Timer("unused"))
    for topic in ("there", "marked"):
        zk.create(TopicZnode.path(topic), TopicZnode({0: (1,)}).encode())
    zk.create(DeleteTopicsZnode.topic_path("marked"), b"")
    there, *deleted = (TopicPartition(t, p) for t, p in (("there", 0), ("there", 1), ("gone", 0), ("marked", 0)))
    assert admin.find_deleted([there, *deleted]) == frozenset(deleted)


@pytest.mark.spec("BRK-166", "GRP-5")
@pytest.mark.parametrize("version", range(12))
def test_the_topic_of_groups_is_made_when_metadata_asks_for_it_and_not_on_too_few_brokers(
    client: Client, cache: MetadataCache, zk: ZooKeeper, version: int
) -> None:
    def asked() -> list[int]:
        topics = [metadata.MetadataRequestTopic(topic=name) for name in ("__consumer_offsets", "another")]
        wanted = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        return [topic.error_code for topic in client.call(metadata.API, version, wanted).topics]

    cache.update(update(brokers=[live(1)]))
    assert asked() == [38, 3]
    assert zk.children(TopicsZnode.PATH) == []
    cache.update(update(brokers=[live(1), live(2)]))
    assert asked() == [5, 3], "automatic creation is off"
    assert zk.children(TopicsZnode.PATH) == ["__consumer_offsets"]
    node, config = zk.get(OFFSETS), zk.get(ConfigZnode.path("topics", "__consumer_offsets"))
    assert node is not None and config is not None
    assert [len(replicas) for replicas in TopicZnode.decode("", node.data).assignment.values()] == [2] * 4
    assert ConfigZnode.decode("", config.data) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "77777",
    }


@pytest.mark.spec("GRP-5")
def test_as_many_brokers_as_replicas_are_enough(client: Client, cache: MetadataCache, zk: ZooKeeper) -> None:
    cache.update(update(brokers=[live(1), live(2)]))
    assert find(client, "g") == (15, NOWHERE)
    node = zk.get(OFFSETS)
    assert node is not None
    assert {frozenset(r) for r in TopicZnode.decode("", node.data).assignment.values()} == {frozenset({1, 2})}


@pytest.mark.spec("BRK-164", "BRK-166", "GRP-4", "GRP-5")
def test_the_first_look_up_with_enough_brokers_creates_the_topic(
    client: Client, cache: MetadataCache, zk: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    cache.update(update(brokers=[live(1)]))
    with caplog.at_level(logging.WARNING):
        assert find(client, "g") == (15, NOWHERE)
    (warning,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert warning.levelno == logging.WARNING
    assert "Replication factor: 2 larger than available brokers: 1" in warning.getMessage()
    assert zk.get(OFFSETS) is None
    cache.update(update(brokers=[live(1, rack="a"), live(2, rack="b"), live(3, rack="b")]))
    for _ in range(2):  # made by another broker meanwhile: success too
        assert find(client, "g") == (15, NOWHERE)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1, "the one of before"
    node = zk.get(OFFSETS)
    assert node is not None
    assignment = TopicZnode.decode("", node.data).assignment
    assert len(assignment) == 4 and all(1 in replicas and len(replicas) == 2 for replicas in assignment.values())
    config = zk.get(ConfigZnode.path("topics", "__consumer_offsets"))
    assert config is not None and ConfigZnode.decode("", config.data) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "77777",
    }
