"""Offsets that groups commit in transactions, as coordination moves between brokers of ours and real ones (TXN-88)."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.mixed import OFFSETS, OURS, WAIT_S, Mixed
from tests.compat.mixed_coordination import BESIDE, THEIRS, coordinate, coordinated_cluster
from tests.raw_transactions import RawProducer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
COORDINATED = (TRANSACTION_TOPIC, OFFSETS)


@pytest.fixture(scope="module", params=real_kafka.versions(("2.8.2", "2.3")))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    with coordinated_cluster(version, protocol, tmp_path_factory.mktemp("transactions")) as cluster:
        yield cluster


@pytest.mark.spec("TXN-88", "TXN-87", "TXN-86", "TXN-98", "TXN-99", "GRP-63")
@pytest.mark.parametrize(("before", "after"), [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours-theirs", "theirs-ours"])
def test_the_next_coordinator_of_groups_loads_the_commits_that_wait_for_their_marker(
    mixed: Mixed, before: int, after: int
) -> None:
    topic = f"read-{before}"
    place = TopicPartition(topic, 0)
    mixed.create(topic, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
    coordinate(mixed, before, topic, coordinated=COORDINATED)

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
            assert by.lost == 0, "no broker was hurt"

        coordinate(mixed, after, topic, coordinated=COORDINATED)

        for by in every:
            tell(by, (UNSTABLE, -1), (NONE, 1))
        commit(commits, 6)
        assert (commits.end(committed=True), aborts.end(committed=False), replaced.init()) == (NONE, NONE, NONE)
        for by, offset in zip(every, (6, 1, 1), strict=True):
            tell(by, (NONE, offset), (NONE, offset))
