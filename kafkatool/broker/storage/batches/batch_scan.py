"""Walking the batches of a log file, header by header."""

import os
from collections.abc import Iterator

from kafkatool.core.errors import CorruptRecordsError
from kafkatool.core.protocol.codec.file_region import HasFileno
from kafkatool.core.protocol.records.batches import HEADER_BYTES, PREFIX_BYTES, BatchHeader, check_crc, read_header

_HEADERS_CHUNK_BYTES = 16 * 1024
_RECORDS_CHUNK_BYTES = 1024 * 1024


def scan_headers(file: HasFileno, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch in [start, end), up to the first that is not whole. Raises OSError."""
    position = start
    chunk, chunk_start = b"", start
    while position + PREFIX_BYTES < end:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            chunk, chunk_start = os.pread(file.fileno(), min(_HEADERS_CHUNK_BYTES, end - position), position), position
        try:
            header = read_header(chunk, position - chunk_start)
        except CorruptRecordsError:
            return
        if header is None or position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def scan_batches(file: HasFileno, start: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Do as ``scan_headers``, with the bytes of each batch. Raises OSError."""
    chunk, chunk_start = memoryview(b""), start
    for position, header in scan_headers(file, start, end):
        if position + header.size_bytes > chunk_start + len(chunk):
            wanted = min(max(_RECORDS_CHUNK_BYTES, header.size_bytes), end - position)
            chunk, chunk_start = memoryview(os.pread(file.fileno(), wanted, position)), position
        at = position - chunk_start
        yield position, header, chunk[at : at + header.size_bytes]


def scan_valid(file: HasFileno, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Do as ``scan_headers``, reading everything and stopping at the first batch whose checksum fails (BRK-137)."""
    for position, header, batch in scan_batches(file, start, end):
        if not check_crc(batch):
            return
        yield position, header
