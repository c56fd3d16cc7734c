"""Looks by znodes at a real ZooKeeper: what tells one topic from another, and which throttles are told."""

import pytest

from kafkatool.core.client.connections import Connections
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.config_writes import read_configs
from kafkatool.core.operations.health.memory import Memory, Suspicion, remember
from kafkatool.core.operations.health.reading import read
from kafkatool.core.operations.requests.throttles import LOG_DIR_RATE
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import TopicZnode
from tests.core.zookeeper import cluster_nodes as nodes

T0 = TopicPartition("t", 0)


@pytest.mark.spec("ADM-107")
def test_an_election_at_one_write_is_unclean_and_what_a_new_topic_has_is_none(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, brokers=(), topics={"t": {0: (1, 2)}}, states={T0: (1, (1,))}, controller=None)
    connections = Connections()
    first = remember(Memory(), read(zk, connections))
    nodes.set_state(zk, T0, 2, (2,), leader_epoch=1)
    unclean = read(zk, connections)
    then = remember(first, unclean)
    assert then.unclean == {T0: Suspicion(unclean.at_s, is_certain=True)}

    path = TopicZnode.path("t")
    zk.delete(f"{path}/partitions/0/state")
    zk.delete(f"{path}/partitions/0")
    zk.delete(f"{path}/partitions")
    zk.delete(path)
    zk.create(path, TopicZnode({0: (1, 2)}).encode())
    nodes.set_state(zk, T0, 1, (1,), leader_epoch=2)
    assert remember(then, read(zk, connections)).unclean == {}


@pytest.mark.spec("ADM-108")
def test_the_rate_of_moves_between_log_directories_is_read_and_not_judged_of_a_broker_that_does_not_tell(
    zk: ZooKeeper,
) -> None:
    nodes.make_cluster(zk, brokers=(), topics={"t": {0: (1, 2)}})
    for name in ("1", "<default>"):
        (config,) = read_configs(zk, [("brokers", name)])
        config.setting({LOG_DIR_RATE: "7000"}).write(zk)
    look = read(zk, Connections())
    assert (look.rates, look.default_rates) == ({1: {LOG_DIR_RATE: "7000"}}, {LOG_DIR_RATE: "7000"})
    assert look.throttles == {} and look.unjudged_dir_rates == {1}
