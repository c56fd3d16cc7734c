"""A response on its way out: bytes and file regions, written as far as the socket takes them.

A file region goes from the page cache to the socket by sendfile; the bytes before it are sent with MSG_MORE, so that
the kernel joins them into one segment.
"""

import os
import socket

from kafkatool.core.protocol.codec.file_region import FileRegion
from kafkatool.core.protocol.codec.types import Chunk

_MAX_VECTORS = 64  # far below IOV_MAX; a response has few chunks


class Outgoing:
    """The part of one response still to be written. Not thread-safe."""

    __slots__ = ("_at", "_chunks")

    def __init__(self, chunks: list[Chunk]) -> None:
        """Take over ``chunks``; they are changed."""
        self._chunks = chunks
        self._at = 0

    def write(self, sock: socket.socket) -> bool:
        """Write until done (True) or until the socket is full (False). Raises OSError when the connection is gone."""
        try:
            while (left := len(self._chunks) - self._at) > 0:
                head = self._chunks[self._at]
                if isinstance(head, FileRegion):
                    self._send_region(sock, head)
                elif left > 1:
                    self._send_bytes(sock)
                elif (sent := sock.send(head)) == len(head):  # most responses are one chunk
                    return True
                else:
                    self._chunks[self._at] = memoryview(head)[sent:]
        except BlockingIOError:
            return False
        return True

    def _send_bytes(self, sock: socket.socket) -> None:
        """Send everything up to the next file region in one call."""
        batch: list[bytes | bytearray | memoryview] = []
        for chunk in self._chunks[self._at : self._at + _MAX_VECTORS]:
            if isinstance(chunk, FileRegion):
                break
            batch.append(chunk)
        flags = socket.MSG_MORE if self._at + len(batch) < len(self._chunks) else 0
        sent = sock.send(batch[0], flags) if len(batch) == 1 else sock.sendmsg(batch, (), flags)
        for chunk in batch:
            size_bytes = len(chunk)
            if sent < size_bytes:
                self._chunks[self._at] = memoryview(chunk)[sent:]
                return
            sent -= size_bytes
            self._at += 1

    def _send_region(self, sock: socket.socket, region: FileRegion) -> None:
        if not region.size_bytes:
            self._at += 1
            return
        sent = os.sendfile(sock.fileno(), region.fd_owner.fileno(), region.position, region.size_bytes)
        if not sent:
            raise OSError(f"{region.size_bytes} bytes of a response are missing in the log file")
        if sent == region.size_bytes:
            self._at += 1
        else:
            rest = FileRegion(region.fd_owner, region.position + sent, region.size_bytes - sent)
            self._chunks[self._at] = rest
