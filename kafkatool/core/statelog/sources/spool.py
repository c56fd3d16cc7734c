"""A directory of our own for the merge's files, and the unpacking into it of logs that cannot be read at any offset."""

import gzip
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

GZIP_MAGIC = b"\x1f\x8b"
COPY_BYTES = 1 << 20

BROKEN_GZIP = (EOFError, gzip.BadGzipFile, zlib.error)
"""The errors of gzip data that is cut or damaged."""


@contextmanager
def spool() -> Iterator[Path]:
    """Give a directory below the system's temporary one (TMPDIR), removed at the end. It needs room for the result.

    Everything the merge writes before its result is in it, Spark's files too.
    """
    with tempfile.TemporaryDirectory(prefix="kt-logs-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


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
