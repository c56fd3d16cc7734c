"""What brokers stored, taken to where it stays: their own disks may be in memory, and go with the cluster."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 1 << 30
LEFT_OUT: Final = "left-out.txt"
_FILLING: Final = "filling-"  # what a fault filled a disk with


def move_data(sources: Mapping[str, Path], kept: Path, most_bytes: int = MOST_BYTES) -> None:
    """Move what lies in each source to the directory of its name below ``kept``; nobody writes there any more.

    Where all is more than ``most_bytes``, the largest files are left out, as are those that only filled a disk. A file there
    says which.
    """
    found = {(name, file): _size(source / file) for name, source in sources.items() for file in _files(source)}
    taken = sorted((one for one in found if not one[1].name.startswith(_FILLING)), key=found.__getitem__)
    total = sum(map(found.__getitem__, taken))
    while total > most_bytes:
        total -= found[taken.pop()]
    for name, source in sources.items():
        for directory in (source, *(each for each in source.rglob("*") if each.is_dir())):
            (kept / name / directory.relative_to(source)).mkdir(parents=True, exist_ok=True)
    for name, file in taken:
        shutil.move(sources[name] / file, kept / name / file)
    if left := sorted(found.keys() - set(taken)):
        said = f"At most {most_bytes} bytes are kept of what brokers stored, and no file that only filled a disk. Left out:"
        lines = [f"{name}/{file}: {found[name, file]} bytes" for name, file in left]
        (kept / LEFT_OUT).write_text("\n".join((said, *lines)) + "\n")
    for source in sources.values():
        shutil.rmtree(source, ignore_errors=True)  # it may be a mount's root: that stays, empty


def _files(source: Path) -> Iterator[Path]:
    return (file.relative_to(source) for file in source.rglob("*") if file.is_file())


def _size(file: Path) -> int:
    """Return what a file takes on its disk, which is less than its length where it has holes, as indexes have."""
    return file.stat().st_blocks * 512
