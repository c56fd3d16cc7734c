import os
from pathlib import Path

import pytest

from kafkatool.broker.storage.checkpoint import CheckpointDamagedError, read_offsets, write_offsets
from kafkatool.core.model.values import TopicPartition


@pytest.mark.spec("BRK-147")
def test_offsets_are_written_as_kafka_writes_them_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    offsets = {TopicPartition("a-b", 0): 17, TopicPartition("c", 12): 2**40}
    write_offsets(path, offsets)
    assert path.read_text() == "0\n2\na-b 0 17\nc 12 1099511627776\n"
    assert read_offsets(path) == offsets
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.spec("BRK-147")
def test_a_file_is_written_beside_synced_and_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def synced(fd: int) -> None:
        steps.append(("fsync", Path(f"/proc/self/fd/{fd}").readlink().name))
        fsync(fd)

    def renamed(path: Path, target: Path) -> Path:
        steps.append((path.name, target.name))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_offsets(tmp_path / "f", {TopicPartition("t", 0): 1})
    assert steps == [("fsync", "f.tmp"), ("f.tmp", "f"), ("fsync", tmp_path.name)]


@pytest.mark.spec("BRK-147")
def test_missing_and_empty_files_hold_nothing(tmp_path: Path) -> None:
    assert read_offsets(tmp_path / "none") == {}
    (tmp_path / "empty").touch()
    assert read_offsets(tmp_path / "empty") == {}


@pytest.mark.parametrize(
    "text",
    [
        *("1\n0\n", "0\n", "0\nx\n", "0\n2\nt 0 1\n", "0\n1\nt 0 1\nu 0 1\n"),
        *("0\n1\nt 0\n", "0\n1\nt 0 1 2\n", "0\n1\nt 0 x\n"),
    ],
)
@pytest.mark.spec("BRK-147")
def test_wrong_version_count_or_line_is_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(CheckpointDamagedError):
        read_offsets(tmp_path / "f")


@pytest.mark.spec("BRK-147")
def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\xfe0\n0\n")
    with pytest.raises(CheckpointDamagedError):
        read_offsets(tmp_path / "f")
