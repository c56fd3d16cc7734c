"""The status of a plan and the list of what runs, read from a real ZooKeeper."""

import pytest

from kafkatool.core.model.moves import Status
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.status import list_running, verify
from kafkatool.core.operations.reassignment.submission import prepare, start
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.core.operations.reassignment.plans import changes, config, plan, tp
from tests.core.zookeeper import cluster_nodes as nodes
from tests.core.zookeeper.sessions import count_round_trips


@pytest.mark.spec("RSN-12", "RSN-11", "RSN-13")
def test_each_partition_has_its_status(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (1, 2), 2: (1, 2)}})
    start(zk, prepare(zk, plan({0: (1, 2)}), throttle=5000))
    found = verify(zk, plan({0: (1, 2), 1: (1, 2), 2: (2, 1), 9: (1,)}))
    assert [(m.partition.partition, m.status, m.current) for m in found.items] == [
        (0, Status.IN_PROGRESS, (1, 2)),
        (1, Status.COMPLETED, (1, 2)),
        (2, Status.FAILED, (1, 2)),
        (9, Status.FAILED, ()),
    ]
    assert not found.completed and not found.removal
    zk.delete(ReassignmentZnode.PATH)
    failed = verify(zk, plan({0: (1, 2), 2: (2, 1)}))
    assert not failed.completed and not failed.removal
    assert len(verify(zk, plan({0: (1, 2)})).removal) == 3  # brokers 1 and 2, and the topic


@pytest.mark.spec("RSN-13", "RSN-24X")
def test_when_all_completed_throttles_go_from_every_broker_and_the_plans_topics(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2)}, "u": {0: (1, 2)}})
    rates = dict.fromkeys(throttles.RATES, "5")
    lists = dict.fromkeys(throttles.REPLICAS, "0:1")
    for path, stored in {
        "brokers/1": rates,
        "brokers/9": {**rates, "x": "y"},  # not registered
        "brokers/2": {"x": "y"},
        "topics/t": {**lists, "retention.ms": "5"},
        "topics/u": lists,
    }.items():
        zk.create(f"/config/{path}", ConfigZnode.encode(stored), make_parents=True)
    found = verify(zk, plan({0: (1, 2)}))
    assert found.completed
    throttles.apply(zk, found.removal)
    assert config(zk, "brokers", "1") == {}
    assert config(zk, "brokers", "9") == {"x": "y"}
    assert config(zk, "topics", "t") == {"retention.ms": "5"}
    assert config(zk, "topics", "u") == lists
    assert changes(zk) == ["brokers/1", "brokers/9", "topics/t"]
    assert not verify(zk, plan({0: (1, 2)})).removal
    zk.set("/config/topics/t", ConfigZnode.encode(lists), 1)
    assert not verify(zk, plan({0: (1, 2)}), preserve_throttles=True).removal


@pytest.mark.spec("RSN-34X")
@pytest.mark.parametrize(("topics", "partitions"), [("a", 1), ("abcde", 60)])
def test_verify_and_list_read_four_round_trips_deep_whatever_the_size(
    zk: ZooKeeper, topics: str, partitions: int
) -> None:
    nodes.make_cluster(zk, topics={t: dict.fromkeys(range(partitions), (1, 2)) for t in topics})
    zk.create("/config/brokers/1", ConfigZnode.encode(dict.fromkeys(throttles.RATES, "5")))
    wanted = {tp(p, t): (1, 2) for t in topics for p in range(partitions)}
    trips = count_round_trips(zk)
    assert len(verify(zk, wanted).removal) == 1
    assert trips.count == 4
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(wanted))
    trips.count = 0
    assert len(list_running(zk)) == len(wanted)
    assert trips.count == 3


@pytest.mark.spec("RSN-38X")
def test_list_shows_targets_current_replicas_and_isr(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (2, 3)}}, states={tp(1): (3, (3,))})
    assert list_running(zk) == ()
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({1: (1, 2), 0: (3,)})))
    assert [(move.partition, move.current, move.target, move.isr) for move in list_running(zk)] == [
        (tp(0), (1, 2), (3,), (1, 2)),
        (tp(1), (2, 3), (1, 2), (3,)),
    ]
