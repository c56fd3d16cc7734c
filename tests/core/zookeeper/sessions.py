"""What tests do to a session on a real ZooKeeper below its public face: kazoo's own client, watches, a session's end."""

from kazoo.client import KazooClient

from kafkatool.core.zookeeper.kazoo_link import KazooLink
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.waiting import eventually


def link_of(session: ZooKeeper) -> KazooLink:
    assert isinstance(session.link, KazooLink)
    return session.link


def end_session(session: ZooKeeper) -> None:
    """Close the session behind its client's back, as an expiry does: the same id and password from elsewhere.

    The client comes back at once, and may have its session again before it is closed. So until it has another.
    """
    former, own = session.session_id, link_of(session).client.client_id

    def is_over() -> bool:
        twin = KazooClient(hosts=session.connect, client_id=own, timeout=60)
        try:
            twin.start(60)
        finally:
            twin.stop()
            twin.close()
        return session.session_id != former

    eventually(is_over, "the end of the session", 60)
