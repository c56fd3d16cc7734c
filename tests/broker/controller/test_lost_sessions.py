"""A session that is lost in the middle of an election: whoever holds ``/controller`` in the end also rules."""

from collections.abc import Sequence

import pytest

from kafkatool.core.zookeeper.session import Node, Op, Watch
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, ControllerZnode
from tests.broker.controller.fake_cluster import FakeCluster
from tests.core.zookeeper.memory import MemoryZooKeeper


@pytest.mark.spec("CTL-19", "CTL-20")
@pytest.mark.parametrize("lost_at", ["before the node is made", "after the node is made"])
def test_a_session_lost_during_the_election_leaves_no_cluster_without_controller(lost_at: str) -> None:
    cluster = FakeCluster(1)
    worker, session = cluster.workers[1], cluster.brokers[1].session
    commit = session.commit
    lost: list[bool] = []

    def interrupted(ops: Sequence[Op]) -> list[int | None]:
        if not lost:
            lost.append(True)
            if lost_at == "after the node is made":
                commit(ops)
            session.expire()
            session.reconnect()  # the client asks again by itself, now in the new session
        return commit(ops)

    session.commit = interrupted  # type: ignore[method-assign]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert lost
    node = cluster.zk.get(ControllerZnode.PATH)
    assert node is not None and node.ephemeral_owner == session.session_id
    assert worker.term is not None
    assert worker.has_resigned
    assert worker.known_id == 1
    assert worker.term.context.epoch == cluster.controller_epoch


@pytest.mark.spec("CTL-10", "CTL-19")
def test_a_session_lost_before_the_epoch_is_raised_does_not_fence_the_successor() -> None:
    cluster = FakeCluster(1, 2)
    session = cluster.brokers[1].session
    read = session.get
    lost: list[bool] = []

    def interrupted(path: str, watch: Watch | None = None) -> Node | None:
        if path == ControllerEpochZnode.PATH and not lost and cluster.workers[1].term is None:
            lost.append(True)
            session.expire()  # broker 2 sees the node go
            session.reconnect()
        return read(path, watch)

    writers: list[MemoryZooKeeper] = []
    cluster.ensemble.on_write = lambda who, op: writers.append(who) if op.path == ControllerEpochZnode.PATH else None
    session.get = interrupted  # type: ignore[method-assign]
    cluster.zk.delete(ControllerZnode.PATH)
    cluster.run()
    assert lost
    assert writers == [cluster.brokers[cluster.controller_id].session], "only who rules in the end has raised it"
    assert cluster.controller_epoch == 2


@pytest.mark.spec("Z-46", "CTL-17")
def test_watches_of_an_earlier_term_or_session_do_nothing_when_they_fire_late() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    ensemble, worker, session = cluster.ensemble, cluster.workers[1], cluster.brokers[1].session
    late = ensemble.watches_of(session.memory)
    assert len(late) >= 7
    session.expire()
    session.reconnect()
    cluster.run()
    before, queued = dict(ensemble.nodes), worker.queue
    cluster.sent.clear()
    for watch in late:
        watch("changed")
        watch("children")
    assert len(queued) == 0, "the handler looks at term and session first"
    cluster.run()
    assert not cluster.sent and ensemble.nodes == before


@pytest.mark.spec("Z-43")
@pytest.mark.parametrize("kind", ["created", "changed", "deleted", "children", "reconnected"])
def test_a_watch_that_fires_for_nothing_is_followed_by_reads_alone(kind: str) -> None:
    """What is read counts, whatever the watch says has happened."""
    cluster = FakeCluster(1, 2, properties={"delete.topic.enable": "true"})
    cluster.create_topic("t", {0: [1, 2]})
    before, term = dict(cluster.ensemble.nodes), cluster.controller.term
    cluster.sent.clear()
    for broker, worker in cluster.workers.items():
        set_before = cluster.ensemble.watches_of(cluster.brokers[broker].session.memory)
        assert len(set_before) >= (7 if worker is cluster.controller else 1)
        for watch in set_before:
            watch(kind)
        assert len(worker.queue) > 0
    cluster.run()
    assert cluster.controller.term is term and [w.known_id for w in cluster.workers.values()] == [1, 1]
    assert not cluster.sent and cluster.ensemble.nodes == before
    cluster.create_topic("u", {0: [2, 1]})
    assert cluster.state("u").leader == 2, "it goes on to watch"
