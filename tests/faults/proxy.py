"""A TCP proxy on loopback whose links can be silenced or cut, for all peers or for chosen ones."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from kafkatool.broker.embedded.ports import HOST, free_ports

Healing = Literal["resume", "reset", "forget"]
ANYONE = ""


class Link:
    """One connection through the proxy; ``open`` is clear while nothing passes."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.peer = ANYONE
        self.open = threading.Event()
        self.open.set()
        self.closed = False
        self._lock = threading.Lock()

    def silence(self) -> None:
        with self._lock:
            if not self.closed:
                self.open.clear()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self.open.set()
        for end in (self.client, self.server):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


class Proxy:
    """Forwards to ``target_port``. ``peer_of`` names who speaks, from the first bytes sent; by default all are one.

    Runs until ``close``; also a context manager.
    """

    def __init__(self, target_port: int, peer_of: Callable[[bytes], str] = lambda _: ANYONE) -> None:
        self._target_port = target_port
        self._peer_of = peer_of
        self._lock = threading.Lock()
        self._links: list[Link] = []
        self._silent: set[str] = set()
        self._refused: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._threads_lock = threading.Lock()
        self.accepted = 0
        self.port = next(free_ports(1))
        self._listening = socket.create_server((HOST, self.port), backlog=128)
        self._running = True
        self._spawn(self._accept)

    def silence(self, peer: str = ANYONE) -> None:
        """Let no byte pass from now on, either way; connections stay, and new ones are taken."""
        with self._lock:
            self._silent.add(peer)
            for link in self._of(peer):
                link.silence()

    def cut(self, peer: str = ANYONE) -> None:
        """End its connections; new ones end as soon as they speak."""
        with self._lock:
            self._refused.add(peer)
        self.reset(peer)

    def reset(self, peer: str = ANYONE) -> None:
        """End its connections; new ones are as before."""
        with self._lock:
            ended = self._of(peer)
        for link in ended:
            link.close()

    def heal(self, peer: str = ANYONE, how: Healing = "resume") -> None:
        """New connections work again; those silenced go on where they were, or end, or stay silent for good."""
        with self._lock:
            self._silent.discard(peer)
            self._refused.discard(peer)
            waiting = [link for link in self._of(peer) if not link.open.is_set()]
        for link in waiting:
            if how == "resume":
                link.open.set()
            elif how == "reset":
                link.close()

    def close(self) -> None:
        """End everything; returns when its threads are gone."""
        self._running = False
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------------------

    def _way(self, link: Link, source: socket.socket, sink: socket.socket) -> Callable[[bytes], None]:
        """Return what gets the bytes of one direction of a link, as they come."""
        return sink.sendall

    def _of(self, peer: str) -> list[Link]:
        return [link for link in self._links if link.peer == peer]

    def _spawn(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        with self._threads_lock:
            self._threads = [t for t in self._threads if t.is_alive()]
            thread.start()
            self._threads.append(thread)

    def _accept(self) -> None:
        while self._running:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # closed
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(client)
            with self._lock:
                self._links = [known for known in self._links if not known.closed]
                self._links.append(link)
                self.accepted += 1
                if ANYONE in self._silent:
                    link.silence()
            self._spawn(self._serve, link)
            if not self._running:
                link.close()

    def _serve(self, link: Link) -> None:
        try:
            first = link.client.recv(65_536)
            if not first:
                link.close()
                return
            with self._lock:
                link.peer = self._peer_of(first)
                if link.peer in self._silent:
                    link.silence()
                refused = link.peer in self._refused
            if refused:
                link.close()
                return
            link.open.wait()
            link.server = socket.create_connection((HOST, self._target_port), 10)
            link.server.settimeout(None)
            link.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if link.closed:
                link.close()
                return
            self._spawn(self._pump, link, link.server, link.client)
            self._pump(link, link.client, link.server, first)
        except OSError:
            link.close()

    def _pump(self, link: Link, source: socket.socket, sink: socket.socket, first: bytes = b"") -> None:
        hand_on = self._way(link, source, sink)
        with contextlib.suppress(OSError):
            chunk = first or source.recv(65_536)
            while chunk:
                link.open.wait()
                if link.closed:
                    return
                hand_on(chunk)
                chunk = source.recv(65_536)
        link.open.wait()  # a silenced peer's end is not heard either
        link.close()


def client_id_of(first: bytes) -> str:
    """Return how the client calls itself that speaks here; ANYONE where it does not."""
    try:
        (length,) = struct.unpack_from(">h", first, 12)
        return first[14 : 14 + max(length, 0)].decode()
    except (struct.error, UnicodeDecodeError):
        return ANYONE


def broker_of(first: bytes) -> str:
    """Return the id of the broker that speaks here, as fetcher or as controller; a client's is ANYONE."""
    client_id = client_id_of(first)
    kind, _, rest = client_id.partition("-")
    if kind == "broker" and "-fetcher-" in rest:
        return rest.partition("-")[0]
    return client_id if client_id.isdecimal() else ANYONE
