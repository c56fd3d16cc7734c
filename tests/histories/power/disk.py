"""What a disk may hold when the power has failed, given all that was changed on it and what of that was synced.

Data is durable by fsync of its file, a name by fsync of its directory. Beyond that, of each file any prefix of the writes
since then is there, the last of them cut anywhere, and of each directory any prefix of what was made, renamed and removed
in it.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from random import Random
from typing import Final, Generic, TypeVar

from tests.histories.power.noting import Change, Made, Removed, Renamed, Resized, Synced, Syncing, Wrote

_PAGE: Final = 4096
_ZEROED: Final = 0.2  # of the files that lose their end: its length is there, its data is not
_T = TypeVar("_T")


class _Node(Generic[_T]):
    """``pending``: what was changed since the last sync, oldest first."""

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.pending: list[_T] = []
        self._synced = 0

    @property
    def changes(self) -> int:
        return self._synced + len(self.pending)

    def keep(self, change: _T) -> None:
        """Have it durable."""
        raise NotImplementedError

    def sync(self, changes: int) -> None:
        """Have so many of all changes ever made durable."""
        count = max(0, changes - self._synced)
        for change in self.pending[:count]:
            self.keep(change)
        del self.pending[:count]
        self._synced += count


class _File(_Node[Wrote | Resized]):
    def __init__(self, inode: int) -> None:
        super().__init__(inode)
        self._data = bytearray()

    def keep(self, change: Wrote | Resized) -> None:
        _apply(self._data, change)

    @property
    def now(self) -> bytearray:
        return self._first(len(self.pending))

    def left(self, chance: Random) -> bytes:
        """Draw what a power cut leaves."""
        count = _how_many(self.pending, chance)
        data = self._first(count)
        if count < len(self.pending):
            cut = self.pending[count]
            if isinstance(cut, Wrote) and (size := chance.choice((0, chance.randint(0, len(cut.data))))):
                _apply(data, cut._replace(data=cut.data[:size]))
            if chance.random() < _ZEROED and len(data) < (size := len(self.now)):
                data += bytes(size - len(data))
        return bytes(data)

    def _first(self, count: int) -> bytearray:
        data = self._data.copy()
        for change in self.pending[:count]:
            _apply(data, change)
        return data


class _Directory(_Node[Mapping[str, "_File | _Directory | None"]]):
    """A change of names: to each that it touches, what it leads to from then on."""

    def __init__(self, inode: int) -> None:
        super().__init__(inode)
        self._names: dict[str, _File | _Directory] = {}
        self.now: dict[str, _File | _Directory] = {}

    def change(self, names: Mapping[str, "_File | _Directory | None"]) -> None:
        self.pending.append(names)
        _rename(self.now, names)

    def keep(self, change: Mapping[str, "_File | _Directory | None"]) -> None:
        _rename(self._names, change)

    def left(self, chance: Random) -> Iterator[tuple[PurePath, bytes | None]]:
        """Draw what a power cut leaves: each path with its data, a directory without."""
        names = dict(self._names)
        for change in self.pending[: _how_many(self.pending, chance)]:
            _rename(names, change)
        for name, node in sorted(names.items()):
            if isinstance(node, _File):
                yield PurePath(name), node.left(chance)
            else:
                yield PurePath(name), None
                yield from ((name / path, data) for path, data in node.left(chance))


class Disk:
    """The disk below one directory, which is there for good."""

    def __init__(self, root: Path) -> None:
        self._path = root
        inode = root.stat().st_ino
        self._nodes: dict[int, _File | _Directory] = {inode: _Directory(inode)}
        self._syncing: dict[int, tuple[_File | _Directory, int]] = {}

    def take(self, change: Change) -> None:
        """Have it changed."""
        match change:
            case Made(parent, name, inode, is_directory):
                self._nodes[inode] = made = _Directory(inode) if is_directory else _File(inode)
                self._directory(parent).change({name: made})
            case Renamed(parent, name, new_parent, new_name):
                source, target = self._directory(parent), self._directory(new_parent)
                node = source.now[name]
                if source is target:
                    source.change({name: None, new_name: node})
                else:
                    target.change({new_name: node})
                    source.change({name: None})
            case Removed(parent, name):
                self._directory(parent).change({name: None})
            case Wrote(inode) | Resized(inode):
                file = self._nodes[inode]
                assert isinstance(file, _File)
                file.pending.append(change)
            case Syncing(thread, inode):
                self._syncing[thread] = self._nodes[inode], self._nodes[inode].changes
            case Synced(thread):
                node, changes = self._syncing.pop(thread)
                node.sync(changes)

    def settle(self, below: Path) -> None:
        """Have durable what is below that directory."""
        waiting: list[_File | _Directory] = [self._directory(below.stat().st_ino)]
        while waiting:
            node = waiting.pop()
            node.sync(node.changes)
            if isinstance(node, _Directory):
                waiting += node.now.values()

    def find_unnoted(self, chance: Random, below: Path | None = None) -> list[Change]:
        """Count as changed, and unsynced, what is there though nothing noted it: as through a mapping; return it as notes.

        So it is with a change whose process was killed before it had noted it. Pages of a mapping come to the disk in any
        order.
        """
        where = below or self._path
        found = self._unnoted_names(where)
        for change in found:
            self.take(change)
        for path in sorted(where.rglob("*")):
            node = self._nodes[path.stat().st_ino]
            if isinstance(node, _File):
                differences = _differences(node.inode, bytes(node.now), path.read_bytes(), chance)
                for change in differences:
                    self.take(change)
                found += differences
        return found

    def left(self, chance: Random, below: Path | None = None) -> dict[PurePath, bytes | None]:
        """Draw what a power cut leaves: each path below the directory with its data, a directory without."""
        return dict(self._directory((below or self._path).stat().st_ino).left(chance))

    def cut_power(self, chance: Random, below: Path | None = None) -> None:
        """Put below the directory what the disk may hold; none is at work there any more. Then it is to be settled."""
        where = below or self._path
        self.find_unnoted(chance, where)
        left = self.left(chance, where)
        for path in where.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        put(left, where)

    def _directory(self, inode: int) -> _Directory:
        directory = self._nodes[inode]
        assert isinstance(directory, _Directory)
        return directory

    def _unnoted_names(self, where: Path) -> list[Change]:
        """Return what makes of the noted names those that are there: a file is known again by its inode."""
        there = {(path.parent.stat().st_ino, path.name): path for path in sorted(where.rglob("*"))}
        noted = dict(self._names(self._directory(where.stat().st_ino)))
        gone = {inode: place for place, inode in noted.items() if place not in there}
        found: list[Change] = []
        for place, path in there.items():
            inode = path.stat().st_ino
            if noted.get(place) != inode:
                was = gone.pop(inode, None)
                found.append(Renamed(*was, *place) if was else Made(*place, inode, path.is_dir()))
        return [*found, *(Removed(*place) for place in gone.values())]

    def _names(self, directory: _Directory) -> Iterator[tuple[tuple[int, str], int]]:
        """Yield each noted place below, its directory's inode and its name, with the inode that lies there."""
        for name, node in directory.now.items():
            yield (directory.inode, name), node.inode
            if isinstance(node, _Directory):
                yield from self._names(node)


def put(left: Mapping[PurePath, bytes | None], where: Path) -> None:
    """Make these files and directories below an empty one."""
    for name, data in left.items():
        if data is None:
            (where / name).mkdir()
        else:
            (where / name).write_bytes(data)


def _differences(inode: int, noted: bytes, there: bytes, chance: Random) -> list[Wrote | Resized]:
    pages = range(0, len(there), _PAGE)
    changed = [at for at in pages if noted[at : at + _PAGE] != there[at : at + _PAGE]]
    found: list[Wrote | Resized] = [
        Wrote(inode, at, there[at : at + _PAGE]) for at in chance.sample(changed, len(changed))
    ]
    return [*found, Resized(inode, len(there))] if len(there) < len(noted) else found


def _how_many(pending: list[_T], chance: Random) -> int:
    """Draw a prefix: often none or all, which are the far ends of what may be."""
    return chance.choice((0, len(pending), chance.randint(0, len(pending)), chance.randint(0, len(pending))))


def _apply(data: bytearray, change: Wrote | Resized) -> None:
    match change:
        case Wrote(_, at, new):
            data.extend(bytes(max(0, at - len(data))))
            data[at : at + len(new)] = new
        case Resized(_, size):
            data.extend(bytes(max(0, size - len(data))))
            del data[size:]


def _rename(names: dict[str, _File | _Directory], change: Mapping[str, _File | _Directory | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
