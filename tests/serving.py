"""A server of one test that speaks as the test says: each connection is served by a thread of its own."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Yield the port on loopback where ``serve`` gets every connection; no more come when the block is left."""

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # closing it would wake nobody
            accepting.join()
