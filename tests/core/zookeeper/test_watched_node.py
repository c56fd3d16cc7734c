"""A node that is read again and again keeps one watch, also when the session that set it has ended."""

import pytest

from kafkatool.core.errors import SessionExpiredError
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.watched_node import WatchedNode
from tests.core.zookeeper.sessions import end_session, link_of
from tests.waiting import eventually


@pytest.mark.spec("Z-43")
def test_a_new_session_watches_anew_and_a_change_wakes_who_waits(zk: ZooKeeper) -> None:
    def watches() -> int:
        return link_of(zk).client.watch_count

    def reads() -> bool:
        try:
            request.read()
        except SessionExpiredError:
            return False
        return zk.session_id not in (0, former)

    zk.create("/n", b"1")
    request, former = WatchedNode(zk, "/n"), zk.session_id
    for _ in range(3):
        request.read()
    assert watches() == 1
    end_session(zk.connect, lambda: zk.session_id)
    eventually(reads, "the new session", 60)
    request.read()
    assert watches() == 1
    zk.set("/n", b"2", 0)
    request.wait(60)
    assert watches() == 0
    node = request.read()
    assert node is not None and node.data == b"2" and watches() == 1
