"""Metadata, ApiVersions and InitProducerId over raw sockets."""

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.limits import Limits
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.security.principal import ANONYMOUS, Principal
from kafkatool.broker.transactions.coordinator import TransactionCoordinator
from kafkatool.core.protocol.messages import api_versions as api_versions_api
from kafkatool.core.protocol.messages import find_coordinator as find_coordinator_api
from kafkatool.core.protocol.messages import init_producer_id as init_producer_id_api
from kafkatool.core.protocol.messages import metadata as metadata_api
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkatool.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.broker.network.raw_client import network_config
from tests.core.protocol.apis import APIS, ONLY_ASKED

METADATA = {3: load_handlers()[3]}
API = metadata_api.API


class FakeTopicAdmin:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def unknown_topic_code(self, name: str) -> ErrorCode:
        return ErrorCode.INVALID_TOPIC_EXCEPTION if "/" in name else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def auto_create(self, name: str, principal: Principal) -> ErrorCode:
        assert principal == ANONYMOUS
        self.asked.append(name)
        refusals = {"a/b": ErrorCode.INVALID_TOPIC_EXCEPTION, "many": ErrorCode.INVALID_REPLICATION_FACTOR}
        return refusals.get(name, ErrorCode.LEADER_NOT_AVAILABLE)

    def create_internal(self, name: str) -> ErrorCode:
        self.asked.append(name)
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


@pytest.mark.spec("ADM-85", "ADM-84")
@pytest.mark.parametrize("version", [10, 11])
def test_topics_are_asked_for_by_name_and_no_id_is_known(client: Client, admin: FakeTopicAdmin, version: int) -> None:
    by_id, by_both = bytes(15) + b"\1", bytes(15) + b"\2"
    named = [
        MetadataRequestTopic(topic="t"),
        MetadataRequestTopic(topic_id=by_id, topic=None),
        MetadataRequestTopic(topic_id=by_both, topic="t"),
        MetadataRequestTopic(topic=None),
    ]
    answer = client.call(API, version, MetadataRequest(topics=named))
    assert [(t.error_code, t.topic, t.topic_id, len(t.partitions)) for t in answer.topics] == [
        (0, "t", bytes(16), 5),
        (100, "", by_id, 0),
        (100, "t", by_both, 0),
        (100, "", bytes(16), 0),
    ]
    assert not admin.asked, "none is created"


@pytest.mark.spec("BRK-114")
def test_brokers_without_the_requests_listener_are_left_out(client: Client) -> None:
    brokers = ask(client, 1).brokers
    assert [(b.node_id, b.host, b.port, b.rack) for b in brokers] == [(1, "h1", 9001, "r1"), (2, "h2", 9002, None)]


@pytest.mark.spec("BRK-114", "BRK-115", "BRK-164", "TXN-2")
def test_who_asks_at_another_listener_is_told_its_endpoints(cache: MetadataCache) -> None:
    inner: dict[str, Any] = {"listeners": "INNER://127.0.0.1:0", "listener_security_protocol_map": "INNER:PLAINTEXT"}
    coordinated = [state(topic, 0, 3, [3]) for topic in ("__consumer_offsets", "__transaction_state")]
    cache.update(update(*coordinated, brokers=[live(1), live(3, INNER=7, PLAINTEXT=8)]))
    groups = SimpleNamespace(partition_of=lambda _: 0)
    context = handler_context(metadata_cache=cache, groups=groups, transactions=groups)
    served = METADATA | {10: load_handlers()[10]}
    with broker_of(served, context, inter_broker_listener_name="INNER", **inner) as client:
        answer = ask(client, 9, "t")
        coordinators = [
            client.call(find_coordinator_api.API, 2, FindCoordinatorRequest(key="g", key_type=kind)) for kind in (0, 1)
        ]
        elsewhere = [state(topic, 0, 1, [1]) for topic in ("__consumer_offsets", "__transaction_state")]
        cache.update(update(*elsewhere, brokers=[live(1), live(3, INNER=7, PLAINTEXT=8)]))
        lacking = [
            client.call(find_coordinator_api.API, 2, FindCoordinatorRequest(key="g", key_type=kind)) for kind in (0, 1)
        ]
    assert [(c.error_code, c.node_id) for c in lacking] == [(15, -1)] * 2, "the leader has no such listener"
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(3, "h3", 7)]
    assert {p.partition: (p.error_code, p.leader_id) for p in answer.topics[0].partitions} == {
        0: (72, -1),
        1: (5, -1),  # broker 2 is not alive any more
        2: (5, -1),
        3: (5, -1),
        4: (0, 3),
    }
    assert [(c.node_id, c.host, c.port) for c in coordinators] == [(3, "h3", 7)] * 2


@pytest.mark.spec("BRK-116")
@pytest.mark.parametrize("version", [7, 8, 9, 10, 11])
def test_a_leader_epoch_that_is_not_known_is_minus_1(client: Client, cache: MetadataCache, version: int) -> None:
    cache.update(update(state("t", 0, 1, [1, 2], epoch=-1), brokers=[live(1), live(2)]))
    found = partitions(client, version)
    assert (found[0].leader_epoch, found[1].leader_epoch) == (-1, 3)


@pytest.mark.spec("BRK-116")
@pytest.mark.parametrize("version", range(1, 12))
def test_from_version_1_on_dead_replicas_are_listed_without_a_code(client: Client, version: int) -> None:
    found = partitions(client, version)
    assert 9 not in {p.error_code for p in found.values()}
    assert (found[1].error_code, found[1].replica_nodes, found[1].isr_nodes) == (0, [2, 9], [2])


@pytest.mark.spec("BRK-115", "BRK-116")
@pytest.mark.parametrize("version", range(1, 12))
def test_partitions_with_and_without_a_usable_leader(client: Client, version: int) -> None:
    found = partitions(client, version)
    assert list(found) == [0, 1, 2, 3, 4]
    lacking = 72 if version >= 6 else 5
    assert [found[p].error_code for p in range(5)] == [0, 0, 5, 5, lacking]
    assert [found[p].leader_id for p in range(5)] == [1, 2, -1, -1, -1]
    assert found[1].replica_nodes == [2, 9] and found[1].isr_nodes == [2]
    assert found[2].replica_nodes == [9, 1] and found[2].isr_nodes == [9]
    assert found[3].replica_nodes == found[3].isr_nodes == [9], "also without a leader"
    assert found[4].replica_nodes == found[4].isr_nodes == [3, 1]
    assert found[0].leader_epoch == (3 if version >= 7 else -1)


@pytest.mark.spec("BRK-115", "BRK-116")
def test_version_0_leaves_dead_replicas_out_and_says_so(client: Client) -> None:
    found = partitions(client, 0)
    assert (found[0].error_code, found[0].replica_nodes) == (0, [1, 2])
    assert (found[1].error_code, found[1].replica_nodes, found[1].isr_nodes) == (9, [2], [2])
    assert (found[2].error_code, found[2].replica_nodes, found[2].isr_nodes) == (5, [1], [])
    assert (found[3].error_code, found[3].replica_nodes, found[3].isr_nodes) == (5, [], [])
    assert (found[4].error_code, found[4].replica_nodes, found[4].isr_nodes) == (5, [1], [1]), "3 lacks the listener"
    assert [found[p].leader_id for p in range(5)] == [1, 2, -1, -1, -1]


@pytest.mark.spec("BRK-117")
def test_all_topics_none_and_the_cluster(client: Client) -> None:
    assert {t.topic for t in ask(client, 0).topics} == {"t", "__consumer_offsets"}
    for version in range(1, 12):
        nothing = ask(client, version)
        assert (nothing.topics, [b.node_id for b in nothing.brokers], nothing.controller_id) == ([], [1, 2], 2)
        everything = ask(client, version, everything=True)
        assert {t.topic: t.is_internal for t in everything.topics} == {"t": False, "__consumer_offsets": True}
        assert everything.cluster_id == ("test-cluster" if version >= 2 else None)


@pytest.mark.spec("BRK-117", "TXN-5")
def test_internal_are_the_two_topics_of_coordinators_alone(client: Client, cache: MetadataCache) -> None:
    names = ["__transaction_state", "__consumer_offsets", "__other", "_consumer_offsets", "__CONSUMER_OFFSETS"]
    cache.update(update(*(state(name, 0, 1, [1]) for name in names), brokers=[live(1)]))
    internal = {t.topic for t in ask(client, 5, *names).topics if t.is_internal}
    assert internal == {"__transaction_state", "__consumer_offsets"}


@pytest.mark.spec("BRK-118")
@pytest.mark.parametrize(
    ("version", "allowed", "code"),
    [*((v, False, 5) for v in range(4)), *((v, a, 5 if a else 3) for v in range(4, 12) for a in (False, True))],
)
def test_an_unknown_topic_is_created_where_the_request_allows_it(
    client: Client, admin: FakeTopicAdmin, version: int, allowed: bool, code: int
) -> None:
    (topic,) = ask(client, version, "new", "new", allow_auto_topic_creation=allowed).topics
    assert (topic.topic, topic.error_code, topic.partitions) == ("new", code, [])
    assert admin.asked == (["new"] if code == 5 else [])


@pytest.mark.spec("BRK-118")
@pytest.mark.parametrize("version", range(12))
def test_a_bad_name_and_too_few_brokers_have_their_own_codes(client: Client, version: int) -> None:
    def codes(allowed: bool) -> list[int]:
        return [t.error_code for t in ask(client, version, "a/b", "many", allow_auto_topic_creation=allowed).topics]

    assert codes(True) == [17, 38]
    assert codes(False) == ([17, 3] if version >= 4 else [17, 38])


@pytest.mark.spec("BRK-118", "BRK-166", "TXN-3")
def test_with_auto_creation_off_only_kafkas_own_topics_are_created(admin: FakeTopicAdmin) -> None:
    context = handler_context(topic_admin=admin, config=network_config(auto_create_topics_enable="false"))
    own = ["__consumer_offsets", "__transaction_state"]
    with broker_of(METADATA, context) as client:
        for version in range(12):
            topics = ask(client, version, "new", *own, allow_auto_topic_creation=True).topics
            assert [(t.topic, t.error_code) for t in topics] == [("new", 3), *((name, 38) for name in own)]
    assert admin.asked == own * 12


@pytest.mark.spec("SEC-100", "BRK-118")
@pytest.mark.parametrize(("given", "most"), [({}, 50), ({"kt_max_auto_created_topics_per_request": "3"}, 3)])
def test_one_question_makes_so_many_topics_and_the_next_one_more(
    admin: FakeTopicAdmin, given: dict[str, str], most: int
) -> None:
    names = [f"new-{number}" for number in range(60)]
    cache = MetadataCache(1)
    context = handler_context(topic_admin=admin, metadata_cache=cache, config=network_config(**given))
    with broker_of(METADATA, context) as client:
        for there in (0, 0, most):
            cache.update(update(*(state(name, 0, 1, [1]) for name in names[:there]), brokers=[live(1)]))
            told = ask(client, 9, *names, allow_auto_topic_creation=True).topics
            wanted = dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE) | dict.fromkeys(names[:there], ErrorCode.NONE)
            assert {t.topic: t.error_code for t in told} == wanted
    assert admin.asked == names[:most] * 2 + names[most : 2 * most], "those that are not there yet are on their way"


@pytest.mark.spec("BRK-165")
def test_authorized_operations_are_all_of_them_when_asked_for(client: Client) -> None:
    for version in (8, 9, 10, 11):
        for cluster, topic in itertools.product((False, True), repeat=2):
            told = ask(
                client,
                version,
                "t",
                include_cluster_authorized_operations=cluster,
                include_topic_authorized_operations=topic,
            )
            has_cluster = cluster and version < 11  # from there on DescribeCluster tells them
            assert told.cluster_authorized_operations == (8096 if has_cluster else -(2**31))
            assert told.topics[0].topic_authorized_operations == (3576 if topic else -(2**31))


@pytest.mark.spec("BRK-117", "BRK-123")
def test_before_the_controller_spoke_the_answer_is_empty_not_late(admin: FakeTopicAdmin) -> None:
    with broker_of(METADATA, handler_context(topic_admin=admin)) as client:
        response = ask(client, 9, "t", allow_auto_topic_creation=False)
        created = ask(client, 9, "t", allow_auto_topic_creation=True).topics[0].error_code
    assert (response.brokers, response.controller_id, response.topics[0].error_code) == ([], -1, 3)
    assert created == 5


VERSIONS = {18: load_handlers()[18]}
TABLE_A = {
    0: (0, 9),  # Produce
    1: (0, 12),  # Fetch
    2: (0, 7),  # ListOffsets
    3: (0, 11),  # Metadata
    4: (0, 2),  # LeaderAndIsr
    5: (0, 2),  # StopReplica
    6: (0, 5),  # UpdateMetadata
    7: (0, 2),  # ControlledShutdown
    18: (0, 3),  # ApiVersions
    23: (0, 4),  # OffsetForLeaderEpoch
}


@pytest.mark.spec("BRK-1", "ADM-84", "ADM-82", "ADM-87")
def test_each_api_is_served_in_exactly_the_versions_of_table_a() -> None:
    assert {key: load_handlers()[key].versions for key in TABLE_A} == TABLE_A


@pytest.mark.spec("BRK-1", "BRK-155", "BRK-156", "TXN-102", "TXN-29", "TXN-35", "TXN-91", "ADM-82", "ADM-87")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_exactly_what_is_served_is_announced(version: int) -> None:
    request = api_versions_api.ApiVersionsRequest(client_software_name="a-1.b", client_software_version="1.0")
    with broker_of(VERSIONS, handler_context()) as client:
        response = client.call(api_versions_api.API, version, request)
    ranges = {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}
    assert ranges == {key: s.versions for key, s in load_handlers().items()}
    assert ranges.keys() == APIS.keys() - ONLY_ASKED
    assert all(ranges[key][0] == 0 for key in (10, 11, 12, 13, 14, 15, 16, 42))  # librdkafka's feature detection
    assert ranges[0] == (0, 9) and ranges[1] == (0, 12) and ranges[8] == (0, 8) and ranges[9] == (0, 7)


@pytest.mark.spec("BRK-12")
@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        *[(odd, "1", 42) for odd in ("", "-a", "a-", ".a", "a b", "a_b", "a\n", "\u00e4", "a/1")],
        *[("a", odd, 42) for odd in ("", "1.", "-1", "1 ", "1\n", "1_0")],
        *[(fine, fine, 0) for fine in ("a", "7", "aB-c.D9", "a--..b", "1.0")],
    ],
)
def test_api_versions_3_with_an_odd_software_name_or_version_is_refused(name: str, version: str, code: int) -> None:
    request = api_versions_api.ApiVersionsRequest(client_software_name=name, client_software_version=version)
    with broker_of(VERSIONS, handler_context()) as client:
        assert client.call(api_versions_api.API, 3, request).error_code == code
        assert client.call(api_versions_api.API, 2, request).error_code == 0, "it names no software"


class FakeProducerIds:
    """Always the same id."""

    def next_id(self) -> int:
        return 4711


@pytest.mark.spec("BRK-163", "TXN-24")
def test_producer_ids_without_a_transactional_id_are_fresh_whatever_identity_is_told() -> None:
    with broker_of({22: load_handlers()[22]}, handler_context(producer_ids=FakeProducerIds())) as client:
        told = itertools.product((3, 4), (-1, 7), (-1, 3))
        for version, producer_id, epoch in (*((version, -1, -1) for version in range(3)), *told):
            request = init_producer_id_api.InitProducerIdRequest(
                transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            )
            response = client.call(init_producer_id_api.API, version, request)
            assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 4711, 0)


@pytest.mark.spec("BRK-163", "TXN-24")
@pytest.mark.parametrize("version", range(5))
def test_an_empty_transactional_id_is_no_request(version: int) -> None:
    knows_nothing = TransactionCoordinator.__new__(TransactionCoordinator)
    knows_nothing._limits = Limits()  # noqa: SLF001
    with broker_of({22: load_handlers()[22]}, handler_context(transactions=knows_nothing)) as client:
        request = init_producer_id_api.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
        response = client.call(init_producer_id_api.API, version, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.spec("TXN-24")
@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 0)])
def test_half_an_identity_is_no_request(producer_id: int, epoch: int) -> None:
    request = init_producer_id_api.InitProducerIdRequest(
        transactional_id="mine", transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    with broker_of({22: load_handlers()[22]}, handler_context()) as client:
        response = client.call(init_producer_id_api.API, 4, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)
