"""The newest batch is answered from memory, and only where the file would give the very same."""

from pathlib import Path

import pytest

from kafkatool.broker.storage.log.log import Log
from kafkatool.core.protocol.records.batches import set_base_offset_and_epoch
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import content, make_log


def _newest_is_as_in_the_file(log: Log, offset: int) -> bool:
    newest = log.newest_at(offset, log.end)
    if newest is None:
        return False
    read = log.read(offset, 1 << 20, log.end.offset, min_one_batch=True)
    assert (newest.records, newest.start) == (content(read), read.start)
    return True


@pytest.mark.spec("BRK-94")
def test_only_the_last_batch_from_its_first_offset_on(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    assert log.newest_at(0, log.end) is None
    log.append_as_leader(batch(2), 0)
    before = log.end
    log.append_as_leader(batch(3), 0)
    assert _newest_is_as_in_the_file(log, 2)
    assert not any(_newest_is_as_in_the_file(log, offset) for offset in (0, 1, 3, 4, 5))
    assert log.newest_at(0, before) is None, "who looked at the end before must not get what came after"


@pytest.mark.spec("BRK-94")
def test_what_was_given_does_not_change_with_the_producers_buffer(tmp_path: Path) -> None:
    log, sent = make_log(tmp_path), batch()
    log.append_as_leader(sent, 0)
    set_base_offset_and_epoch(memoryview(sent), 0, 99, 99)
    assert _newest_is_as_in_the_file(log, 0)


@pytest.mark.spec("BRK-130")
def test_of_a_topic_with_a_codec_of_its_own_it_is_what_was_written(tmp_path: Path) -> None:
    log = make_log(tmp_path, compression_type="gzip")
    log.append_as_leader(batch(20), 0)
    assert _newest_is_as_in_the_file(log, 0)


@pytest.mark.spec("BRK-141", "BRK-142")
def test_what_moves_the_end_ends_it(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(), 0)
    log.append_as_leader(batch(), 0)
    log.truncate_to(1)
    assert not _newest_is_as_in_the_file(log, 1) and not _newest_is_as_in_the_file(log, 0)
    follower_batch = batch(base_offset=1)
    log.append_as_follower(memoryview(follower_batch))
    assert not _newest_is_as_in_the_file(log, 1)
    log.append_as_leader(batch(), 1)
    assert _newest_is_as_in_the_file(log, 2)
    log.truncate_fully_and_start_at(2)
    assert not _newest_is_as_in_the_file(log, 2)


@pytest.mark.spec("BRK-131")
def test_in_a_new_segment_it_lies_at_the_beginning(tmp_path: Path) -> None:
    log = make_log(tmp_path, segment_bytes="100")
    for _ in range(2):
        log.append_as_leader(batch(), 0)
    assert _newest_is_as_in_the_file(log, 1)
    assert log.end.segment_base == 1


@pytest.mark.spec("BRK-94")
def test_a_large_one_is_left_to_the_file(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(value=b"x" * 4000), 0)
    assert log.newest_at(0, log.end) is None
    log.append_as_leader(batch(), 0)
    log.append_as_leader(batch(value=b"x" * 4000), 0)
    assert not _newest_is_as_in_the_file(log, 1) and not _newest_is_as_in_the_file(log, 2)


@pytest.mark.spec("BRK-91")
def test_a_repeat_is_not_the_newest(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.append_as_leader(batch(producer=(7, 0, 0)), 0)
    log.append_as_leader(batch(producer=(7, 0, 1)), 0)
    assert log.append_as_leader(batch(producer=(7, 0, 0)), 0).duplicate
    assert _newest_is_as_in_the_file(log, 1)
