"""Transactional ids that one coordinator has let expire are unknown to the next one, of the other kind (TXN-98)."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.mixed import OURS, WAIT_S, Mixed
from tests.compat.mixed_coordination import (
    BESIDE,
    BOTH_WAYS,
    THEIRS,
    TRIED,
    Cast,
    begin,
    both_of,
    coordinate,
    coordinated_cluster,
    read,
    records,
    state_of,
    write,
)
from tests.raw_transactions import RawProducer
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

NONE = ErrorCode.NONE
EXPIRING: Final = {
    "transactional.id.expiration.ms": "30000",  # longer than a busy machine takes from one request to the next
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture(scope="module", params=real_kafka.versions(*TRIED))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    with coordinated_cluster(version, protocol, tmp_path_factory.mktemp("expiry")) as cluster:
        yield cluster


@pytest.mark.spec("TXN-98", "TXN-47", "TXN-9")
@BOTH_WAYS
def test_ids_that_one_coordinator_let_expire_are_new_to_the_next(mixed: Mixed, before: int, after: int) -> None:
    """Only the former one lets ids expire so soon: what the next one does not know, it has read of."""
    topic = f"expired-{before}"
    both = both_of(topic)
    mixed.create(topic, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
    coordinate(mixed, before, topic)
    with mixed.told(before, EXPIRING, [TRANSACTION_TOPIC, topic]), Cast(mixed, topic) as cast:
        coordinate(mixed, before, topic)
        ongoing = cast.producer("ongoing")
        begin(ongoing, *both)
        empty, committed, aborted = expiring = [cast.producer(name) for name in ("empty", "committed", "aborted")]
        for by in (committed, aborted):
            begin(by, *both)
            assert by.end(committed=by is committed) == NONE
        eventually(lambda: not any(state_of(mixed, before, by) for by in expiring), "their tombstones", WAIT_S)

        coordinate(mixed, after, topic)

        for by in expiring:
            assert by.end(committed=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        names = {by.transactional_id for by in expiring}
        tombstones = Counter(key for key, value in records(mixed, after) if value is None and key in names)
        assert tombstones == dict.fromkeys(names, 1), "the next one has let none expire"
        for by in expiring:
            former = by.producer_id
            assert by.init() == NONE
            assert by.producer_id != former and by.epoch == 0
            assert by.add(*both) == NONE
            write(by, "anew", *both)
            assert by.end(committed=True) == NONE
        write(ongoing, "second", *both)
        assert ongoing.end(committed=True) == NONE
        told: list[tuple[str, RawProducer]] = [("first", committed), ("first", ongoing), ("second", ongoing)]
        told += [("anew", by) for by in (empty, committed, aborted)]
        wanted = sorted(f"{text} of {by.transactional_id} in {place}" for text, by in told for place in both)
        eventually(lambda: read(mixed, topic) == wanted, "what was committed, and nothing else", WAIT_S)
