"""The disk of the simulated brokers: files outlive a process that is killed, but what was not synced may go with the power.

Data is durable by fsync of its file, a name by fsync of its directory. Nothing of the product knows of it: the calls of
``os`` are noted while a run lasts (HIS-47).
"""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

_ZEROED: Final = 0.2  # of the files that lose their end: its length is there, its data is not


class Disk:
    """Notes what is durable below the directories that ``fail`` is asked for. One at a time in a process."""

    def __init__(self) -> None:
        self._data: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._nameless: dict[Path, list[int]] = {}  # descriptors: so the inodes are not used again
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        self._real = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "unlink")}
        instead = {name: self._noted(self._real[name]) for name in ("rename", "replace", "unlink")}
        for name, function in {"fsync": self._sync, **instead}.items():
            setattr(os, name, function)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        for directory in list(self._nameless):
            self._let_go(directory)

    def settle(self, directory: Path) -> None:
        """Take what is in the directories below for what the disk holds."""
        for where in (path for path in directory.iterdir() if path.is_dir()):
            for path in where.iterdir():
                self._data[path.stat().st_ino] = path.read_bytes()
            self._note_names(where)

    def fail(self, directory: Path, chance: Random) -> None:
        """Leave of the files in each directory below what the disk may hold when the power has failed.

        That is of its names those of the last sync or those of now, and of a file what was synced and any part of what
        was written after it.
        """
        for where in sorted(path for path in directory.iterdir() if path.is_dir()):
            now = {path.name: path for path in where.iterdir()}
            inodes = {name: path.stat().st_ino for name, path in now.items()}
            contents = {inodes[name]: path.read_bytes() for name, path in now.items()}
            for fd in self._nameless.get(where, ()):
                contents[os.fstat(fd).st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()
            left = chance.choice((self._names.get(where, {}), inodes))
            kept = {name: self._left_of(contents[inode], inode, chance) for name, inode in sorted(left.items())}
            for path in now.values():
                self._real["unlink"](path)
            for name, data in kept.items():
                (where / name).write_bytes(data)
        self.settle(directory)

    def _left_of(self, written: bytes, inode: int, chance: Random) -> bytes:
        synced = self._data.get(inode, b"")
        if not written.startswith(synced):
            return chance.choice((synced, written))
        end = chance.randint(len(synced), len(written))
        zeroed = len(written) - end if chance.random() < _ZEROED else 0
        return written[:end] + bytes(zeroed)

    def _sync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}")
        if path.is_dir():
            self._note_names(path.readlink())
        else:
            self._data[os.fstat(fd).st_ino] = path.read_bytes()

    def _note_names(self, directory: Path) -> None:
        self._names[directory] = {path.name: path.stat().st_ino for path in directory.iterdir()}
        self._let_go(directory)

    def _let_go(self, directory: Path) -> None:
        for fd in self._nameless.pop(directory, ()):
            self._data.pop(os.fstat(fd).st_ino, None)
            os.close(fd)

    def _noted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **options: Any) -> Any:
            going = Path(arguments[-1])  # of two, the one in whose place the other comes
            if going.is_file():
                self._nameless.setdefault(going.parent, []).append(os.open(going, os.O_RDONLY | os.O_CLOEXEC))
            return change(*arguments, **options)

        return noted
