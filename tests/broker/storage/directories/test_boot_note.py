"""Only after another start of the system is a log looked through for what the power may have taken."""

import errno
import os
from pathlib import Path

import pytest

from kafkatool.broker.storage.directories import boot_note
from kafkatool.broker.storage.directories.log_dir import LogDir
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.model.values import TopicPartition
from tests.broker.storage.batch_builders import batch
from tests.broker.storage.logs import PARTITION, Later, log_config

GAP = 4


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the system says how this start of it is called."""
    (file := tmp_path / "boot_id").write_text("first\n")
    monkeypatch.setattr(boot_note, "_BOOT_ID", file)
    return file


def opened(directory: LogDir) -> Log:
    path = directory.partition_path(PARTITION)
    path.mkdir(exist_ok=True)
    configs = {PARTITION.topic: log_config()}
    directory.open_logs({PARTITION: path}, configs, Later().services(), 1, lambda: None)
    return directory.logs[0]


def crashed(directory: LogDir) -> LogDir:
    """End as a kill does."""
    for log in directory.logs:
        log.abandon()
    directory.close()
    return LogDir(directory.path)


@pytest.fixture
def with_gap(tmp_path: Path, boot: Path) -> LogDir:
    """A log dir whose log lacks an offset between two segments, after a crash."""
    log = opened(directory := LogDir(tmp_path / "data"))
    for base in (0, GAP + 1):
        log.append_as_follower(memoryview(batch(GAP, base_offset=base)))
        log.roll(log.log_end_offset + 1)
    return crashed(directory)


@pytest.mark.spec("BRK-137")
def test_after_a_crash_alone_nothing_lacks(with_gap: LogDir) -> None:
    assert (with_gap.path / boot_note.FILE).read_text() == "0\n1\nfirst\n"
    assert opened(with_gap).gap_at is None


@pytest.mark.spec("BRK-137")
def test_after_a_start_of_the_system_it_may_until_every_gap_is_closed(with_gap: LogDir, boot: Path) -> None:
    boot.write_text("second\n")
    assert opened(with_gap).gap_at == GAP
    with_gap.write_recovery_points()
    again = crashed(with_gap)  # before anybody said who leads
    log = opened(again)
    assert log.gap_at == GAP
    log.truncate_to(GAP)
    assert "first" in (again.path / boot_note.FILE).read_text()
    again.write_recovery_points()
    assert "second" in (again.path / boot_note.FILE).read_text()
    assert opened(crashed(again)).gap_at is None


@pytest.mark.spec("BRK-137")
@pytest.mark.parametrize(
    ("note", "gap"), [(None, None), ("0\n1\nother\n", GAP), ("0\n1\n", GAP), ("0\n0\n", None), ("", None)]
)
def test_what_is_noted_says_whether_it_may(with_gap: LogDir, note: str | None, gap: int | None) -> None:
    file = with_gap.path / boot_note.FILE
    file.unlink() if note is None else file.write_text(note)
    assert opened(with_gap).gap_at == gap


@pytest.mark.spec("BRK-137")
def test_where_the_system_does_not_say_nothing_is_noted(with_gap: LogDir, boot: Path) -> None:
    boot.unlink()
    assert opened(with_gap).gap_at is None, "whatever there is of another system"
    again = crashed(with_gap)
    (again.path / boot_note.FILE).unlink()
    assert opened(again).gap_at is None
    assert not (again.path / boot_note.FILE).exists()


@pytest.mark.spec("BRK-137")
def test_one_log_with_a_gap_is_enough_to_look_at_all_again(with_gap: LogDir, boot: Path) -> None:
    boot.write_text("second\n")
    paths = {PARTITION: with_gap.partition_path(PARTITION), TopicPartition("t", 1): with_gap.path / "t-1"}
    paths[TopicPartition("t", 1)].mkdir()
    with_gap.open_logs(paths, {"t": log_config()}, Later().services(), 1, lambda: None)
    with_gap.write_recovery_points()
    assert "first" in (with_gap.path / boot_note.FILE).read_text()


@pytest.mark.spec("BRK-137")
def test_a_note_that_cannot_be_written_is_written_later(
    with_gap: LogDir, boot: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    boot.write_text("second\n")
    with monkeypatch.context() as patch:
        patch.setattr(boot_note, "write_entries", refuse)
        opened(with_gap).keep_gap()
        with_gap.write_recovery_points()
    assert "No space left on device" in caplog.text
    with_gap.write_recovery_points()
    assert "second" in (with_gap.path / boot_note.FILE).read_text()


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_linux_says_it() -> None:
    assert boot_note.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
