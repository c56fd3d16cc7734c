"""Transactions over brokers of ours and real ones, whoever leads, as coordination moves between them (TXN-98, 99)."""

from collections.abc import Callable, Iterator

import pytest

from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.mixed import OURS, WAIT_S, Mixed, mixed_cluster
from tests.integration.load import await_in_sync
from tests.integration.test_transactions import values_of
from tests.raw_transactions import RawProducer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

NONE = ErrorCode.NONE


@pytest.fixture(scope="module", params=real_kafka.versions(("2.8.2", "2.3")))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    real_kafka.require(version)
    with mixed_cluster(version, protocol, tmp_path_factory.mktemp("transactions")) as cluster:
        configs = {"cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2"}
        create_topic(cluster.zk, TRANSACTION_TOPIC, {0: (OURS, 1, 2)}, configs)
        await_in_sync(cluster.zk, [TRANSACTION_TOPIC], WAIT_S)
        yield cluster


def coordinate(mixed: Mixed, broker: int, topic: str) -> None:
    """Have that broker coordinate all transactions; the partitions of ``topic`` are led by their preferred brokers."""
    if broker == OURS:
        mixed.kt("elect", "--topic", TRANSACTION_TOPIC)
    elif mixed.leaders(TRANSACTION_TOPIC) == [OURS]:
        mixed.stop(OURS)
        mixed.start(OURS, [TRANSACTION_TOPIC, topic])
    mixed.kt("elect", "--topic", topic)
    eventually(
        lambda: (mixed.leaders(TRANSACTION_TOPIC) == [OURS]) == (broker == OURS) and mixed.leaders(topic) == [1, OURS],
        "the leaders wanted",
        WAIT_S,
    )


@pytest.mark.spec("TXN-98", "TXN-99", "TXN-79", "TXN-52")
@pytest.mark.parametrize(("before", "after"), [(OURS, 1), (1, OURS)], ids=["ours-theirs", "theirs-ours"])
def test_the_next_coordinator_goes_on_with_what_the_last_one_stored(mixed: Mixed, before: int, after: int) -> None:
    topic = f"moved-{before}"
    theirs, ours = TopicPartition(topic, 0), TopicPartition(topic, 1)
    mixed.create(topic, {0: (1, 2, OURS), 1: (OURS, 1, 2)})
    coordinate(mixed, before, topic)
    wanted: list[str] = []
    producers: list[RawProducer] = []

    def producer(name: str) -> RawProducer:
        made = RawProducer(mixed.bootstrap, f"{name}-{before}")
        producers.append(made)
        assert made.init() == NONE
        return made

    def write(by: RawProducer, text: str) -> None:
        for place in (theirs, ours):
            assert by.send(place, f"{text}-{place.partition}") == NONE

    def begin(by: RawProducer, text: str) -> None:
        assert by.add(theirs, ours) == NONE
        write(by, text)

    try:
        empty, committing, aborting, committed, aborted, replaced = map(
            producer, ("empty", "committing", "aborting", "committed", "aborted", "replaced")
        )
        for by in (committing, aborting, committed, aborted, replaced):
            begin(by, f"first of {by.transactional_id}")
        assert (committed.end(committed=True), aborted.end(committed=False)) == (NONE, NONE)

        coordinate(mixed, after, topic)

        assert (committed.end(committed=True), aborted.end(committed=False)) == (NONE, NONE)  # repeats
        assert committed.end(committed=False) == aborted.end(committed=True) == ErrorCode.INVALID_TXN_STATE
        begin(empty, "after the move")
        for by in (committing, aborting):
            write(by, f"second of {by.transactional_id}")
        assert [empty.end(committed=True), committing.end(committed=True)] == [NONE, NONE]
        assert aborting.end(committed=False) == NONE
        old_epoch = replaced.epoch
        assert replaced.init() == NONE and replaced.epoch > old_epoch
        begin(replaced, "a new one of the id")
        assert replaced.end(committed=True) == NONE
        texts = [
            f"first of {committed.transactional_id}",
            f"first of {committing.transactional_id}",
            f"second of {committing.transactional_id}",
            "after the move",
            "a new one of the id",
        ]
        wanted = sorted(f"{text}-{partition}" for text in texts for partition in (0, 1))
    finally:
        for by in producers:
            by.client.close()
    read: Callable[[], bool] = lambda: sorted(values_of(mixed, topic, "read_committed", 2)) == wanted  # noqa: E731
    eventually(read, "what was committed, and nothing else, in both partitions", WAIT_S)
