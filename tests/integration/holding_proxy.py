"""Between a client and ZooKeeper: lets all through but one kind of request, which it holds with all that follows it."""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

MULTI: Final = 14


class HoldingProxy:
    """``hold`` sees a request's type and bytes; from the first it is true of nothing reaches the server until ``release``.

    Answers and watches pass. A context manager; every thread ends with it.
    """

    def __init__(self, server_port: int, hold: Callable[[int, bytes], bool]) -> None:
        self._server_port = server_port
        self._hold = hold
        self.held = threading.Event()
        self._go_on = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
        for found in self._sockets:
            with contextlib.suppress(OSError):  # it is closed already
                found.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for found in self._sockets:
            found.close()

    def release(self) -> None:
        """Let what was held go on its way, and hold nothing again."""
        self._go_on.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                return
            self._sockets += [client, server]
            for target, source, sink in ((self._requests, client, server), (self._answers, server, client)):
                thread = threading.Thread(target=target, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while len(length := stream.read(4)) == 4:
                request = stream.read(int.from_bytes(length))
                if not self._go_on.is_set() and self._hold(int.from_bytes(request[4:8]), request):
                    self.held.set()
                    self._go_on.wait()
                server.sendall(length + request)
        self._end(server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        self._end(client)

    @staticmethod
    def _end(other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
