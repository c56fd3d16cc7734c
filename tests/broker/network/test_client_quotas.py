"""Client quotas: rates, whose quota applies, and what a client over its quota sees."""

import time
from dataclasses import replace
from typing import Any

import pytest

from kafkatool.broker.handlers.call import Call, load_handlers
from kafkatool.broker.network.client_quotas import FETCH, PRODUCE, ClientQuotas, Entity, parse_entity
from kafkatool.core.protocol.messages import fetch, produce
from kafkatool.core.zookeeper.znodes import ConfigZnode
from tests.broker.handlers.served import broker_of, handler_context
from tests.broker.network.raw_client import network_config


class Clock:
    """Seconds, moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def quotas(clock: Clock | None = None, **properties: str) -> ClientQuotas:
    return ClientQuotas(network_config(**properties), clock or Clock())


@pytest.mark.spec("BRK-22")
def test_the_delay_is_the_excess_over_the_limit_times_the_window() -> None:
    clock = Clock()
    limited = quotas(clock, quota_producer_default="1000")
    assert limited.active
    assert limited.charge(PRODUCE, "ANONYMOUS", "c", 10_000) == 0  # spread over ten windows: just the limit
    assert limited.charge(PRODUCE, "ANONYMOUS", "c", 1_000) == 1_000  # 1100/s: 10 % too much, over 10 s
    assert limited.charge(PRODUCE, "ANONYMOUS", "other", 10_000) == 0
    assert limited.charge(FETCH, "ANONYMOUS", "c", 10**12) == 0
    clock.now += 20
    assert limited.charge(PRODUCE, "ANONYMOUS", "c", 1_000) == 0


@pytest.mark.spec("BRK-22")
def test_the_narrowest_entity_decides_and_those_who_share_it_share_the_rate() -> None:
    limited = quotas()
    assert not limited.active
    limited.put(parse_entity("clients", "a%20b"), {PRODUCE: "100"})
    limited.put(parse_entity("clients", "<default>"), {PRODUCE: "200"})
    assert limited.active
    assert limited.charge(PRODUCE, "ANONYMOUS", "a b", 1_500) == 5_000
    assert limited.charge(PRODUCE, "ANONYMOUS", "x", 1_500) == 0
    limited.put(parse_entity("users", "ANONYMOUS"), {PRODUCE: "100"})
    assert limited.charge(PRODUCE, "ANONYMOUS", "x", 800) == 0
    assert limited.charge(PRODUCE, "ANONYMOUS", "y", 700) == 5_000  # the user's rate, whatever the client id
    limited.put(parse_entity("users", "ANONYMOUS/clients/y"), {PRODUCE: "10000"})
    assert limited.charge(PRODUCE, "ANONYMOUS", "y", 1_500) == 0
    for entity in (Entity("ANONYMOUS", "y"), Entity("ANONYMOUS", None), Entity(None, "a b"), Entity(None, "<default>")):
        limited.put(entity, {})
    assert not limited.active


@pytest.mark.spec("SEC-74")
def test_nothing_is_kept_of_client_ids_that_are_used_no_more() -> None:
    clock = Clock()
    limited = quotas(clock, quota_producer_default="1000")
    limited.charge(PRODUCE, "ANONYMOUS", "busy", 10_000)
    for number in range(20_000):
        clock.now += 0.01  # a thousand of them are within the eleven windows
        limited.charge(PRODUCE, "ANONYMOUS", f"once-{number}", 1)
        if number % 100 == 0:
            limited.charge(PRODUCE, "ANONYMOUS", "busy", 1_000)
    assert len(limited._rates) < 5_000  # noqa: SLF001  # nothing else shows what is kept
    assert limited.charge(PRODUCE, "ANONYMOUS", "busy", 1_000) > 0, "its bytes are still counted"


@pytest.mark.spec("Z-24")
def test_names_of_users_and_clients_are_decoded_as_urls_are() -> None:
    name = "CN=a b+c,O=ü-_.~!'()*:@&=%2F/日"
    encoded = ConfigZnode.entity_path("users", name).removeprefix("users/")
    assert encoded == ConfigZnode.entity_path("clients", name).removeprefix("clients/") != name
    assert parse_entity("clients", encoded) == Entity(None, name)
    assert parse_entity("users", encoded) == Entity(name, None)
    assert parse_entity("users", f"{encoded}/clients/{encoded}") == Entity(name, name)
    assert parse_entity("users", f"<default>/clients/{encoded}") == Entity("<default>", name)


def _produce(acks: int, size_bytes: int = 1000) -> produce.ProduceRequest:
    partition = produce.ProduceRequestPartition(partition=0, records=b"x" * size_bytes)
    topic = produce.ProduceRequestTopic(topic="t", partitions=[partition])
    return produce.ProduceRequest(acks=acks, timeout_ms=100, topics=[topic])


@pytest.mark.spec("BRK-22")
@pytest.mark.parametrize("kind", [PRODUCE, FETCH])
def test_each_narrower_entity_wins_over_the_wider_and_each_kind_of_quota_is_its_own(kind: str) -> None:
    limited = quotas(quota_producer_default="1000", quota_consumer_default="1000")
    narrowing = [
        ("clients", "<default>"),
        ("clients", "c"),
        ("users", "<default>"),
        ("users", "<default>/clients/<default>"),
        ("users", "<default>/clients/c"),
        ("users", "ANONYMOUS"),
        ("users", "ANONYMOUS/clients/<default>"),
        ("users", "ANONYMOUS/clients/c"),
    ]
    for number, (entity_type, name) in enumerate(narrowing, 2):
        limited.put(parse_entity(entity_type, name), {kind: f"{number}000"})
        assert limited.charge(kind, "ANONYMOUS", "c", number * 11_000) == 1_000, f"10 % above {name}'s {number}000"
        other = FETCH if kind == PRODUCE else PRODUCE
        assert limited.charge(other, "ANONYMOUS", "c", 11_000) == 1_000, "nobody narrowed this one"
        limited.put(parse_entity("users", "somebody else"), {kind: "1"})
        limited.put(parse_entity("clients", "another"), {kind: "1"})


@pytest.mark.spec("BRK-22")
@pytest.mark.parametrize(("version", "at_once"), [(5, False), (6, True)])
def test_a_producer_over_its_quota_is_told_and_held_back(version: int, at_once: bool) -> None:
    def handle(request: produce.ProduceRequest, call: Call) -> produce.ProduceResponse | None:
        if request.acks == 0:
            call.no_response()
            return None
        return produce.ProduceResponse(topics=[])

    context = handler_context(client_quotas=ClientQuotas(network_config(quota_producer_default="100")))
    with broker_of({0: replace(load_handlers()[0], handle=handle)}, context) as client:
        started = time.monotonic()
        response = client.call(produce.API, version, _produce(1))
        assert 100 < response.throttle_time_ms < 1_500
        assert (time.monotonic() - started >= response.throttle_time_ms / 1000) or at_once
        client.send_request(produce.API, version, _produce(0, 100_000))  # some quarter of an hour's worth
        client.send_request(produce.API, version, _produce(1))
        assert client.answers_nothing_for(0.2)


@pytest.mark.spec("BRK-22")
@pytest.mark.parametrize(("replica_id", "throttled"), [(-1, True), (2, False)])
def test_consumers_are_charged_with_what_they_get_followers_are_not(replica_id: int, throttled: bool) -> None:
    def handle(request: Any, call: Call) -> fetch.FetchResponse:
        partition = fetch.FetchResponsePartition(partition=0, high_watermark=1, records=b"x" * 20_000)
        return fetch.FetchResponse(topics=[fetch.FetchResponseTopic(topic="t", partitions=[partition])])

    request = fetch.FetchRequest(
        replica_id=replica_id, max_wait_ms=0, min_bytes=1, max_bytes=1, isolation_level=0, topics=[]
    )
    context = handler_context(client_quotas=ClientQuotas(network_config(quota_consumer_default="1900")))
    with broker_of({1: replace(load_handlers()[1], handle=handle)}, context) as client:
        response = client.call(fetch.API, 11, request)
    assert bool(response.throttle_time_ms) is throttled
    assert len(response.topics[0].partitions[0].records) == 20_000


@pytest.mark.spec("SEC-74")
def test_a_users_quota_is_his_own_whatever_his_client_is_called() -> None:
    limited = quotas()
    limited.put(Entity("alice", None), {PRODUCE: "1000"})
    assert limited.charge(PRODUCE, "alice", "c", 11_000) == 1_000
    assert limited.charge(PRODUCE, "bob", "c", 11_000) == 0
