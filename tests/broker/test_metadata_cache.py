"""The metadata cache."""

import pytest

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.core.model.values import Endpoint, TopicPartition
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint
from tests.broker.handlers.served import live, state, update


@pytest.fixture
def cache() -> MetadataCache:
    made = MetadataCache(1)
    made.update(update(state("a", 0, 1, [1, 2]), state("b", 0, 2, [2]), brokers=[live(1), live(2, rack="r")]))
    return made


@pytest.mark.spec("BRK-112")
def test_brokers_and_controller_are_replaced_listed_partitions_overwritten_others_kept(cache: MetadataCache) -> None:
    removed = cache.update(update(state("a", 1, 2, [2]), brokers=[live(2), live(3)], controller=-1))
    assert removed == []
    snapshot = cache.snapshot
    assert snapshot.controller_id is None
    assert sorted(snapshot.brokers) == [2, 3]
    assert {t: sorted(p) for t, p in snapshot.partitions.items()} == {"a": [0, 1], "b": [0]}
    assert (snapshot.brokers[2].rack, snapshot.brokers[3].endpoints) == (None, (Endpoint("PLAINTEXT", "h3", 9003),))
    moved = live(2, rack="other", INNER=7)
    cache.update(update(state("a", 0, 2, [2, 3], [2], epoch=8), brokers=[moved], controller=2))
    snapshot = cache.snapshot
    assert (snapshot.controller_id, sorted(snapshot.brokers), snapshot.brokers[2].rack) == (2, [2], "other")
    assert [e.port for e in snapshot.brokers[2].endpoints] == [7]
    cache.update(update(brokers=[moved], controller=0))
    assert (cache.snapshot.controller_id, snapshot.controller_id) == (0, 2)
    told = snapshot.partitions["a"][0]
    assert (told.leader, told.leader_epoch, told.isr, told.replicas) == (2, 8, [2], [2, 3])
    assert snapshot.partitions["a"][1].leader == 2, "not listed this time"


@pytest.mark.spec("BRK-112", "BRK-113")
def test_leader_minus_2_removes_the_partition_and_with_its_last_one_the_topic(cache: MetadataCache) -> None:
    told: list[list[TopicPartition]] = []
    cache.add_listener(told.append)
    cache.update(update(state("a", 1, 1, [1]), brokers=[live(1)]))
    assert cache.update(update(state("a", 0, -2, [1]), brokers=[live(1)])) == [TopicPartition("a", 0)]
    assert sorted(cache.snapshot.partitions["a"]) == [1]
    cache.update(update(state("a", 1, -2, [1]), state("c", 0, -2, [1]), brokers=[live(1)]))
    assert set(cache.snapshot.partitions) == {"b"}
    assert told == [[], [TopicPartition("a", 0)], [TopicPartition("a", 1)]]


@pytest.mark.spec("BRK-112")
def test_a_reader_keeps_the_state_it_began_with(cache: MetadataCache) -> None:
    before = cache.snapshot
    cache.update(update(state("a", 0, 2, [1, 2]), state("a", 1, 1, [1]), brokers=[live(2)]))
    assert before.partitions["a"][0].leader == 1
    assert sorted(before.partitions["a"]) == [0]
    assert sorted(before.brokers) == [1, 2]
    assert cache.snapshot.partitions["b"] is before.partitions["b"]  # what did not change is not copied


@pytest.mark.spec("BRK-113")
def test_differing_listener_sets_are_logged(cache: MetadataCache, caplog: pytest.LogCaptureFixture) -> None:
    cache.update(update(brokers=[live(1), live(2, PLAINTEXT=1, INNER=2)]))
    assert "brokers 1 and 2 have different listeners (PLAINTEXT, INNER,PLAINTEXT)" in caplog.text


@pytest.mark.spec("BRK-114")
def test_endpoints_by_listener(cache: MetadataCache) -> None:
    assert cache.leader_endpoint(TopicPartition("a", 0), "PLAINTEXT") == (1, Endpoint("PLAINTEXT", "h1", 9001))
    assert cache.leader_endpoint(TopicPartition("a", 0), "INNER") is None
    assert cache.leader_endpoint(TopicPartition("x", 0), "PLAINTEXT") is None
    assert cache.broker_endpoint(9, "PLAINTEXT") is None
    assert cache.contains(TopicPartition("b", 0)) and not cache.contains(TopicPartition("b", 1))
    assert (len(cache.snapshot.partitions["a"]), cache.snapshot.partitions.get("x")) == (1, None)


def test_brokers_of_older_requests_have_no_listener_names(cache: MetadataCache) -> None:
    nameless = UpdateMetadataBroker(id=5, endpoints=[UpdateMetadataEndpoint(port=1, host="h", security_protocol=1)])
    cache.update(update(brokers=[UpdateMetadataBroker(id=4, host="old", port=92), nameless]))
    assert cache.broker_endpoint(4, "PLAINTEXT") == Endpoint("PLAINTEXT", "old", 92)
    assert cache.broker_endpoint(5, "SSL") == Endpoint("SSL", "h", 1, "SSL")
