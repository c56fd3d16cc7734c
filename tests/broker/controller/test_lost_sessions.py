"""A session that is lost in the middle of an election: whoever holds ``/controller`` in the end also rules."""

import pytest

from kafkatool.core.znodes import ControllerZnode
from tests.broker.controller.fake_cluster import FakeCluster


@pytest.mark.spec("CTL-19", "CTL-20")
@pytest.mark.parametrize("lost_at", ["before the node is made", "after the node is made"])
def test_a_session_lost_during_the_election_leaves_no_cluster_without_controller(lost_at: str) -> None:
    cluster = FakeCluster(1)
    worker, session = cluster.workers[1], cluster.brokers[1].session
    make = session.create
    lost: list[bool] = []

    def interrupted(path: str, data: bytes = b"", **options: bool) -> str:
        if path == ControllerZnode.PATH and not lost:
            lost.append(True)
            if lost_at == "after the node is made":
                make(path, data, **options)
            session.expire()
            session.reconnect()  # the client asks again by itself, now in the new session
        return make(path, data, **options)

    session.create = interrupted  # type: ignore[method-assign]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert lost
    node = cluster.zk.get(ControllerZnode.PATH)
    assert node is not None and node.ephemeral_owner == session.session_id
    assert worker.term is not None
    assert worker.has_resigned
    assert worker.known_id == 1
    assert cluster.controller_epoch == 2  # the attempt of the lost session raised nothing
