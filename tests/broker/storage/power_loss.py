"""A disk whose power fails at any one of the changes made to it: what was not synced may be there, or may be gone.

Data is durable by fsync of its file, a name by fsync of its directory; until then each of both may have reached the
disk or not, in any order. ``outcomes`` gives the extremes: names as of the last sync or as of now, data likewise, and
data of which only the length reached the disk.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.storage.crashing import Killed

_CHANGES = ("rename", "replace", "unlink", "ftruncate", "truncate", "pwrite", "utime", "fsync")


class Disk:
    """The files below one directory, as the system has them and as the disk has them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.taken = 0
        self.last: int | None = None
        """At the step after it the power fails."""
        self._held: list[int] = []  # of files whose last name went: their inodes are not used again
        self._data: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        for name in _CHANGES:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))
        self.settle()

    def settle(self) -> None:
        """Bring everything to the disk, and count the steps from here on."""
        self.taken, self.last = 0, None
        for directory, _, files in os.walk(self.root):
            here = self._names[Path(directory)] = {}
            for file in files:
                path = Path(directory) / file
                here[file] = path.stat().st_ino
                self._data[here[file]] = path.read_bytes()

    def close(self) -> None:
        """Let go of the files whose names went."""
        for fd in self._held:
            os.close(fd)

    def _counted(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if self.last is not None and self.taken >= self.last:
                raise Killed
            self.taken += 1
            if name == "fsync":
                return self._sync(arguments[0])
            if name in ("unlink", "rename", "replace") and (going := Path(arguments[-1])).is_file():
                self._held.append(os.open(going, os.O_RDONLY))
            return change(*arguments, **options)

        return step

    def _sync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_dir():
            self._names[path] = {one.name: one.stat().st_ino for one in path.iterdir() if one.is_file()}
        else:
            self._data[os.fstat(fd).st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def outcomes(self, into: Path) -> Iterator[tuple[str, Path]]:
        """Yield what a start after the power failure may find, each as a copy of the directory."""
        data_now = dict(self._data)
        names_now: dict[Path, dict[str, int]] = {}
        for directory, _, files in os.walk(self.root):
            here = names_now[Path(directory)] = {}
            for file in files:
                path = Path(directory) / file
                here[file] = path.stat().st_ino
                data_now[here[file]] = path.read_bytes()
        for fd in self._held:
            data_now[os.fstat(fd).st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
        for names_kind, names in (("old", self._names), ("new", names_now)):
            for data_kind, data in (("old", self._data), ("new", data_now), ("no", self._lengths_only(data_now))):
                kind = f"{names_kind} names and {data_kind} data"
                copy = into / kind.replace(" ", "-")
                for where in names_now:
                    target = copy / where.relative_to(self.root)
                    target.mkdir(parents=True)
                    for file, inode in names.get(where, {}).items():
                        (target / file).write_bytes(data.get(inode, b""))
                yield kind, copy

    def _lengths_only(self, data_now: dict[int, bytes]) -> dict[int, bytes]:
        found = {}
        for inode, now in data_now.items():
            before = self._data.get(inode, b"")
            same = next((at for at, pair in enumerate(zip(now, before, strict=False)) if pair[0] != pair[1]), None)
            same = min(len(now), len(before)) if same is None else same
            found[inode] = now[:same] + bytes(len(now) - same)
        return found


def at_every_step(
    base: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Path], Any], act: Callable[[Any], object]
) -> Iterator[tuple[str, Path]]:
    """Yield what may be found after a power failure at each step of ``act``, and after its end.

    ``prepare(directory)`` makes what ``act`` is given; all it wrote is on the disk.
    """
    number, killed = 0, True
    while killed:
        directory = base / f"{number}" / "disk"
        directory.mkdir(parents=True)
        with monkeypatch.context() as patched:
            subject = prepare(directory)
            disk = Disk(directory, patched)
            disk.last = number
            try:
                act(subject)
                killed = False
            except Killed:
                pass
            disk.last = None
            found = list(disk.outcomes(directory.parent))
        disk.close()
        for kind, copy in found:
            yield f"step {number}: {kind}", copy
        number += 1
