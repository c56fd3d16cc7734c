"""What is noted of a process's calls, and what a power cut leaves, beside a literal model of such a disk."""

import builtins
import io
import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePath
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.power.disk import Disk
from tests.histories.power.noting import Noting, present

Left = Mapping[PurePath, bytes | None]


class LiteralFile:
    """Copies of all that it may hold: what was synced last, and whatever it went through since then."""

    def __init__(self) -> None:
        self.now = b""
        self.may = [b""]

    def write(self, at: int, data: bytes) -> None:
        before = self.now
        for size in range(1, len(data) + 1):
            self.now = before[:at].ljust(at, b"\0") + data[:size] + before[at + size :]
            self.may.append(self.now)

    def resize(self, size: int) -> None:
        self.now = self.now[:size].ljust(size, b"\0")
        self.may.append(self.now)

    def sync(self) -> None:
        self.may = [self.now]

    def allows(self, data: bytes) -> bool:
        zeroed = (m for m in self.may if len(data) == len(self.now) >= len(m))
        return data in self.may or any(m.ljust(len(data), b"\0") == data for m in zeroed)


class LiteralDirectory:
    """Copies of all lists of names that it may have."""

    def __init__(self) -> None:
        self.now: dict[str, LiteralFile | LiteralDirectory] = {}
        self.may = [self.now]

    def change(self, gone: str = "", new: "Mapping[str, LiteralFile | LiteralDirectory] | None" = None) -> None:
        self.now = {name: node for name, node in self.now.items() if name != gone} | dict(new or {})
        self.may.append(self.now)

    def sync(self) -> None:
        self.may = [self.now]

    def allows(self, left: Left) -> bool:
        here = {path.name for path in left if len(path.parts) == 1}
        return any(self._allows(names, left) for names in self.may if names.keys() == here)

    def _allows(self, names: Mapping[str, "LiteralFile | LiteralDirectory"], left: Left) -> bool:
        for name, node in names.items():
            data = left[PurePath(name)]
            if isinstance(node, LiteralFile):
                if data is None or not node.allows(data):
                    return False
            else:
                below = {path.relative_to(name): d for path, d in left.items() if name in path.parts[:-1]}
                if data is not None or not node.allows(below):
                    return False
        return True


class Walk:
    """Does at random what processes do to files, by all the calls there are for it, and the same to the model."""

    def __init__(self, root: Path, chance: Random) -> None:
        self.model = LiteralDirectory()
        self._root, self._chance = root, chance

    def step(self) -> None:
        chance = self._chance
        where, directory = self._root, self.model
        if isinstance(below := directory.now.get("d"), LiteralDirectory) and chance.random() < 0.5:
            where, directory = where / "d", below
        act = chance.choice((self._write, self._write, self._write, self._name, self._sync, self._directory))
        act(where, directory, chance.choice("xyz"))

    def _write(self, where: Path, directory: LiteralDirectory, name: str) -> None:
        path, data, at = where / name, self._chance.randbytes(3), self._chance.randrange(6)
        file = directory.now.get(name)
        if file is None:
            directory.change(new={name: (file := LiteralFile())})
            if self._chance.random() < 0.5:
                path.touch()
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
        assert isinstance(file, LiteralFile)
        size = len(file.now)
        match self._chance.randrange(6):
            case 0:
                path.write_bytes(data)
                if size:
                    file.resize(0)
                file.write(0, data)
            case 1:
                with path.open("ab", buffering=0) as opened:
                    opened.write(data)
                file.write(size, data)
            case 2:
                with path.open("r+b") as buffered:
                    buffered.seek(at)
                    buffered.write(data)
                file.write(at, data)
            case 3:
                fd = os.open(path, os.O_RDWR)
                os.pwrite(fd, data, at)
                os.lseek(fd, 2, os.SEEK_SET)
                os.write(fd, memoryview(data))
                os.close(fd)
                file.write(at, data)
                file.write(2, data)
            case 4:
                os.truncate(path, at)
                file.resize(at)
            case 5:
                with path.open("w", encoding="ascii") as text:
                    text.write("text")
                    text.flush()
                    text.truncate(at)
                if size:
                    file.resize(0)
                file.write(0, b"text")
                file.resize(at)

    def _name(self, where: Path, directory: LiteralDirectory, name: str) -> None:
        node, other = directory.now.get(name), self._chance.choice("xyz")
        if isinstance(node, LiteralFile) and self._chance.random() < 0.7 and other != name:
            (where / name).replace(where / other)
            directory.change(name, {other: node})
        elif isinstance(node, LiteralFile):
            (where / name).unlink()
            directory.change(name)

    def _sync(self, where: Path, directory: LiteralDirectory, name: str) -> None:
        node = directory.now.get(name, directory)
        fd = os.open(where if node is directory else where / name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        node.sync()

    def _directory(self, *_: object) -> None:
        path, there = self._root / "d", self.model.now.get("d")
        if there is None:
            path.mkdir()
            self.model.change(new={"d": LiteralDirectory()})
        elif self._chance.random() < 0.2:
            assert isinstance(there, LiteralDirectory)
            for name in list(there.now):
                there.change(name)
                if there.now:
                    (path / name).unlink()
            shutil.rmtree(path)  # with the last of them
            self.model.change("d")


@given(seed=st.integers(0, 1 << 32))
@pytest.mark.spec("HIS-47")
def test_whatever_is_left_a_literal_model_of_the_disk_allows(seed: int) -> None:
    chance = Random(seed)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        disk, walk = Disk(root), Walk(root, chance)
        for _ in range(4):
            with Noting(root, disk.take):
                for _ in range(8):
                    walk.step()
            disk.find_unnoted(chance)  # there is nothing
            for _ in range(8):
                left = disk.left(chance)
                assert walk.model.allows(left), left


@pytest.mark.spec("HIS-47")
def test_all_that_a_disk_may_hold_is_left_by_some_seed(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"ab")
    disk = Disk(tmp_path)
    for change in present(tmp_path):
        disk.take(change)
    with Noting(tmp_path, disk.take):
        with old.open("ab", buffering=0) as file:
            file.write(b"cd")
            file.write(b"e")
        old.rename(tmp_path / "new")
        (tmp_path / "made").mkdir()
    contents = [b"ab", b"abc", b"abcd", b"abcde", b"ab\0\0\0", b"abc\0\0", b"abcd\0"]
    expected: set[tuple[tuple[str, bytes | None], ...]]
    expected = {(("old", data),) for data in contents} | {(("new", data),) for data in contents}
    expected |= {(("made", None), ("new", data)) for data in contents}
    found = {tuple(sorted((str(p), d) for p, d in disk.left(Random(seed)).items())) for seed in range(2000)}
    assert found == expected


@pytest.mark.spec("HIS-47")
def test_what_is_written_while_a_sync_is_under_way_is_not_synced_by_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    file = tmp_path / "file"

    def write_more() -> None:
        with file.open("ab", buffering=0) as other:
            other.write(b"late")

    with Noting(tmp_path, disk.take, before_sync=write_more), file.open("wb", buffering=0) as opened:
        opened.write(b"early")
        os.fsync(opened.fileno())
    with Noting(tmp_path, disk.take):
        fd = os.open(tmp_path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    found = {disk.left(Random(seed))[PurePath("file")] for seed in range(2000)}
    assert found == {b"early" + part for part in (b"", b"l", b"la", b"lat", b"late")} | {
        b"early" + b"late"[:size].ljust(4, b"\0") for size in range(4)
    }


@pytest.mark.spec("HIS-47")
@pytest.mark.parametrize("synced", [False, True])
def test_what_was_changed_through_a_mapping_counts_as_unsynced(tmp_path: Path, synced: bool) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(3 * mmap.PAGESIZE))
    disk = Disk(tmp_path)
    for change in present(tmp_path):
        disk.take(change)
    with Noting(tmp_path, disk.take), file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        mapped[0] = mapped[2 * mmap.PAGESIZE] = 1
        mapped.flush()
        if synced:
            os.fsync(opened.fileno())
    disk.find_unnoted(Random(0))
    found = {disk.left(Random(seed))[PurePath("file")] for seed in range(100)}
    assert {(data[0], data[2 * mmap.PAGESIZE]) for data in found if data} in (
        {(0, 0), (1, 0), (1, 1)},
        {(0, 0), (0, 1), (1, 1)},
    ), "the pages come to the disk in the order that the seed drew"


@pytest.mark.spec("HIS-47")
def test_names_that_nothing_noted_are_those_of_the_same_files_and_unsynced(tmp_path: Path) -> None:
    for name in ("target", "temporary", "removed"):
        (tmp_path / name).write_bytes(name.encode())
    disk, durable = Disk(tmp_path), list(present(tmp_path))
    for change in durable:
        disk.take(change)
    (tmp_path / "temporary").rename(tmp_path / "target")
    with (tmp_path / "removed").open("rb"):  # so that what is made does not get its inode
        (tmp_path / "removed").unlink()
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "file").write_bytes(b"new")
    notes = disk.find_unnoted(Random(0))
    assert not disk.find_unnoted(Random(0)), "they are noted now"
    found = [{str(path): data for path, data in disk.left(Random(seed)).items()} for seed in range(200)]
    assert {left["target"] for left in found} == {b"target", b"temporary"}
    assert all(left.get("temporary", b"temporary") == b"temporary" for left in found)
    assert all(("temporary" in left) == (left["target"] == b"target") for left in found)
    assert any("removed" in left for left in found) and any("removed" not in left for left in found)
    assert {left.get("made/file") for left in found} >= {None, b"", b"new"}
    again = Disk(tmp_path)
    for change in (*durable, *notes):
        again.take(change)
    assert [again.left(Random(seed)) for seed in range(200)] == [disk.left(Random(seed)) for seed in range(200)]


@pytest.mark.spec("HIS-47")
def test_the_calls_are_those_of_before_when_it_is_over(tmp_path: Path) -> None:
    names = ("open", "write", "pwrite", "truncate", "ftruncate", "fsync", "rename", "replace", "unlink", "mkdir")
    before = [getattr(os, name) for name in names]
    opening = io.open
    with Noting(tmp_path, lambda change: None):
        assert os.fsync is not before[names.index("fsync")] and builtins.open is not opening
    assert [getattr(os, name) for name in names] == before
    assert io.open is opening and builtins.open is opening
