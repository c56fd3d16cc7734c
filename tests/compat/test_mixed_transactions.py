"""Transactions over brokers of ours and real ones, whoever leads, as coordination moves between them (TXN-98, 99)."""

from collections.abc import Iterable, Iterator, Mapping

import pytest

from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.errors import BrokerUnreachableError, UnsupportedApiError
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.transactions import Producer, producers_of
from kafkatool.core.operations.topics.configs import change_configs
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.cluster_view import read_cluster
from tests.compat import real_kafka
from tests.compat.mixed import OURS, WAIT_S, Mixed
from tests.compat.mixed_coordination import (
    ALL_TRIED,
    BESIDE,
    BOTH_WAYS,
    OWN,
    PROBE,
    THEIRS,
    Cast,
    Written,
    begin,
    both_of,
    coordinate,
    coordinated_cluster,
    hold_markers,
    hold_records,
    let_go,
    markers,
    read,
    state_of,
    stored,
    write,
    write_marker,
)
from tests.integration.isolation import values_of
from tests.integration.load import await_in_sync
from tests.raw_transactions import RawProducer
from tests.waiting import awaited, eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

NONE = ErrorCode.NONE
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
FORGETFUL = ("1.1.1", "2.0.1", "2.1.1", "2.2.2", "2.3.1")
"""Kafka before 2.4 does not know, when it has loaded a snapshot, who is in it without a batch; after its own stop, too."""


@pytest.fixture(scope="module", params=real_kafka.versions(*ALL_TRIED))
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    version, protocol = request.param
    with coordinated_cluster(version, protocol, tmp_path_factory.mktemp("transactions")) as cluster:
        yield cluster


@pytest.mark.spec("TXN-98", "TXN-99", "TXN-79", "TXN-52")
@BOTH_WAYS
def test_the_next_coordinator_goes_on_with_what_the_last_one_stored(mixed: Mixed, before: int, after: int) -> None:
    topic = f"moved-{before}"
    both = both_of(topic)
    mixed.create(topic, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
    coordinate(mixed, before, topic)
    with Cast(mixed, topic) as cast:
        empty, committing, aborting, committed, aborted, replaced = map(
            cast.producer, ("empty", "committing", "aborting", "committed", "aborted", "replaced")
        )
        for by in (committing, aborting, committed, aborted, replaced):
            begin(by, *both)
        assert (committed.end(committed=True), aborted.end(committed=False)) == (NONE, NONE)
        cast.check_none_lost()

        coordinate(mixed, after, topic)

        assert (committed.end(committed=True), aborted.end(committed=False)) == (NONE, NONE)  # repeats
        assert committed.end(committed=False) == aborted.end(committed=True) == ErrorCode.INVALID_TXN_STATE
        begin(empty, *both)
        for by in (committing, aborting):
            write(by, "second", *both)
        assert [empty.end(committed=True), committing.end(committed=True)] == [NONE, NONE]
        assert aborting.end(committed=False) == NONE
        old_epoch = replaced.epoch
        assert replaced.init() == NONE and replaced.epoch > old_epoch
        assert replaced.add(*both) == NONE
        write(replaced, "renewed", *both)
        assert replaced.end(committed=True) == NONE
    first = _texts("first", [committed, committing, empty], topic)
    wanted = sorted(first + _texts("second", [committing], topic) + _texts("renewed", [replaced], topic))
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

        cast.check_none_lost()
        for topic in (held, late):
            hold_markers(mixed, topic)
        for by, committed in (prepared | marked).items():
            assert by.end(committed=committed) == NONE
        waiting = {fenced: cast.later(fenced.init)}
        wanted = {by: PREPARE_COMMIT if committed else PREPARE_ABORT for by, committed in (prepared | marked).items()}
        wanted[fenced] = PREPARE_ABORT
        eventually(lambda: all(state_of(mixed, before, by) is state for by, state in wanted.items()), "Prepare", WAIT_S)
        assert stored(mixed, before)[fenced.transactional_id].epoch == old_epochs[fenced] + 1
        left = cast.producer("left", timeout_ms=60_000)
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
            asking = cast.impatient(by)
            eventually(
                lambda a=asking, c=committed: a.end(committed=c) == ErrorCode.CONCURRENT_TRANSACTIONS,  # type: ignore[misc]
                "the next one to have loaded it",
                WAIT_S,
            )
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
        _await_complete(mixed, after, [*prepared, *marked, added, committing, aborting, given, *old_epochs])
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
    mixed.reign(after)  # one of Kafka 2.0 that follows a dead one leaves that in the ISRs: of idle partitions for good
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
            assert not {by.transactional_id: by.codes for by, one in waiting.items() if one.done()}
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


@pytest.mark.spec("TXN-99", "TXN-100", "TXN-59", "TXN-53", "TXN-79", "TXN-72")
@BOTH_WAYS
def test_leaders_of_both_kinds_judge_markers_alike_and_either_coordinator_goes_by_their_codes(
    mixed: Mixed, before: int, after: int
) -> None:
    topic, old = (f"{name}-{before}" for name in ("judged", "old-format"))
    mixed.create(topic, {0: (THEIRS, BESIDE, OURS), 1: (OURS, THEIRS, BESIDE)})
    mixed.create(old, {0: (THEIRS, BESIDE), 1: (OURS, BESIDE)}, configs={"message.format.version": "0.10.2"})
    coordinate(mixed, before, topic, old)
    _check_codes(mixed, topic, old)
    epoch = read_cluster(mixed.zk, [TRANSACTION_TOPIC]).states[OWN].leader_and_isr.leader_epoch
    led = list(zip((THEIRS, OURS), both_of(topic), strict=True))
    with Cast(mixed, f"judged-{before}") as cast:
        stale, outdone, control, unwritable = map(cast.producer, ("stale", "outdone", "control", "unwritable"))
        for leader, place in led:
            assert write_marker(mixed, leader, place, (stale.producer_id, stale.epoch), epoch + 1) == NONE
        for by in (stale, outdone):
            begin(by, *both_of(topic))
        for leader, place in led:
            assert write_marker(mixed, leader, place, (outdone.producer_id, outdone.epoch + 1), epoch) == NONE
            assert outdone.send(place, "of an old epoch") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert [stale.end(committed=True), outdone.end(committed=True)] == [NONE, NONE]

        # What comes after them, at the same leaders.
        assert unwritable.add(*both_of(topic), *both_of(old)) == NONE
        write(unwritable, "first", *both_of(topic))
        codes = [unwritable.send(place, "lost") for place in both_of(old)]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
        assert unwritable.end(committed=True) == NONE
        begin(control, *both_of(topic))
        assert control.end(committed=True) == NONE
        done = [unwritable, control] + [outdone] * (before == OURS)
        _await_complete(mixed, before, done)
        assert state_of(mixed, before, stale) is PREPARE_COMMIT, "refused, as if it came from a former coordinator"
        if before == THEIRS:
            assert state_of(mixed, before, outdone) is PREPARE_COMMIT, "Kafka gives up until the next load"
        if before == OURS:
            said = (mixed.ours.directory / "broker.out").read_text()
            for place in both_of(old):
                assert f"{unwritable.transactional_id}: no marker for {place}: UNSUPPORTED_FOR_MESSAGE_FORMAT" in said
        for leader, place in led:
            only = [Written(stale.epoch, False, epoch + 1)]
            assert markers(mixed, leader, place, stale.producer_id) == only

        theirs, ours = both_of(topic)
        assert control.send(theirs, "late") == NONE, "Kafka before 3.6 asks nobody"
        assert state_of(mixed, before, control) is TransactionState.COMPLETE_COMMIT
        if before == OURS:
            assert control.send(ours, "late") == ErrorCode.INVALID_TXN_STATE
        else:  # a coordinator that can only be asked by adding the partition: it will end what it began
            assert control.send(ours, "late") == NONE
            assert state_of(mixed, before, control) is TransactionState.ONGOING
        _check_producers_told(mixed, control, topic)
        assert control.add(*both_of(topic)) == NONE
        assert control.end(committed=False) == NONE

        coordinate(mixed, after, topic, old)

        _await_complete(mixed, after, [*done, stale] + [outdone] * (after == OURS))
        for leader, place in led:
            last = markers(mixed, leader, place, stale.producer_id)[-1]
            assert last[:2] == (stale.epoch, True) and last.coordinator_epoch > epoch
        wanted = sorted(_texts("first", [stale, unwritable, control], topic))
        assert read(mixed, topic) == wanted


def _check_producers_told(mixed: Mixed, by: RawProducer, topic: str) -> None:
    """Check that both leaders know the producer; the older Kafka does not tell (KIP-664)."""
    theirs, ours = both_of(topic)
    by.client.begin_anew()
    (known,) = (p for p in producers_of(by.client, [ours])[0] if p.producer_id == by.producer_id)
    if _is_old(mixed):
        with pytest.raises(UnsupportedApiError, match="DescribeProducers"):
            producers_of(by.client, [theirs])
        return
    (told,) = (p for p in producers_of(by.client, [theirs])[0] if p.producer_id == by.producer_id)
    assert told.start_offset is not None, "the late batch has begun a transaction there that nobody knows of"
    assert (told.producer_epoch, told.coordinator_epoch) == (known.producer_epoch, known.coordinator_epoch)


def _is_old(mixed: Mixed) -> bool:
    """Tell whether it is one that takes markers in version 0 alone, and does not tell of producers."""
    return not mixed.real.version.startswith("2.8.")


def _await_complete(mixed: Mixed, broker: int, producers: Iterable[RawProducer]) -> None:
    for by in producers:
        eventually(
            lambda one=by: state_of(mixed, broker, one) in COMPLETE,  # type: ignore[misc]
            f"the end of {by.transactional_id}",
            WAIT_S,
        )


def _check_codes(mixed: Mixed, topic: str, old: str) -> None:
    """Hold the leaders' answers to markers against the codes wanted, in each version that there is."""
    for version in (0,) if _is_old(mixed) else (0, 1):
        for number, (leader, other) in enumerate(((THEIRS, OURS), (OURS, THEIRS))):
            _check_codes_of(mixed, topic, old, version, leader, other, number)


def _check_codes_of(mixed: Mixed, topic: str, old: str, version: int, leader: int, other: int, number: int) -> None:
    def write(broker: int, name: str, producer_epoch: int, coordinator_epoch: int) -> int:
        who = (PROBE + 1 + version, producer_epoch)
        return write_marker(mixed, broker, TopicPartition(name, number), who, coordinator_epoch, version=version)

    assert [write(leader, topic, 3, 5), write(leader, topic, 3, 5)] == [NONE, NONE]
    assert write(leader, topic, 3, 4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write(leader, topic, 2, 5) == write(leader, topic, 2, 4) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(leader, topic, 4, 5) == NONE
    assert write(other, topic, 4, 5) == ErrorCode.NOT_LEADER_FOR_PARTITION
    assert write(leader, "nowhere", 4, 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write(leader, old, 4, 5) == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.spec("TXN-98", "TXN-64", "TXN-65", "TXN-66", "TXN-92")
def test_each_kind_goes_on_from_the_snapshots_and_transaction_indexes_that_the_other_left(mixed: Mixed) -> None:
    """Partitions without another replica; a clean stop, so that neither makes them anew from the log."""
    on_ours, on_theirs = TopicPartition("alone-ours", 0), TopicPartition("alone-theirs", 0)
    mixed.create(on_ours.topic, {0: (OURS,)}, min_in_sync=1)
    mixed.create(on_theirs.topic, {0: (BESIDE,)}, min_in_sync=1)
    with Cast(mixed, "alone") as cast:
        stories = {place: Story(mixed, cast, broker, place) for place, broker in ((on_ours, OURS), (on_theirs, BESIDE))}

        mixed.stop(OURS)
        with mixed.theirs_on_ours():
            mixed.real.start_broker(OURS)
            await_in_sync(mixed.zk, [on_ours.topic], WAIT_S)
            stories[on_ours].go_on()
            mixed.real.stop_broker(OURS)
        mixed.await_gone(OURS)
        mixed.start(OURS, [TRANSACTION_TOPIC, on_ours.topic])
        stories[on_ours].is_as_it_was_left()

        mixed.stop(BESIDE)
        with mixed.ours_on_theirs(BESIDE) as second:
            await_in_sync(mixed.zk, [on_theirs.topic], WAIT_S)
            stories[on_theirs].go_on()
            second.stop()
        mixed.await_gone(BESIDE)
        mixed.start(BESIDE, [TRANSACTION_TOPIC, on_theirs.topic])
        stories[on_theirs].is_as_it_was_left()


class Story:
    """One partition with a committed, an aborted and an open transaction, and one aborted by a later coordinator's marker.

    And a producer known by a marker alone, where Kafka does not forget those.
    """

    def __init__(self, mixed: Mixed, cast: Cast, broker: int, place: TopicPartition) -> None:
        self._mixed = mixed
        self._broker = broker
        self._place = place
        names = [f"{name}-{broker}" for name in ("aborted", "committed", "marked", "open")]
        aborted, committed, marked, self._open = map(cast.producer, names)
        assert marked.init() == NONE and marked.epoch > 0
        for by in (aborted, committed, marked):
            begin(by, place)
            assert by.end(committed=by is committed) == NONE
            eventually(lambda one=by: bool(markers(mixed, broker, place, one.producer_id)), "a marker", WAIT_S)  # type: ignore[misc]
        self._markers = {(marked.producer_id, marked.epoch): 1000}
        if mixed.real.version not in FORGETFUL:
            self._markers[PROBE + 10, 3] = 5
        self._ended = dict.fromkeys(
            [*((by.producer_id, by.epoch) for by in (aborted, committed)), *self._markers], False
        )
        self._seen = [f"first of {committed.transactional_id} in {place}"]
        begin(self._open, place)
        for who, epoch in self._markers.items():
            assert write_marker(mixed, broker, place, who, epoch) == NONE
        self._known = self._check_told(broker == OURS, is_open=True)
        assert self._read() == self._seen

    def _check_told(self, by_ours: bool, *, is_open: bool) -> list[Producer]:
        """Check and return what the leader, ours or theirs, tells of the producers: nothing, if it is an older Kafka."""
        found = self._told()
        told = {(one.producer_id, one.producer_epoch): one.start_offset is not None for one in found}
        wanted = self._ended | {(self._open.producer_id, self._open.epoch): is_open}
        assert told == (wanted if by_ours or not _is_old(self._mixed) else {})
        return found

    def _told(self) -> list[Producer]:
        """Ask the leader, once all brokers have been told who that is."""

        def told() -> list[Producer] | None:
            self._open.client.begin_anew()
            try:
                found, failed = producers_of(self._open.client, [self._place])
            except UnsupportedApiError:
                return []
            except BrokerUnreachableError:
                return None
            return None if failed else found

        return awaited(told, f"the leader of {self._place} to tell of its producers", WAIT_S)

    def _read(self) -> list[str]:
        return values_of(self._mixed, self._place.topic, "read_committed")

    def _check_fenced(self) -> None:
        for (producer, producer_epoch), epoch in self._markers.items():
            refuse = [((producer, producer_epoch), epoch - 1), ((producer, producer_epoch - 1), epoch)]
            codes = [write_marker(self._mixed, self._broker, self._place, who, number) for who, number in refuse]
            assert codes == [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]

    def go_on(self) -> None:
        """Check that the same is known by whoever leads it now, and end the open transaction."""
        known = self._check_told(self._broker != OURS, is_open=True)
        assert known == self._known or _is_old(self._mixed)
        assert self._read() == self._seen
        self._check_fenced()
        texts = [f"{text} of {self._open.transactional_id} in {self._place}" for text in ("first", "second")]
        assert self._open.send(self._place, texts[0], sequence=0) == NONE, "a repeat"
        assert self._open.send(self._place, "lost", sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert self._open.send(self._place, texts[1], sequence=1) == NONE
        assert self._open.end(committed=True) == NONE
        self._seen += texts
        eventually(lambda: self._read() == self._seen, "the open transaction to be committed", WAIT_S)

    def is_as_it_was_left(self) -> None:
        """Check that whoever led it at first goes on from what the other one left in its turn."""
        self._check_told(self._broker == OURS, is_open=False)
        assert self._read() == self._seen
        self._check_fenced()
