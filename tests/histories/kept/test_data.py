"""What brokers stored is moved, up to a limit: beyond that the largest files are left out, and named."""

import os
from pathlib import Path

import pytest

from tests.histories.kept.data import LEFT_OUT, MOST_BYTES, move_data

_BLOCK = 4096


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Path]:
    """Give the directories of two brokers, with files of one to four blocks."""
    sizes = {"a/t-0/0.log": 4, "a/t-0/0.index": 1, "b/t-0/0.log": 3, "b/t-0/1.log": 2, "b/meta.properties": 1}
    for name, blocks in sizes.items():
        (file := tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(blocks * _BLOCK))
    (tmp_path / "from" / "b" / "empty").mkdir()
    return {name: tmp_path / "from" / name for name in ("a", "b")}


def _files(directory: Path) -> dict[str, bytes]:
    return {str(f.relative_to(directory)): f.read_bytes() for f in directory.rglob("*") if f.is_file()}


@pytest.mark.spec("HIS-48")
def test_all_is_moved_where_it_is_no_more_than_a_gigabyte(stored: dict[str, Path], tmp_path: Path) -> None:
    before = _files(tmp_path / "from")
    move_data(stored, tmp_path / "kept")
    assert _files(tmp_path / "kept") == before and len(before) == 5
    assert (tmp_path / "kept" / "b" / "empty").is_dir()
    assert _files(tmp_path / "from") == {}
    assert MOST_BYTES == 1 << 30


@pytest.mark.spec("HIS-48")
def test_of_more_the_largest_files_are_left_out_and_named(stored: dict[str, Path], tmp_path: Path) -> None:
    before = _files(tmp_path / "from")
    move_data(stored, tmp_path / "kept", most_bytes=5 * _BLOCK)
    (left_out := tmp_path / "kept" / LEFT_OUT).rename(tmp_path / LEFT_OUT)
    assert _files(tmp_path / "kept") == {
        name: before[name] for name in ("a/t-0/0.index", "b/t-0/1.log", "b/meta.properties")
    }
    said, *lines = (tmp_path / LEFT_OUT).read_text().splitlines()
    assert said.startswith(f"At most {5 * _BLOCK} bytes are kept") and not left_out.exists()
    assert lines == [f"a/t-0/0.log: {4 * _BLOCK} bytes", f"b/t-0/0.log: {3 * _BLOCK} bytes"]
    assert _files(tmp_path / "from") == {}


@pytest.mark.spec("HIS-48")
def test_what_only_filled_a_disk_is_never_kept_and_holes_count_for_nothing(
    stored: dict[str, Path], tmp_path: Path
) -> None:
    (stored["a"] / "filling-1024").write_bytes(os.urandom(_BLOCK))
    with (stored["b"] / "t-0" / "0.index").open("wb") as index:
        index.truncate(100 * _BLOCK)
    move_data(stored, tmp_path / "kept", most_bytes=11 * _BLOCK)
    assert (tmp_path / "kept" / LEFT_OUT).read_text().splitlines()[1:] == [f"a/filling-1024: {_BLOCK} bytes"]
    assert (tmp_path / "kept" / "b" / "t-0" / "0.index").stat().st_size == 100 * _BLOCK
