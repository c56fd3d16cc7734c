"""Without descriptors, memory or room: what fails, what stays online, and what is there when it is tried again."""

import contextlib
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkatool.broker.storage.directories.log_manager import LogManager
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.segment.index_file import IndexFile
from kafkatool.broker.storage.segment.transaction_index import read_aborted
from kafkatool.core.errors import OffsetOrderError, OutOfResourcesError, StorageError
from kafkatool.core.protocol.records.batches import iter_batches
from tests.broker.replication.following.test_convergence import Pair
from tests.broker.replication.world import ManualScheduler
from tests.broker.storage.batch_builders import batch, marker
from tests.broker.storage.descriptors import few_descriptors
from tests.broker.storage.logs import PARTITION, Later, broker_config, content, everything, make_log

_SMALL: dict[str, Any] = {"segment_bytes": "400", "index_interval_bytes": "100", "retention_ms": "-1"}


def _filled(directory: Path, later: Later) -> Log:
    log = make_log(directory, later, **_SMALL)
    for number in range(20):
        log.append_as_leader(batch(2, timestamp=1000 + number), number // 4)
    log.high_watermark = log.log_end_offset
    for segment in log.segments:
        segment.release()
    return log


def _retain(log: Log) -> None:
    log.advance_log_start(20)
    log.apply_retention()


_OPERATIONS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append_as_leader(batch(2, timestamp=3000), 9),
    "append and roll": lambda log: log.append_as_leader(batch(12, timestamp=3000), 9),
    "append as follower": lambda log: log.append_as_follower(
        memoryview(batch(12, base_offset=log.log_end_offset, epoch=9))
    ),
    "flush": lambda log: log.flush(),
    "cut": lambda log: log.truncate_to(38),
    "cut segments": lambda log: log.truncate_to(9),
    "retention": _retain,
    "read": lambda log: log.read(5, 1000, 40, min_one_batch=True),
    "read by time": lambda log: log.find_by_timestamp(1009, 40),
}


def _in_transaction(log: Log) -> None:
    log.append_as_follower(memoryview(batch(base_offset=40, epoch=9, producer=(8, 0, 0), attributes=0x10)))


def _abort(log: Log) -> None:
    log.append_as_follower(memoryview(marker(commit=False, producer=(8, 0), base_offset=log.log_end_offset)))


def _with_producers(log: Log) -> None:
    """Have an index of transactions, and sequences that a cut has learnt anew."""
    _in_transaction(log)
    _abort(log)
    for number in range(4):
        end = log.log_end_offset
        log.append_as_follower(memoryview(batch(base_offset=end, epoch=9, producer=(8, 1, number))))
    for segment in log.segments:
        segment.release()


_PREPARED: dict[str, tuple[Callable[[Log], object], Callable[[Log], object]]] = {
    **{name: (lambda _: None, operation) for name, operation in _OPERATIONS.items()},
    "start over": (lambda _: None, lambda log: log.truncate_fully_and_start_at(100)),
    "abort": (_in_transaction, _abort),
    "cut with producers": (_with_producers, lambda log: log.truncate_to(43)),
    "cut an abort": (_with_producers, lambda log: log.truncate_to(41)),
    "begin inside of a batch": (
        lambda log: log.truncate_fully_and_start_at(100),
        lambda log: log.append_as_follower(memoryview(batch(12, base_offset=95, epoch=9))),
    ),
}


@pytest.mark.spec("BRK-146")
@pytest.mark.parametrize("name", _OPERATIONS)
def test_an_operation_that_lacks_descriptors_fails_alone_and_succeeds_when_there_are_some(
    tmp_path: Path, name: str
) -> None:
    operation = _OPERATIONS[name]
    expected = _filled(tmp_path / "expected", Later())
    operation(expected)
    free, failed = 0, True
    while failed:
        later = Later()
        log = _filled(tmp_path / str(free), later)
        try:
            with few_descriptors(free):
                operation(log)
            failed = False
        except OutOfResourcesError:
            operation(log)
        assert not later.errors, f"with {free} descriptors the log dir went offline"
        assert everything(log) == everything(expected), free
        assert log.leader_epochs.entries == expected.leader_epochs.entries, free
        assert (log.log_start_offset, log.log_end_offset) == (expected.log_start_offset, expected.log_end_offset)
        log.close()
        found = make_log(tmp_path / str(free), log_start_offset=log.log_start_offset, **_SMALL)
        assert everything(found) == everything(expected), free
        free += 1
    assert free > 1, "it needs no descriptor"


@pytest.mark.spec("BRK-146")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_the_system_lacks_for_a_while_is_no_broken_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def lacking(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    later = Later()
    log = _filled(tmp_path, later)
    with monkeypatch.context() as system:
        system.setattr(os, "open", lacking)
        with pytest.raises(OutOfResourcesError):
            log.append_as_leader(batch(), 9)
    assert not later.errors
    assert log.append_as_leader(batch(), 9).first_offset == 40


@pytest.mark.spec("BRK-146", "BRK-137")
def test_a_full_disk_takes_its_dir_offline_and_what_was_appended_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka does: it cannot know that anything it writes from now on, checkpoints included, will be there."""
    later = Later()
    log = _filled(tmp_path, later)
    before, write = everything(log), os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if position < 100:
            return write(fd, memoryview(data)[:10], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as system:
        system.setattr(os, "pwrite", full)
        with pytest.raises(StorageError):
            log.append_as_leader(batch(12), 9)
    assert [error.errno for error in later.errors] == [errno.ENOSPC]
    assert everything(make_log(tmp_path, **_SMALL)) == before


@pytest.mark.slow
@pytest.mark.spec("BRK-80", "BRK-146", "BRK-147")
def test_a_log_dir_stays_online_whatever_the_manager_lacked_descriptors_for(tmp_path: Path) -> None:
    def load() -> LogManager:
        manager = LogManager(broker_config(log_dirs=str(tmp_path)), lambda _: {}, ManualScheduler())
        manager.load()
        return manager

    manager = load()
    for free in range(10):
        with few_descriptors(free):
            manager.write_recovery_points()
            manager.write_log_starts()
            try:
                manager.get_or_create(PARTITION, is_new=True)
            except OutOfResourcesError:
                assert manager.get(PARTITION) is None
    assert manager.live_dirs == [tmp_path]
    log = manager.get_or_create(PARTITION, is_new=True)
    log.append_as_leader(batch(3), 0)
    for free in range(3):
        with few_descriptors(free):
            manager.write_high_watermarks({PARTITION: 2})
    assert manager.live_dirs == [tmp_path], "left to the next time"
    manager.write_high_watermarks({PARTITION: 3})
    with few_descriptors(0), pytest.raises(OutOfResourcesError):
        manager.read_high_watermarks()
    manager.shutdown()
    for free in range(3):
        with few_descriptors(free), pytest.raises(OutOfResourcesError):
            load()
    manager = load()
    assert [one.log_end_offset for one in manager.logs()] == [3]
    assert manager.read_high_watermarks() == {PARTITION: 3}
    manager.shutdown()


@pytest.mark.slow
@pytest.mark.spec("BRK-71", "BRK-72", "BRK-146")
def test_a_follower_that_lacks_descriptors_goes_on_when_there_are_some(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.lead(1)
    for _ in range(12):
        pair.append(2)
    pair.lead(2)
    pair.append(1)
    pair.lead(1)
    pair.append(1)
    for broker in (1, 2):
        for segment in pair.replicas[broker].log.segments:
            segment.release()
    logs = [pair.replicas[broker].log for broker in (1, 2)]
    with few_descriptors(0):
        pair.follow(rounds=3)
    for free in range(2, 8):
        logs[1].release_idle()
        with few_descriptors(free):
            pair.follow(rounds=3)
    assert not pair.failed
    pair.follow(rounds=20)
    assert not pair.failed
    assert everything(logs[0]) == everything(logs[1])


class OneLacking:
    """A process in which one attempt to open a file or list a directory fails: another thread had the last descriptor."""

    def __init__(self, system: pytest.MonkeyPatch, number: int) -> None:
        self._number, self.attempts = number, 0
        for module, name in ((os, "open"), (os, "scandir"), (io, "open")):
            system.setattr(module, name, self._counted(getattr(module, name)))

    def _counted(self, attempt: Callable[..., Any]) -> Callable[..., Any]:
        def opening(*arguments: Any, **options: Any) -> Any:
            self.attempts += 1
            if self.attempts == self._number:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return attempt(*arguments, **options)

        return opening


@pytest.mark.spec("BRK-146")
@pytest.mark.parametrize("name", _PREPARED)
def test_whichever_descriptor_an_operation_lacks_the_log_dir_stays_online(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, operation = _PREPARED[name]

    def prepared(directory: Path, later: Later) -> Log:
        log = _filled(directory, later)
        prepare(log)
        return log

    def reopened(log: Log) -> Log:
        log.close()
        return make_log(log.directory, log_start_offset=log.log_start_offset, **_SMALL)

    done = prepared(tmp_path / "expected", Later())
    operation(done)
    expected, expected_later = _state(done), _state(reopened(done))
    number, was_lacking = 0, True
    while was_lacking:
        number += 1
        later = Later()
        log = prepared(tmp_path / str(number), later)
        with monkeypatch.context() as system:
            lacking = OneLacking(system, number)
            with contextlib.suppress(OutOfResourcesError):
                operation(log)
        if was_lacking := lacking.attempts >= number:
            with contextlib.suppress(OffsetOrderError):  # an append that was done before it lacked something
                operation(log)
        assert not later.errors, f"attempt {number}: the log dir went offline"
        assert _state(log) == expected, number
        assert _state(reopened(log)) == expected_later, number
    assert number > 1, "it needs no descriptor"


def _state(log: Log) -> tuple[object, ...]:
    aborted = [one for segment in log.segments for one in read_aborted(segment.transaction_index_path)]
    return everything(log), log.log_end_offset, log.leader_epochs.entries, str(log.state.producers.entries), aborted


class Full:
    """A disk that is full from the ``number``-th write on: nothing is made and nothing grows."""

    def __init__(self, system: pytest.MonkeyPatch, number: int) -> None:
        self._number, self.attempts = number, 0
        for name in ("pwrite", "write", "posix_fallocate"):
            system.setattr(os, name, self._counted(getattr(os, name), lambda *_: True))
        system.setattr(os, "open", self._counted(os.open, lambda path, flags, *_: flags & os.O_CREAT))
        system.setattr(io, "open", self._counted(io.open, lambda path, mode="r", *_: mode[0] in "wax"))

    def _counted(self, call: Callable[..., Any], takes_room: Callable[..., object]) -> Callable[..., Any]:
        def writing(*arguments: Any, **options: Any) -> Any:
            if takes_room(*arguments):
                self.attempts += 1
                if self.attempts >= self._number:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **options)

        return writing


@pytest.mark.spec("BRK-146", "BRK-137")
@pytest.mark.parametrize("name", [name for name in _PREPARED if not name.startswith("read")])
def test_whenever_the_disk_is_full_its_dir_goes_offline_and_the_log_is_found_whole(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, operation = _PREPARED[name]

    def prepared(directory: Path, later: Later) -> Log:
        log = _filled(directory, later)
        prepare(log)
        log.flush()
        return log

    done = prepared(tmp_path / "expected", Later())
    before = everything(done)
    operation(done)
    fewest, most = sorted((before, everything(done)), key=len)
    number, was_full = 0, True
    while was_full:
        number += 1
        later = Later()
        log = prepared(tmp_path / str(number), later)
        with monkeypatch.context() as system:
            disk, failed = Full(system, number), False
            try:
                operation(log)
            except StorageError:
                failed = True
            was_full = disk.attempts >= number
            log.abandon()
        assert failed == was_full == bool(later.errors), number
        found = everything(make_log(tmp_path / str(number), log_start_offset=log.log_start_offset, **_SMALL))
        in_part = (most.startswith(found) and found.startswith(fewest)) or (
            most.endswith(found) and found.endswith(fewest)
        )
        assert in_part, number


def _bases(log: Log) -> list[int]:
    return [header.base_offset for _, header in iter_batches(everything(log))]


def _read_through(log: Log) -> list[int]:
    """Read batch after batch, as a consumer does."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        headers = [header for _, header in iter_batches(content(log.read(offset, 1, 2**62, min_one_batch=True)))]
        found += [header.base_offset for header in headers]
        offset = headers[-1].next_offset
    return found


@pytest.mark.spec("BRK-131", "BRK-137", "BRK-146")
@pytest.mark.parametrize("clean", [False, True])
def test_a_roll_that_lacks_something_leaves_no_segment_where_the_old_one_goes_on(
    tmp_path: Path, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch too large for the segment is refused; smaller ones still fit it, and take the offsets it would have had."""
    number, was_lacking = 0, True
    while was_lacking:
        number += 1
        directory, later = tmp_path / str(number), Later()
        log = make_log(directory, later, **_SMALL)
        for _ in range(2):
            log.append_as_leader(batch(2), 1)
        with monkeypatch.context() as system:
            lacking = OneLacking(system, number)
            with contextlib.suppress(OutOfResourcesError):
                log.append_as_leader(batch(30), 1)
        was_lacking = lacking.attempts >= number
        for _ in range(6):
            log.append_as_leader(batch(1), 1)
        log.high_watermark = log.log_end_offset
        before = _bases(log)
        assert _read_through(log) == before, number
        if clean:
            log.close()
        else:
            log.flush()
            log.abandon()
        found = make_log(directory, clean=clean, **_SMALL)
        assert not later.errors and _bases(found) == before, number
        assert _read_through(found) == before, number
    assert number > 3, "it needs no descriptor"


@pytest.mark.spec("BRK-131", "BRK-146")
def test_a_segment_whose_end_could_not_be_written_is_still_the_active_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Later()
    log = make_log(tmp_path, later, **_SMALL)
    for _ in range(2):
        log.append_as_leader(batch(2, timestamp=1000), 1)
    active = log.segments.active
    with monkeypatch.context() as system:

        def lacking(*_: object, **__: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        system.setattr(IndexFile, "write", lacking)
        with pytest.raises(OutOfResourcesError):
            log.append_as_leader(batch(30, timestamp=2000), 1)
    assert log.segments.active is active
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [f"{0:020d}.log"]
    log.append_as_leader(batch(1, timestamp=3000), 1)
    log.truncate_to(4)
    log.append_as_leader(batch(1, timestamp=4000), 1)
    assert _read_through(log) == [0, 2, 4]
    found = log.find_by_timestamp(4000, 5)
    assert found is not None and found.offset == 4
    log.append_as_leader(batch(30, timestamp=5000), 1)
    log.close()
    assert _bases(make_log(tmp_path, clean=True, **_SMALL)) == [0, 2, 4, 5]
