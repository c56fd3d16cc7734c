"""What open and ended transactions mean to a log: its start moved over them, followers, producers known by markers."""

import time
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.settings.description import BrokerOverrides
from kafkatool.broker.settings.dynamic import in_force
from kafkatool.broker.storage.batches.append_error import AppendError
from kafkatool.broker.storage.batches.transaction_markers import Marker, encode_marker
from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.producers.producer_state import UNVERIFIED
from kafkatool.broker.storage.segment.transaction_index import read_aborted
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import world
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.logs import make_log

_TRANSACTIONAL = 0x10


def write(log: Log, producer_id: int, sequence: int = 0, *, count: int = 1) -> None:
    log.append_as_leader(
        batch(count, producer=(producer_id, 0, sequence), attributes=_TRANSACTIONAL), 0, verification=UNVERIFIED
    )


def end(log: Log, producer_id: int, *, committed: bool = False, epoch: int = 0, coordinator_epoch: int = 0) -> None:
    log.append_as_leader(
        encode_marker(producer_id, epoch, Marker(committed, coordinator_epoch), 1000), 0, origin_client=False
    )


def replicate(log: Log) -> None:
    log.high_watermark = log.log_end_offset


def listed(log: Log, start: int) -> list[tuple[int, int]]:
    read = log.read(start, 1 << 20, log.last_stable_offset, min_one_batch=True)
    return [(a.producer_id, a.first_offset) for a in log.aborted_transactions(read, log.last_stable_offset)]


@pytest.mark.spec("TXN-69", "TXN-63")
def test_records_deleted_across_an_open_transaction_leave_it_open(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    write(log, 7, count=3)
    write(log, 8)
    end(log, 8)
    replicate(log)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 5)
    log.advance_log_start(2)  # in the middle of 7's records
    assert (log.last_stable_offset, [t.first_offset for t in log.open_transactions()]) == (2, [0])
    log.advance_log_start(5)  # to the high watermark: nothing is left
    assert (log.last_stable_offset, log.log_start_offset) == (5, 5)
    write(log, 7, 3)
    replicate(log)
    assert log.last_stable_offset == 5, "the log start, until its marker comes"
    end(log, 7)
    replicate(log)
    assert log.last_stable_offset == log.log_end_offset == 7
    entries = list(read_aborted(next(iter(tmp_path.glob("*.txnindex")))))
    assert [(e.producer_id, e.first_offset, e.last_offset) for e in entries] == [(8, 3, 4), (7, 0, 6)], "the true first"
    assert listed(log, 5) == [(7, 0)], "what ended below the log start is named no more"


@pytest.mark.spec("TXN-60")
@pytest.mark.parametrize(("age_ms", "segments"), [(0, 1), (3_600_001, 2)])
def test_a_marker_after_much_older_data_begins_a_segment(tmp_path: Path, age_ms: int, segments: int) -> None:
    log = make_log(tmp_path, segment_ms="3600000")
    sent = batch(producer=(7, 0, 0), attributes=_TRANSACTIONAL, timestamp=10_000_000 - age_ms)
    log.append_as_leader(sent, 0, verification=UNVERIFIED)
    log.append_as_leader(encode_marker(7, 0, Marker(True, 0), 10_000_000), 0, origin_client=False)
    assert [int(file.stem) for file in sorted(tmp_path.rglob("*.log"))] == list(range(segments))


@pytest.mark.spec("TXN-66", "TXN-69")
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_start_below_the_log_start_outlives_the_broker(tmp_path: Path, clean: bool) -> None:
    log = make_log(tmp_path)
    write(log, 7, count=3)
    replicate(log)
    log.advance_log_start(2)
    if clean:
        log.close()
    again = make_log(tmp_path, clean=clean, log_start_offset=2)
    replicate(again)
    assert ([t.first_offset for t in again.open_transactions()], again.last_stable_offset) == ([0], 2)
    end(again, 7)
    replicate(again)
    assert again.last_stable_offset == 4


@pytest.mark.spec("TXN-67")
def test_a_follower_takes_what_a_leader_would_refuse_says_so_and_goes_by_it_once_it_leads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log(tmp_path)
    sent = (
        batch(base_offset=0, producer=(7, 5, 3), attributes=_TRANSACTIONAL)  # a first batch, asked of nobody
        + marker(commit=True, producer=(7, 5), base_offset=1)  # of coordinator epoch 7
        + batch(base_offset=2, producer=(7, 5, 9), attributes=_TRANSACTIONAL)  # a gap
        + encode_marker_at(3, 7, 5, Marker(committed=False, coordinator_epoch=6))  # of a former coordinator
        + marker(commit=False, producer=(7, 4), base_offset=4)  # of a former epoch
        + marker(commit=False, producer=(7, 6), base_offset=5)
    )
    log.append_as_follower(memoryview(sent))
    assert log.log_end_offset == 6
    told = [r.getMessage().partition(" is stale: ")[0] for r in caplog.records if r.levelname == "WARNING"]
    assert told == [f"t-0: the leader's marker at offset {offset}" for offset in (3, 4)]
    for epoch, coordinator_epoch, code in (
        (5, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (6, 6, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(AppendError) as refused:
            end(log, 7, epoch=epoch, coordinator_epoch=coordinator_epoch)
        assert refused.value.code is code
    with pytest.raises(AppendError) as refused:
        log.append_as_leader(batch(producer=(7, 5, 10), attributes=_TRANSACTIONAL), 0, verification=UNVERIFIED)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 7, epoch=6, coordinator_epoch=7)


def encode_marker_at(offset: int, producer_id: int, epoch: int, what: Marker) -> bytearray:
    data = encode_marker(producer_id, epoch, what, 1000)
    data[:8] = offset.to_bytes(8, "big")
    return data


@pytest.mark.spec("TXN-58", "TXN-49", "TXN-66")
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_producer_known_by_its_marker_alone_is_forgotten_by_the_markers_time(tmp_path: Path, clean: bool) -> None:
    log = make_log(tmp_path)
    end(log, 7, epoch=3)
    replicate(log)
    if clean:
        log.close()
    log = make_log(tmp_path, clean=clean)
    replicate(log)
    log.expire_producers(1000)  # the marker's own time
    (known,) = log.active_producers()
    assert (known.epoch, known.last_sequence, known.last_timestamp) == (3, -1, 1000)
    with pytest.raises(AppendError) as refused:
        write(log, 7)  # of epoch 0
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.expire_producers(1001)
    assert list(log.active_producers()) == []


@pytest.mark.spec("TXN-49")
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_an_idle_producer_is_forgotten_by_the_time_of_its_last_batch_over_a_stop_and_a_kill_too(
    tmp_path: Path, clean: bool
) -> None:
    log = make_log(tmp_path)
    for sequence, timestamp in ((0, 1000), (1, 5000)):
        log.append_as_leader(batch(producer=(7, 0, sequence), timestamp=timestamp), 0)
    replicate(log)
    if clean:
        log.close()
    log = make_log(tmp_path, clean=clean)
    replicate(log)
    for before_ms, known in ((5000, [7]), (5001, [])):
        log.expire_producers(before_ms)
        assert [one.producer_id for one in log.active_producers()] == known


@pytest.mark.spec("TXN-69")
def test_records_that_are_too_old_go_across_an_open_transaction_and_leave_it_open(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes="80", retention_ms="3600000")
    write(log, 7)
    write(log, 8)
    end(log, 8)
    log.append_as_leader(batch(timestamp=int(time.time() * 1000)), 0)
    replicate(log)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 4)
    log.apply_retention()
    assert (log.log_start_offset, log.last_stable_offset) == (3, 3), "the log start, until its marker comes"
    assert [t.first_offset for t in log.open_transactions()] == [0]
    end(log, 7)
    replicate(log)
    assert log.last_stable_offset == log.log_end_offset == 5
    entries = [e for file in sorted(tmp_path.glob("*.txnindex")) for e in read_aborted(file)]
    assert [(e.producer_id, e.first_offset, e.last_offset) for e in entries] == [(7, 0, 4)], "the true first"
    assert listed(log, 3) == [(7, 0)], "what ended below the log start is named no more"


_HOUR_MS = 3_600_000


def _producers_left(log: Log, logs: LogManager) -> list[int]:
    """Write as three producers, of which the oldest has a transaction open; return those that retention leaves."""
    now_ms = int(time.time() * 1000)
    for producer_id, age_ms, attributes in ((6, _HOUR_MS, 0), (7, 3 * _HOUR_MS, 0), (8, 9 * _HOUR_MS, _TRANSACTIONAL)):
        sent = batch(producer=(producer_id, 0, 0), attributes=attributes, timestamp=now_ms - age_ms)
        log.append_as_leader(sent, 0, verification=UNVERIFIED if attributes else None)
    logs.apply_retention()
    return [one.producer_id for one in log.active_producers()]


@pytest.mark.spec("TXN-49", "BRK-91")
@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, [6, 7, 8]),
        ({"transactional_id_expiration_ms": 2}, [6, 8]),
        ({"producer_id_expiration_ms": 2}, [6, 8]),
        ({"producer_id_expiration_ms": 2, "transactional_id_expiration_ms": 4}, [6, 8]),
        ({"producer_id_expiration_ms": 4, "transactional_id_expiration_ms": 2}, [6, 7, 8]),
    ],
)
def test_idle_producers_are_forgotten_after_their_own_expiration_else_that_of_ids_and_none_with_an_open_transaction(
    tmp_path: Path, settings: dict[str, int], left: list[int]
) -> None:
    given: dict[str, Any] = {name: str(hours * _HOUR_MS) for name, hours in settings.items()}
    with world(tmp_path, **given) as broker:
        assert _producers_left(broker.lead().log, broker.logs) == left


@pytest.mark.spec("TXN-49")
def test_the_expiration_of_producers_changes_while_the_broker_runs(tmp_path: Path) -> None:
    with world(tmp_path, transactional_id_expiration_ms=str(2 * _HOUR_MS)) as broker:
        log = broker.lead().log
        for all_brokers, own, left in ((4, None, [6, 7, 8]), (1 / 2, 4, [6, 7, 8]), (None, None, [6, 8])):
            of_all, of_this = (
                {} if hours is None else {"producer.id.expiration.ms": str(int(hours * _HOUR_MS))}
                for hours in (all_brokers, own)
            )
            broker.logs.update_defaults(in_force(broker.config, BrokerOverrides(of_this, of_all)))
            assert _producers_left(log, broker.logs) == left


@pytest.mark.spec("TXN-69", "BRK-142")
def test_a_snapshot_above_a_cut_is_not_taken_for_what_comes_to_stand_there(tmp_path: Path) -> None:
    """It was written at a clean stop that knew no producer; what begins below it since then must not be forgotten."""
    log = make_log(tmp_path)
    for _ in range(40):
        log.append_as_leader(batch(1), 0)
    log.close()
    log = make_log(tmp_path, clean=True, recovery_point=40)
    log.truncate_to(10)
    write(log, 7)
    for _ in range(40):
        log.append_as_leader(batch(1), 0)
    replicate(log)
    assert log.last_stable_offset == 10
    log.truncate_to(45)
    assert log.last_stable_offset == 10
    assert [one.producer_id for one in log.open_transactions()] == [7]
    log.close()
