"""CreateTopics and DeleteTopics against a real ZooKeeper; the controller's part is played by the test."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.handlers.create_topics import MOST_REPLICAS
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.runtime.allowance import Allowance
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.security.principal import ANONYMOUS, USER, Principal
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.topic_configs import CONFIGS
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import create_topics as create_api
from kafkatool.core.protocol.messages import delete_topics as delete_api
from kafkatool.core.protocol.messages.create_topics import (
    CreateTopicsAssignment,
    CreateTopicsConfig,
    CreateTopicsRequest,
    CreateTopicsTopic,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, TopicsZnode, TopicZnode
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.waiting import eventually

SERVED = {
    19: load_handlers()[19],
    20: load_handlers()[20],
}


@dataclass
class FakeController:
    """Whether this broker is the controller."""

    is_active: bool = True


@dataclass
class Setup:
    client: Client
    cache: MetadataCache
    admin: TopicAdmin
    controller: FakeController


@pytest.fixture
def setup(zk: ZooKeeper) -> Iterator[Setup]:
    make_base_paths(zk)
    cache, controller, timer = MetadataCache(1), FakeController(), Timer("waits")
    cache.update(update(state("old.one", 0, 1, [1]), brokers=[live(1), live(2), live(3)]))
    config = BrokerConfig.from_properties(
        {
            "zookeeper.connect": "unused:1",
            "delete.topic.enable": "true",
            "num.partitions": "2",
            "default.replication.factor": "3",
        }
    )
    admin = TopicAdmin(zk, config, 1, cache, timer)
    context = handler_context(config=config, metadata_cache=cache, topic_admin=admin, controller=controller)
    with broker_of(SERVED, context) as client:
        yield Setup(client, cache, admin, controller)
    timer.close()


def topic(name: str, partitions: int = -1, factor: int = -1, *assigned: list[int], **configs: str) -> CreateTopicsTopic:
    return CreateTopicsTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreateTopicsAssignment(partition=i, broker_ids=b) for i, b in enumerate(assigned)],
        configs=[CreateTopicsConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )


def create(setup: Setup, *topics: CreateTopicsTopic, timeout_ms: int = 0, version: int = 3, **fields: bool) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, **fields)
    return {t.name: t for t in setup.client.call(create_api.API, version, request).topics}


def delete(setup: Setup, *names: str, version: int = 3) -> dict[str, int]:
    request = delete_api.DeleteTopicsRequest(topic_names=list(names), timeout_ms=0)
    return {t.name: t.error_code for t in setup.client.call(delete_api.API, version, request).topics}


@pytest.mark.spec("Z-14")
def test_a_topic_gets_its_config_and_assignment_nodes(setup: Setup, zk: ZooKeeper) -> None:
    created = create(setup, topic("t", 4, 2, retention_ms="5"), topic("u", -1, -1, [3, 1], [1, 2]))
    assert {n: t.error_code for n, t in created.items()} == {"t": 7, "u": 7}  # made, but nobody led them in no time
    node, config = zk.get(TopicZnode.path("t")), zk.get(ConfigZnode.path("topics", "t"))
    assert node is not None and config is not None
    assignment = TopicZnode.decode("t", node.data).assignment
    assert [len(set(r)) for r in assignment.values()] == [2] * 4
    assert ConfigZnode.decode("", config.data) == {"retention.ms": "5"}
    assert config.czxid == node.czxid, "in one transaction"
    other, nothing = zk.get(TopicZnode.path("u")), zk.get(ConfigZnode.path("topics", "u"))
    assert other is not None and nothing is not None and other.czxid == nothing.czxid
    assert other is not None and TopicZnode.decode("u", other.data).assignment == {0: (3, 1), 1: (1, 2)}


@pytest.mark.spec("SEC-100")
def test_one_request_makes_no_more_than_so_many_replicas(
    setup: Setup, zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_REPLICAS == 200_000
    monkeypatch.setattr("kafkatool.broker.handlers.create_topics.MOST_REPLICAS", 12)
    for version in range(6):  # 2 x 3, 1 x 3, 4: one more than that is too many
        unset = topic("unset") if version >= 4 else topic("unset", 2, 3)
        asked = (unset, topic("counted", 1, 3), topic("listed", -1, -1, [1, 2], [3, 1]))
        told = create(setup, *asked, version=version)
        assert {name: t.error_code for name, t in told.items()} == dict.fromkeys(("unset", "counted", "listed"), 42)
    assert not [name for name in ("unset", "counted", "listed") if zk.get(TopicZnode.path(name))]
    setup.controller.is_active = False
    assert create(setup, *asked)["unset"].error_code == 41  # whoever is no controller says that first
    setup.controller.is_active = True
    fits = (topic("unset"), topic("counted", 1, 3), topic("listed", -1, -1, [1, 2, 3]))
    assert {t.error_code for t in create(setup, *fits, version=4).values()} == {7}


@pytest.mark.spec("BRK-113")
def test_the_answer_waits_until_every_partition_is_led(setup: Setup, zk: ZooKeeper) -> None:
    request = CreateTopicsRequest(topics=[topic("t", 2, 1)], timeout_ms=60_000)
    setup.client.send_request(create_api.API, 3, request)
    eventually(lambda: zk.get(TopicZnode.path("t")) is not None, "the topic")
    assert setup.client.answers_nothing_for(0.1)
    brokers = [live(1), live(2), live(3)]
    setup.cache.update(update(state("t", 0, 1, [1]), state("t", 1, -1, [2]), brokers=brokers))
    assert setup.client.answers_nothing_for(0.05)
    setup.cache.update(update(state("t", 1, 2, [2]), brokers=brokers))
    (answer,) = setup.client.receive_response(create_api.API, 3).topics
    assert (answer.name, answer.error_code, answer.error_message) == ("t", 0, None)


def test_a_wait_that_runs_out_says_so(setup: Setup) -> None:
    assert create(setup, topic("t", 1, 1), timeout_ms=50)["t"].error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("bad/name", 1, 1), 17),
        (topic("..", 1, 1), 17),
        (topic("x" * 250, 1, 1), 17),
        (topic("old_one", 1, 1), 17),
        (topic("old.one", 1, 1), 36),
        (topic("t", 0, 1), 37),
        (topic("t", 2**31 - 1, 1), 37),
        (topic("t", 1, 0), 38),
        (topic("t", 1, 4), 38),
        (topic("t", -1, -1, [1, 1]), 39),
        (topic("t", -1, -1, [1], [1, 2]), 39),
        (topic("t", -1, -1, [7]), 39),
        (topic("t", 1, 1, no_such_config="1"), 40),
        (topic("t", 1, 1, retention_ms="long"), 40),
        (topic("t", 1, 1, [1]), 42),
    ],
)
def test_what_cannot_be_created_says_why_and_writes_nothing(
    setup: Setup, zk: ZooKeeper, wanted: CreateTopicsTopic, code: int
) -> None:
    (answer,) = create(setup, wanted).values()
    assert answer.error_code == code
    assert answer.error_message
    assert zk.children("/brokers/topics") == []


@pytest.mark.spec("BRK-162")
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("counts", "made"), [((-1, -1), (2, 3)), ((4, -1), (4, 3)), ((-1, 1), (2, 1)), ((5, 2), (5, 2))]
)
def test_counts_left_open_are_this_brokers_defaults(
    setup: Setup, zk: ZooKeeper, counts: tuple[int, int], made: tuple[int, int], version: int
) -> None:
    answer = create(setup, topic("t", *counts), version=version)["t"]
    assert answer.error_code == 7, "made, but nobody led it in no time"
    node = zk.get(TopicZnode.path("t"))
    assert node is not None
    replicas = list(TopicZnode.decode("t", node.data).assignment.values())
    assert (len(replicas), {len(r) for r in replicas}) == (made[0], {made[1]})
    assert (answer.num_partitions, answer.replication_factor) == (made if version >= 5 else (-1, -1))


@pytest.mark.spec("BRK-162")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_older_request_names_its_counts(setup: Setup, zk: ZooKeeper, version: int) -> None:
    assert create(setup, topic("t", -1, 1), version=version)["t"].error_code == 37
    assert create(setup, topic("t", 1, -1), version=version)["t"].error_code == 38
    assert zk.children("/brokers/topics") == []


@pytest.mark.spec("BRK-162", "ADM-82")
@pytest.mark.parametrize("validate", [True, False])
def test_version_5_tells_what_was_made_or_would_be(setup: Setup, validate: bool) -> None:
    wanted = [topic("t", -1, 2, retention_ms="5"), topic("u", -1, -1, [3, 1], [1, 2], [2, 3]), topic("bad/name")]
    answers = create(setup, *wanted, version=5, validate_only=validate)
    assert {n: t.error_code for n, t in answers.items()} == {
        "t": 0 if validate else 7,
        "u": 0 if validate else 7,
        "bad/name": 17,
    }
    made = {name: (t.num_partitions, t.replication_factor) for name, t in answers.items()}
    assert made == {"t": (2, 2), "u": (3, 2), "bad/name": (-1, -1)}
    configs = {c.name: (c.value, c.config_source, c.read_only, c.is_sensitive) for c in answers["t"].configs}
    assert sorted(configs) == sorted(CONFIGS)
    assert configs["retention.ms"] == ("5", 1, False, False)
    assert configs["cleanup.policy"] == ("delete", 5, False, False)
    assert answers["bad/name"].configs == []


def test_a_name_listed_twice_a_validation_and_a_topic_that_just_came(setup: Setup, zk: ZooKeeper) -> None:
    twice = create(setup, topic("t", 1, 1), topic("t", 1, 1))
    assert twice["t"].error_code == 42
    assert create(setup, topic("t", 1, 1), validate_only=True)["t"].error_code == 0
    assert zk.get(TopicZnode.path("t")) is None
    zk.create(TopicZnode.path("t"), b"{}")
    assert create(setup, topic("t", 1, 1))["t"].error_code == 36


def test_a_config_left_over_from_an_interrupted_creation_is_replaced(setup: Setup, zk: ZooKeeper) -> None:
    zk.create(ConfigZnode.path("topics", "t"), ConfigZnode.encode({"retention.ms": "1"}))
    assert create(setup, topic("t", 1, 1))["t"].error_code == 7
    config = zk.get(ConfigZnode.path("topics", "t"))
    assert config is not None and ConfigZnode.decode("", config.data) == {}


def test_only_the_controller_answers(setup: Setup) -> None:
    setup.controller.is_active = False
    assert create(setup, topic("t", 1, 1))["t"].error_code == 41
    assert delete(setup, "old.one") == {"old.one": 41}


@pytest.mark.spec("BRK-113")
def test_a_deletion_is_marked_and_waited_for(setup: Setup, zk: ZooKeeper) -> None:
    request = delete_api.DeleteTopicsRequest(topic_names=["old.one", "none"], timeout_ms=60_000)
    setup.client.send_request(delete_api.API, 3, request)
    eventually(lambda: zk.children(DeleteTopicsZnode.PATH) == ["old.one"], "the mark")
    assert setup.client.answers_nothing_for(0.1)
    setup.cache.update(update(state("old.one", 0, -2, [1]), brokers=[live(1)]))
    answers = {t.name: t.error_code for t in setup.client.receive_response(delete_api.API, 3).topics}
    assert answers == {"old.one": 0, "none": 3}


def test_what_is_named_by_an_id_is_refused_and_the_rest_deleted_and_errors_have_texts(
    setup: Setup, zk: ZooKeeper
) -> None:
    unknown = bytes(15) + b"7"
    entries = [
        delete_api.DeleteTopicsTopic(name="old.one"),
        delete_api.DeleteTopicsTopic(name="none"),
        delete_api.DeleteTopicsTopic(name=None, topic_id=unknown),
        delete_api.DeleteTopicsTopic(name="twice", topic_id=unknown),
        delete_api.DeleteTopicsTopic(name=None),
    ]
    request = delete_api.DeleteTopicsRequest(topics=entries, timeout_ms=0)
    answer = setup.client.call(delete_api.API, 6, request).topics
    assert [(t.name, t.topic_id, t.error_code) for t in answer] == [
        ("old.one", NO_UUID, 7),  # marked, but nobody deleted it in no time
        ("none", NO_UUID, 3),
        (None, unknown, 35),
        ("twice", unknown, 42),
        (None, NO_UUID, 42),
    ]
    assert all(t.error_message for t in answer)
    assert zk.children(DeleteTopicsZnode.PATH) == ["old.one"]
    setup.controller.is_active = False
    answer = setup.client.call(delete_api.API, 6, request).topics
    assert {(t.name, t.error_code) for t in answer} == {(t.name, 41) for t in entries}


@pytest.mark.parametrize("version", [6, 7])
def test_the_newest_versions_tell_what_was_made_and_no_id(setup: Setup, version: int) -> None:
    made = create(setup, topic("t", 4, 2), version=version)["t"]
    assert (made.error_code, made.num_partitions, made.replication_factor, made.topic_id) == (7, 4, 2, NO_UUID)
    would = create(setup, topic("u", 4, 2), version=version, validate_only=True)["u"]
    assert (would.error_code, would.num_partitions, would.replication_factor, would.topic_id) == (0, 4, 2, NO_UUID)


@pytest.mark.parametrize(("version", "code"), [(3, 73), (2, 42)])
def test_deletion_switched_off_is_told_by_version(version: int, code: int) -> None:
    context = handler_context(controller=FakeController())
    request = delete_api.DeleteTopicsRequest(topic_names=["t"], timeout_ms=0)
    with broker_of(SERVED, context) as client:
        (answer,) = client.call(delete_api.API, version, request).topics
    assert answer.error_code == code


@pytest.mark.spec("SEC-100")
def test_a_principal_makes_so_many_topics_and_what_cannot_be_made_costs_nothing(
    setup: Setup, zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup.admin, "_auto_creations", Allowance(3, 10, clock=lambda: 0.0))
    bob = Principal(USER, "bob")
    for _ in range(5):
        assert setup.admin.auto_create("bad name", ANONYMOUS) == ErrorCode.INVALID_TOPIC_EXCEPTION
    for who in (ANONYMOUS, bob):
        for number in range(5):
            assert setup.admin.auto_create(f"of-{who.name}-{number}", who) == ErrorCode.LEADER_NOT_AVAILABLE
    made = {f"of-{who.name}-{number}" for who in (ANONYMOUS, bob) for number in range(3)}
    assert set(zk.children(TopicsZnode.PATH) or ()) == made


@pytest.mark.spec("BRK-118", "Z-14")
def test_creation_on_demand(setup: Setup, zk: ZooKeeper) -> None:
    assert setup.admin.auto_create("made", ANONYMOUS) == ErrorCode.LEADER_NOT_AVAILABLE
    assert setup.admin.auto_create("made", ANONYMOUS) == ErrorCode.LEADER_NOT_AVAILABLE  # on its way
    node = zk.get(TopicZnode.path("made"))
    assert node is not None
    assert [len(r) for r in TopicZnode.decode("made", node.data).assignment.values()] == [3, 3]
    config = zk.get(ConfigZnode.path("topics", "made"))
    assert config is not None and ConfigZnode.decode("", config.data) == {}
    assert config.czxid == node.czxid, "in one transaction"
    for bad in ("bad name", "", ".", "..", "a/b", "ä", "n" * 250):
        assert setup.admin.auto_create(bad, ANONYMOUS) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert setup.admin.unknown_topic_code(bad) == ErrorCode.INVALID_TOPIC_EXCEPTION
    for good in ("n" * 249, "A-z_0.9"):
        assert setup.admin.auto_create(good, ANONYMOUS) == ErrorCode.LEADER_NOT_AVAILABLE
    assert setup.admin.unknown_topic_code("fine") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    setup.cache.update(update(brokers=[live(1), live(2)]))
    assert setup.admin.auto_create("more", ANONYMOUS) == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.spec("BRK-166")
def test_the_offsets_topic_is_not_made_on_too_few_brokers(setup: Setup, zk: ZooKeeper) -> None:
    setup.cache.update(update(brokers=[live(1), live(2)]))
    assert setup.admin.create_internal_offsets_topic() == ErrorCode.INVALID_REPLICATION_FACTOR
    assert zk.get(TopicZnode.path("__consumer_offsets")) is None


@pytest.mark.spec("BRK-166")
def test_the_offsets_topic_has_its_own_settings(setup: Setup, zk: ZooKeeper) -> None:
    assert setup.admin.create_internal_offsets_topic() == ErrorCode.LEADER_NOT_AVAILABLE
    node = zk.get(TopicZnode.path("__consumer_offsets"))
    config = zk.get(ConfigZnode.path("topics", "__consumer_offsets"))
    assert node is not None and config is not None
    assignment = TopicZnode.decode("", node.data).assignment
    assert (len(assignment), {len(replicas) for replicas in assignment.values()}) == (50, {3})
    assert ConfigZnode.decode("", config.data) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
