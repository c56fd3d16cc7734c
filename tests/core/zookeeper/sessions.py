"""What tests do to a session on a real ZooKeeper below its public face: kazoo's own client, and a session's end."""

from collections.abc import Callable

from kazoo.client import KazooClient

from kafkatool.core.zookeeper.kazoo_link import KazooLink
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.waiting import eventually


def link_of(session: ZooKeeper) -> KazooLink:
    assert isinstance(session.link, KazooLink)
    return session.link


def end_session(connect: str, session_id: Callable[[], int]) -> None:
    """Close a session behind its client's back, as an expiry does: the same id and password from elsewhere.

    The client comes back at once, and may have its session again before it is closed. So until ``session_id`` is another.
    """
    former = session_id()

    def is_over() -> bool:
        twin = KazooClient(hosts=connect, client_id=(former, _password(former)), timeout=60)
        try:
            twin.start(60)
        finally:
            twin.stop()
            twin.close()
        return session_id() != former

    eventually(is_over, "the end of the session", 60)


def _password(session_id: int) -> bytes:
    """Return a session's password, which ZooKeeper makes of its id with java.util.Random (server/ZooKeeperServer.java)."""
    mask, factor = (1 << 48) - 1, 0x5DEECE66D
    state = (session_id ^ 0xB3415C00 ^ factor) & mask
    password = b""
    for _ in range(4):
        state = (state * factor + 0xB) & mask
        password += (state >> 16).to_bytes(4, "little")
    return password
