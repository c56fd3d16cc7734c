"""Who holds and leads how much, laid out from a snapshot of the cluster and what brokers say."""

import pytest

from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.brokers.answers import Answers, BrokerAnswer, LogDir
from kafkatool.core.operations.brokers.overview import Spread, lay_out, spread
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.zookeeper import cluster_nodes as nodes

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def log_dir(path: str, free: int | None, **sizes: int) -> LogDir:
    return LogDir(path, False, {TopicPartition("t", int(p[1:])): size for p, size in sizes.items()}, None, free)


@pytest.mark.spec("ADM-105")
def test_each_broker_has_its_row_dead_ones_too(zk: ZooKeeper) -> None:
    nodes.make_cluster(
        zk,
        brokers=(1, 2),
        topics={"t": {0: (1, 2), 1: (2, 3)}},
        states={T1: (2, (2,))},
        racks={1: "a"},
    )
    told = {1: BrokerAnswer({18: (0, 0)}, (log_dir("/d1", 50, p0=10), log_dir("/d2", 40, p1=5)), {})}
    answers = Answers(told, {2: BrokerUnreachableError("no answer")})
    rows = lay_out(read_cluster(zk), answers, {1: {"leader.replication.throttled.rate": "7"}})
    assert [(r.broker, r.live, r.controller, r.leaders, r.preferred, r.replicas, r.out_of_isr) for r in rows] == [
        (1, True, True, 1, 1, 1, 0),
        (2, True, False, 1, 1, 2, 0),
        (3, False, False, 0, 0, 1, 1),
    ]
    one, silent, dead = rows
    assert (one.rack, one.port, one.bytes, one.least_free, str(one.release)) == ("a", 1, 15, 40, "0.10.0")
    assert (one.leader_rate, one.follower_rate) == ("7", None)
    for row in (silent, dead):
        assert (row.log_dirs, row.bytes, row.least_free, row.release) == (None, None, None, None)
    assert (silent.host, dead.host) == ("127.0.0.1", None)


@pytest.mark.spec("ADM-105", "ADM-7")
def test_no_broker_of_kraft_is_marked_as_the_controller(zk: ZooKeeper) -> None:
    """Its brokers name one of themselves at random."""
    nodes.make_cluster(zk, brokers=(1, 2), topics={"t": {0: (1, 2)}})
    for served, marked in (({18: (0, 4)}, [True, False]), ({18: (0, 4), 55: (0, 1)}, [False, False])):
        told = {broker: BrokerAnswer(served, None, {}) for broker in (1, 2)}
        assert [row.controller for row in lay_out(read_cluster(zk), Answers(told, {}), {})] == marked


@pytest.mark.spec("ADM-105")
def test_the_spread_is_that_of_live_brokers_and_of_bytes_only_if_all_told(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, brokers=(1, 2), topics={"t": {0: (1, 3), 1: (1, 3), 2: (2, 3)}})
    told = {
        1: BrokerAnswer({}, (log_dir("/d", None, p0=10, p1=20),), {}),
        2: BrokerAnswer({}, (log_dir("/d", None, p2=10),), {}),
    }
    rows = lay_out(read_cluster(zk), Answers({}, {}), {})
    assert spread(rows) == {"replicas": Spread(1, 2), "leaders": Spread(1, 2)}
    told = {b: BrokerAnswer({18: (0, 0)}, answer.log_dirs, {}) for b, answer in told.items()}
    rows = lay_out(read_cluster(zk), Answers(told, {}), {})
    assert spread(rows)["bytes"] == Spread(10, 30) and spread(rows)["bytes"].ratio == 3
    assert (Spread(0, 4).ratio, Spread(0, 0).ratio) == (None, 1.0)
