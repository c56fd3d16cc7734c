"""A directory of our own for the merge's files, and the unpacking into it of logs that cannot be read at any offset."""

import fcntl
import gzip
import io
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

GZIP_MAGIC = b"\x1f\x8b"
COPY_BYTES = 1 << 20

PREFIX = "kt-logs-"
ABANDONED_AFTER_S = 3600
"""So old a directory of ours must be to be taken for one that a killed kt left, if no kt has a lock on it."""

BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
"""The errors of gzip data that is cut or damaged."""


@contextmanager
def spool() -> Iterator[Path]:
    """Give a directory below the system's temporary one (TMPDIR), removed at the end. It needs room for the result.

    Everything the merge writes before its result is in it, Spark's files too. What an earlier kt left there, because it was
    killed, is removed first: it may be as large as its logs.
    """
    remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as directory:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # a file system without locks: then another kt may remove it after an hour
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield Path(directory)
        finally:
            os.close(held)


def remove_abandoned(parent: Path) -> None:
    """Remove the directories of a spool there that nobody has any more: old, our user's, and without a lock."""
    with os.scandir(parent) as entries:
        found = [entry for entry in entries if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False)]
    for entry in found:
        with suppress(OSError):  # gone meanwhile, or locked: that kt is at work
            status = entry.stat(follow_symlinks=False)
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < ABANDONED_AFTER_S:
                continue
            tried = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(tried, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(tried)


def unpack(path: Path, directory: Path) -> tuple[Path, bool]:
    """Copy a gzip file, a pipe or ``-`` (standard input) there, unpacked if it is gzip by content (SCL-11X).

    Return the copy and whether it is complete; of damaged gzip data the copy holds all that could be unpacked.
    """
    handle, name = tempfile.mkstemp(prefix="log-", dir=directory)
    with os.fdopen(handle, "wb") as copy, _open(path) as original:
        if original.peek(2)[:2] != GZIP_MAGIC:
            shutil.copyfileobj(original, copy, COPY_BYTES)
            return Path(name), True
        try:
            copy.writelines(unpacked_pieces(original))
        except BROKEN_GZIP:
            return Path(name), False
    return Path(name), True


def unpacked_pieces(original: io.BufferedReader) -> Iterator[bytes]:
    """Yield what a gzip file holds; of damaged data all that can be unpacked, and then one of BROKEN_GZIP."""
    with gzip.GzipFile(fileobj=original) as unpacked:
        while piece := unpacked.read1(COPY_BYTES):
            yield piece


@contextmanager
def _open(path: Path) -> Iterator[io.BufferedReader]:
    if path != Path("-"):
        with path.open("rb") as file:
            yield file
        return
    reader = io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))
    yield cast(io.BufferedReader, reader)
    reader.detach()  # closing it would close standard input
