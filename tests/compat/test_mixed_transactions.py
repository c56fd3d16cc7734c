"""Transactions over brokers of ours and real ones, whoever leads, as coordination moves between them (TXN-98, 99)."""

from collections.abc import Iterable, Iterator, Mapping

import pytest

from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.topics.configs import change_configs
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.compat import real_kafka
from tests.compat.mixed import OURS, WAIT_S, Mixed, mixed_cluster
from tests.compat.mixed_coordination import (
    BESIDE,
    THEIRS,
    Cast,
    begin,
    both_of,
    coordinate,
    create_transaction_topic,
    hold_markers,
    hold_records,
    let_go,
    markers,
    read,
    state_of,
    stored,
    write,
)
from tests.raw_transactions import RawProducer
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

NONE = ErrorCode.NONE
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.fixture(scope="module", params=real_kafka.versions(("2.8.2", "2.3")))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    real_kafka.require(version)
    with mixed_cluster(version, protocol, tmp_path_factory.mktemp("transactions"), LASTING) as cluster:
        create_transaction_topic(cluster)
        yield cluster


BOTH_WAYS = pytest.mark.parametrize(
    ("before", "after"), [(OURS, THEIRS), (THEIRS, OURS)], ids=["ours-theirs", "theirs-ours"]
)


@pytest.mark.spec("TXN-98", "TXN-99", "TXN-79", "TXN-52")
@BOTH_WAYS
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
    eventually(lambda: read(mixed, topic) == wanted, "what was committed, and nothing else, in both partitions", WAIT_S)


def _texts(text: str, producers: Iterable[RawProducer], topic: str) -> list[str]:
    return [f"{text} of {by.transactional_id} in {place}" for by in producers for place in both_of(topic)]


def _check_markers(mixed: Mixed, ends: Mapping[RawProducer, bool], topic: str, *, again: bool) -> None:
    """Check that all have one outcome there: by the next coordinator, or by each, the next one's epoch being higher."""
    for by, committed in ends.items():
        for leader, place in zip((THEIRS, OURS), both_of(topic), strict=True):
            found = markers(mixed, leader, place, by.producer_id)
            assert {(one.epoch, one.committed) for one in found} == {(by.epoch, committed)}, (
                by.transactional_id,
                place,
            )
            epochs = sorted({one.coordinator_epoch for one in found})
            assert len(epochs) == 1 + again and epochs[-1] == found[-1].coordinator_epoch, (by.transactional_id, place)


def _waits(by: RawProducer) -> bool:
    """Tell whether it was answered that its record cannot be stored."""
    return ErrorCode.COORDINATOR_NOT_AVAILABLE in by.codes


@pytest.mark.spec("TXN-98", "TXN-99", "TXN-95", "TXN-104", "TXN-53", "TXN-61")
@BOTH_WAYS
def test_the_next_coordinator_finishes_what_the_last_one_could_not_store_or_not_have_marked(
    mixed: Mixed, before: int, after: int
) -> None:
    free, held, late = (f"{name}-{before}" for name in ("free", "held", "late"))
    for topic in (free, held, late):
        mixed.create(topic, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
    coordinate(mixed, before, free, held, late)
    with Cast(mixed, f"held-up-{before}") as cast:
        probe = cast.without_identity("probe", patient=False)
        prepared = {cast.producer("prepared-commit"): True, cast.producer("prepared-abort"): False}
        marked = {cast.producer("marked-commit"): True, cast.producer("marked-abort"): False}
        fenced, given = cast.producer("fenced"), cast.without_identity("given")
        renewed, replaced, added, committing, aborting = map(
            cast.producer, ("renewed", "replaced", "added", "committing", "aborting")
        )
        for by in (*prepared, fenced):
            begin(by, *both_of(free), *both_of(held))
        for by in marked:
            begin(by, *both_of(free), *both_of(late))
        for by in (replaced, committing, aborting):
            begin(by, *both_of(free))
        assert added.add(both_of(free)[0]) == NONE
        old_epochs = {by: by.epoch for by in (fenced, renewed, replaced)}

        for topic in (held, late):
            hold_markers(mixed, topic)
        for by, committed in (prepared | marked).items():
            assert by.end(committed=committed) == NONE
        waiting = {fenced: cast.later(fenced.init)}
        wanted = {by: PREPARE_COMMIT if committed else PREPARE_ABORT for by, committed in (prepared | marked).items()}
        wanted[fenced] = PREPARE_ABORT
        eventually(lambda: all(state_of(mixed, before, by) is state for by, state in wanted.items()), "Prepare", WAIT_S)
        assert stored(mixed, before)[fenced.transactional_id].epoch == old_epochs[fenced] + 1
        left = cast.producer("left", timeout_ms=15_000)
        begin(left, *both_of(free))
        hold_records(mixed, probe)
        waiting |= {by: cast.later(by.init) for by in (given, renewed, replaced)}
        waiting[added] = cast.later(lambda: added.add(both_of(free)[1]))
        waiting[committing] = cast.later(lambda: committing.end(committed=True))
        waiting[aborting] = cast.later(lambda: aborting.end(committed=False))
        eventually(lambda: all(_waits(by) for by in waiting if by is not fenced), "all to be refused", WAIT_S)
        let_go(mixed, late)

        def is_marked(place: TopicPartition) -> bool:
            return all(markers(mixed, before, place, by.producer_id) for by in marked)

        eventually(lambda: all(map(is_marked, both_of(late))), "the markers whose end is not stored", WAIT_S)
        log = stored(mixed, before)
        wanted |= dict.fromkeys((replaced, added, committing, aborting, left), TransactionState.ONGOING)
        assert {by: log[by.transactional_id].state for by in wanted} == wanted
        assert given.transactional_id not in log and log[renewed.transactional_id].epoch == old_epochs[renewed]
        assert not any(one.done() for one in waiting.values())

        coordinate(mixed, after, free, held, late)

        assert stored(mixed, after) == log, "nothing can be stored yet, by the next one either"
        for by, committed in prepared.items():
            assert cast.impatient(by).end(committed=committed) == ErrorCode.CONCURRENT_TRANSACTIONS
        for topic in (held, TRANSACTION_TOPIC):
            let_go(mixed, topic)
        assert {by: one.result() for by, one in waiting.items()} == dict.fromkeys(waiting, NONE)
        write(added, "first", *both_of(free))
        assert added.end(committed=True) == NONE
        for by, committed in (prepared | marked).items():
            assert (by.end(committed=committed), by.end(committed=not committed)) == (NONE, ErrorCode.INVALID_TXN_STATE)
        for by, epoch in old_epochs.items():
            assert by.epoch > epoch and cast.impatient(by, epoch).end(committed=True) in FENCED
        for by in (given, *old_epochs):
            begin(by, *both_of(free))
            assert by.end(committed=True) == NONE
        eventually(lambda: state_of(mixed, after, left) is TransactionState.COMPLETE_ABORT, "the timeout", WAIT_S)
        assert left.end(committed=True) in FENCED
        _check_markers(mixed, prepared | marked, free, again=True)
        _check_markers(mixed, prepared, held, again=False)
        _check_markers(mixed, marked, late, again=True)
        (prepared_commit, _), (marked_commit, _) = prepared, marked
        once = [prepared_commit, marked_commit, added, committing, given, *old_epochs]
        assert read(mixed, free) == sorted(_texts("first", once, free))
        assert read(mixed, held) == sorted(_texts("first", [prepared_commit], held))
        assert read(mixed, late) == sorted(_texts("first", [marked_commit], late))


@pytest.mark.spec("TXN-98", "TXN-95", "TXN-104")
@BOTH_WAYS
def test_the_next_coordinator_goes_on_with_a_record_that_nobody_was_told_of(
    mixed: Mixed, before: int, after: int
) -> None:
    """The third replica stands still, so that each record is in the successor's log and not acknowledged: then kill -9."""
    topic, held = (f"{name}-{before}" for name in ("killed", "completed"))
    mixed.create(topic, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
    mixed.create(held, {0: (THEIRS, OURS), 1: (OURS, THEIRS)}, min_in_sync=1)
    coordinate(mixed, before, topic, held)
    with Cast(mixed, f"killed-{before}") as cast:
        given, renewed = cast.without_identity("given"), cast.producer("renewed")
        added, committing, aborting, fenced, completed, beginning = map(
            cast.producer, ("added", "committing", "aborting", "fenced", "completed", "beginning")
        )
        for by in (committing, aborting, fenced):
            begin(by, *both_of(topic))
        begin(completed, *both_of(held))
        assert added.add(both_of(topic)[0]) == NONE
        old_epochs = {by: by.epoch for by in (renewed, fenced)}
        hold_markers(mixed, held)
        assert completed.end(committed=True) == NONE

        with mixed.standing_still(BESIDE):
            waiting = {
                given: cast.later(given.init),
                renewed: cast.later(renewed.init),
                fenced: cast.later(fenced.init),
                beginning: cast.later(lambda: beginning.add(*both_of(topic))),
                added: cast.later(lambda: added.add(*both_of(topic))),
                committing: cast.later(lambda: committing.end(committed=True)),
                aborting: cast.later(lambda: aborting.end(committed=False)),
            }
            change_configs(mixed.zk, held, {"min.insync.replicas": "1"})

            def is_there() -> bool:
                log = {by: stored(mixed, after).get(by.transactional_id) for by in (*waiting, completed)}
                return [one and (one.state, one.epoch, len(one.partitions)) for one in log.values()] == [
                    (TransactionState.EMPTY, 0, 0),
                    (TransactionState.EMPTY, old_epochs[renewed] + 1, 0),
                    (PREPARE_ABORT, old_epochs[fenced] + 1, 2),
                    (TransactionState.ONGOING, 0, 2),
                    (TransactionState.ONGOING, 0, 2),
                    (PREPARE_COMMIT, 0, 2),
                    (PREPARE_ABORT, 0, 2),
                    (TransactionState.COMPLETE_COMMIT, 0, 0),
                ]

            eventually(is_there, "the records in the successor's log", WAIT_S)
            assert not any(one.done() for one in waiting.values())
            mixed.crash(before)
        mixed.await_gone(before)
        assert {by: one.result() for by, one in waiting.items()} == dict.fromkeys(waiting, NONE)
        assert completed.end(committed=True) == NONE
        assert (completed.end(committed=False), aborting.end(committed=True)) == (ErrorCode.INVALID_TXN_STATE,) * 2
        for by, epoch in old_epochs.items():
            assert by.epoch > epoch and cast.impatient(by, epoch).end(committed=True) in FENCED
        mixed.start(before, [TRANSACTION_TOPIC, topic, held])
        for by in (given, renewed, fenced):
            assert by.add(*both_of(topic)) == NONE
        done = [given, renewed, fenced, beginning, added]
        for by in done:
            write(by, "first", *both_of(topic))
            assert by.end(committed=True) == NONE
        wanted = sorted(_texts("first", [*done, committing], topic))
        eventually(lambda: read(mixed, topic) == wanted, "what was committed, and nothing else", WAIT_S)
        assert read(mixed, held) == sorted(_texts("first", [completed], held))
