"""Notes what a process changes below one directory, change by change, while its calls of ``os`` and ``open`` are replaced.

A change and its note happen as one, so that the notes are in the order of the changes. A sync is noted and not done, which
takes its time: when the power fails here, the harness makes of the files what is left. What a process does by other calls,
or through a mapping, is not noted; ``Disk.find_unnoted`` counts that as unsynced.
"""

import builtins
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

_CALLS: Final = (
    "open", "write", "pwrite", "truncate", "ftruncate", "posix_fallocate", "fsync", "fdatasync", "rename", "replace",
    "unlink", "remove", "rmdir", "mkdir",
)  # fmt: skip


class Made(NamedTuple):
    """A file, or a directory, gets its first name."""

    parent: int
    name: str
    inode: int
    is_directory: bool


class Renamed(NamedTuple):
    parent: int
    name: str
    new_parent: int
    new_name: str


class Removed(NamedTuple):
    parent: int
    name: str


class Wrote(NamedTuple):
    inode: int
    at: int
    data: bytes


class Resized(NamedTuple):
    inode: int
    size: int


class Syncing(NamedTuple):
    """What was changed until now is durable once the same thread has ``Synced``."""

    thread: int
    inode: int


class Synced(NamedTuple):
    thread: int


Change = Made | Renamed | Removed | Wrote | Resized | Syncing | Synced


def present(root: Path) -> Iterator[Change]:
    """Yield the changes that make, durably, what is there now."""
    for path in sorted(root.rglob("*")):
        inode = path.stat().st_ino
        yield Made(path.parent.stat().st_ino, path.name, inode, path.is_dir())
        if path.is_file():
            yield Wrote(inode, 0, path.read_bytes())
    for directory_or_file in (root, *sorted(root.rglob("*"))):
        yield Syncing(0, directory_or_file.stat().st_ino)
        yield Synced(0)


class Noting:
    """Gives ``note`` each change below ``root``. ``before_write``, with the file, and ``before_sync`` are called first."""

    def __init__(
        self,
        root: Path,
        note: Callable[[Change], None],
        *,
        before_write: Callable[[int], None] = lambda _: None,
        before_sync: Callable[[], None] = lambda: None,
    ) -> None:
        self._prefix, self._note = f"{root.absolute()}/", note
        self._before_write, self._before_sync = before_write, before_sync
        self._lock = threading.RLock()  # a file that is collected meanwhile may write its rest
        self._inodes: set[tuple[int, int]] = set()  # with their devices: whatever was opened below the root
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        self._real = {name: getattr(os, name) for name in _CALLS}
        self._real["open_file"] = io.open
        for name in _CALLS:
            setattr(os, name, getattr(self, f"_{name}"))
        builtins.open = io.open = self._open_file
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        builtins.open = io.open = self._real.pop("open_file")
        for name, real in self._real.items():
            setattr(os, name, real)

    # --- whereabouts

    def _place(self, path: Any, directory: int | None = None) -> Path | None:
        """Return where a name below the root is; None: it is elsewhere, or none."""
        if isinstance(path, int):
            return None
        where = Path(os.fsdecode(path))
        if directory is not None:
            where = Path(f"/proc/self/fd/{directory}").readlink() / where
        return where if f"{where.absolute()}/".startswith(self._prefix) else None

    def _inode(self, fd: int) -> int | None:
        found = os.fstat(fd)
        return found.st_ino if (found.st_dev, found.st_ino) in self._inodes else None

    # --- files

    def _opening(self, where: Path | None, changes: bool, empties: bool, opened: Callable[[], Any]) -> Any:
        """Open; it may make the file, or empty it: note whether it did."""
        with self._lock:
            was = where.stat().st_size if where is not None and changes and where.exists() else None
            file = opened()
            found = os.fstat(file if isinstance(file, int) else file.fileno())
            if where is None:
                self._inodes.discard((found.st_dev, found.st_ino))  # once of a file that is gone, now of another
                return file
            self._inodes.add((found.st_dev, found.st_ino))
            if changes and was is None:
                self._note(Made(*_name(where), found.st_ino, False))
            elif empties and was:
                self._note(Resized(found.st_ino, 0))
        return file

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
        def opened() -> Any:
            return self._real["open"](path, flags, mode, dir_fd=dir_fd)

        changes, empties = bool(flags & (os.O_CREAT | os.O_TRUNC)), bool(flags & os.O_TRUNC)
        return self._opening(self._place(path, dir_fd), changes, empties, opened)

    def _open_file(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], int] | None = None,
    ) -> Any:
        where = self._place(file)
        plain = mode.replace("b", "").replace("t", "")

        def opened_elsewhere() -> Any:
            return self._real["open_file"](file, mode, buffering, encoding, errors, newline, closefd, opener)

        def opened() -> _NotedFile:
            return _NotedFile(file, plain, closefd, opener, self._write, self._ftruncate)

        if isinstance(file, int):
            if self._inode(file) is None:
                return opened_elsewhere()
            raw = opened()
        elif where is None:
            return self._opening(None, False, False, opened_elsewhere)
        else:
            raw = self._opening(where, plain[0] in "wax", plain[0] == "w", opened)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        kind = io.BufferedRandom if "+" in plain else io.BufferedReader if plain == "r" else io.BufferedWriter
        buffered = kind(raw, size)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    def _changing(self, fd: int, change: Callable[[], Any], noted: Callable[[int, Any], Change | None]) -> Any:
        """Change a file that is open; ``noted`` gets its inode and the answer, and returns what there is to note."""
        inode = self._inode(fd)
        if inode is None:
            return change()
        with self._lock:
            self._before_write(fd)
            answer = change()
            if (told := noted(inode, answer)) is not None:
                self._note(told)
        return answer

    def _write(self, fd: int, data: Any) -> Any:
        def noted(inode: int, count: int) -> Change:
            return Wrote(inode, os.lseek(fd, 0, os.SEEK_CUR) - count, bytes(memoryview(data).cast("B")[:count]))

        return self._changing(fd, lambda: self._real["write"](fd, data), noted)

    def _pwrite(self, fd: int, data: Any, at: int) -> Any:
        def noted(inode: int, count: int) -> Change:
            return Wrote(inode, at, bytes(memoryview(data).cast("B")[:count]))

        return self._changing(fd, lambda: self._real["pwrite"](fd, data, at), noted)

    def _ftruncate(self, fd: int, size: int) -> Any:
        return self._changing(fd, lambda: self._real["ftruncate"](fd, size), lambda inode, _: Resized(inode, size))

    def _truncate(self, path: Any, size: int) -> Any:
        if isinstance(path, int):
            return self._ftruncate(path, size)
        fd = self._open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            return self._ftruncate(fd, size)
        finally:
            os.close(fd)

    def _posix_fallocate(self, fd: int, offset: int, length: int) -> Any:
        before = os.fstat(fd).st_size

        def noted(inode: int, _: Any) -> Change | None:
            return Resized(inode, offset + length) if offset + length > before else None

        return self._changing(fd, lambda: self._real["posix_fallocate"](fd, offset, length), noted)

    def _fsync(self, fd: Any) -> Any:
        fd = fd if isinstance(fd, int) else fd.fileno()
        inode, thread = self._inode(fd), threading.get_ident()
        if inode is None:
            return self._real["fsync"](fd)
        with self._lock:
            self._note(Syncing(thread, inode))
        self._before_sync()
        with self._lock:
            self._note(Synced(thread))
        return None

    _fdatasync = _fsync

    # --- names

    def _rename(self, source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> Any:
        places = self._place(source, src_dir_fd), self._place(target, dst_dir_fd)
        with self._lock:
            self._real["rename"](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            if places[0] is not None and places[1] is not None:
                self._note(Renamed(*_name(places[0]), *_name(places[1])))

    _replace = _rename

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> Any:
        self._remove_name("unlink", path, dir_fd)

    _remove = _unlink

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> Any:
        self._remove_name("rmdir", path, dir_fd)

    def _remove_name(self, call: str, path: Any, dir_fd: int | None) -> None:
        where = self._place(path, dir_fd)
        with self._lock:
            self._real[call](path, dir_fd=dir_fd)
            if where is not None:
                self._note(Removed(*_name(where)))

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:
        where = self._place(path, dir_fd)
        with self._lock:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            if where is not None:
                self._note(Made(*_name(where), where.stat().st_ino, True))


def _name(where: Path) -> tuple[int, str]:
    return where.parent.stat().st_ino, where.name


class _NotedFile(io.FileIO):
    """What ``open`` gives, at the bottom of whatever buffers."""

    def __init__(
        self,
        file: Any,
        mode: str,
        closefd: bool,
        opener: Any,
        write: Callable[[int, Any], Any],
        resize: Callable[[int, int], Any],
    ) -> None:
        super().__init__(file, mode, closefd, opener)
        self._write, self._resize = write, resize

    def write(self, data: Any) -> Any:
        return self._write(self.fileno(), data)

    def truncate(self, size: int | None = None) -> int:
        wanted = self.tell() if size is None else size
        self._resize(self.fileno(), wanted)
        return wanted
