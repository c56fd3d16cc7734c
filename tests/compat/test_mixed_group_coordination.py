"""Offsets that groups commit in transactions, as coordination moves between brokers of ours and real ones (TXN-88)."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.creation import create_topic
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.mixed import OFFSETS, OURS, WAIT_S, Mixed, mixed_cluster
from tests.integration.load import await_in_sync
from tests.raw_transactions import RawProducer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
COORDINATED = (TRANSACTION_TOPIC, OFFSETS)


@pytest.fixture(scope="module", params=real_kafka.versions(("2.8.2", "2.3")))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    real_kafka.require(version)
    with mixed_cluster(version, protocol, tmp_path_factory.mktemp("transactions")) as cluster:
        configs = {"cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2"}
        create_topic(cluster.zk, TRANSACTION_TOPIC, {0: (OURS, 1, 2)}, configs)
        await_in_sync(cluster.zk, COORDINATED, WAIT_S)
        yield cluster


def coordinate(mixed: Mixed, broker: int, topic: str) -> None:
    """Have that broker coordinate all transactions and groups; ``topic`` is led by its preferred brokers."""
    if broker == OURS:
        for coordinated in COORDINATED:
            mixed.kt("elect", "--topic", coordinated)
    elif any(mixed.leaders(coordinated) == [OURS] for coordinated in COORDINATED):
        mixed.stop(OURS)
        mixed.start(OURS, [*COORDINATED, topic])
    mixed.kt("elect", "--topic", topic)

    def led_as_wanted() -> bool:
        ours = [mixed.leaders(coordinated) == [OURS] for coordinated in COORDINATED]
        return ours == [broker == OURS] * len(COORDINATED) and mixed.leaders(topic) == [1, OURS]

    eventually(led_as_wanted, "the leaders wanted", WAIT_S)


@pytest.mark.spec("TXN-88", "TXN-87", "TXN-86", "TXN-98", "TXN-99", "GRP-63")
@pytest.mark.parametrize(("before", "after"), [(OURS, 1), (1, OURS)], ids=["ours-theirs", "theirs-ours"])
def test_the_next_coordinator_of_groups_loads_the_commits_that_wait_for_their_marker(
    mixed: Mixed, before: int, after: int
) -> None:
    topic = f"read-{before}"
    place = TopicPartition(topic, 0)
    mixed.create(topic, {0: (1, 2, OURS), 1: (OURS, 1, 2)})
    coordinate(mixed, before, topic)

    with ExitStack() as producers:
        names = [f"{name}-{before}" for name in ("commits", "aborts", "is-replaced")]
        commits, aborts, replaced = every = [
            producers.enter_context(RawProducer(mixed.bootstrap, name, timeout_ms=600_000)) for name in names
        ]

        def commit(by: RawProducer, offset: int) -> None:
            assert by.add_offsets(by.transactional_id) == NONE
            assert by.commit_offsets(by.transactional_id, topic, {0: ""}, offset) == {0: NONE}

        def tell(by: RawProducer, *answers: tuple[int, int]) -> None:
            """Wait for the group's offset, asked for if it is stable and if it need not be."""

            def is_told() -> bool:
                return answers == tuple(by.fetch_offset(by.transactional_id, place, stable=s) for s in (True, False))

            eventually(is_told, f"{answers} of {by.transactional_id}", WAIT_S)

        for by in every:
            assert by.init() == NONE
            commit(by, 1)
            assert by.end(committed=True) == NONE
            tell(by, (NONE, 1), (NONE, 1))
            commit(by, 5)

        coordinate(mixed, after, topic)

        for by in every:
            tell(by, (UNSTABLE, -1), (NONE, 1))
        commit(commits, 6)
        assert (commits.end(committed=True), aborts.end(committed=False), replaced.init()) == (NONE, NONE, NONE)
        for by, offset in zip(every, (6, 1, 1), strict=True):
            tell(by, (NONE, offset), (NONE, offset))
