"""What a coordinator does beside requests: loads in pieces, damaged records, ids that expire, records that fail."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.coordination import tombstones as batches_of_tombstones
from kafkatool.broker.coordination.ownership import partition_for
from kafkatool.broker.replication.leading.delayed_produce import AppendResult
from kafkatool.broker.transactions import coordinator as coordinators
from kafkatool.broker.transactions import decisions
from kafkatool.broker.transactions.loader import load
from kafkatool.broker.transactions.owned import OwnedTransactions
from kafkatool.broker.transactions.records import encode_key, encode_value
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.broker.transactions.transaction import Identity, Transaction
from kafkatool.broker.transactions.writer import TransactionsWriter, answer_for
from kafkatool.core.errors import StorageError
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
        (line,) = [r for r in caplog.records if "partitions" in r.getMessage()]
        assert "from 50 to 60 partitions" in line.getMessage() and "restarted" in line.getMessage()
        assert line.levelname == "WARNING"
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


@pytest.mark.spec("TXN-9")
def test_a_load_reads_from_the_log_start_a_large_batch_whole_ends_at_a_gap_and_gives_up_with_the_leadership(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        name = f"id-{number}" if number != 7 else "x" * 5000
        write(on, (encode_key(name), stored(number + 1)))
    log = on.world.partition(OWN).log
    log.advance_log_start(3)
    found = load(log, 300, lambda: True)
    assert found is not None
    assert [value.timeout_ms for value in found.transactions.values()] == list(range(4, 21))
    reads: list[int] = []
    read = log.read

    def noting(offset: int, *args: Any, **options: Any) -> Any:
        reads.append(offset)
        return read(offset, *args, **options)

    monkeypatch.setattr(log, "read", noting)
    wanted = [True, True, False]
    assert load(log, 300, lambda: wanted.pop(0)) is None
    assert len(reads) == 2 and reads[0] == 3

    class Gap:
        """The same log, of whose last offsets compaction has left nothing."""

        partition, log_start_offset = log.partition, 3
        log_end_offset = log.log_end_offset + 7

        @staticmethod
        def read(offset: int, size: int, end: int, **options: Any) -> Any:
            return read(offset, size, end, **options)

    again = load(Gap(), 300, lambda: True)  # type: ignore[arg-type]
    assert again is not None and again.transactions == found.transactions


@pytest.mark.spec("TXN-11")
def test_a_load_that_fails_is_tried_again_ever_later_and_nothing_is_served_meanwhile(
    on: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        write(on, (encode_key(f"id-{number}"), stored()))
    log, again = on.world.partition(OWN).log, list[tuple[float, Callable[[], object]]]()
    read = log.read

    def failing(offset: int, *args: Any, **options: Any) -> Any:
        if offset:
            raise StorageError("the disk hiccups")
        return read(0, 300, *args[1:], **options)

    def note(name: str, work: Callable[[], object], *, delay_ms: float) -> None:
        again.append((delay_ms, work))

    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.take_jobs()
    on.world.lead(OWN, epoch=6)
    on.coordinator.on_leadership_change([on.world.partition(OWN)], [])
    (first,) = on.take_jobs()
    with monkeypatch.context() as patch:
        patch.setattr(log, "read", failing)
        patch.setattr(on.world.scheduler, "schedule", note)
        first()
        for _ in range(8):
            again[-1][1]()
            assert on.coordinator.list() == (LOADING, ())
            assert on.coordinator.describe("id-1") is on.init("id-0")[0] is on.init("new")[0] is LOADING
            assert on.add("id-1", Identity(7, 0), HERE) is on.end("id-1", Identity(7, 0), committed=True) is LOADING
    assert [ms for ms, _ in again] == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]
    lines = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert len(lines) == 9 and all(str(OWN) in line and "the disk hiccups" in line for line in lines)
    (offset,) = {int(at) for line in lines for at in re.findall(r"offset (\d+)", line)}
    assert 0 < offset < 20
    again[-1][1]()  # the disk is well again
    on.settle()
    assert len(on.coordinator.list()[1]) == 20
    assert state_of(on, "id-1") is TransactionState.EMPTY
    assert on.add("id-1", Identity(7, 0), HERE) is on.end("id-1", Identity(7, 0), committed=True) is NONE
    assert on.init("id-0")[0] is on.init("new")[0] is NONE


@pytest.mark.spec("TXN-11", "TXN-47")
def test_a_damaged_id_expires_by_the_time_of_its_record(on: Stage) -> None:
    object.__setattr__(on.world.config, "transactional_id_expiration_ms", 10 * HOUR_MS)
    write(on, (encode_key("damaged"), b"\0\0rubbish"), timestamp=5 * HOUR_MS)
    on.passed_ms = 6 * HOUR_MS
    on.succeed(Mortal())
    for now_ms, code in ((8 * HOUR_MS, LOADING), (15 * HOUR_MS - 1, LOADING), (15 * HOUR_MS, UNKNOWN)):
        on.passed_ms = now_ms
        on.coordinator.expire()
        assert on.coordinator.describe("damaged") is code


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
    monkeypatch.setattr(batches_of_tombstones, "BATCH_BYTES", 100)
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


@pytest.mark.spec("TXN-47")
def test_tombstones_go_in_batches_that_the_topic_takes(on: Stage) -> None:
    ids = [f"id-{number}-" + "x" * (number % 60) for number in range(40)]
    for id_ in ids:
        assert on.init(id_)[0] is NONE
    largest = 250  # a record of these ids alone takes up to 160
    on.world.logs.update_topic_config(OWN.topic, {"max.message.bytes": str(largest)})
    object.__setattr__(on.world.config, "transactional_id_expiration_ms", 2 * HOUR_MS)
    on.passed_ms += 3 * HOUR_MS
    before = on.world.partition(OWN).log.log_end_offset
    on.coordinator.expire()
    tombstones = [h for _, h in iter_batches(everything(on.world.partition(OWN).log)) if h.base_offset >= before]
    assert sum(h.last_offset_delta + 1 for h in tombstones) == len(ids)
    assert len(tombstones) < len(ids), "several in each"
    assert max(h.size_bytes for h in tombstones) <= largest
    assert on.coordinator.list()[1] == []


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


@pytest.mark.spec("TXN-47", "TXN-22")
def test_who_asks_while_an_id_expires_is_told_to_come_again_when_its_patience_is_over(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "PATIENCE_MS", 10)
    mine = on.init("id")[1]
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal())
    acknowledge(on)
    end = on.world.partition(OWN).log.log_end_offset
    for _ in range(4):  # the clock is trusted when it has gone evenly for an hour
        on.passed_ms += HOUR_MS
        on.coordinator.expire()
    assert on.world.partition(OWN).log.log_end_offset == end + 1, "its tombstone is under way"
    told: list[ErrorCode] = []
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), told.append)
    on.coordinator.end("id", mine, committed=True, done=told.append)
    on.coordinator.give_identity("id", 60_000, None, lambda code, _: told.append(code))
    eventually(lambda: told == [ErrorCode.CONCURRENT_TRANSACTIONS] * 3, "51 for each")


@pytest.mark.spec("TXN-47")
@pytest.mark.parametrize("outcome", [NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_what_becomes_of_a_tombstone_does_nothing_to_an_id_that_was_loaded_or_made_since(
    on: Stage, monkeypatch: pytest.MonkeyPatch, outcome: ErrorCode
) -> None:
    mine = on.init("id")[1]
    writer: Any = on.coordinator._writer  # noqa: SLF001  # its answer is held up, nothing else
    append = writer.append
    told: list[Callable[[], None]] = []

    def held_up(number: int, records: Any, *, still: Any, done: Callable[[AppendResult], None]) -> None:
        append(
            number, records, still=still, done=lambda result: told.append(lambda: done(result._replace(error=outcome)))
        )

    with monkeypatch.context() as patch:
        patch.setattr(writer, "append", held_up)
        for _ in range(4):  # the clock is trusted when it has gone evenly for an hour
            on.passed_ms += HOUR_MS
            on.coordinator.expire()
    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.world.lead(OWN, epoch=6)
    on.coordinator.on_leadership_change([on.world.partition(OWN)], [])
    on.settle()
    assert on.coordinator.describe("id") is UNKNOWN, "the log has it"
    code, fresh = on.init("id")
    assert code is NONE and fresh.producer_id != mine.producer_id
    assert on.add("id", fresh, HERE) is NONE
    before = on.coordinator.describe("id")
    (late,) = told
    late()
    on.settle()
    assert on.coordinator.describe("id") == before
    assert on.end("id", fresh, committed=True) is NONE


@pytest.mark.spec("TXN-37", "TXN-20")
def test_a_set_of_partitions_too_large_for_the_topic_is_refused_and_the_id_stays_as_it_was(on: Stage) -> None:
    mine = on.init("id")[1]
    before, end = on.coordinator.describe("id"), on.world.partition(OWN).log.log_end_offset
    many = [TopicPartition("t" * 100, number) for number in range(200)]
    on.world.logs.update_topic_config(OWN.topic, {"max.message.bytes": "500"})
    assert on.add("id", mine, *many) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (on.coordinator.describe("id"), on.world.partition(OWN).log.log_end_offset) == (before, end)
    on.world.logs.update_topic_config(OWN.topic, {})
    assert on.add("id", mine, *many) is NONE


def unheard(on: Stage, patch: pytest.MonkeyPatch, code: ErrorCode, *, after: int = 0) -> None:
    """Have the coordinator's next write, ``after`` so many others, told as that failure, though it is in the log."""
    writer: Any = on.coordinator._writer  # noqa: SLF001  # the real one waits for half a minute first
    real = writer.append
    left = after

    def append(number: int, records: Any, *, still: Any, done: Callable[[AppendResult], None]) -> None:
        nonlocal left
        if left:
            left -= 1
            real(number, records, still=still, done=done)
            return
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
def test_a_record_that_timed_out_is_waited_for_as_often_as_it_takes(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    real = TransactionsWriter.await_replicated

    def await_replicated(
        self: TransactionsWriter, number: int, next_offset: int, done: Callable[[ErrorCode], None]
    ) -> None:
        waits.append(next_offset)
        if len(waits) < 3:
            done(ErrorCode.REQUEST_TIMED_OUT)
        else:
            real(self, number, next_offset, done)

    monkeypatch.setattr(TransactionsWriter, "await_replicated", await_replicated)
    mine = left_in_flight(on, monkeypatch)
    assert len(waits) == 3 and len(set(waits)) == 1
    assert state_of(on) is TransactionState.ONGOING and on.markers(HERE, mine.producer_id) == []
    acknowledge(on)
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)]


@pytest.mark.spec("TXN-21")
def test_an_addition_and_an_identity_that_timed_out_count_once_they_are_replicated(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on.init("id")[1]
    on.world.lead(OWN, epoch=1, isr=(1, 2), replicas=(1, 2), version=1)
    on.succeed_here(Mortal())
    acknowledge(on)
    unheard(on, monkeypatch, ErrorCode.REQUEST_TIMED_OUT)
    assert on.add("id", mine, HERE) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state_of(on) is TransactionState.EMPTY
    end = on.world.partition(OWN).log.log_end_offset
    told: list[ErrorCode] = []
    on.coordinator.add_partitions("id", mine, frozenset({HERE}), told.append)
    on.settle()
    assert told == [], "its repeat waits"
    acknowledge(on)
    assert (told, state_of(on)) == ([NONE], TransactionState.ONGOING)
    assert on.world.partition(OWN).log.log_end_offset == end, "and writes nothing more"

    unheard(on, monkeypatch, ErrorCode.REQUEST_TIMED_OUT)
    assert on.init("new")[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert on.coordinator.describe("new") is UNKNOWN
    given: list[tuple[ErrorCode, Identity]] = []
    on.coordinator.give_identity("new", 60_000, None, lambda code, identity: given.append((code, identity)))
    on.settle()
    assert given == [] and on.coordinator.describe("new") is UNKNOWN
    acknowledge(on)  # the first, which its producer was not told of
    assert given == [] and state_of(on, "new") is TransactionState.EMPTY
    acknowledge(on)
    ((code, identity),) = given
    assert code is NONE and identity.epoch == 1


@pytest.mark.spec("TXN-21")
def test_a_record_that_timed_out_is_let_go_with_the_partition(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = left_in_flight(on, monkeypatch)
    told: list[ErrorCode] = []
    on.coordinator.end("id", mine, committed=True, done=told.append)
    on.world.follow(OWN, epoch=5)
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.settle()
    assert told == [ErrorCode.NOT_COORDINATOR] and on.markers(HERE, mine.producer_id) == []


@pytest.mark.spec("TXN-13", "TXN-21", "TXN-56")
def test_that_a_transaction_is_complete_may_be_known_elsewhere_before_it_is_heard_here(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is in force, another broker leads, and the producer has begun again: no marker may be sent once more."""
    mine = on.init("id")[1]
    assert on.add("id", mine, HERE) is NONE
    unheard(on, monkeypatch, ErrorCode.NOT_LEADER_FOR_PARTITION, after=1)
    told: list[ErrorCode] = []
    on.coordinator.end("id", mine, committed=True, done=told.append)
    assert told == [NONE] and on.markers(HERE, mine.producer_id) == [(mine.epoch, True)]
    on.world.follow(OWN, epoch=5)  # the coordinator has not been told yet
    for _ in range(3):
        (look,) = on.take_jobs()
        look()
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)]
    on.coordinator.on_leadership_change([], [on.world.partition(OWN)])
    on.settle()
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)]
    assert on.coordinator.describe("id") is ErrorCode.NOT_COORDINATOR


@pytest.mark.spec("TXN-21", "TXN-56")
def test_that_a_transaction_is_complete_is_stored_again_where_this_broker_leads_after_all(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on.init("id")[1]
    assert on.add("id", mine, HERE) is NONE
    unheard(on, monkeypatch, ErrorCode.KAFKA_STORAGE_ERROR, after=1)
    assert on.end("id", mine, committed=True) is NONE
    assert state_of(on) is TransactionState.COMPLETE_COMMIT
    assert on.markers(HERE, mine.producer_id) == [(mine.epoch, True)], "one marker, though two records"
    assert on.add("id", mine, HERE) is NONE


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


@pytest.mark.spec("TXN-46", "TXN-28", "TXN-51")
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


@pytest.mark.spec("TXN-45", "TXN-12")
@pytest.mark.parametrize(("start_ms", "counts_from_ms"), [(5 * HOUR_MS, 2 * HOUR_MS), (HOUR_MS, HOUR_MS)])
def test_a_start_that_lies_in_the_future_when_it_is_loaded_is_now_and_no_other_is_changed(
    on: Stage, start_ms: int, counts_from_ms: int
) -> None:
    found = Transaction(
        producer_id=7,
        epoch=0,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({HERE}),
        update_ms=start_ms,
        start_ms=start_ms,
    )
    write(on, (encode_key("id"), encode_value(found)))
    on.passed_ms = 2 * HOUR_MS
    on.succeed(Mortal())
    described = on.coordinator.describe("id")
    assert not isinstance(described, ErrorCode) and described.value.start_ms == counts_from_ms
    on.passed_ms = counts_from_ms + 60_000
    on.coordinator.time_out()
    on.settle()
    assert state_of(on) is TransactionState.ONGOING
    on.passed_ms += 1
    on.coordinator.time_out()
    on.settle()
    assert state_of(on) is TransactionState.COMPLETE_ABORT


@pytest.mark.spec("TXN-56", "TXN-18")
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
    assert header.record_count == 1
    on.world.logs.update_topic_config(OWN.topic, {"min.insync.replicas": "2"})
    assert on.init("other")[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE, "one replica is too few"


@pytest.mark.spec("TXN-18")
@pytest.mark.parametrize("request_", ["give_identity", "add", "end"])
def test_a_decision_is_made_under_the_lock_of_its_id(on: Stage, monkeypatch: pytest.MonkeyPatch, request_: str) -> None:
    mine, _other = on.init("id")[1], on.init("other")
    decide, locked = getattr(decisions, request_), list[list[str]]()

    def noting(*args: Any, **options: Any) -> Any:
        locked.append([entry.id for entry in on.coordinator.owned.all() if entry.lock.locked()])
        return decide(*args, **options)

    monkeypatch.setattr(decisions, request_, noting)
    asked: dict[str, Callable[[], object]] = {
        "give_identity": lambda: on.init("id"),
        "add": lambda: on.add("id", mine, HERE),
        "end": lambda: on.end("id", mine, committed=True),
    }
    asked[request_]()
    assert locked == [["id"]]


@pytest.mark.spec("TXN-18")
@pytest.mark.parametrize("decision", ["time_out", "has_expired", "complete"])
def test_what_nobody_asks_for_is_decided_under_the_lock_of_its_id_too(
    on: Stage, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    mine, _other = on.init("id")[1], on.init("other")
    assert on.add("id", mine, HERE) is NONE
    decide, locked = getattr(decisions, decision), list[list[str]]()

    def noting(*args: Any) -> Any:
        locked.append([entry.id for entry in on.coordinator.owned.all() if entry.lock.locked()])
        return decide(*args)

    monkeypatch.setattr(decisions, decision, noting)
    if decision == "complete":
        assert on.end("id", mine, committed=True) is NONE
        assert locked == [["id"]]
    else:
        {"time_out": on.coordinator.time_out, "has_expired": on.coordinator.expire}[decision]()
        assert locked == [["id"], ["other"]]


@pytest.mark.spec("TXN-18", "TXN-43")
@pytest.mark.parametrize("committed", [True, False])
def test_an_id_that_is_empty_again_has_no_start(on: Stage, committed: bool) -> None:
    mine = on.init("id")[1]
    on.passed_ms += 5000
    assert on.add("id", mine, HERE) is on.end("id", mine, committed=committed) is NONE
    ended = on.coordinator.describe("id")
    assert not isinstance(ended, ErrorCode) and ended.value.start_ms == 5000
    assert on.init("id")[0] is NONE
    for _ in range(2):
        found = on.coordinator.describe("id")
        assert not isinstance(found, ErrorCode)
        assert (found.state, found.value.start_ms, found.partitions) == (TransactionState.EMPTY, -1, frozenset())
        on.succeed(Mortal())  # as it was stored


@pytest.mark.spec("TXN-17")
@pytest.mark.parametrize("request_", ["give_identity", "add", "end"])
def test_a_move_that_is_not_legal_is_a_bug_that_changes_nothing(
    on: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, request_: str
) -> None:
    mine = on.init("id")[1]
    before = on.coordinator.describe("id")

    def illegal(known: Transaction, *_: Any, **__: Any) -> Any:
        return known.moved(TransactionState.COMPLETE_COMMIT)

    end = on.world.partition(OWN).log.log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(decisions, request_, illegal)
        code = {
            "give_identity": lambda: on.init("id")[0],
            "add": lambda: on.add("id", mine, HERE),
            "end": lambda: on.end("id", mine, committed=True),
        }[request_]()
        assert code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "cannot go from Empty to CompleteCommit" in caplog.text
    assert (on.world.partition(OWN).log.log_end_offset, on.coordinator.describe("id")) == (end, before)
    assert on.add("id", mine, HERE) is NONE
