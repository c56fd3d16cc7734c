"""The client of a cluster, against brokers made of functions: where requests go, and when they are sent again."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkatool.core.client import cluster as client_cluster
from kafkatool.core.client.addresses import Address
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.errors import (
    BrokerUnreachableError,
    NoControllerError,
    RefusedError,
    UnsupportedApiError,
)
from kafkatool.core.protocol.messages import create_topics, describe_configs, elect_leaders, metadata
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.client.fake_broker import NO_KAFKA, OLD, FakeBroker

SETTINGS = ClientSettings(client_id="kt-topics", software_version="9.1", retry_backoff_ms=1)
LIST = listing.ListPartitionReassignmentsRequest()
NOTHING_MOVES = listing.ListPartitionReassignmentsResponse(topics=[])


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Three brokers that know each other; the second is the controller."""
    found = [FakeBroker(i, {listing.API: (0, 0), create_topics.API: (0, 7)}) for i in (1, 2, 3)]
    for broker in found:
        broker.knows, broker.controller_id = found, 2
        broker.answers[listing.API.key] = lambda _: NOTHING_MOVES
    yield found
    for broker in found:
        broker.close()


def _client(*brokers: FakeBroker, settings: ClientSettings = SETTINGS) -> ClusterClient:
    return ClusterClient([b.address for b in brokers], settings)


@pytest.mark.spec("ADM-2")
def test_addresses_are_tried_in_their_order_and_each_one_that_fails_has_its_reason(brokers: list[FakeBroker]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        refusing = Address("127.0.0.1", gone.getsockname()[1])
    unknown = Address("no-such-host.invalid", 9092)
    with ClusterClient([unknown, refusing, brokers[2].address, brokers[0].address], SETTINGS) as client:
        assert sorted(client.brokers) == [1, 2, 3] and client.controller_id == 2 and client.cluster_id == "C"
    assert brokers[2].connections == 1 and brokers[0].connections == 0
    with FakeBroker(9, newest_api_versions=NO_KAFKA) as silent, pytest.raises(BrokerUnreachableError) as caught:
        ClusterClient([unknown, refusing, silent.address], SETTINGS)
    assert str(caught.value).splitlines() == [
        "no broker answers:",
        f"  {unknown}: name unknown",
        f"  {refusing}: refused",
        f"  {silent.address}: closed during ApiVersions: speaks TLS or is no Kafka broker",
    ]


@pytest.mark.spec("ADM-2")
def test_each_ip_of_a_name_is_tried(brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first address of the name refuses: nothing listens there at that port."""
    look_up, port = socket.getaddrinfo, brokers[0].address.port

    def two_addresses(host: str, *args: Any, **more: Any) -> Any:
        if host != "two.invalid":
            return look_up(host, *args, **more)
        return [entry for ip in ("127.0.0.9", "127.0.0.1") for entry in look_up(ip, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.9", port))
    with ClusterClient([Address("two.invalid", port)], SETTINGS) as client:
        assert sorted(client.brokers) == [1, 2, 3]


@pytest.mark.spec("ADM-5", "ADM-11")
def test_each_broker_is_spoken_to_in_the_newest_version_that_both_know(brokers: list[FakeBroker]) -> None:
    old = FakeBroker(4, {create_topics.API: (1, 3)}, newest_api_versions=OLD)
    brokers[0].knows = [*brokers, old]
    with old, _client(brokers[0]) as client:
        for broker_id in (1, 4):
            broker = brokers[0] if broker_id == 1 else old
            broker.answers[create_topics.API.key] = lambda _: CreateTopicsResponse(topics=[])
            client.broker(broker_id, create_topics.API, CreateTopicsRequest(topics=[], timeout_ms=1))
    assert [(n, v) for n, v, _ in brokers[0].asked] == [("ApiVersions", 3), ("Metadata", 12), ("CreateTopics", 7)]
    assert [(n, v) for n, v, _ in old.asked] == [("ApiVersions", 3), ("ApiVersions", 0), ("CreateTopics", 3)]
    first = brokers[0].asked[0][2]
    assert (first.client_software_name, first.client_software_version) == ("kt", "9.1")
    assert brokers[0].client_ids == old.client_ids == {"kt-topics"}
    assert brokers[0].connections == old.connections == 1


@pytest.mark.spec("ADM-6", "ADM-53")
def test_a_request_for_the_controller_follows_it(brokers: list[FakeBroker]) -> None:
    def no_longer(_: object) -> object:
        for broker in brokers:
            broker.controller_id = 3
        return listing.ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])

    brokers[1].answers[listing.API.key] = no_longer
    with _client(brokers[0]) as client:
        answer = client.controller(listing.API, LIST, codes=lambda a: [a.error_code])
        assert answer == NOTHING_MOVES and not client.repeated
    assert [b.count(listing.API) for b in brokers] == [0, 1, 1]


@pytest.mark.spec("ADM-6")
def test_without_a_controller_nothing_is_sent(brokers: list[FakeBroker]) -> None:
    for broker in brokers:
        broker.controller_id = -1
    settings = ClientSettings(retry_backoff_ms=1, retries=5)
    with (
        _client(brokers[0], settings=settings) as client,
        pytest.raises(NoControllerError, match="no controller is elected"),
    ):
        client.controller(listing.API, LIST)
    assert all(b.count(listing.API) == 0 for b in brokers)
    assert brokers[0].asked[-1][0] == "Metadata" and len(brokers[0].asked) > 3  # it waited, asking again


@pytest.mark.spec("ADM-53", "ADM-54")
def test_a_lost_answer_is_asked_for_again_and_told(brokers: list[FakeBroker]) -> None:
    answers = iter([None, None, NOTHING_MOVES])
    brokers[1].answers[listing.API.key] = lambda _: next(answers)
    with _client(brokers[0]) as client:
        read = sum(b.count(metadata.API) for b in brokers)
        assert client.controller(listing.API, LIST) == NOTHING_MOVES and client.repeated
        assert sum(b.count(metadata.API) for b in brokers) >= read + 2, "anew after each"
        brokers[1].answers[listing.API.key] = lambda _: NOTHING_MOVES
        client.controller(listing.API, LIST)
        assert not client.repeated


@pytest.mark.spec("ADM-53", "ADM-55")
@pytest.mark.parametrize(
    ("code", "times"),
    [
        *((c, 3) for c in (41, 14, 5, 13, 8, 7, 89)),
        *((c, 1) for c in (3, 17, 29, 31, 35, 36, 37, 39, 42, 44, 60, 84, 85, -1)),
    ],
)
def test_only_what_may_pass_is_sent_again(brokers: list[FakeBroker], code: int, times: int) -> None:
    refused = listing.ListPartitionReassignmentsResponse(error_code=code, topics=[])
    answers = iter([refused, refused, NOTHING_MOVES])
    brokers[1].answers[listing.API.key] = lambda _: next(answers)
    with _client(brokers[0]) as client:
        answer = client.controller(listing.API, LIST, codes=lambda a: [a.error_code] if a.error_code else [])
    assert brokers[1].count(listing.API) == times
    assert answer == (NOTHING_MOVES if times > 1 else refused)


@pytest.mark.spec("ADM-10")
def test_a_request_that_a_broker_has_not_is_refused_by_name_before_it_is_sent(brokers: list[FakeBroker]) -> None:
    with _client(brokers[0]) as client:
        with pytest.raises(UnsupportedApiError) as caught:
            client.controller(elect_leaders.API, elect_leaders.ElectLeadersRequest(topics=None), least=1)
        assert str(caught.value) == "kt topics needs ElectLeaders 1; broker 2 has none"
        assert "--zookeeper" in str(caught.value.now)
        assert client.serves(create_topics.API, least=7) and not client.serves(describe_configs.API)


@pytest.mark.spec("ADM-8", "COM-5X")
def test_another_cluster_is_refused(brokers: list[FakeBroker]) -> None:
    with pytest.raises(RefusedError, match=r"--cluster-id is X, but the cluster at .* has id C; nothing was written"):
        ClusterClient([brokers[0].address], SETTINGS, cluster_id="X")
    with _client(brokers[0]) as client:
        brokers[0].cluster_id = "other"
        with pytest.raises(RefusedError, match="leads to two clusters"):
            client.refresh()
    brokers[0].cluster_id = None  # as before 0.10.1
    with pytest.raises(RefusedError, match=r"--cluster-id is C, but the cluster at .* has no id; nothing was written"):
        ClusterClient([brokers[0].address], SETTINGS, cluster_id="C")
    assert {name for broker in brokers for name, _, _ in broker.asked} == {"ApiVersions", "Metadata"}


@pytest.mark.spec("ADM-11")
@pytest.mark.parametrize("retries", [5, 0])
def test_a_connection_that_the_broker_has_ended_is_opened_again_which_is_no_retry(
    brokers: list[FakeBroker], retries: int
) -> None:
    with _client(brokers[0], settings=replace(SETTINGS, retries=retries)) as client:
        client.refresh()
        brokers[0].drop_connections()
        client.refresh()
        assert client.brokers
        client.controller(listing.API, LIST)
        brokers[1].drop_connections()
        client.controller(listing.API, LIST)
        assert not client.repeated
    assert [b.connections for b in brokers] == [2, 2, 0]
    assert brokers[1].count(listing.API) == 2


@pytest.mark.spec("ADM-53")
def test_every_other_error_is_final(brokers: list[FakeBroker]) -> None:
    told: list[int] = []
    passing = (41, 14, 5, 13, 8, 7, 89)
    final = [int(code) for code in ErrorCode if code and code not in passing] + [32_000]
    with _client(brokers[0]) as client:
        for code in final:
            refused = listing.ListPartitionReassignmentsResponse(error_code=code, topics=[])
            brokers[1].answers[listing.API.key] = lambda _, refused=refused: refused  # type: ignore[misc]
            answer = client.controller(listing.API, LIST, codes=lambda a: [a.error_code])
            told.append(answer.error_code)
    assert told == final and len(final) > 90
    assert brokers[1].count(listing.API) == len(final), "each was sent once"


@pytest.mark.spec("ADM-53")
def test_pauses_begin_with_the_backoff_and_double_up_to_a_second(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    stands_for = SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    monkeypatch.setattr(client_cluster, "time", stands_for)
    refused = listing.ListPartitionReassignmentsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, topics=[])
    answers = iter([refused] * 6 + [NOTHING_MOVES])
    brokers[1].answers[listing.API.key] = lambda _: next(answers)
    settings = ClientSettings(whole_timeout_ms=1_000_000)
    with _client(brokers[0], settings=settings) as client:
        client.controller(listing.API, LIST, codes=lambda a: [a.error_code] if a.error_code else [])
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.spec("ADM-3", "ADM-53")
def test_a_lost_connection_is_made_again_after_its_own_pause_and_pauses_grow_as_far_as_is_said(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(client_cluster, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    answers = iter([None, None, NOTHING_MOVES])
    brokers[1].answers[listing.API.key] = lambda _: next(answers)
    settings = ClientSettings(retry_backoff_ms=10, reconnect_backoff_ms=70, whole_timeout_ms=1_000_000)
    with _client(brokers[0], settings=settings) as client:
        client.controller(listing.API, LIST)
        assert pauses == [0.07, 0.07]
        pauses.clear()
        refused = listing.ListPartitionReassignmentsResponse(error_code=ErrorCode.NETWORK_EXCEPTION, topics=[])
        answers = iter([refused] * 4 + [NOTHING_MOVES])
        client.settings = replace(settings, max_backoff_ms=30)
        client.controller(listing.API, LIST, codes=lambda a: [a.error_code] if a.error_code else [])
        assert pauses == [0.01, 0.02, 0.03, 0.03]


@pytest.mark.spec("ADM-3")
@pytest.mark.parametrize(
    ("max_idle_ms", "connections"), [(0, 3), (300_000, 1), (-1, 1)], ids=["at-once", "5-min", "never"]
)
def test_a_connection_that_was_not_used_for_as_long_as_is_said_is_made_anew(
    brokers: list[FakeBroker], max_idle_ms: int, connections: int
) -> None:
    with _client(brokers[0], settings=replace(SETTINGS, max_idle_ms=max_idle_ms)) as client:
        for _ in range(3):
            client.controller(listing.API, LIST)
    assert brokers[1].connections == connections and brokers[1].count(listing.API) == 3


@pytest.mark.spec("ADM-3")
@pytest.mark.parametrize(("max_age_ms", "read"), [(0, 4), (300_000, 1)], ids=["at-once", "5-min"])
def test_metadata_older_than_is_said_is_read_anew(brokers: list[FakeBroker], max_age_ms: int, read: int) -> None:
    with _client(brokers[0], settings=replace(SETTINGS, metadata_max_age_ms=max_age_ms)) as client:
        for _ in range(3):
            client.controller(listing.API, LIST)
    assert sum(broker.count(metadata.API) for broker in brokers) == read


@pytest.mark.spec("ADM-55")
def test_who_is_told_to_wait_waits_before_the_next_request_to_that_broker_alone(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    now = time.monotonic()
    monkeypatch.setattr(client_cluster, "time", SimpleNamespace(sleep=pauses.append, monotonic=lambda: now))
    told = listing.ListPartitionReassignmentsResponse(throttle_time_ms=700, topics=[])
    answers = iter([told, NOTHING_MOVES, NOTHING_MOVES])
    brokers[1].answers[listing.API.key] = lambda _: next(answers)
    with _client(brokers[0]) as client:
        client.controller(listing.API, LIST)
        client.broker(3, listing.API, LIST)
        assert pauses == []
        client.controller(listing.API, LIST)
        assert pauses == [pytest.approx(0.7)]
        client.controller(listing.API, LIST)
        assert len(pauses) == 1, "it has waited once"


@pytest.mark.spec("ADM-55", "ADM-57")
def test_who_is_told_to_wait_for_longer_than_there_is_time_has_the_refusal_at_once(brokers: list[FakeBroker]) -> None:
    refused = listing.ListPartitionReassignmentsResponse(
        throttle_time_ms=3_600_000, error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, topics=[]
    )
    brokers[1].answers[listing.API.key] = lambda _: refused
    with _client(brokers[0], settings=replace(SETTINGS, whole_timeout_ms=1_800_000)) as client:
        assert client.controller(listing.API, LIST, codes=lambda a: [a.error_code]) == refused
    assert brokers[1].count(listing.API) == 1


@pytest.mark.spec("ADM-54")
def test_no_controller_after_a_lost_answer_does_not_mean_that_nothing_was_sent(brokers: list[FakeBroker]) -> None:
    def lost(_: object) -> None:
        for broker in brokers:
            broker.controller_id = -1

    brokers[1].answers[listing.API.key] = lost
    settings = ClientSettings(retry_backoff_ms=1, reconnect_backoff_ms=1, retries=2)
    with _client(brokers[0], settings=settings) as client:
        with pytest.raises(NoControllerError, match=r"^no controller is elected$"):
            client.controller(listing.API, LIST)
        assert client.repeated


@pytest.mark.spec("ADM-53")
def test_a_broker_that_is_not_there_is_not_waited_for(brokers: list[FakeBroker]) -> None:
    with _client(brokers[0]) as client, pytest.raises(BrokerUnreachableError, match="broker 9 is not up"):
        client.broker(9, listing.API, LIST)


@pytest.mark.spec("ADM-9", "ADM-53", "ADM-57")
def test_the_whole_time_ends_it_with_the_reason(brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes in the pauses alone: what the machine takes is no part of it."""
    pauses: list[float] = []
    stands_for = SimpleNamespace(sleep=pauses.append, monotonic=lambda: sum(pauses))
    monkeypatch.setattr(client_cluster, "time", stands_for)
    brokers[1].answers[listing.API.key] = lambda _: None
    settings = ClientSettings(retry_backoff_ms=100_000, whole_timeout_ms=550_000)
    with _client(brokers[0], settings=settings) as client:
        with pytest.raises(BrokerUnreachableError, match="closed the connection"):
            client.controller(listing.API, LIST)
        assert pauses == [100.0] * 5 and client.left_ms == 50_000, "too little for another pause"
    assert brokers[1].count(listing.API) == 6
