"""Markers on their way to another broker, over a socket: what goes together, how often it is tried, who says it sends."""

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.handlers.call import Call, load_handlers
from kafkatool.broker.replication.leading.verified_appends import Question
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.transactions import endings
from kafkatool.broker.transactions.endings import Ending, Endings
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.broker.transactions.verifier import Verifier
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import add_partitions_to_txn as add
from kafkatool.core.protocol.messages import api_versions
from kafkatool.core.protocol.messages import write_txn_markers as wire
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint
from tests.broker.handlers.served import broker_of, handler_context
from tests.broker.replication.world import World, metadata_request, world
from tests.waiting import eventually

THERE, ALSO = TopicPartition("there", 0), TopicPartition("there", 1)


@dataclass
class OtherBroker:
    """A broker that notes each request for markers, and answers when the test says so: NONE for all."""

    asked: list[tuple[wire.WriteTxnMarkersRequest, Call]] = field(default_factory=list)

    def handle(self, request: wire.WriteTxnMarkersRequest, call: Call) -> None:
        self.asked.append((request, call))

    def answer(self, number: int) -> None:
        request, call = self.asked[number]
        call.respond(
            wire.WriteTxnMarkersResponse(
                markers=[
                    wire.WriteTxnMarkersResponseMarker(
                        producer_id=marker.producer_id,
                        topics=[
                            wire.WriteTxnMarkersResponseTopic(
                                topic=topic.topic,
                                partitions=[
                                    wire.WriteTxnMarkersResponsePartition(partition=p, error_code=0)
                                    for p in topic.partitions
                                ],
                            )
                            for topic in marker.topics
                        ],
                    )
                    for marker in request.markers
                ]
            )
        )

    def connections(self) -> list[Any]:
        """Return the connection that each request came over."""
        return [call._connection for _, call in self.asked]  # noqa: SLF001  # a handler has no use for it

    def producers(self) -> list[list[int]]:
        """Return the producers of each request."""
        return [[marker.producer_id for marker in request.markers] for request, _ in self.asked]


@dataclass
class Sender:
    """A sender of markers whose partitions are led by that other broker."""

    endings: Endings
    other: OtherBroker
    marked: list[tuple[int, Set[TopicPartition]]] = field(default_factory=list)

    def send(self, producer_id: int, *partitions: TopicPartition) -> None:
        self.endings.send(
            Ending(
                transactional_id=f"id-{producer_id}",
                partition=0,
                coordinator_epoch=3,
                identity=Identity(producer_id, 0),
                committed=True,
                partitions=frozenset(partitions),
                is_wanted=lambda: True,
                on_marked=lambda done: self.marked.append((producer_id, done)),
            )
        )


@contextmanager
def sender(
    directory: Path, patch: pytest.MonkeyPatch, *, newest: int = 1, timeout_ms: int = 60_000
) -> Iterator[Sender]:
    handlers, other = load_handlers(), OtherBroker()
    markers = replace(handlers[27], versions=(0, newest), handle=other.handle)
    known = api_versions.ApiVersionsResponseKey(api_key=27, min_version=0, max_version=newest)
    versions = replace(handlers[18], handle=lambda *_: api_versions.ApiVersionsResponse(api_keys=[known]))
    with (
        broker_of({18: versions, 27: markers}, handler_context()) as client,
        world(directory, request_timeout_ms=str(timeout_ms)) as broker,
    ):

        def at_once(_name: str, fn: Callable[[], object], *, delay_ms: float) -> None:
            fn()

        patch.setattr(broker.scheduler, "once", at_once)
        broker.know(THERE, ALSO, leader=2, brokers={1: 1, 2: client.socket.getpeername()[1]})
        unused: Any = None
        made = Endings(broker.config, 1, broker.cache, broker.scheduler, unused, find_deleted=lambda _: frozenset())
        try:
            yield Sender(made, other)
        finally:
            made.shutdown()


@pytest.mark.spec("TXN-50", "TXN-52")
@pytest.mark.parametrize("newest", [0, 1])
def test_what_is_queued_meanwhile_goes_in_the_next_request_one_entry_for_each_producer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int
) -> None:
    with sender(tmp_path, monkeypatch, newest=newest) as sending:
        other = sending.other
        sending.send(7, THERE)
        eventually(lambda: len(other.asked) == 1, "the first request")
        for producer_id, partition in ((8, THERE), (9, THERE), (8, ALSO)):
            sending.send(producer_id, partition)
        for number in range(3):
            eventually(lambda n=number: len(other.asked) == n + 1, "the next request")  # type: ignore[misc]
            other.answer(number)
        eventually(lambda: len(sending.marked) == 4, "all answers")
        assert other.producers() == [[7], [8, 9], [8]], "none beside the one under way"
        assert {call.header.api_version for _, call in other.asked} == {newest}
        assert {call.header.client_id for _, call in other.asked} == {"broker-1-txn-marker-sender"}
        assert len(set(map(id, other.connections()))) == 1
        assert sending.marked == [(7, {THERE}), (8, {THERE}), (9, {THERE}), (8, {ALSO})]


@pytest.mark.spec("TXN-50")
def test_a_request_holds_no_more_than_a_mebibyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sender(tmp_path, monkeypatch) as sending:
        assert endings._REQUEST_BYTES == 1 << 20  # noqa: SLF001
        monkeypatch.setattr(endings, "_REQUEST_BYTES", 100)
        other = sending.other
        sending.send(7, THERE)
        eventually(lambda: len(other.asked) == 1, "the first request")
        for producer_id in range(8, 13):
            sending.send(producer_id, THERE)  # 41 bytes
        for number in range(4):
            eventually(lambda n=number: len(other.asked) == n + 1, "the next request")  # type: ignore[misc]
            other.answer(number)
        eventually(lambda: len(sending.marked) == 6, "all answers")
        assert other.producers() == [[7], [8, 9], [10, 11], [12]]


@pytest.mark.spec("TXN-54")
def test_who_does_not_answer_in_time_is_connected_to_anew_and_sent_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sender(tmp_path, monkeypatch, timeout_ms=300) as sending:
        other = sending.other
        sending.send(7, THERE, ALSO)
        eventually(lambda: len(other.asked) > 1, "the second try")
        (first, _), (second, _) = other.asked[:2]
        before, after = other.connections()[:2]
        assert first == second and before is not after
        other.answer(0)  # too late: nobody is there any more, which the broker notices now
        eventually(lambda: before.closed, "the former connection to be closed")
        answered: set[int] = set()

        def is_marked() -> bool:
            newest = len(other.asked) - 1  # others may have been given up, while this process stood still
            if newest not in answered:
                answered.add(newest)
                other.answer(newest)
            return bool(sending.marked)

        eventually(is_marked, "the answer that comes in time")
        assert sending.marked == [(7, {THERE, ALSO})]


# --- several brokers, with several listeners --------------------------------------------------------------------------


@contextmanager
def listening(key: int, newest: int, handle: Callable[[Any, Call], None]) -> Iterator[int]:
    """Have another broker listen that serves this API by ``handle``; give its port."""
    handlers = load_handlers()
    known = api_versions.ApiVersionsResponseKey(api_key=key, min_version=0, max_version=newest)
    versions = replace(handlers[18], handle=lambda *_: api_versions.ApiVersionsResponse(api_keys=[known]))
    served = replace(handlers[key], versions=(0, newest), handle=handle)
    with broker_of({18: versions, key: served}, handler_context()) as client:
        port: int = client.socket.getpeername()[1]
        yield port


INNER: dict[str, Any] = {
    "listeners": "INNER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener_security_protocol_map": "INNER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter_broker_listener_name": "INNER",
}


def know(broker: World, leaders: Mapping[TopicPartition, int], ports: Mapping[int, int]) -> None:
    """Metadata: who leads these; at the other listener of each broker nobody answers."""
    for place, leader in leaders.items():
        live = [
            UpdateMetadataBroker(
                id=number,
                endpoints=[
                    UpdateMetadataEndpoint(port=at, host="127.0.0.1", listener_name=name)
                    for name, at in (("PLAINTEXT", 1), ("INNER", port))
                ],
            )
            for number, port in ports.items()
        ]
        request = replace(metadata_request([place], ports, leader), live_brokers=live)
        assert broker.manager.control.update_metadata(request).error == 0


@pytest.mark.spec("TXN-50")
def test_each_destination_has_a_queue_of_its_own_and_is_reached_at_the_listener_between_brokers(tmp_path: Path) -> None:
    second, third = OtherBroker(), OtherBroker()
    with (
        listening(27, 1, second.handle) as at_second,
        listening(27, 1, third.handle) as at_third,
        world(tmp_path, **INNER) as broker,
    ):
        know(broker, {THERE: 2, ALSO: 3}, {1: 1, 2: at_second, 3: at_third})
        unused: Any = None
        made = Endings(broker.config, 1, broker.cache, broker.scheduler, unused, find_deleted=lambda _: frozenset())
        sending = Sender(made, second)
        try:
            sending.send(7, THERE, ALSO)
            eventually(lambda: (len(second.asked), len(third.asked)) == (1, 1), "a request to each, at once")
            sending.send(8, THERE, ALSO)
            third.answer(0)
            eventually(lambda: len(third.asked) == 2, "the next to one, whose first is answered")
            third.answer(1)
            eventually(lambda: len(sending.marked) == 2, "both answers of one")
            assert sending.marked == [(7, {ALSO}), (8, {ALSO})]
            assert (second.producers(), third.producers()) == ([[7]], [[7], [8]]), "the other waits for its own"
            second.answer(0)
            eventually(lambda: len(second.asked) == 2, "the next to the other")
            second.answer(1)
            eventually(lambda: len(sending.marked) == 4, "all answers")
            assert sending.marked[2:] == [(7, {THERE}), (8, {THERE})]
            told = [marker.topics for request, _ in second.asked for marker in request.markers]
            assert [[(t.topic, t.partitions) for t in topics] for topics in told] == [[("there", [0])]] * 2
        finally:
            made.shutdown()


@pytest.mark.spec("TXN-77")
def test_questions_to_a_coordinator_share_a_connection_and_a_request_is_under_way_at_a_time(tmp_path: Path) -> None:
    asked: dict[int, list[tuple[add.AddPartitionsToTxnRequest, Call]]] = {2: [], 3: []}

    def answer(coordinator: int) -> None:
        request, call = asked[coordinator][-1]
        call.respond(
            add.AddPartitionsToTxnResponse(
                transactions=[
                    add.AddPartitionsToTxnResponseTransaction(
                        transactional_id=one.transactional_id,
                        topics=[
                            add.AddPartitionsToTxnResponseTopic(
                                topic=topic.topic,
                                partitions=[
                                    add.AddPartitionsToTxnResponsePartition(partition=p, error_code=0)
                                    for p in topic.partitions
                                ],
                            )
                            for topic in one.topics
                        ],
                    )
                    for one in request.transactions
                ]
            )
        )

    own = [TopicPartition(TRANSACTION_TOPIC, number) for number in range(2)]
    timer = Timer("test-verifier")
    with (
        listening(24, 4, lambda request, call: asked[2].append((request, call))) as at_second,
        listening(24, 4, lambda request, call: asked[3].append((request, call))) as at_third,
        world(tmp_path, **INNER) as broker,
    ):
        know(broker, {own[0]: 2, own[1]: 3}, {1: 1, 2: at_second, 3: at_third})
        made = Verifier(
            broker.config,
            1,
            broker.cache,
            timer,
            partition_of=lambda id_: int(id_.startswith("other")),
            ask_here=lambda _: pytest.fail("the coordinators are elsewhere"),
        )
        told: dict[str, dict[TopicPartition, int]] = {}

        def ask(id_: str) -> None:
            made.ask(Question(id_, 7, 0, (THERE,), None), 600_000, lambda given: told.update({id_: dict(given)}))

        try:
            ask("first")
            ask("other")
            eventually(lambda: (len(asked[2]), len(asked[3])) == (1, 1), "a question to each")
            ask("second")
            ask("third")
            answer(3)
            eventually(lambda: "other" in told, "the answer of one")
            assert (set(told), len(asked[2])) == ({"other"}, 1), "none beside the one under way"
            answer(2)
            eventually(lambda: len(asked[2]) == 2, "the next question")
            answer(2)
            eventually(lambda: len(told) == 4, "all answers")
            assert [[one.transactional_id for one in request.transactions] for request, _ in asked[2]] == [
                ["first"],
                ["second", "third"],
            ]
            assert told == {id_: {THERE: 0} for id_ in ("first", "other", "second", "third")}
            assert {call.header.client_id for calls in asked.values() for _, call in calls} == {"broker-1-txn-verifier"}
            assert len({id(call._connection) for _, call in asked[2]}) == 1  # noqa: SLF001  # a handler has no use for it
        finally:
            made.shutdown()
            timer.close()
