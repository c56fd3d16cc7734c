"""A request that takes the place of the one being served: it is another's, and is served too (Z-40, CTL-85, CTL-106)."""

from collections.abc import Callable, Sequence

import pytest

from kafkatool.core.errors import ConnectionLostError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.zookeeper.link import Reply
from kafkatool.core.zookeeper.session import Delete, Op
from kafkatool.core.zookeeper.znodes import ConfigZnode, DeleteTopicsZnode, PreferredElectionZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PROPERTIES = {"auto.leader.rebalance.enable": "false", "delete.topic.enable": "true"}
MARK, TOPIC, CONFIG = DeleteTopicsZnode.topic_path("t"), TopicZnode.path("t"), ConfigZnode.path("topics", "t")


class Lost:
    """The reply to a request that took effect, lost with the connection."""

    def get(self, _: float, /) -> list[int | None]:
        raise ConnectionLostError("lost")


def at_deletion(cluster: FakeCluster, path: str, meanwhile: Callable[[], object], *, reply_is_lost: bool) -> list[bool]:
    """Let ``meanwhile`` happen at the controller's next deletion of that node: just before it, or behind it while its
    reply is lost."""
    link = cluster.brokers[cluster.controller_id].session.link
    commit = link.commit
    met: list[bool] = []

    def met_by(ops: Sequence[Op]) -> Reply[list[int | None]]:
        if met or not any(isinstance(op, Delete) and op.path == path for op in ops):
            return commit(ops)
        met.append(True)
        if not reply_is_lost:
            meanwhile()
            return commit(ops)
        commit(ops)
        meanwhile()
        return Lost()

    link.commit = met_by  # type: ignore[method-assign]
    return met


def cluster_with_topic() -> FakeCluster:
    cluster = FakeCluster(1, 2, 3, properties=PROPERTIES)
    cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})
    return cluster


def lead_elsewhere(cluster: FakeCluster) -> None:
    """Let both partitions be led by broker 3, which is neither's preferred replica."""
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert cluster.leaders("t") == [3, 3]


@pytest.mark.spec("CTL-104", "CTL-106", "Z-40")
def test_an_election_request_made_when_the_reply_to_the_last_ones_deletion_is_lost_is_served() -> None:
    cluster = cluster_with_topic()
    lead_elsewhere(cluster)
    again = PreferredElectionZnode.encode([T0])
    met = at_deletion(
        cluster,
        PreferredElectionZnode.PATH,
        lambda: cluster.zk.create(PreferredElectionZnode.PATH, again),
        reply_is_lost=True,
    )
    cluster.elect_preferred(T1)
    assert met
    assert cluster.leaders("t") == [2, 2]
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-104", "CTL-106")
def test_an_election_request_that_replaced_another_during_its_election_is_served() -> None:
    """An operator took the first one back by hand: what stands there now is not what was read."""
    cluster = cluster_with_topic()
    lead_elsewhere(cluster)
    again = PreferredElectionZnode.encode([T0])
    session = cluster.brokers[1].session
    many = session.commit_many
    replaced: list[bool] = []

    def replace(transactions: Sequence[Sequence[Op]]) -> object:
        if not replaced:
            replaced.append(True)
            cluster.zk.delete(PreferredElectionZnode.PATH)
            cluster.zk.create(PreferredElectionZnode.PATH, again)
        return many(transactions)

    session.commit_many = replace  # type: ignore[method-assign, assignment]
    cluster.elect_preferred(T1)
    assert replaced
    assert cluster.leaders("t") == [2, 2]
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-85", "Z-40")
def test_a_topic_made_again_when_the_reply_to_its_deletion_is_lost_stays() -> None:
    cluster = cluster_with_topic()

    def make_again() -> None:
        cluster.zk.create(TOPIC, TopicZnode({0: (1,)}).encode())

    met = at_deletion(cluster, TOPIC, make_again, reply_is_lost=True)
    cluster.delete_topic("t")
    assert met
    assert cluster.assignment("t") == {0: (1,)}
    assert cluster.state("t").leader == 1
    assert not cluster.exists(MARK)


@pytest.mark.spec("CTL-85")
@pytest.mark.parametrize("reply_is_lost", [False, True])
def test_the_configs_of_a_topic_made_again_meanwhile_stay(reply_is_lost: bool) -> None:
    """Kafka's tools write the configs first, over what is there."""
    cluster = cluster_with_topic()
    configs = ConfigZnode.encode({"retention.ms": "1"})

    def make_again() -> None:
        if cluster.exists(CONFIG):
            cluster.zk.set(CONFIG, configs, -1)
        else:
            cluster.zk.create(CONFIG, configs)
        cluster.zk.create(TOPIC, TopicZnode({0: (1,)}).encode())

    met = at_deletion(cluster, CONFIG, make_again, reply_is_lost=reply_is_lost)
    cluster.delete_topic("t")
    assert met
    node = cluster.zk.get(CONFIG)
    assert node is not None and node.data == configs
    assert cluster.assignment("t") == {0: (1,)}


@pytest.mark.spec("CTL-76", "CTL-85", "Z-40")
def test_a_topic_made_and_marked_again_when_the_reply_to_the_marks_deletion_is_lost_is_deleted_too() -> None:
    cluster = cluster_with_topic()

    def mark_again() -> None:
        cluster.zk.create(TOPIC, TopicZnode({0: (1,)}).encode())
        cluster.zk.create(MARK)

    met = at_deletion(cluster, MARK, mark_again, reply_is_lost=True)
    cluster.delete_topic("t")
    assert met
    assert not cluster.exists(TOPIC)
    assert not cluster.exists(MARK)


@pytest.mark.spec("CTL-77", "Z-40")
def test_a_mark_of_no_topic_takes_no_later_mark_with_it() -> None:
    cluster = cluster_with_topic()

    def mark_again() -> None:
        cluster.zk.create(TopicZnode.path("u"), TopicZnode({0: (1,)}).encode())
        cluster.zk.create(DeleteTopicsZnode.topic_path("u"))

    met = at_deletion(cluster, DeleteTopicsZnode.topic_path("u"), mark_again, reply_is_lost=True)
    cluster.delete_topic("u")
    assert met
    assert not cluster.exists(TopicZnode.path("u"))
    assert not cluster.exists(DeleteTopicsZnode.topic_path("u"))
