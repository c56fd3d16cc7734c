"""What a coordinator does beside requests: loads in pieces, damaged records, ids that expire, records that fail."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.transactions import coordinator as coordinators
from kafkatool.broker.transactions import decisions
from kafkatool.broker.transactions.owned import OwnedTransactions
from kafkatool.broker.transactions.records import encode_key, encode_value
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Identity, Transaction
from kafkatool.broker.transactions.writer import answer_for
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch, iter_batches
from tests.broker.replication.world import follower, world
from tests.broker.storage.logs import everything
from tests.broker.transactions.stage import HERE, HOUR_MS, OWN, THERE, Mortal, Stage, stage
from tests.waiting import eventually

NONE, LOADING = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
UNKNOWN = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with stage(tmp_path, monkeypatch) as made:
        yield made


def write(on: Stage, *records: tuple[bytes, bytes | None], timestamp: int = 0) -> None:
    """Write to the coordinator's partition what a former coordinator wrote."""
    made = [Record(i, timestamp, key, value) for i, (key, value) in enumerate(records)]
    on.world.partition(OWN).log.append_as_leader(encode_batch(made), 0, origin_client=False)
    on.world.partition(OWN).high_watermark = on.world.partition(OWN).log.end
    on.world.partition(OWN).log.high_watermark = on.world.partition(OWN).log.log_end_offset


def stored(timeout_ms: int = 60_000) -> bytes:
    return encode_value(Transaction(producer_id=7, epoch=0, timeout_ms=timeout_ms, update_ms=0))


@pytest.mark.spec("TXN-1")
def test_the_partitions_of_the_requirement() -> None:
    wanted = {
        "t": 16,
        "txn-1": 10,
        "my-transactional-id": 46,
        "app-0_1": 28,
        "gültig": 39,
        "😀": 49,
        "polygenelubricants": 0,
    }
    assert {id_: partition_for(id_, 50) for id_ in wanted} == wanted


@pytest.mark.spec("TXN-1")
def test_the_number_of_partitions_is_the_topics_or_that_of_the_setting_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with world(tmp_path, transaction_state_log_num_partitions="7") as broker:

        def known(*counted: int | None) -> OwnedTransactions:
            """Make the ids of a broker whose ZooKeeper tells these numbers, one at each question."""
            left, unused = list(counted), lambda *_: None
            made = OwnedTransactions(
                broker.config,
                broker.manager,
                broker.cache,
                broker.scheduler,
                count_partitions=lambda: left.pop(0),
                now_ms=lambda: 0,
                on_loaded=unused,
                on_lost=unused,
            )
            made.count.startup()
            return made

        young, beside = known(None, 50), known(50)
        assert (young.count.get(), young.count.partition_of("t")) == (7, partition_for("t", 7)), "there is no topic"
        assert (beside.count.get(), beside.count.partition_of("t")) == (50, 16), "the topic's, whatever is set"
        broker.know(*(TopicPartition(OWN.topic, number) for number in range(50)))
        assert [young.count.get() for _ in range(2)] == [50, 50], "once it is seen, asked once"
        assert young.find("t")[0] is ErrorCode.NOT_COORDINATOR and young.partitions.begin_load(16, 1)
        assert young.find("t")[0] is LOADING, "where its records are looked for"
        broker.know(*(TopicPartition(OWN.topic, number) for number in range(60)))
        assert [young.count.get() for _ in range(2)] == [50, 50]
        (line,) = [r.getMessage() for r in caplog.records if "partitions" in r.getMessage()]
        assert "from 50 to 60 partitions" in line and "restarted" in line
        assert known(60).count.get() == 60, "a restart counts again"


@pytest.mark.spec("TXN-9")
@pytest.mark.parametrize("size", [1, 200, 1 << 20])
def test_a_load_reads_in_pieces_the_later_record_wins_and_null_deletes(tmp_path: Path, size: int) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        stage(tmp_path, patch) as on,
    ):
        object.__setattr__(on.world.config, "transaction_state_log_load_buffer_size", size)
        for number in range(30):
            write(on, (encode_key("kept"), stored(number + 1)), (encode_key(f"gone-{number % 3}"), stored()))
        write(on, *((encode_key(f"gone-{number}"), None) for number in range(3)))
        write(on, (b"\0\1\0\1x", b"of a newer broker"))
        log, sizes = on.world.partition(OWN).log, list[int]()
        read = log.read

        def noting(offset: int, wanted: int, *args: Any, **options: Any) -> Any:
            sizes.append(wanted)
            return read(offset, wanted, *args, **options)

        patch.setattr(log, "read", noting)
        on.succeed(Mortal())
        assert set(sizes) == {size} and (len(sizes) > 10) is (size < 1 << 20)
        assert [(id_, value.timeout_ms) for id_, value in on.coordinator.list()[1]] == [("kept", 30)]


@pytest.mark.spec("TXN-11", "TXN-47")
def test_of_a_damaged_value_the_id_alone_is_not_served_until_it_expires(on: Stage) -> None:
    write(on, (encode_key("damaged"), b"\0\0rubbish"), (encode_key("whole"), stored()), timestamp=5 * HOUR_MS)
    on.passed_ms = 6 * HOUR_MS
    on.succeed(Mortal())
    mine = Identity(7, 0)
    assert on.init("damaged")[0] is LOADING and on.coordinator.describe("damaged") is LOADING
    assert on.add("damaged", mine, HERE) is LOADING and on.end("damaged", mine, committed=True) is LOADING
    assert on.coordinator.verify("damaged", mine, frozenset({HERE})) == {HERE: LOADING}
    assert on.add("whole", mine, HERE) is NONE and on.init("other")[0] is NONE
    on.coordinator.expire()
    assert on.init("damaged")[0] is LOADING, "the clock is not trusted yet"
    on.passed_ms += DAY_MS
    on.coordinator.expire()
    assert on.coordinator.describe("damaged") is UNKNOWN
    assert on.init("damaged")[0] is NONE
    on.succeed(Mortal())
    assert on.coordinator.describe("damaged") is not LOADING, "a tombstone stands behind the damage"


@pytest.mark.spec("TXN-12", "TXN-25")
def test_after_a_load_the_producer_id_before_is_unknown(on: Stage) -> None:
    exhausted = Transaction(producer_id=7, epoch=decisions.LAST_EPOCH, timeout_ms=60_000, update_ms=0)
    write(on, (encode_key("id"), encode_value(exhausted)))
    on.succeed(Mortal())
    code, fresh = on.init("id", exhausted.identity)
    assert code is NONE and fresh.producer_id != 7 and fresh.epoch == 0
    assert on.init("id", exhausted.identity) == (NONE, fresh), "a repeat under the id before"
    on.succeed(Mortal())
    assert on.init("id", exhausted.identity)[0] is ErrorCode.PRODUCER_FENCED


@pytest.mark.spec("TXN-47", "TXN-48")
def test_ids_that_nobody_used_are_buried_in_batches_and_then_unknown(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "_TOMBSTONES_BYTES", 100)
    given = {f"id-{number}": on.init(f"id-{number}")[1] for number in range(20)}
    assert on.add("id-3", given["id-3"], HERE) is NONE  # in a transaction: it stays
    object.__setattr__(on.world.config, "transactional_id_expiration_ms", 2 * HOUR_MS)
    on.passed_ms += 3 * HOUR_MS
    assert on.add("id-4", given["id-4"], HERE) is NONE and on.end("id-4", given["id-4"], committed=True) is NONE
    before = on.world.partition(OWN).log.log_end_offset
    on.coordinator.expire()
    tombstones = [h for _, h in iter_batches(everything(on.world.partition(OWN).log)) if h.base_offset >= before]
    assert sum(h.last_offset_delta + 1 for h in tombstones) == 18 and len(tombstones) > 1
    assert [id_ for id_, _ in on.coordinator.list()[1]] == ["id-3", "id-4"]
    old = given["id-0"]
    assert on.add("id-0", old, HERE) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    code, fresh = on.init("id-0", old)  # InitProducerId 3 names what it was
    assert code is NONE and fresh.producer_id != old.producer_id and fresh.epoch == 0
    on.succeed(Mortal())
    assert [id_ for id_, _ in on.coordinator.list()[1]] == ["id-0", "id-3", "id-4"]


def failing(on: Stage, patch: pytest.MonkeyPatch, *codes: ErrorCode) -> list[str]:
    """Have the next records refused with these codes; return what is written, told as it comes."""
    left = list(codes)
    writer: Any = on.coordinator._writer  # noqa: SLF001  # the log itself refuses none of these at will
    real = writer.append
    written: list[str] = []

    def append(number: int, records: Any, *, still: Any, done: Callable[[AppendResult], None]) -> None:
        if left:
            done(AppendResult(left.pop(0)))
        else:
            written.append("record")
            real(number, records, still=still, done=done)

    patch.setattr(writer, "append", append)
    return written


@pytest.mark.spec("TXN-20")
def test_what_clients_are_told_of_each_outcome_of_an_append(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    again, moved, internal = 15, 16, -1
    told = {3: again, 19: again, 20: again, 7: again, 6: moved, 56: moved, 10: internal, 18: internal, 2: 2, 87: 87}
    assert {code: answer_for(ErrorCode(code)) for code in told} == told
    mine = on.init("id")[1]
    for code, answer in told.items():
        if code in (7, 20, 6, 56):  # these keep the id in flight, or are in force
            continue
        with monkeypatch.context() as patch:
            failing(on, patch, ErrorCode(code))
            assert on.add("id", mine, HERE) == answer
        described = on.coordinator.describe("id")
        assert not isinstance(described, ErrorCode) and described.state is TransactionState.EMPTY, "as it was"
    assert on.add("id", mine, HERE) is NONE


@pytest.mark.spec("TXN-47")
def test_ids_whose_tombstones_fail_stay_and_who_asks_meanwhile_waits(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on.init("id")[1]
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal())
    acknowledge(on)
    for _ in range(3):  # the clock is trusted when it has gone evenly for an hour
        on.passed_ms += HOUR_MS
        with monkeypatch.context() as patch:
            failing(on, patch, ErrorCode.NOT_ENOUGH_REPLICAS)
            on.coordinator.expire()
        assert state_of(on) is TransactionState.EMPTY, "as it was"
    end = on.world.partition(OWN).log.log_end_offset
    on.coordinator.expire()
    assert on.world.partition(OWN).log.log_end_offset == end + 1
    told: list[ErrorCode] = []
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), told.append)
    assert told == [], "it waits"
    acknowledge(on)
    assert told == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert on.coordinator.describe("id") is UNKNOWN


def unheard(on: Stage, patch: pytest.MonkeyPatch, code: ErrorCode) -> None:
    """Have the next record written, and the coordinator told ``code`` of it, as when the replicas are slow or too few."""
    writer: Any = on.coordinator._writer  # noqa: SLF001  # the real one waits for half a minute first
    real = writer.append

    def append(number: int, records: Any, *, still: Any, done: Callable[[AppendResult], None]) -> None:
        patch.setattr(writer, "append", real)
        real(number, records, still=still, done=lambda _: None)
        done(AppendResult(code, next_offset=on.world.partition(OWN).log.log_end_offset))

    patch.setattr(writer, "append", append)


def left_in_flight(on: Stage, monkeypatch: pytest.MonkeyPatch) -> Identity:
    """Have the record of a commit time out; return whose it is."""
    mine = on.init("id")[1]
    assert on.add("id", mine, HERE) is NONE
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal())
    acknowledge(on)
    unheard(on, monkeypatch, ErrorCode.REQUEST_TIMED_OUT)
    assert on.end("id", mine, committed=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return mine


@pytest.mark.spec("TXN-21")
def test_a_record_that_timed_out_keeps_its_id_in_flight_until_it_is_replicated(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = left_in_flight(on, monkeypatch)
    told: list[ErrorCode] = []
    on.coordinator.end("id", mine, committed=False, done=told.append)
    on.settle()
    assert told == [] and state_of(on) is TransactionState.ONGOING and on.markers(HERE, mine.producer_id) == []
    acknowledge(on)
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)], "what was decided goes on"
    acknowledge(on)  # that it is complete
    assert (state_of(on), told) == (TransactionState.COMPLETE_COMMIT, [ErrorCode.INVALID_TXN_STATE])


@pytest.mark.spec("TXN-21")
def test_a_record_that_timed_out_is_let_go_with_the_partition(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = left_in_flight(on, monkeypatch)
    told: list[ErrorCode] = []
    on.coordinator.end("id", mine, committed=True, done=told.append)
    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.settle()
    assert told == [ErrorCode.NOT_COORDINATOR] and on.markers(HERE, mine.producer_id) == []


@pytest.mark.spec("TXN-21")
def test_a_record_that_is_replicated_but_on_too_few_is_in_force_though_the_client_is_told_to_come_again(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on.init("id")[1]
    assert on.add("id", mine, HERE) is NONE
    unheard(on, monkeypatch, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert on.end("id", mine, committed=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)]
    assert on.end("id", mine, committed=True) is NONE, "its repeat"


def state_of(on: Stage, id_: str = "id") -> TransactionState:
    found = on.coordinator.describe(id_)
    assert not isinstance(found, ErrorCode)
    return found.state


def acknowledge(on: Stage) -> None:
    """Let the follower of the coordinator's partition have all of it."""
    on.world.fetch(on.world.partition(OWN).log.log_end_offset, follower(2), OWN)
    on.settle()


@pytest.mark.spec("TXN-46", "TXN-28")
def test_an_abort_that_could_not_be_stored_is_tried_by_the_next_scan_with_the_same_epoch(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on.init("id")[1]
    assert on.add("id", mine, HERE) is NONE and on.produce("id", mine, HERE) is NONE
    on.passed_ms += 60_001
    with monkeypatch.context() as patch:
        failing(on, patch, ErrorCode.NOT_ENOUGH_REPLICAS)
        on.coordinator.time_out()
    assert on.end("id", mine, committed=True) is ErrorCode.PRODUCER_FENCED, "fenced from the decision on"
    assert on.markers(HERE, mine.producer_id) == []
    on.coordinator.time_out()
    on.settle()
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch + 1, False)]


@pytest.mark.spec("TXN-56")
def test_a_complete_that_could_not_be_stored_is_tried_again_ever_later_without_more_markers(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def once(name: str, fn: Callable[[], object], *, delay_ms: float) -> None:
        waits.append(delay_ms)
        on.world.scheduler.jobs.append(fn)

    def state() -> TransactionState:
        found = on.coordinator.describe("id")
        assert not isinstance(found, ErrorCode)
        return found.state

    mine = on.init("id")[1]
    assert on.add("id", mine, HERE) is NONE
    monkeypatch.setattr(on.world.scheduler, "once", once)
    complete = on.coordinator._complete  # noqa: SLF001  # from the last marker to its record nothing else can fail

    def fail_first(*args: Any) -> None:
        monkeypatch.setattr(on.coordinator, "_complete", complete)
        failing(on, monkeypatch, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 8)
        complete(*args)

    monkeypatch.setattr(on.coordinator, "_complete", fail_first)
    on.coordinator.end("id", mine, committed=True, done=lambda _: None)
    for _ in range(7):
        assert state() is TransactionState.PREPARE_COMMIT
        (again,) = on.take_jobs()
        again()
    assert waits == [100, 200, 400, 800, 1600, 3200, 5000, 5000]
    assert on.markers(HERE, mine.producer_id) == [(0, True)], "one marker"
    on.settle()
    assert state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.spec("TXN-45")
def test_no_transaction_is_given_up_by_a_step_of_the_clock_and_none_is_kept(on: Stage) -> None:
    mine = on.init("id")[1]
    assert on.add("id", mine, HERE) is NONE
    for step_ms in (365 * DAY_MS, -2 * 365 * DAY_MS):
        on.stepped_ms += step_ms
        on.coordinator.time_out()
        on.settle()
        assert state_of(on) is TransactionState.ONGOING
    on.passed_ms += 60_001
    on.coordinator.time_out()
    on.settle()
    assert state_of(on) is TransactionState.COMPLETE_ABORT


@pytest.mark.spec("TXN-56")
def test_a_complete_that_timed_out_is_in_force_once_it_is_replicated_and_is_not_stored_twice(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on.init("id")[1]
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal())
    acknowledge(on)
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), lambda _: None)
    acknowledge(on)
    on.coordinator.end("id", mine, committed=True, done=lambda _: None)
    unheard(on, monkeypatch, ErrorCode.REQUEST_TIMED_OUT)
    acknowledge(on)  # the decision; what is stored next is that it is complete
    end = on.world.partition(OWN).log.log_end_offset
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)]
    assert state_of(on) is TransactionState.PREPARE_COMMIT
    acknowledge(on)
    assert state_of(on) is TransactionState.COMPLETE_COMMIT
    assert on.world.partition(OWN).log.log_end_offset == end
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)]


@pytest.mark.spec("TXN-56")
def test_a_complete_that_finds_the_partition_lost_is_dropped_and_the_next_sends_all_again(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on.init("id")[1]
    assert on.add("id", mine, HERE, THERE) is NONE
    complete = on.coordinator._complete  # noqa: SLF001  # the partition goes just before its record

    def lose_first(*args: Any) -> None:
        on.world.follow(OWN, epoch=5)
        on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
        complete(*args)

    monkeypatch.setattr(on.coordinator, "_complete", lose_first)
    end = on.world.partition(OWN).log.log_end_offset
    on.coordinator.end("id", mine, committed=True, done=lambda _: None)
    on.settle()
    assert on.world.partition(OWN).log.log_end_offset == end + 1, "the decision alone"
    on.world.lead(OWN, epoch=6)
    on.succeed_here(Mortal())
    assert state_of(on) is TransactionState.COMPLETE_COMMIT
    assert [len(on.markers(place, mine.producer_id)) for place in (HERE, THERE)] == [2, 2]


@pytest.mark.spec("TXN-22", "TXN-24", "TXN-40")
def test_what_waits_is_told_to_come_again_when_its_patience_is_over(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert coordinators.PATIENCE_MS == 1000
    monkeypatch.setattr(coordinators, "PATIENCE_MS", 10)
    mine = on.init("id")[1]
    gone = TopicPartition("gone", 0)
    assert on.add("id", mine, gone) is NONE
    ended: list[ErrorCode] = []
    on.coordinator.end("id", mine, committed=True, done=ended.append)  # its marker waits for the metadata
    assert ended == [NONE], "answered before the markers are written"
    codes: list[ErrorCode] = []
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), codes.append)
    on.coordinator.end("id", mine, committed=True, done=codes.append)
    on.coordinator.give_identity("id", 60_000, None, lambda code, _: codes.append(code))
    eventually(lambda: codes == [ErrorCode.CONCURRENT_TRANSACTIONS] * 3, "51 for each", 60)
    on.coordinator.shutdown()
    on.coordinator.give_identity("id", 60_000, None, lambda code, _: codes.append(code))
    assert codes[3:] == [ErrorCode.COORDINATOR_NOT_AVAILABLE], "before what is ending is looked at"


@pytest.mark.spec("TXN-22", "TXN-39")
def test_what_waits_for_the_markers_is_decided_anew_when_they_are_there(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "PATIENCE_MS", 600_000)
    mine = on.init("id")[1]
    gone = TopicPartition("gone", 0)
    assert on.add("id", mine, gone) is NONE
    on.coordinator.end("id", mine, committed=True, done=lambda _: None)  # its marker waits for the metadata
    told: list[object] = []
    on.coordinator.end("id", mine, committed=True, done=told.append)
    on.coordinator.end("id", mine, committed=False, done=told.append)
    on.coordinator.give_identity("id", 60_000, None, lambda code, given: told.append((code, given)))
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), told.append)
    for job in on.take_jobs():
        job()
    assert told == []
    on.deleted.add(gone)
    on.settle()
    raised = Identity(mine.producer_id, mine.epoch + 1)
    assert told == [NONE, ErrorCode.INVALID_TXN_STATE, (NONE, raised), ErrorCode.PRODUCER_FENCED], (
        "from the first check"
    )


@pytest.mark.spec("TXN-44", "TXN-47")
def test_timeouts_and_expiry_are_looked_for_at_their_intervals(on: Stage) -> None:
    for name, period_ms in (
        ("transaction_abort_timed_out_transaction_cleanup_interval_ms", 1234),
        ("transaction_remove_expired_transaction_cleanup_interval_ms", 5678),
    ):
        object.__setattr__(on.world.config, name, period_ms)
    on.coordinator.startup()
    periodic = on.world.scheduler.periodic
    assert periodic["transaction-timeouts"] == (on.coordinator.time_out, 1234)
    assert periodic["transaction-expiry"] == (on.coordinator.expire, 5678)


@pytest.mark.spec("TXN-19")
def test_a_record_is_a_plain_batch_of_now_that_all_replicas_must_have(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends = on.world.manager.appends
    append = appends.append
    asked: list[tuple[int, int]] = []

    def noting(entries: Any, *, acks: int, timeout_ms: int, **options: Any) -> None:
        asked.append((acks, timeout_ms))
        append(entries, acks=acks, timeout_ms=timeout_ms, **options)

    monkeypatch.setattr(appends, "append", noting)
    before_ms = int(time.time() * 1000)
    assert on.init("id")[0] is NONE
    after_ms = int(time.time() * 1000)
    assert asked == [(-1, on.world.config.request_timeout_ms)]
    ((_, header),) = iter_batches(everything(on.world.partition(OWN).log))
    assert before_ms <= header.max_timestamp <= after_ms
    assert (header.producer_id, header.attributes) == (-1, 0), "CreateTime, no codec, no transaction"
    on.world.logs.update_topic_config(OWN.topic, {"min.insync.replicas": "2"})
    assert on.init("other")[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE, "one replica is too few"


@pytest.mark.spec("TXN-17")
def test_a_move_that_is_not_legal_is_a_bug_that_changes_nothing(
    on: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mine = on.init("id")[1]

    def illegal(known: Transaction, *_: Any, **__: Any) -> Any:
        return known.moved(TransactionState.COMPLETE_COMMIT)

    end = on.world.partition(OWN).log.log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(decisions, "end", illegal)
        assert on.end("id", mine, committed=True) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "cannot go from Empty to CompleteCommit" in caplog.text
    assert on.world.partition(OWN).log.log_end_offset == end
    assert on.add("id", mine, HERE) is NONE
