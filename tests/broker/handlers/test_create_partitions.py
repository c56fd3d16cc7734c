"""CreatePartitions against a real ZooKeeper; the controller's part is played by the test."""

import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.registration.registration import make_base_paths
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.values import BrokerInfo, Endpoint, TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.operations.topics.deletion import mark_for_deletion
from kafkatool.core.protocol.messages import create_partitions as api
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ReassignmentZnode, TopicZnode
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.broker.handlers.test_topics import FakeController, Setup
from tests.waiting import eventually

SERVED = {37: load_handlers()[37]}


@pytest.fixture
def setup(zk: ZooKeeper) -> Iterator[Setup]:
    make_base_paths(zk)
    for broker in (1, 2, 3):
        info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "h", 9000 + broker),), None)
        zk.create(BrokerZnode.path(broker), BrokerZnode.encode(info, 0))
    for name in ("t", "u", "__consumer_offsets"):
        create_topic(zk, name, {0: (1, 2)})
    cache, controller, timer = MetadataCache(1), FakeController(), Timer("waits")
    cache.update(update(state("t", 0, 1, [1, 2]), brokers=[live(1), live(2), live(3)]))
    config = BrokerConfig.from_properties({"zookeeper.connect": "unused:1"})
    admin = TopicAdmin(zk, config, 1, cache, timer)
    context = handler_context(config=config, metadata_cache=cache, topic_admin=admin, controller=controller)
    with broker_of(SERVED, context) as client:
        yield Setup(client, cache, admin, controller)
    timer.close()


def request(*topics: tuple[str, int, list[list[int]] | None], timeout_ms: int = 0, validate: bool = False) -> Any:
    return api.CreatePartitionsRequest(
        topics=[
            api.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None if lists is None else [api.CreatePartitionsAssignment(broker_ids=b) for b in lists],
            )
            for name, count, lists in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate,
    )


def outcomes(client: Client, wanted: Any, version: int = 1) -> list[tuple[str, int]]:
    results = client.call(api.API, version, wanted).results
    assert all((r.error_message is None) == (r.error_code == 0) for r in results)
    return [(r.name, r.error_code) for r in results]


def assignment(zk: ZooKeeper, topic: str = "t") -> dict[int, tuple[int, ...]]:
    node = zk.get(TopicZnode.path(topic))
    assert node is not None
    return dict(TopicZnode.decode(topic, node.data).assignment)


@pytest.mark.spec("BRK-162", "ASG-6")
@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_grows_and_is_answered_when_all_partitions_are_led(setup: Setup, zk: ZooKeeper, version: int) -> None:
    setup.client.send_request(api.API, version, request(("t", 3, [[2, 3], [3, 1]]), timeout_ms=60_000))
    answered: list[Any] = []
    waiting = threading.Thread(target=lambda: answered.append(setup.client.receive_response(api.API, version)))
    waiting.start()
    eventually(lambda: len(assignment(zk)) == 3, "the new assignment")
    assert assignment(zk) == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    setup.cache.update(update(state("t", 1, 2, [2, 3]), brokers=[live(1), live(2), live(3)]))
    assert not answered, "one is not led yet"
    setup.cache.update(update(state("t", 2, 3, [3, 1]), brokers=[live(1), live(2), live(3)]))
    waiting.join(60)
    assert [(r.name, r.error_code) for r in answered[0].results] == [("t", 0)]


@pytest.mark.spec("BRK-162")
def test_what_is_not_waited_for_is_told_as_timed_out_and_grows(setup: Setup, zk: ZooKeeper) -> None:
    assert outcomes(setup.client, request(("t", 4, None))) == [("t", 7)]
    grown = assignment(zk)
    assert sorted(grown) == [0, 1, 2, 3] and all(len(set(r)) == 2 for r in grown.values())


@pytest.mark.spec("BRK-162", "Z-13")
def test_the_rest_of_the_node_stays_as_it_was(setup: Setup, zk: ZooKeeper) -> None:
    more = {"version": 3, "topic_id": "x", "adding_replicas": {}, "removing_replicas": {}, "unknown": [{"a": 1}]}
    zk.set(TopicZnode.path("t"), orjson.dumps({**more, "partitions": {"0": [1, 2]}}), 0)
    assert outcomes(setup.client, request(("t", 2, [[2, 3]]))) == [("t", 7)]
    node = zk.get(TopicZnode.path("t"))
    assert node is not None
    assert orjson.loads(node.data) == {**more, "partitions": {"0": [1, 2], "1": [2, 3]}}


@pytest.mark.spec("BRK-162")
def test_each_refusal_has_its_code_and_changes_nothing(setup: Setup, zk: ZooKeeper) -> None:
    mark_for_deletion(zk, "u")
    for wanted, code in [
        (("t", 1, None), 37),
        (("t", 0, None), 37),
        (("t", 3, [[1, 2]]), 39),
        (("t", 2, [[1, 1]]), 39),
        (("t", 2, [[1]]), 39),
        (("t", 2, [[1, 9]]), 39),
        (("gone", 2, None), 3),
        (("", 2, None), 3),
        (("..", 2, None), 3),
        (("t/partitions", 2, None), 3),
        (("u", 2, None), 17),
        (("__consumer_offsets", 2, None), 37),
    ]:
        assert outcomes(setup.client, request(wanted)) == [(wanted[0], code)], wanted
    assert outcomes(setup.client, request(("t", 2, None), ("t", 3, None))) == [("t", 42)]
    assert outcomes(setup.client, request(("t", 2, None), validate=True)) == [("t", 0)]
    assert outcomes(setup.client, request(("t", 2, [[3, 9]]), validate=True)) == [("t", 39)]
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({TopicPartition("t", 0): (2, 3)}), make_parents=True)
    assert outcomes(setup.client, request(("t", 2, None))) == [("t", 60)]
    setup.controller.is_active = False
    assert outcomes(setup.client, request(("t", 2, None))) == [("t", 41)]
    assert assignment(zk) == {0: (1, 2)}


@pytest.mark.spec("ADM-26")
@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ([], "Increasing the number of partitions by 2 but 0 assignments provided."),
        ([[1, 2]], "Increasing the number of partitions by 2 but 1 assignments provided."),
        ([[9, 8]], "Unknown broker(s) in replica assignment: 8, 9."),
        ([[1, 2], [9, 9]], "Unknown broker(s) in replica assignment: 9."),
        ([[1, 1], [1, 2]], "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 1."),
        ([[1, 2], []], "Cannot have replication factor of 0 for partition id 2."),
    ],
)
def test_refused_lists_have_the_words_of_kafka_2_8(setup: Setup, lists: list[list[int]], why: str) -> None:
    (result,) = setup.client.call(api.API, 1, request(("t", 3, lists))).results
    assert (result.error_code, result.error_message) == (39, why)
