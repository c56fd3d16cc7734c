"""What tests do to a session on a real ZooKeeper below its public face: kazoo's own client, and a session's end."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from kafkatool.core.zookeeper.kazoo_link import KazooLink
from kafkatool.core.zookeeper.link import Link, Reply
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.waiting import eventually

_TWIN_S = 10.0  # kazoo gives up at once on a session that is gone, and waits all the same


def link_of(session: ZooKeeper) -> KazooLink:
    assert isinstance(session.link, KazooLink)
    return session.link


class RoundTrips:
    """A link that counts how often somebody waits for answers before asking for more."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.count = 0
        self.waiting = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def _asked(self, reply: Reply[Any]) -> Reply[Any]:
        self.count += self.waiting
        self.waiting = False
        return _Waited(self, reply)

    def get(self, path: str, watch: Any) -> Reply[Any]:
        return self._asked(self._link.get(path, watch))

    def exists(self, path: str, watch: Any) -> Reply[bool]:
        return self._asked(self._link.exists(path, watch))

    def children(self, path: str, watch: Any) -> Reply[list[str]]:
        return self._asked(self._link.children(path, watch))

    def reads(self) -> Callable[[str], Reply[Any]]:
        ask = self._link.reads()
        return lambda path: self._asked(ask(path))

    def reads_together(self) -> Callable[[Sequence[str]], Reply[Any]] | None:
        ask = self._link.reads_together()
        return None if ask is None else lambda paths: self._asked(ask(paths))


@dataclass(frozen=True)
class _Waited:
    trips: RoundTrips
    reply: Reply[Any]

    def get(self, timeout_s: float, /) -> Any:
        self.trips.waiting = True
        return self.reply.get(timeout_s)


def count_round_trips(session: ZooKeeper) -> RoundTrips:
    """Count those of the session from here on; kazoo's own link stays below."""
    trips = RoundTrips(session.link)
    session.link = cast("Link", trips)
    return trips


def end_session(connect: str, session_id: Callable[[], int]) -> None:
    """Close a session behind its client's back, as an expiry does: the same id and password from elsewhere.

    The client comes back at once, and may have its session again before it is closed. So until ``session_id`` is another.
    Each takes the session from the other, so the twin may lose its connection, or find its session gone, as it starts.
    """
    former = session_id()

    def is_over() -> bool:
        twin = KazooClient(hosts=connect, client_id=(former, _password(former)), timeout=60)
        try:
            with suppress(KazooException, KazooTimeoutError):
                twin.start(_TWIN_S)
        finally:
            twin.stop()
            twin.close()
        return session_id() != former

    eventually(is_over, "the end of the session", 120)


def _password(session_id: int) -> bytes:
    """Return a session's password, which ZooKeeper makes of its id with java.util.Random (server/ZooKeeperServer.java)."""
    mask, factor = (1 << 48) - 1, 0x5DEECE66D
    state = (session_id ^ 0xB3415C00 ^ factor) & mask
    password = b""
    for _ in range(4):
        state = (state * factor + 0xB) & mask
        password += (state >> 16).to_bytes(4, "little")
    return password
