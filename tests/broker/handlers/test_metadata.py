"""Metadata, ApiVersions and InitProducerId over raw sockets."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafkatool.broker.handlers import api_versions, init_producer_id, metadata
from kafkatool.broker.handlers.served import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.core.protocol.messages import api_versions as api_versions_api
from kafkatool.core.protocol.messages import init_producer_id as init_producer_id_api
from kafkatool.core.protocol.messages import metadata as metadata_api
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.broker.network.raw_client import network_config
from tests.core.protocol.apis import APIS

METADATA = {3: metadata.SERVED}
API = metadata_api.API


class FakeTopicAdmin:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def unknown_topic_code(self, name: str) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def auto_create(self, name: str) -> ErrorCode:
        self.asked.append(name)
        return ErrorCode.LEADER_NOT_AVAILABLE

    def create_internal_offsets_topic(self) -> ErrorCode:
        self.asked.append("__consumer_offsets")
        return ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.fixture
def admin() -> FakeTopicAdmin:
    return FakeTopicAdmin()


@pytest.fixture
def cache() -> MetadataCache:
    made = MetadataCache(1)
    brokers = [live(1, rack="r1"), live(2), live(3, INNER=7)]
    made.update(
        update(
            state("t", 1, 2, [2, 9], [2]),
            state("t", 0, 1, [1, 2], [1, 2]),
            state("t", 2, 9, [9, 1], [9]),
            state("t", 3, -1, [9], [9]),
            state("t", 4, 3, [3, 1]),
            state("__consumer_offsets", 0, 1, [1]),
            brokers=brokers,
            controller=2,
        )
    )
    return made


@pytest.fixture
def client(cache: MetadataCache, admin: FakeTopicAdmin) -> Iterator[Client]:
    with broker_of(METADATA, handler_context(metadata_cache=cache, topic_admin=admin)) as made:
        yield made


def ask(client: Client, version: int, *topics: str, everything: bool = False, **fields: bool) -> Any:
    named = None if everything else [MetadataRequestTopic(topic=t) for t in topics]
    return client.call(API, version, MetadataRequest(topics=named, **fields))


def partitions(client: Client, version: int) -> dict[int, MetadataResponsePartition]:
    (topic,) = ask(client, version, "t").topics
    return {p.partition: p for p in topic.partitions}


@pytest.mark.spec("BRK-114")
def test_brokers_without_the_requests_listener_are_left_out(client: Client) -> None:
    brokers = ask(client, 1).brokers
    assert [(b.node_id, b.host, b.port, b.rack) for b in brokers] == [(1, "h1", 9001, "r1"), (2, "h2", 9002, None)]


@pytest.mark.spec("BRK-115", "BRK-116")
@pytest.mark.parametrize("version", [1, 5, 7, 9])
def test_partitions_with_and_without_a_usable_leader(client: Client, version: int) -> None:
    found = partitions(client, version)
    assert list(found) == [0, 1, 2, 3, 4]
    lacking = 72 if version >= 6 else 5
    assert [found[p].error_code for p in range(5)] == [0, 0, 5, 5, lacking]
    assert [found[p].leader_id for p in range(5)] == [1, 2, -1, -1, -1]
    assert found[1].replica_nodes == [2, 9] and found[1].isr_nodes == [2]
    assert found[2].replica_nodes == [9, 1] and found[2].isr_nodes == [9]
    assert found[0].leader_epoch == (3 if version >= 7 else -1)


@pytest.mark.spec("BRK-116")
def test_version_0_leaves_dead_replicas_out_and_says_so(client: Client) -> None:
    found = partitions(client, 0)
    assert (found[0].error_code, found[0].replica_nodes) == (0, [1, 2])
    assert (found[1].error_code, found[1].replica_nodes, found[1].isr_nodes) == (9, [2], [2])
    assert (found[2].error_code, found[2].replica_nodes) == (5, [1])


@pytest.mark.spec("BRK-117")
def test_all_topics_none_and_the_cluster(client: Client) -> None:
    assert {t.topic for t in ask(client, 0).topics} == {"t", "__consumer_offsets"}
    assert ask(client, 1).topics == []
    everything = ask(client, 2, everything=True)
    assert {t.topic: t.is_internal for t in everything.topics} == {"t": False, "__consumer_offsets": True}
    assert (everything.controller_id, everything.cluster_id) == (2, "test-cluster")


@pytest.mark.spec("BRK-118")
@pytest.mark.parametrize(("version", "allowed", "code"), [(3, False, 5), (4, True, 5), (4, False, 3), (9, False, 3)])
def test_an_unknown_topic_is_created_where_the_request_allows_it(
    client: Client, admin: FakeTopicAdmin, version: int, allowed: bool, code: int
) -> None:
    (topic,) = ask(client, version, "new", "new", allow_auto_topic_creation=allowed).topics
    assert (topic.topic, topic.error_code, topic.partitions) == ("new", code, [])
    assert admin.asked == (["new"] if code == 5 else [])


@pytest.mark.spec("BRK-118", "BRK-166")
def test_with_auto_creation_off_only_the_offsets_topic_is_created(admin: FakeTopicAdmin) -> None:
    context = handler_context(topic_admin=admin, config=network_config(auto_create_topics_enable="false"))
    with broker_of(METADATA, context) as client:
        topics = ask(client, 1, "new", "__consumer_offsets").topics
    assert [(t.topic, t.error_code) for t in topics] == [("new", 3), ("__consumer_offsets", 38)]
    assert admin.asked == ["__consumer_offsets"]


@pytest.mark.spec("BRK-165")
def test_authorized_operations_are_all_of_them_when_asked_for(client: Client) -> None:
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    told, untold = ask(client, 8, "t", **asked), ask(client, 8, "t")
    assert (told.topics[0].topic_authorized_operations, told.cluster_authorized_operations) == (3576, 8096)
    assert untold.topics[0].topic_authorized_operations == untold.cluster_authorized_operations == -(2**31)


@pytest.mark.spec("BRK-123")
def test_before_the_controller_spoke_the_answer_is_empty_not_late(admin: FakeTopicAdmin) -> None:
    with broker_of(METADATA, handler_context(topic_admin=admin)) as client:
        response = ask(client, 9, "t", allow_auto_topic_creation=False)
    assert (response.brokers, response.controller_id, response.topics[0].error_code) == ([], -1, 3)


VERSIONS = {18: api_versions.SERVED}


@pytest.mark.spec("BRK-1", "BRK-155", "BRK-156")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_exactly_what_is_served_is_announced_but_produce_from_0(version: int) -> None:
    request = api_versions_api.ApiVersionsRequest(client_software_name="a-1.b", client_software_version="1.0")
    with broker_of(VERSIONS, handler_context()) as client:
        response = client.call(api_versions_api.API, version, request)
    ranges = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
    assert ranges == {key: (0, 8) if key == 0 else s.versions for key, s in load_handlers().items()}
    assert ranges.keys() == APIS.keys()
    assert all(ranges[key][0] == 0 for key in (10, 11, 12, 13, 14))  # librdkafka's feature detection
    assert ranges[1] == (4, 11) and ranges[8] == (0, 7) and ranges[9] == (0, 5)


@pytest.mark.spec("BRK-12")
@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a", "1."), ("a b", "1")])
def test_api_versions_3_with_an_odd_software_name_or_version_is_refused(name: str, version: str) -> None:
    request = api_versions_api.ApiVersionsRequest(client_software_name=name, client_software_version=version)
    with broker_of(VERSIONS, handler_context()) as client:
        assert client.call(api_versions_api.API, 3, request).error_code == 42


class FakeProducerIds:
    """Always the same id."""

    def next_id(self) -> int:
        return 4711


@pytest.mark.spec("BRK-163")
@pytest.mark.parametrize(
    ("transactional_id", "answer"), [(None, (0, 4711, 0)), ("", (42, -1, -1)), ("mine", (53, -1, -1))]
)
def test_producer_ids_are_for_idempotent_producers_alone(
    transactional_id: str | None, answer: tuple[int, int, int]
) -> None:
    request = init_producer_id_api.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
    with broker_of({22: init_producer_id.SERVED}, handler_context(producer_ids=FakeProducerIds())) as client:
        response = client.call(init_producer_id_api.API, 1, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == answer
