from pathlib import Path

import pytest

from kafkatool.broker.storage.transactions import AbortedTransaction, read_aborted
from tests.broker.storage.batches import batch, marker
from tests.broker.storage.logs import make_log

_TRANSACTIONAL = 0x10
_INDEX = "00000000000000000000.txnindex"


@pytest.mark.spec("BRK-103", "BRK-107", "BRK-153")
def test_replicated_transactions_move_the_last_stable_offset_and_aborts_are_listed(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    sent = (
        batch(2, base_offset=0, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
        + batch(2, base_offset=2, producer=(2, 0, 0), attributes=_TRANSACTIONAL)
        + marker(commit=False, producer=(1, 0), base_offset=4)
    )
    log.append_as_follower(memoryview(sent))
    log.high_watermark = 5
    assert log.last_stable_offset == 2
    log.append_as_follower(memoryview(marker(commit=True, producer=(2, 0), base_offset=5)))
    log.high_watermark = 6
    assert log.last_stable_offset == 6
    aborted = AbortedTransaction(producer_id=1, first_offset=0, last_offset=4, last_stable_offset=2)
    assert list(read_aborted(tmp_path / _INDEX)) == [aborted]
    assert log.aborted_transactions(1, 5) == [aborted]
    assert log.aborted_transactions(5, 6) == []


@pytest.mark.spec("BRK-103", "BRK-142")
def test_cutting_the_marker_off_reopens_the_transaction(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    data = batch(2, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
    log.append_as_follower(memoryview(data + marker(commit=False, producer=(1, 0), base_offset=2)))
    log.truncate_to(2)
    log.high_watermark = 2
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 2) == []


@pytest.mark.spec("BRK-137")
def test_recovery_rebuilds_the_index_of_aborted_transactions(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    data = batch(2, producer=(1, 0, 0), attributes=_TRANSACTIONAL)
    log.append_as_follower(memoryview(data + marker(commit=False, producer=(1, 0), base_offset=2)))
    before = (tmp_path / _INDEX).read_bytes()
    assert len(before) == 34
    (tmp_path / _INDEX).write_bytes(before * 2)
    again = make_log(tmp_path)
    again.high_watermark = 3
    assert (tmp_path / _INDEX).read_bytes() == before
    assert again.last_stable_offset == 3
