"""Throttles of a reassignment: which nodes are written, and how they go back."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkatool.core.errors import ConnectionLostError, RefusedError, VersionConflictError
from kafkatool.core.operations.reassignment import throttles
from kafkatool.core.operations.reassignment.status import running
from kafkatool.core.operations.reassignment.submission import prepare, start
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import ConfigZnode, ReassignmentZnode
from tests.core.operations.reassignment.plans import NINE, changes, config, plan
from tests.core.zookeeper import cluster_nodes as nodes


@pytest.mark.spec("RSN-14")
def test_the_throttle_names_old_replicas_for_leaders_and_new_ones_for_followers(zk: ZooKeeper) -> None:
    topics: dict[str, dict[int, tuple[int, ...]]] = {
        "big": {0: (1, 2), 1: (2, 1), 2: (2, 3)},
        "small": {0: (2,), 1: (5,)},
        "other": {0: (6,)},
        "turned": {0: (1, 2)},
    }
    nodes.make_cluster(zk, topics=topics, brokers=(1, 2, 3, 4, 5, 6))
    zk.create("/config/topics/big", ConfigZnode.encode({"retention.ms": "5"}))
    start(
        zk,
        prepare(
            zk,
            {
                **plan({0: (3, 4), 1: (2, 3), 2: (3, 2)}, "big"),
                **plan({0: (4,)}, "small"),
                **plan({0: (2, 1)}, "turned"),
            },
            throttle=2000,
        ),
    )
    assert config(zk, "topics", "turned") == dict.fromkeys(throttles.REPLICAS, "")
    assert config(zk, "topics", "small") == dict(zip(throttles.REPLICAS, ("0:2", "0:4"), strict=True))
    assert config(zk, "topics", "other") is None is config(zk, "brokers", "6")
    assert config(zk, "topics", "big") == {
        "retention.ms": "5",
        "leader.replication.throttled.replicas": "0:1,0:2,1:2,1:1",
        "follower.replication.throttled.replicas": "0:3,0:4,1:3",
    }
    rates = {"leader.replication.throttled.rate": "2000", "follower.replication.throttled.rate": "2000"}
    assert all(config(zk, "brokers", str(b)) == rates for b in (1, 2, 3, 4, 5))
    assert changes(zk) == [*(f"brokers/{b}" for b in (1, 2, 3, 4, 5)), "topics/big", "topics/small", "topics/turned"]


@pytest.mark.spec("RSN-14")
def test_both_lists_are_empty_texts_when_no_partition_gains_a_replica(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 2), 1: (3,)}})
    start(zk, prepare(zk, plan({0: (2, 1)}), throttle=2000))
    assert config(zk, "topics", "t") == dict.fromkeys(throttles.REPLICAS, "")
    assert config(zk, "brokers", "3") is not None  # in the current assignment of the plan's topic


@pytest.mark.spec("RSN-14", "RSN-24X", "RSN-30X")
def test_with_force_brokers_need_not_be_registered_and_any_rate_is_taken(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": {0: (1, 8)}}, brokers=(1, 2))
    zk.create("/config/brokers/1", ConfigZnode.encode({"x": "y"}))
    start(zk, prepare(zk, plan({0: (1, 9)}), throttle=0, force=True))
    rates = dict.fromkeys(throttles.RATES, "0")
    assert [config(zk, "brokers", b) for b in "1289"] == [{"x": "y", **rates}, None, rates, rates]
    assert config(zk, "topics", "t") == dict(zip(throttles.REPLICAS, ("0:1,0:8", "0:9"), strict=True))
    assert running(zk) == plan({0: (1, 9)})


@pytest.mark.spec("RSN-14")
def test_every_throttle_is_there_and_told_before_the_reassignment_is(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    create, told_before, set_before = zk.create, list[list[str]](), list[dict[str, str] | None]()

    def looking(path: str, data: bytes = b"", **more: bool) -> str:
        if path == ReassignmentZnode.PATH:
            told_before.append(changes(zk))
            set_before.extend([*(config(zk, "brokers", b) for b in "123"), config(zk, "topics", "t")])
        return create(path, data, **more)

    monkeypatch.setattr(zk, "create", looking)
    start(zk, prepare(zk, plan({0: (2,)}), throttle=2000))
    assert told_before == [["brokers/1", "brokers/2", "brokers/3", "topics/t"]]
    lists = dict(zip(throttles.REPLICAS, ("0:1", "0:2"), strict=True))
    assert set_before == [*[dict.fromkeys(throttles.RATES, "2000")] * 3, lists]


@pytest.mark.spec("RSN-10")
def test_while_another_runs_only_rates_are_written_for_the_brokers_of_the_given_plan(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE, "small": {0: (1,)}}, brokers=(1, 2, 3, 4))
    start(zk, prepare(zk, plan({0: (2,)})))
    before = zk.get(ReassignmentZnode.PATH)
    prepared = prepare(zk, plan({0: (4,)}, "small"), throttle=3000)
    assert prepared.running == plan({0: (2,)})
    start(zk, prepared)
    assert zk.get(ReassignmentZnode.PATH) == before
    assert config(zk, "topics", "small") is None and config(zk, "topics", "t") is None
    assert [config(zk, "brokers", b) is not None for b in "1234"] == [True, False, False, True]


@pytest.mark.spec("RSN-31X", "RSN-23X")
def test_the_loser_of_the_race_takes_its_throttles_back(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    zk.create("/config/brokers/2", ConfigZnode.encode({"leader.replication.throttled.rate": "77777"}))
    prepared = prepare(zk, plan({0: (2,)}), throttle=2000)
    zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode(plan({3: (3,)})), make_parents=True)
    with pytest.raises(RefusedError):
        start(zk, prepared)
    assert config(zk, "brokers", "2") == {"leader.replication.throttled.rate": "77777"}
    assert config(zk, "brokers", "1") == {} == config(zk, "topics", "t")


@pytest.mark.spec("RSN-14")
def test_a_config_that_somebody_else_changed_meanwhile_is_not_overwritten(zk: ZooKeeper) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    prepared = prepare(zk, plan({0: (2,)}), throttle=2000)
    theirs = ConfigZnode.encode({"leader.replication.throttled.rate": "1"})
    zk.create("/config/brokers/3", theirs)
    with pytest.raises(VersionConflictError):
        start(zk, prepared)
    node = zk.get("/config/brokers/3")
    assert node is not None and node.data == theirs
    assert config(zk, "brokers", "1") == {} and running(zk) is None


@pytest.mark.spec("RSN-23X")
@pytest.mark.parametrize("done", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize(
    "why", [KeyboardInterrupt, ConnectionLostError, RuntimeError], ids=["Ctrl-C", "lost", "Ctrl-C in a lock"]
)
def test_a_start_that_is_cut_short_at_any_write_takes_its_throttles_back_unless_it_has_begun(
    zk: ZooKeeper, monkeypatch: pytest.MonkeyPatch, why: type[BaseException], done: bool
) -> None:
    nodes.make_cluster(zk, topics={"t": NINE})
    zk.create("/config/brokers/2", ConfigZnode.encode({throttles.RATES[0]: "77777", "x": "y"}))
    zk.create("/config/topics/t", ConfigZnode.encode({"retention.ms": "5"}))
    writes, last = 0, 9  # of two configs for each broker and the topic, with their notifications, and of the plan
    at = 0

    def cutting(write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == at and not done:
                raise why
            found = write(*args, **more)
            if writes == at:
                raise why
            return found

        return wrapped

    monkeypatch.setattr(zk, "create", cutting(zk.create))
    monkeypatch.setattr(zk, "set", cutting(zk.set))
    for number in range(1, last + 1):
        prepared = prepare(zk, plan({0: (2,)}), throttle=2000)
        writes, at = 0, number
        with pytest.raises(why):
            start(zk, prepared)
        at = 0
        if number == last and done:
            break
        assert running(zk) is None
        assert config(zk, "brokers", "2") == {throttles.RATES[0]: "77777", "x": "y"}, number
        assert config(zk, "topics", "t") == {"retention.ms": "5"}, number
        assert not config(zk, "brokers", "1") and not config(zk, "brokers", "3"), number
    if done:
        assert running(zk) == plan({0: (2,)}) and set(throttles.REPLICAS) <= set(config(zk, "topics", "t") or ())
