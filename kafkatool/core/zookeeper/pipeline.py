"""Many requests for the price of a few system calls, over kazoo's connection.

kazoo wakes its thread with one byte per request, sends each by itself and reads each answer in two steps. With
thousands of requests on the way the two threads take turns at the interpreter's lock, and a znode costs 0.2 to 0.4 ms.
Here the thread is woken once, sends what is queued in one write, and reads what has arrived in one read: a tenth of it.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from kafkatool.core.zookeeper.bulk_reads import awaits_many, is_used_up, take_answers

_MOST_REQUESTS = 256  # in one write, so that answers are read meanwhile and neither side's buffer fills
_CHUNK_BYTES = 1 << 18
_GATHER_S = 0.001
_AUTH = 100  # the type of the first kind of request that is numbered in another way


class Pipeline:
    """Stands in for three methods of a kazoo connection (2.10 to 2.11): of its sending, reading, and its wake-up.

    All but `held` runs on kazoo's thread.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._connection = connection = client._connection
        self._send_one, self._read_exactly = connection._send_request, connection._read
        self._read_message = connection._read_socket
        connection._send_request, connection._read = self._send_queued, self._read
        connection._read_socket = self._read_messages
        self._socket: Any = None  # whose bytes these are
        self._arrived = b""
        self._position = 0
        self._holding = threading.local()

    def started(self) -> None:
        """To be called when kazoo has made its wake-up sockets; again does no harm."""
        sending_end = self._connection._write_sock
        if isinstance(sending_end, _WakeUp):
            return
        sending_end.setblocking(False)
        self._connection._write_sock = _WakeUp(sending_end, self._holding)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """This thread's requests of the block are queued, and kazoo's thread is woken once, at its end."""
        self._holding.requests = 0
        try:
            yield
        finally:
            if self._holding.__dict__.pop("requests") and (wake_up := self._connection._write_sock) is not None:
                with contextlib.suppress(OSError):  # closed meanwhile: kazoo fails what is queued
                    wake_up.send(b"\0")

    def _send_queued(self, read_timeout: float, connect_timeout: float) -> None:
        """Send all that is queued, at most `_MOST_REQUESTS`; what is special about a request stays kazoo's to know."""
        queue, connection = self._client._queue, self._connection
        message = bytearray()
        count = 0
        while len(queue) > 1 and count < _MOST_REQUESTS and 0 < getattr(queue[0][0], "type", 0) < _AUTH:
            request, answer = queue.popleft()
            connection._xid = connection._xid % 0x7FFFFFFF + 1
            body = request.serialize()
            message += (len(body) + 8).to_bytes(4) + connection._xid.to_bytes(4) + request.type.to_bytes(4) + body
            self._client._pending.append((request, answer, connection._xid))
            count += 1
        if count:
            connection._write(message, connect_timeout)
        self._send_one(read_timeout, connect_timeout)
        if len(queue):
            connection._write_sock.send(b"\0")

    def _read(self, length: int, timeout: float) -> bytes:
        """Exactly that many bytes, and what else has arrived with them is kept for the next call."""
        connection = self._connection
        if connection._socket is not self._socket:
            self._socket, self._arrived, self._position = connection._socket, b"", 0
        start, end = self._position, self._position + length
        if end > len(self._arrived):
            missing = end - len(self._arrived)
            have = self._arrived[start:] + self._read_exactly(missing, timeout)
            try:
                have += connection._socket.recv(_CHUNK_BYTES)
            except OSError:  # nothing more yet; a broken connection shows at the next read
                pass
            self._arrived, start, end = have, 0, length
        self._position = end
        return self._arrived[start:end]

    def _read_messages(self, read_timeout: float) -> Any:
        """All messages that have arrived: the socket would not tell again of those that were read along."""
        while True:
            outcome = self._read_message(read_timeout)
            if outcome is None:
                self._position = take_answers(self._client, self._arrived, self._position)
                if is_used_up(self._arrived, self._position) and awaits_many(self._client):
                    time.sleep(_GATHER_S)  # let them gather: each wake-up costs as much as ten answers
            if outcome is not None or self._position == len(self._arrived):
                return outcome


class _WakeUp:
    """The sending end of kazoo's wake-up sockets, silent while its thread queues several requests."""

    def __init__(self, socket: Any, holding: threading.local) -> None:
        self._socket = socket
        self._holding = holding

    def send(self, data: bytes) -> None:
        held = self._holding.__dict__
        if "requests" in held:
            held["requests"] += 1
        else:
            with contextlib.suppress(BlockingIOError):  # so full that the thread will wake
                self._socket.send(data)

    def close(self) -> None:
        self._socket.close()
