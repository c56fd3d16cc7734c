"""What leaders ask coordinators: which questions go together, and which a newer one ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from kafkatool.broker.replication.leading.verified_appends import Question, refusal
from kafkatool.broker.runtime.timer import Timer
from kafkatool.broker.transactions import verifier
from kafkatool.broker.transactions.verifier import Verifier
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import add_offsets_to_txn
from kafkatool.core.protocol.messages import add_partitions_to_txn as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import world
from tests.waiting import eventually

A, B, C = (TopicPartition("t", n) for n in range(3))
NONE, FENCED, AGAIN = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.NETWORK_EXCEPTION
Item = TypeVar("Item")


class Held(Generic[Item]):
    """``Channels`` that hold what is queued until the test lets it go, in one request."""

    made: "Held[Any]"

    def __init__(self, *args: Any) -> None:
        Held.made = self
        self._exchange, self._failed = args[-2:]
        self.queue: list[Item] = []

    def put(self, broker_id: int, item: Item) -> None:
        self.queue.append(item)

    def drop(self, unwanted: Any) -> list[Item]:
        dropped = [item for item in self.queue if unwanted(item)]
        self.queue = [item for item in self.queue if item not in dropped]
        return dropped

    def close(self) -> None: ...

    def exchange(self, peer: Any) -> None:
        now, self.queue = self.queue, []
        self._exchange(2, peer, now)

    def fail(self) -> None:
        """Have the connection break, or not come about."""
        now, self.queue = self.queue, []
        self._failed(2, now)


class Coordinator:
    """The other end, which knows partition A and B of every transaction, and notes what it was asked."""

    def __init__(self) -> None:
        self.requests: list[wire.AddPartitionsToTxnRequest] = []

    def newest(self, api: object) -> int:
        return 4

    def send(self, api: object, version: int, request: wire.AddPartitionsToTxnRequest) -> Any:
        self.requests.append(request)
        return wire.AddPartitionsToTxnResponse(
            transactions=[
                wire.AddPartitionsToTxnResponseTransaction(
                    transactional_id=t.transactional_id,
                    topics=[
                        wire.AddPartitionsToTxnResponseTopic(
                            topic=topic.topic,
                            partitions=[
                                wire.AddPartitionsToTxnResponsePartition(
                                    partition=n, error_code=NONE if n < 2 else ErrorCode.INVALID_TXN_STATE
                                )
                                for n in topic.partitions
                            ],
                        )
                        for topic in t.topics
                    ],
                )
                for t in request.transactions
            ]
        )


class Asking:
    """A verifier whose coordinator is elsewhere, and what it was told."""

    def __init__(self, made: Verifier) -> None:
        self._verifier = made
        self.channels = Held.made
        self.told: dict[str, dict[TopicPartition, int]] = {}

    def ask(
        self,
        name: str,
        epoch: int,
        *partitions: TopicPartition,
        id_: str = "id",
        group: str | None = None,
        timeout_ms: float = 60_000,
        producer_id: int = 7,
    ) -> None:
        question = Question(id_, producer_id, epoch, partitions, group)
        self._verifier.ask(question, timeout_ms, lambda answer: self.told.update({name: dict(answer)}))


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    with asker(tmp_path, monkeypatch) as made:
        yield made


@contextmanager
def asker(directory: Path, patch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Asking]:
    patch.setattr(verifier, "Channels", Held)
    timer = Timer("test-verifier")
    try:
        with world(directory, **settings) as running:
            running.know(TopicPartition(TRANSACTION_TOPIC, 0), leader=2, brokers={1: 9001, 2: 9002})

            def nobody(question: Question) -> dict[TopicPartition, int]:
                raise AssertionError("the coordinator is elsewhere")

            yield Asking(Verifier(running.config, 1, running.cache, timer, partition_of=lambda _: 0, ask_here=nobody))
    finally:
        timer.close()


def codes(*partitions: TopicPartition, code: int) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, code)


@pytest.mark.spec("TXN-78", "TXN-77")
def test_questions_of_one_transaction_about_different_partitions_go_in_one_request(asking: Asking) -> None:
    coordinator = Coordinator()
    asking.ask("first", 0, A)
    asking.ask("second", 0, B)
    asking.ask("third", 0, C)
    asking.ask("other", 0, A, id_="other")
    assert asking.told == {}
    asking.channels.exchange(coordinator)
    (request,) = coordinator.requests
    assert [(t.transactional_id, t.verify_only, [p.partitions for p in t.topics]) for t in request.transactions] == [
        ("id", True, [[0, 1, 2]]),
        ("other", True, [[0]]),
    ]
    assert asking.told == {
        "first": codes(A, code=NONE),
        "second": codes(B, code=NONE),
        "third": codes(C, code=ErrorCode.INVALID_TXN_STATE),
        "other": codes(A, code=NONE),
    }


@pytest.mark.spec("TXN-78")
def test_of_two_questions_about_a_partition_the_older_is_told_to_come_again(asking: Asking) -> None:
    asking.ask("older", 0, A, B)
    asking.ask("newer", 0, B)
    assert asking.told == {"older": codes(A, B, code=AGAIN)}
    assert refusal(AGAIN).error is ErrorCode.NOT_ENOUGH_REPLICAS
    asking.channels.exchange(Coordinator())
    assert asking.told["newer"] == codes(B, code=NONE)


@pytest.mark.spec("TXN-78")
@pytest.mark.parametrize("epochs", [(0, 1), (1, 0)], ids=["the newer is higher", "the older is higher"])
def test_of_unequal_epochs_the_lower_is_fenced_whichever_came_first(asking: Asking, epochs: Sequence[int]) -> None:
    for epoch in epochs:
        asking.ask(f"epoch {epoch}", epoch, A)
    assert asking.told == {"epoch 0": codes(A, code=FENCED)}
    assert refusal(FENCED).error is ErrorCode.INVALID_PRODUCER_EPOCH
    coordinator = Coordinator()
    asking.channels.exchange(coordinator)
    assert [t.producer_epoch for t in coordinator.requests[0].transactions] == [1]
    assert asking.told["epoch 1"] == codes(A, code=NONE)


@pytest.mark.spec("TXN-78")
@pytest.mark.parametrize("places", [(A, A), (A, B)], ids=["of a partition", "of two"])
@pytest.mark.parametrize("epochs", [(32_766, 0), (0, 5)], ids=["used up", "forgotten"])
def test_epochs_of_two_producer_ids_are_not_compared_the_older_asks_again(
    asking: Asking, epochs: tuple[int, int], places: tuple[TopicPartition, TopicPartition]
) -> None:
    asking.ask("older", epochs[0], places[0], producer_id=7)
    asking.ask("newer", epochs[1], places[1], producer_id=8)
    assert asking.told == {"older": codes(places[0], code=AGAIN)}
    coordinator = Coordinator()
    asking.channels.exchange(coordinator)
    assert [(t.producer_id, t.producer_epoch) for t in coordinator.requests[0].transactions] == [(8, epochs[1])]
    assert asking.told["newer"] == codes(places[1], code=NONE)


@pytest.mark.spec("TXN-74")
def test_who_has_no_connection_to_the_coordinator_is_told_13(asking: Asking) -> None:
    asking.ask("one", 0, A)
    asking.ask("other", 0, B, id_="other")
    asking.channels.fail()
    assert asking.told == {"one": codes(A, code=AGAIN), "other": codes(B, code=AGAIN)}


@pytest.mark.spec("TXN-77")
def test_a_question_waits_no_longer_than_its_request(asking: Asking) -> None:
    asking.ask("patient", 0, A)
    asking.ask("hasty", 0, B, timeout_ms=1)
    eventually(lambda: bool(asking.told), "the end of the wait")
    assert asking.told == {"hasty": codes(B, code=ErrorCode.REQUEST_TIMED_OUT)}
    asking.channels.exchange(Coordinator())
    assert asking.told == {"hasty": codes(B, code=ErrorCode.REQUEST_TIMED_OUT), "patient": codes(A, code=NONE)}, "once"


@pytest.mark.spec("TXN-77")
def test_nor_does_it_wait_longer_than_requests_to_brokers_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with asker(tmp_path, monkeypatch, request_timeout_ms="1") as asking:
        asking.ask("patient", 0, A, timeout_ms=3_600_000)
        eventually(lambda: bool(asking.told), "the end of the wait")
        assert asking.told == {"patient": codes(A, code=ErrorCode.REQUEST_TIMED_OUT)}


class Older:
    """A coordinator of before Kafka 3.6, which knows no verification; it notes what it is sent."""

    def __init__(self, newest: int) -> None:
        self._newest = newest
        self.sent: list[tuple[int, int, Any]] = []

    def newest(self, api: Any) -> int:
        return self._newest

    def send(self, api: Any, version: int, request: Any) -> Any:
        self.sent.append((api.key, version, request))
        if api.key == add_offsets_to_txn.API.key:
            return add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=NONE)
        partition = wire.AddPartitionsToTxnResponsePartition(partition=A.partition, error_code=FENCED)
        return wire.AddPartitionsToTxnResponse(
            topics=[wire.AddPartitionsToTxnResponseTopic(topic=A.topic, partitions=[partition])]
        )


@pytest.mark.spec("TXN-79")
@pytest.mark.parametrize("newest", range(4))
def test_a_coordinator_that_does_not_verify_is_asked_by_additions_of_the_producer_itself(
    asking: Asking, newest: int
) -> None:
    older = Older(newest)
    offsets = TopicPartition("__consumer_offsets", 3)
    asking.ask("of a log", 5, A)
    asking.ask("of a group", 5, offsets, id_="other", group="g")
    asking.channels.exchange(older)
    assert [(key, version) for key, version, _ in older.sent] == [(24, newest), (25, newest)]
    added, of_group = (request for _, _, request in older.sent)
    assert [(t.topic, t.partitions) for t in added.topics] == [(A.topic, [A.partition])]
    for request, id_ in ((added, "id"), (of_group, "other")):
        assert (request.transactional_id, request.producer_id, request.producer_epoch) == (id_, 7, 5)
    assert of_group.group_id == "g"
    assert asking.told == {"of a log": codes(A, code=FENCED), "of a group": codes(offsets, code=NONE)}


@pytest.mark.spec("TXN-74")
@pytest.mark.parametrize("code", [7, 13, 14, 15, 16, 51, -1])
def test_what_may_pass_is_repeated_by_every_client_and_says_why(code: int) -> None:
    refused = refusal(code)
    assert refused.error is ErrorCode.NOT_ENOUGH_REPLICAS
    name = ErrorCode(code).name
    why = "Unable to verify the partition has been added to the transaction. Underlying error: "
    assert refused.message == why + name


@pytest.mark.spec("TXN-74")
def test_the_other_codes_of_a_verification() -> None:
    assert {code: refusal(code).error for code in (48, 120, 49, 90)} == {48: 48, 120: 48, 49: 49, 90: 47}
    not_added = "Partition was not added to the transaction"
    assert {refusal(code).message for code in (48, 120)} == {not_added}
