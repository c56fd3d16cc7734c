"""What a new controller does, and in which order; and what it does when something of that goes wrong."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafkatool.broker.controller.telling.channels import ControlRequest
from kafkatool.core.errors import NoPermissionError
from kafkatool.core.model.values import LeaderAndIsr, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.zookeeper.session import Delete, Op
from kafkatool.core.zookeeper.znodes import (
    BrokersZnode,
    BrokerZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicsZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    ReassignmentZnode,
    TopicsZnode,
    TopicZnode,
)
from tests.broker.controller.fake_cluster import FakeChannel, FakeCluster
from tests.core.zookeeper.ensemble import Crash
from tests.core.zookeeper.memory import MemoryZooKeeper

ALL_ON = {"delete.topic.enable": "true"}
T0 = TopicPartition("t", 0)
_READS = ("get", "get_many", "children", "children_many")


class Story(deque[tuple[FakeChannel, ControlRequest]]):
    """What one broker's session reads, watches and writes, its requests and its timers, in one order."""

    def __init__(self, cluster: FakeCluster, broker: int) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []
        session = cluster.brokers[broker].session
        for name in _READS:
            setattr(session, name, self._noted(getattr(session, name)))
        cluster.ensemble.on_write = self._write
        add = cluster.timer.add

        def noted(delay_ms: float, callback: Callable[[], None]) -> Any:
            self.events.append(("timer", f"{delay_ms:.0f}"))
            return add(delay_ms, callback)

        cluster.timer.add = noted  # type: ignore[method-assign]
        cluster.network = self

    def _noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(paths: str | Sequence[str], watch: object = None) -> Any:
            kind = "read" if watch is None else "watch"
            self.events += [(kind, path) for path in ([paths] if isinstance(paths, str) else paths)]
            return call(paths) if watch is None else call(paths, watch)

        return noted

    def _write(self, session: MemoryZooKeeper, op: Op) -> None:
        self.events.append(("delete" if isinstance(op, Delete) else "write", op.path))

    def append(self, sent: tuple[FakeChannel, ControlRequest]) -> None:
        self.events.append(("send", type(sent[1].message).__name__))
        super().append(sent)

    def places(self, *event: str) -> list[int]:
        return [i for i, e in enumerate(self.events) if e == event]

    def first(self, *event: str) -> int:
        places = self.places(*event)
        assert places, f"{event} did not happen: {self.events}"
        return places[0]


def left_to_the_next(**properties: str) -> tuple[FakeCluster, Story]:
    """Let a controller die with a leader, all kinds of work undone; return the story of its successor, broker 2."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    cluster = FakeCluster(1, 2, 3, 4, properties={**ALL_ON, **named})
    cluster.create_topic("t", {0: [1, 2], 1: [3, 2], 2: [2, 3]})
    cluster.create_topic("gone", {0: [2, 3]})
    cluster.elect_preferred()
    cluster.kill(1)
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}0000000001", IsrChangeZnode.encode([T0]))
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}0000000001", LogDirEventZnode.encode(3))
    cluster.zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({TopicPartition("t", 1): (2, 4)}))
    cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([TopicPartition("t", 2)]))
    cluster.zk.create(DeleteTopicsZnode.topic_path("gone"))
    return cluster, Story(cluster, 2)


@pytest.mark.spec("CTL-10", "CTL-24", "CTL-25", "Z-43")
def test_the_steps_of_a_failover_come_in_their_order() -> None:
    cluster, story = left_to_the_next()
    cluster.log.lines.clear()
    cluster.work(2)
    first = story.first
    raised = first("write", ControllerEpochZnode.PATH)
    notifications = [("delete", f"{prefix}0000000001") for prefix in (IsrChangeZnode.PREFIX, LogDirEventZnode.PREFIX)]
    topics = [TopicZnode.path("t"), TopicZnode.path("gone")]
    states = [PartitionStateZnode.path(TopicPartition("t", n)) for n in range(3)]
    metadata = story.places("send", "UpdateMetadataRequest")
    stops = story.places("send", "StopReplicaRequest")
    reading = min(first("read", path) for path in (BrokerZnode.path(3), *states))
    steps = [
        raised,  # 1
        first("watch", ReassignmentZnode.PATH),  # 2
        first("watch", IsrChangeZnode.PATH),  # 2a
        first("watch", LogDirEventZnode.PATH),
        first("watch", PreferredElectionZnode.PATH),  # 3
        first("watch", TopicsZnode.PATH),  # 4
        first("watch", DeleteTopicsZnode.PATH),  # 5
        first("watch", BrokersZnode.PATH),  # 6
        *(first(*deleted) for deleted in notifications),  # 6a
        first("read", BrokerZnode.path(3)),  # 7
        *(first("watch", path) for path in sorted(topics)),  # 8a: by the same read
        *(first("read", path) for path in states),
        first("read", ReassignmentZnode.PATH),
        first("read", PreferredElectionZnode.PATH),
        metadata[0],  # 7a
        first("write", states[0]),  # 8: its leader died
        first("send", "LeaderAndIsrRequest"),
        first("write", TopicZnode.path("t")),  # 9a: step 1 of the reassignment
        first("delete", PreferredElectionZnode.PATH),
        max(i for i in metadata if i < first("timer", "5000")),  # 10
        first("timer", "5000"),  # 11
        min(i for i in stops if i > first("timer", "5000")),  # 12
    ]
    assert steps == sorted(steps), story.events
    writes = [path for kind, path in story.events if kind in ("write", "delete")]
    assert set(writes[:2]) == {ControllerZnode.PATH, ControllerEpochZnode.PATH}, "the first writes"
    before = [event for event in story.events[:raised] if event[0] not in ("read", "write")]
    assert set(before) == {("watch", ControllerZnode.PATH)}, "of who rules alone, and nobody is told anything"
    assert stops[0] > first("write", TopicZnode.path("t")), "nothing of the deletion comes before its step"
    moved = cluster.log.told("Changed ")
    machines = [
        "Changed state of replica 2 for partition t-0 from Online",
        "Changed partition t-0 from OfflinePartition",
    ]
    began = [next(i for i, line in enumerate(moved) if line.startswith(begin)) for begin in machines]
    assert began == sorted(began), "8: the replicas' state machine, then the partitions'"
    watches = [i for i, (kind, path) in enumerate(story.events) if kind == "watch" and path not in topics]
    assert [i for i in watches if i < steps[-1] and i > reading] == [first("watch", states[1])], "the moving one's ISR"


@pytest.mark.spec("CTL-24", "CTL-107")
@pytest.mark.parametrize("enabled", [True, False])
def test_deletions_and_the_rebalance_belong_to_a_failover_only_where_they_are_enabled(enabled: bool) -> None:
    cluster, story = left_to_the_next(
        delete_topic_enable=str(enabled).lower(), auto_leader_rebalance_enable=str(enabled).lower()
    )
    cluster.run()
    assert bool(story.places("watch", DeleteTopicsZnode.PATH)) is enabled
    assert bool(story.places("timer", "5000")) is enabled
    assert cluster.exists(TopicZnode.path("gone")) is not enabled
    assert cluster.exists(DeleteTopicsZnode.topic_path("gone")) is not enabled


def is_all(message: UpdateMetadataRequest, partitions: set[tuple[str, int]]) -> bool:
    return {(s.topic, s.partition) for s in message.partition_states} == partitions


@pytest.mark.spec("CTL-24", "CTL-54", "CTL-57")
def test_a_failover_tells_everybody_of_every_partition_before_and_after() -> None:
    cluster = FakeCluster(1, 2, 3, properties=ALL_ON)
    cluster.create_topic("t", {0: [1, 2], 1: [3, 2]})
    cluster.create_topic("u", {0: [9]})  # never led: nobody is told of it
    cluster.kill(1)
    cluster.sent.clear()
    cluster.run()
    every = {("t", 0), ("t", 1)}
    for broker in (2, 3):
        told = [m for b, m in cluster.sent if b == broker]
        before, roles, of_roles, after = told
        assert isinstance(before, UpdateMetadataRequest) and is_all(before, every)  # 7a
        assert {s.partition: s.leader for s in before.partition_states} == {0: 1, 1: 3}, "as the last one left it"
        assert isinstance(roles, LeaderAndIsrRequest)  # 8
        assert [s.partition for s in roles.partition_states] == ([0, 1] if broker == 2 else [1])
        assert isinstance(of_roles, UpdateMetadataRequest) and is_all(of_roles, every)
        assert isinstance(after, UpdateMetadataRequest) and is_all(after, every)  # 10
        assert {s.partition: s.leader for s in after.partition_states} == {0: 2, 1: 3}


@pytest.mark.spec("CTL-6", "CTL-26")
def test_an_error_at_any_step_of_a_failover_makes_room_for_another_controller() -> None:
    resigned = 0
    for number in range(1, 100):
        cluster, story = left_to_the_next()
        session = cluster.brokers[2].session
        left, failed_at = [number], [""]

        def failing(call: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def called(*arguments: Any) -> Any:
                if story.places("write", ControllerEpochZnode.PATH):  # noqa: B023  it has won
                    left[0] -= 1
                    if left[0] == 0:
                        failed_at[0] = str(arguments[0])  # noqa: B023
                        raise NoPermissionError("no permission")
                return call(*arguments)

            return called

        for name in (*_READS, "commit_many"):
            setattr(session, name, failing(getattr(session, name)))
        second = cluster.workers[2]
        while not story.places("write", ControllerEpochZnode.PATH):
            assert cluster.work_once(2), "until it has won, which one event does with all that follows"
        failed = left[0] <= 0
        path = TopicZnode.path("t")  # a topic whose node cannot be read or written for its move waits alone
        ends = failed and not (failed_at[0] == path or f"SetData(path='{path}'" in failed_at[0])
        assert (second.term is None) == ends, (number, failed_at)
        if ends:
            resigned += 1
            assert second.known_id is None and not cluster.exists(ControllerZnode.PATH), number
            assert all(channel.closed for channel, _ in cluster.network), number
        cluster.run()
        assert len([w for w in cluster.workers.values() if w.term is not None]) == 1, number
        assert cluster.controller_id == (3 if ends else 2), "another one, by that deletion"
        assert cluster.leaders("t")[0] == 2, number
        if not failed:
            break
    else:
        raise AssertionError("the failover never came to an end")
    assert resigned > 20


@pytest.mark.spec("CTL-28", "CTL-74", "Z-15")
def test_a_controller_that_dies_at_any_write_of_a_creation_leaves_nothing_half_done() -> None:
    for number in range(1, 20):
        cluster = FakeCluster(9, 1, 2)
        left = [number]

        def die(session: MemoryZooKeeper, op: Op, left: list[int] = left, cluster: FakeCluster = cluster) -> None:
            if op.path.startswith(f"{TopicZnode.path('t')}/"):
                left[0] -= 1
                if left[0] == 0:
                    cluster.ensemble.on_write = lambda session, op: None
                    session.crash()
                    raise Crash

        cluster.ensemble.on_write = die
        cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
        assert cluster.leaders("t") == [1, 2], number
        assert [cluster.state("t", n).leader_epoch for n in (0, 1)] == [0, 0], number
        assert {t.partition: s.leader for t, s in cluster.brokers[1].roles.items()} == {0: 1, 1: 2}, number
        assert (cluster.controller_id != 9) == (left[0] <= 0)
        if left[0] > 0:
            assert number > 2
            return
    raise AssertionError("the creation never came to an end")


@pytest.mark.spec("CTL-27", "CTL-101", "CTL-106")
def test_a_pending_election_of_what_is_led_already_or_gone_is_dropped_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(9, 1, 2, properties={"auto.leader.rebalance.enable": "false"})
    cluster.create_topic("t", {0: [1, 2]})
    before = cluster.state("t")
    cluster.kill(9)
    cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([T0, TopicPartition("gone", 1)]))
    cluster.sent.clear()
    cluster.run()
    assert cluster.state("t") == before
    assert {s.leader_epoch for _, s in cluster.leader_and_isr()} == {0}
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING], "it was served when the last one died"
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-27", "CTL-78")
def test_a_deletion_found_at_failover_waits_for_a_dead_broker_and_not_for_a_reassignment() -> None:
    cluster = FakeCluster(9, 1, 2, 3, properties={**ALL_ON, "auto.leader.rebalance.enable": "false"})
    cluster.create_topic("t", {0: [1, 2]})
    cluster.create_topic("u", {0: [1, 3]})
    cluster.catching_up = False
    cluster.reassign({TopicPartition("u", 0): [3, 1, 9]})
    cluster.kill(2, 9)
    for topic in ("t", "u"):
        cluster.zk.create(DeleteTopicsZnode.topic_path(topic))
    cluster.sent.clear()
    cluster.run()
    assert cluster.controller_id == 1
    assert cluster.exists(TopicZnode.path("t")) and not any(p.topic == "t" for _, _, p in cluster.stops())
    assert not cluster.exists(ReassignmentZnode.PATH), "refused, as nobody would be elected for it any more"
    cluster.restart(2, 9)
    assert not cluster.zk.children(TopicsZnode.PATH)


@pytest.mark.spec("CTL-25", "Z-43")
def test_whatever_fires_while_the_failover_reads_is_handled_after_it() -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5, properties={**ALL_ON, "auto.leader.rebalance.enable": "false"})
    cluster.create_topic("t", {0: [4, 3], 1: [3, 4], 2: [3, 5]})
    cluster.create_topic("doomed", {0: [3, 4]})
    cluster.kill(4)
    cluster.run()
    cluster.restart(4)
    cluster.catching_up = False
    session = cluster.brokers[2].session
    read, met = session.get, list[str]()
    changed, moved = TopicPartition("t", 1), TopicPartition("t", 2)
    isr = LeaderAndIsr(3, 9, (3, 4), 1)

    def meanwhile(path: str, watch: Any = None) -> Any:
        node = read(path, watch)
        if path == PreferredElectionZnode.PATH and watch is None and not met:  # the last thing that is read in step 7
            met.append(path)
            cluster.zk.create(TopicZnode.path("u"), TopicZnode({0: (3, 4)}).encode())
            cluster.zk.set(TopicZnode.path("t"), TopicZnode({**cluster.assignment("t"), 3: (4,)}).encode(), -1)
            cluster.zk.create(DeleteTopicsZnode.topic_path("doomed"))
            cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([T0]))
            cluster.zk.create(ReassignmentZnode.PATH, ReassignmentZnode.encode({moved: (3,)}))
            cluster.zk.set(PartitionStateZnode.path(changed), PartitionStateZnode.encode(isr), -1)
            cluster.zk.create(f"{IsrChangeZnode.PREFIX}7", IsrChangeZnode.encode([changed]))
            cluster.zk.create(f"{LogDirEventZnode.PREFIX}7", LogDirEventZnode.encode(3))
            cluster.kill(5)
            cluster.start(6)
        return node

    session.get = meanwhile  # type: ignore[method-assign]
    cluster.kill(1)
    assert cluster.work_once(2) and met
    term = cluster.controller.term
    assert term is not None and cluster.controller_id == 2
    assert sorted(term.context.brokers) == [2, 3, 4, 5]
    assert term.context.partitions_of("t") == [T0, changed, moved] and "u" not in term.context.assignments
    requests = (DeleteTopicsZnode.topic_path("doomed"), PreferredElectionZnode.PATH, ReassignmentZnode.PATH)
    assert all(map(cluster.exists, requests)) and not (term.context.deleting or term.context.reassigning)
    assert cluster.zk.children(IsrChangeZnode.PATH) and cluster.zk.children(LogDirEventZnode.PATH)
    assert term.context.leadership[changed].leader_and_isr != isr
    cluster.run()
    assert cluster.controller.term is term
    assert (cluster.state("u").leader, cluster.state("t", 3).leader) == (3, 4)
    assert not any(map(cluster.exists, requests)) and not cluster.exists(TopicZnode.path("doomed"))
    assert cluster.state("t").leader == 4 and cluster.assignment("t")[2] == (3,)
    assert term.context.leadership[changed].leader_and_isr == isr
    assert cluster.zk.children(IsrChangeZnode.PATH) == cluster.zk.children(LogDirEventZnode.PATH) == []
    assert sorted(term.context.brokers) == [2, 3, 4, 6]
