"""Preferred election, rebalance, controlled shutdown, notifications."""

import logging

import pytest

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import NoPermissionError
from kafkatool.core.model.values import LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartition,
)
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.zookeeper.session import Watch
from kafkatool.core.zookeeper.znodes import (
    ControllerEpochZnode,
    IsrChangeZnode,
    LogDirEventZnode,
    PartitionStateZnode,
    PreferredElectionZnode,
    TopicZnode,
)
from tests.broker.controller.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)
NO_REBALANCE = {"auto.leader.rebalance.enable": "false"}


def context(cluster: FakeCluster) -> ControllerContext:
    term = cluster.controller.term
    assert term is not None
    return term.context


@pytest.mark.spec("CTL-100", "CTL-101", "CTL-102", "CTL-103", "CTL-104", "CTL-57", "ELE-7", "ELE-8", "Z-22")
def test_preferred_election(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [4, 3]})
    cluster.kill(2, 4)
    cluster.run()
    cluster.restart(2)
    cluster.sent.clear()
    before = [cluster.state("t", n) for n in range(3)]
    unknown = [TopicPartition("nope", 0), TopicPartition("t", 3)]
    cluster.elect_preferred(*unknown, *(TopicPartition("t", n) for n in range(3)))
    assert cluster.state("t", 0) == LeaderAndIsr(2, 2, (3, 2), 1)
    assert [cluster.state("t", n) for n in (1, 2)] == before[1:]  # led already; preferred one is dead
    assert not cluster.exists(PreferredElectionZnode.PATH)
    assert sorted((b, s.topic, s.partition) for b, s in cluster.leader_and_isr()) == [(2, "t", 0), (3, "t", 0)]
    assert sorted(b for b, _ in cluster.metadata()) == [1, 2, 3]
    said = [(r.levelno, r.getMessage()) for r in caplog.records]
    for partition in unknown:
        skipped = f"preferred election of partition {partition} is skipped: there is no such partition"
        assert (logging.ERROR, skipped) in said
    stays = "partition t-2 is still led by broker 3: its preferred replica 4 is not alive or not in sync"
    assert (logging.WARNING, stays) in said
    assert not [text for _, text in said if "t-1 is still led" in text]
    cluster.restart(4)
    cluster.elect_preferred(TopicPartition("t", 2))
    assert cluster.state("t", 2).leader == 4 and not cluster.exists(PreferredElectionZnode.PATH), (
        "a later one is served"
    )


@pytest.mark.spec("CTL-101", "ELE-7")
def test_where_the_preferred_replica_leads_nothing_is_written_and_nothing_sent() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2]})
    before = [cluster.zk.get(PartitionStateZnode.path(TopicPartition("t", n))) for n in (0, 1)]
    cluster.sent.clear()
    cluster.elect_preferred(T0, TopicPartition("t", 1))
    assert not cluster.exists(PreferredElectionZnode.PATH) and not cluster.sent
    assert [cluster.zk.get(PartitionStateZnode.path(TopicPartition("t", n))) for n in (0, 1)] == before


@pytest.mark.spec("CTL-57", "CTL-64", "CTL-102")
def test_all_replicas_hear_of_a_preferred_election_also_those_out_of_sync_or_about_to_stop() -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5, 6, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3, 4, 5]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    context(cluster).shutting_down.add(4)
    cluster.catching_up = False
    without_5 = LeaderAndIsr(3, 2, (3, 4, 2), 1)
    cluster.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(without_5), -1)
    cluster.sent.clear()
    cluster.elect_preferred(T0)
    assert sorted((b, s.leader) for b, s in cluster.leader_and_isr()) == [(2, 2), (3, 2), (4, 2), (5, 2)]
    assert sorted(b for b, _ in cluster.metadata()) == [1, 2, 3, 4, 5, 6]
    assert not cluster.stops()


@pytest.mark.spec("CTL-102", "CTL-42")
def test_a_preferred_election_rests_on_the_version_it_has_read() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3, 4]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    cluster.catching_up = False
    session = cluster.brokers[1].session
    read = session.get_many
    met: list[bool] = []

    def meanwhile(paths: list[str], watch: object = None) -> object:
        nodes = read(paths, watch)  # type: ignore[arg-type]
        if PartitionStateZnode.path(T0) in paths and not met:
            met.append(True)  # behind the controller's back 4 leaves the ISR
            state = PartitionStateZnode.encode(LeaderAndIsr(3, 1, (3, 2), 1))
            cluster.zk.set(PartitionStateZnode.path(T0), state, -1)
        return nodes

    session.get_many = meanwhile  # type: ignore[method-assign, assignment]
    cluster.elect_preferred(T0)
    assert met and cluster.state("t") == LeaderAndIsr(2, 2, (3, 2), 1)


@pytest.mark.spec("CTL-103", "CTL-102")
def test_a_preferred_replica_out_of_sync_does_not_lead(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3]}, unclean_leader_election_enable="true")
    cluster.kill(2)
    cluster.run()
    cluster.catching_up = False
    cluster.restart(2)
    before = cluster.state("t")
    cluster.sent.clear()
    cluster.elect_preferred(T0)
    assert cluster.state("t") == before and before.leader == 3 and not cluster.sent
    assert "partition t-0 is still led by broker 3: its preferred replica 2" in caplog.text


@pytest.mark.spec("CTL-106", "CTL-27", "ELE-8")
def test_a_new_controller_finishes_an_election_it_finds() -> None:
    cluster = FakeCluster(9, 1, 2, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.kill(1)
    cluster.run()
    cluster.restart(1)
    cluster.kill(9)
    cluster.zk.create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode([T0, TopicPartition("gone", 1)]))
    cluster.run()
    assert cluster.state("t").leader == 1
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-104", "Z-22")
def test_the_request_goes_though_the_pass_fails(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    session = cluster.brokers[1].session
    read = session.get_many

    def refused(paths: list[str], watch: object = None) -> object:
        if PartitionStateZnode.path(T0) in paths:
            raise NoPermissionError("no permission for the state")
        return read(paths, watch)  # type: ignore[arg-type]

    session.get_many = refused  # type: ignore[method-assign, assignment]
    cluster.elect_preferred(T0)
    assert "no permission for the state" in caplog.text
    assert cluster.state("t").leader == 3
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("Z-35", "Z-22", "CTL-104", "ELE-8")
def test_an_unreadable_election_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1)
    cluster.zk.create(PreferredElectionZnode.PATH, b"{")
    cluster.run()
    assert not cluster.exists(PreferredElectionZnode.PATH)
    assert [r.levelname for r in caplog.records if PreferredElectionZnode.PATH in r.getMessage()] == ["ERROR"]


@pytest.mark.spec("CTL-107", "ELE-12")
def test_the_first_check_comes_five_seconds_after_the_failover_and_the_others_at_the_interval() -> None:
    cluster = FakeCluster(9, 1, 2, 3, properties={"leader.imbalance.check.interval.seconds": "60"})
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(9)
    cluster.run()  # the failover

    def leader_after(ms: float) -> int | None:
        cluster.timer.advance(ms)
        cluster.run()
        return cluster.state("t").leader

    def bounce() -> None:
        cluster.kill(2)
        cluster.run()
        cluster.restart(2)
        assert cluster.state("t").leader == 3

    bounce()
    assert leader_after(4999) == 3
    assert leader_after(1) == 2
    for _ in range(2):
        bounce()
        assert leader_after(59_999) == 3
        assert leader_after(1) == 2
    bounce()
    cluster.controller.resign()
    assert leader_after(10_000_000) == 3, "only while controller"


@pytest.mark.spec("CTL-108", "CTL-109", "ELE-11", "ELE-12")
def test_the_ratio_is_of_the_partitions_that_prefer_the_broker_without_topics_being_deleted() -> None:
    """Two of ten is more than 10 %; of twenty it is not, nor would be two of those that it has a replica of."""
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {n: [2, 3] for n in range(10)})
    cluster.create_topic("u", {n: [2, 3] for n in range(10)})
    cluster.create_topic("v", {n: [3, 2] for n in range(30)})
    term = cluster.controller.term
    assert term is not None
    two = [TopicPartition("t", n) for n in (3, 7)]
    for partition in (*two, TopicPartition("v", 0)):
        state = cluster.state(*partition)
        moved = LeaderAndIsr(5 - (state.leader or 0), state.leader_epoch + 1, state.isr, 1)
        cluster.zk.set(PartitionStateZnode.path(partition), PartitionStateZnode.encode(moved), -1)
    cluster.zk.create(
        f"{IsrChangeZnode.PREFIX}0", IsrChangeZnode.encode([*two, TopicPartition("v", 0)])
    )  # the context learns
    cluster.run()
    cluster.sent.clear()
    term.rebalance.check()
    cluster.run()
    assert not cluster.sent, "2 of 20, 1 of 30"
    term.context.deleting["u"] = None
    touched: list[str] = []
    cluster.ensemble.on_write = lambda session, op: touched.append(op.path)
    term.rebalance.check()
    cluster.run()
    assert sorted(touched) == [PartitionStateZnode.path(p) for p in two], "exactly those, and no request node"
    assert [cluster.state(*p).leader for p in two] == [2, 2] and cluster.state("v").leader == 2


@pytest.mark.spec("CTL-109", "ELE-12")
@pytest.mark.parametrize("hindrance", ["the broker is away", "the broker is shutting down", "an election is under way"])
def test_the_rebalance_does_not_even_try_while_something_is_in_its_way(
    hindrance: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    term = cluster.controller.term
    assert term is not None
    registered = dict(term.context.brokers)
    if hindrance == "the broker is away":
        term.context.brokers.pop(2)
    elif hindrance == "the broker is shutting down":
        term.context.shutting_down.add(2)
    else:
        term.context.electing[TopicPartition("u", 0)] = None
    caplog.clear()
    term.rebalance.check()
    assert cluster.state("t").leader == 3 and not caplog.records
    term.context.brokers.update(registered)
    term.context.shutting_down.clear()
    term.context.electing.clear()
    term.rebalance.check()
    assert cluster.state("t").leader == 2


@pytest.mark.spec("CTL-109")
def test_the_rebalance_elects_nobody_for_a_topic_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    term = cluster.controller.term
    assert term is not None
    term.zookeeper.delete_tree(TopicZnode.path("t"))
    cluster.run()
    cluster.sent.clear()
    caplog.clear()
    term.rebalance.check()
    cluster.run()
    assert not cluster.sent and not caplog.records


@pytest.mark.spec("CTL-108", "CTL-109")
def test_each_broker_that_leads_too_few_gets_its_partitions_back() -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 4], 1: [3, 4], 2: [5, 4]})
    for broker in (2, 3, 5):
        cluster.kill(broker)
        cluster.run()
        if broker != 5:
            cluster.restart(broker)
    assert cluster.leaders("t") == [4, 4, 4]
    term = cluster.controller.term
    assert term is not None
    term.rebalance.check()
    cluster.run()
    assert cluster.leaders("t") == [2, 3, 4], "5 is away"


@pytest.mark.spec("CTL-107", "CTL-109", "ELE-12")
def test_the_rebalance_gives_leadership_back_by_itself() -> None:
    cluster = FakeCluster(1, 2, 3, properties={"leader.imbalance.check.interval.seconds": "60"})
    cluster.create_topic("t", {n: [2, 3] for n in range(4)})
    cluster.timer.advance(5000)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    cluster.restart(2)
    assert cluster.leaders("t") == [3] * 4
    cluster.timer.advance(59_999)
    cluster.run()
    assert cluster.leaders("t") == [3] * 4
    cluster.timer.advance(1)
    cluster.run()
    assert cluster.leaders("t") == [2] * 4
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-107", "CTL-109", "ELE-12")
def test_the_rebalance_leaves_things_alone_during_a_reassignment_or_when_it_is_off() -> None:
    for properties in ({}, NO_REBALANCE):
        cluster = FakeCluster(1, 2, 3, 4, properties=properties)
        cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})
        cluster.kill(2)
        cluster.run()
        cluster.restart(2)
        if not properties:
            cluster.catching_up = False
            cluster.reassign({T0: [3, 4]})
        cluster.timer.advance(400_000)
        cluster.run()
        assert cluster.state("t", 1).leader == 3


@pytest.mark.spec("CTL-107", "CTL-109", "ELE-11", "ELE-12")
@pytest.mark.parametrize(("percentage", "acts"), [("10", False), ("9", True)])
def test_the_rebalance_elects_above_the_threshold_only_and_without_the_znode(percentage: str, acts: bool) -> None:
    cluster = FakeCluster(1, 2, 3, properties={"leader.imbalance.per.broker.percentage": percentage})
    cluster.create_topic("t", {n: [2, 3] for n in range(10)})
    led_by_3 = LeaderAndIsr(3, 1, (2, 3), 1)
    cluster.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(led_by_3), -1)
    context(cluster).leadership[T0] = PartitionState(led_by_3, 1)
    written: list[str] = []
    cluster.ensemble.on_write = lambda session, op: written.append(op.path)
    cluster.timer.advance(300_000)
    cluster.run()
    assert cluster.leaders("t") == [2 if acts else 3, *[2] * 9]
    assert PreferredElectionZnode.PATH not in written


@pytest.mark.spec("ELE-11", "ELE-12")
def test_partitions_that_never_had_a_leader_do_not_make_the_others_imbalanced() -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {n: [2, 3] for n in range(9)})
    led_by_3 = LeaderAndIsr(3, 1, (2, 3), 1)
    cluster.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(led_by_3), -1)
    context(cluster).leadership[T0] = PartitionState(led_by_3, 1)
    context(cluster).assignments["new"] = {0: (2, 3)}  # of which no state is known
    cluster.timer.advance(300_000)
    cluster.run()
    assert cluster.state("t").leader == 3, "1 of 10"
    context(cluster).assignments["new"] = {}
    cluster.timer.advance(300_000)
    cluster.run()
    assert cluster.state("t").leader == 2, "1 of 9"


@pytest.mark.spec("ELE-12")
def test_the_rebalance_leaves_alone_who_is_absent_or_stops_topics_that_go_and_elections_under_way() -> None:
    def imbalanced() -> FakeCluster:
        cluster = FakeCluster(1, 2, 3, 4, properties={"delete.topic.enable": "true"})
        cluster.create_topic("t", {0: [2, 3, 4], 1: [2, 3, 4]})
        cluster.kill(2, 4)
        cluster.run()
        return cluster

    def after_a_check(cluster: FakeCluster) -> list[int | None]:
        cluster.timer.advance(300_000)
        cluster.run()
        return cluster.leaders("t")

    absent = imbalanced()
    assert after_a_check(absent) == [3, 3]
    stopping = imbalanced()
    stopping.restart(2)
    context(stopping).shutting_down.add(2)
    assert after_a_check(stopping) == [3, 3]
    electing = imbalanced()
    electing.restart(2)
    context(electing).electing[TopicPartition("t", 1)] = None
    assert after_a_check(electing) == [3, 3]
    deleted = imbalanced()
    deleted.restart(2)
    deleted.delete_topic("t")  # which waits for broker 4
    assert after_a_check(deleted) == [3, 3]
    plain = imbalanced()
    plain.restart(2)
    assert after_a_check(plain) == [2, 2]


@pytest.mark.spec("ELE-12", "CTL-107", "CTL-109")
def test_rebalancing_is_on_every_five_minutes_from_ten_percent_on() -> None:
    config = BrokerConfig.from_properties({"zookeeper.connect": "x:1"})
    assert config.auto_leader_rebalance_enable is True
    assert config.leader_imbalance_check_interval_seconds == 300
    assert config.leader_imbalance_per_broker_percentage == 10


@pytest.mark.spec("ELE-7", "ELE-8", "CTL-100")
def test_partitions_that_cannot_be_elected_keep_neither_the_others_nor_the_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})
    cluster.kill(2)
    cluster.run()
    cluster.catching_up = False
    cluster.restart(2)
    behind = LeaderAndIsr(3, 1, (3,), 1)
    assert cluster.state("t", 0) == behind  # 2 is registered and not in sync
    node_behind = cluster.zk.get(PartitionStateZnode.path(T0))
    in_sync = LeaderAndIsr(3, 1, (3, 2), 1)
    cluster.zk.set(PartitionStateZnode.path(TopicPartition("t", 1)), PartitionStateZnode.encode(in_sync), -1)
    cluster.create_topic("unled", {0: [7]})  # nobody to lead it: it never had a leader
    never_led = TopicPartition("unled", 0)
    touched: list[str] = []
    cluster.ensemble.on_write = lambda session, op: touched.append(op.path)
    cluster.elect_preferred(never_led, T0, TopicPartition("nope", 3), TopicPartition("t", 1))
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        "preferred election of partition unled-0 is skipped: it never had a leader",
        "preferred election of partition nope-3 is skipped: there is no such partition",
    ]
    assert [path for path in touched if path != ControllerEpochZnode.PATH] == [
        PreferredElectionZnode.PATH,  # the request
        PartitionStateZnode.path(TopicPartition("t", 1)),
        PreferredElectionZnode.PATH,  # goes when all have been tried
    ]
    assert cluster.zk.get(PartitionStateZnode.path(T0)) == node_behind
    assert cluster.state("t", 1) == LeaderAndIsr(2, 2, (3, 2), 1)
    assert cluster.assignment("t") == {0: (2, 3), 1: (2, 3)}
    assert not cluster.exists(PartitionStateZnode.path(never_led))
    assert not cluster.exists(PreferredElectionZnode.PATH)


@pytest.mark.spec("CTL-112", "CTL-113", "CTL-114", "CTL-115", "CTL-116", "BRK-34", "CTL-57")
def test_controlled_shutdown_moves_leaders_and_empties_the_isr() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [2], 3: [2, 3, 1], 4: [3], 5: [3, 2, 1]})
    cluster.kill(1)  # not the one that stops, but the one whose replica is out of sync afterwards
    cluster.run()
    term = cluster.controller.term
    assert term is not None
    stopping = 3 if cluster.controller_id == 2 else 2
    other = 5 - stopping
    replicated = (0, 1, 3, 5)  # two of them led by the one that stops
    before = {n: cluster.state("t", n).leader for n in replicated}
    cluster.catching_up = False  # a broker that is stopping fetches no more
    cluster.sent.clear()
    code, remaining = term.controlled_shutdown.serve(stopping, cluster.brokers[stopping].epoch)
    cluster.run()
    assert (code, remaining) == (ErrorCode.NONE, [])
    assert [cluster.state("t", n).leader for n in replicated] == [other] * 4
    assert all(cluster.state("t", n).isr == (other,) for n in replicated)
    assert cluster.state("t", 2) == LeaderAndIsr(2, 0, (2,), 1)  # alone: not touched
    assert cluster.state("t", 4) == LeaderAndIsr(3, 0, (3,), 1)
    assert {(b, d) for b, d, _ in cluster.stops()} == {(stopping, False)}
    followed = {n for n in replicated if before[n] != stopping}
    assert len(followed) == 2
    assert {p.partition for _, _, p in cluster.stops()} == followed
    assert {(b, s.partition) for b, s in cluster.leader_and_isr()} == {
        (b, n) for n in replicated for b in ((other,) if n in followed else (stopping, other))
    }, "also to the one that stops, of what it led"
    assert {b for b, _ in cluster.metadata()} == {stopping, other}
    assert stopping in {b for b, _ in cluster.metadata()}  # still registered, still told
    assert term.controlled_shutdown.serve(77, None) == (ErrorCode.BROKER_NOT_AVAILABLE, [])
    epoch = cluster.brokers[stopping].epoch
    assert term.controlled_shutdown.serve(stopping, epoch - 1) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert term.controlled_shutdown.serve(stopping, epoch + 1) == (ErrorCode.NONE, []), "not heard of yet"
    assert stopping not in context(cluster).live_brokers and stopping in context(cluster).brokers
    cluster.kill(stopping)
    cluster.run()
    assert context(cluster).shutting_down == set(), "the mark goes with the node"
    cluster.restart(stopping)
    assert stopping in context(cluster).live_brokers


@pytest.mark.spec("CTL-113", "CTL-114", "CTL-115", "CTL-116", "CTL-57")
def test_a_stopping_follower_is_stopped_before_the_others_hear_and_leads_nothing_any_more() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3, 4], 1: [3], 2: [4, 2, 3]}, unclean_leader_election_enable="true")
    term = cluster.controller.term
    assert term is not None
    cluster.catching_up = False
    cluster.sent.clear()
    assert term.controlled_shutdown.serve(3, None) == (ErrorCode.NONE, [])
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(2, 1, (2, 4), 1)
    assert cluster.state("t", 1) == LeaderAndIsr(3, 0, (3,), 1), "the only one: not touched"
    assert cluster.state("t", 2) == LeaderAndIsr(4, 1, (4, 2), 1)
    told = [
        (b, [s.partition for s in m.partition_states]) for b, m in cluster.sent if isinstance(m, LeaderAndIsrRequest)
    ]
    assert sorted(told) == [(2, [0, 2]), (4, [0, 2])]
    stopped, asked = next((i, m) for i, (_, m) in enumerate(cluster.sent) if isinstance(m, StopReplicaRequest))
    assert [p.partition for p in asked.partitions] == [0, 2]
    assert stopped < next(i for i, (_, m) in enumerate(cluster.sent) if isinstance(m, LeaderAndIsrRequest))
    assert {(b, delete, p.partition) for b, delete, p in cluster.stops()} == {(3, False, 0), (3, False, 2)}
    cluster.zk.set(
        PartitionStateZnode.path(T0), PartitionStateZnode.encode(LeaderAndIsr(2, 1, (2, 3), 1)), -1
    )  # as if it had come back into the ISR
    cluster.sent.clear()
    cluster.kill(2)
    cluster.run()
    assert cluster.state("t").leader == 4, "uncleanly rather than by one that is about to go"
    assert 3 in {b for b, _ in cluster.metadata()}, "still told"


@pytest.mark.spec("CTL-114", "CTL-57")
def test_the_leadership_of_a_stopping_broker_goes_to_one_that_stays() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3, 4]})
    term = cluster.controller.term
    assert term is not None
    cluster.catching_up = False
    term.context.shutting_down.add(3)  # before it
    cluster.sent.clear()
    assert term.controlled_shutdown.serve(2, None) == (ErrorCode.NONE, [])
    cluster.run()
    assert cluster.state("t") == LeaderAndIsr(4, 1, (4,), 1)
    assert sorted(b for b, s in cluster.leader_and_isr() if s.leader_epoch == 1) == [2, 3, 4], "also those that stop"


@pytest.mark.spec("CTL-114", "CTL-116", "BRK-34")
def test_the_answer_names_what_could_not_be_moved() -> None:
    cluster = FakeCluster(1, 2, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [2], 2: [2, 1], 3: [3, 2]})
    term = cluster.controller.term
    assert term is not None
    cluster.sent.clear()
    stuck = [T0, TopicPartition("t", 3)]
    before = [cluster.zk.get(PartitionStateZnode.path(p)) for p in stuck]
    assert term.controlled_shutdown.serve(2, None) == (ErrorCode.NONE, stuck)
    cluster.run()
    assert [cluster.zk.get(PartitionStateZnode.path(p)) for p in stuck] == before, "left as they are"
    assert {s.partition for _, s in cluster.leader_and_isr()} == {2} and not cluster.stops()
    assert cluster.leaders("t") == [2, 2, 1, 2]


@pytest.mark.spec("CTL-110", "CTL-57", "Z-30")
def test_isr_changes_are_passed_on_to_all_brokers(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {n: [2, 3] for n in range(4)})
    cluster.catching_up = False
    partitions = [TopicPartition("t", n) for n in range(4)]
    for partition in partitions[:3]:
        state = PartitionStateZnode.encode(LeaderAndIsr(2, 0, (2,), 1))
        cluster.zk.set(PartitionStateZnode.path(partition), state, -1)
    cluster.sent.clear()
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}0", IsrChangeZnode.encode(partitions[:2]))
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}1", b"garbage")
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}2", IsrChangeZnode.encode(partitions[2:3]))
    cluster.run()
    assert cluster.zk.children(IsrChangeZnode.PATH) == []
    told = {b: [(s.partition, s.isr, s.zk_version) for s in m.partition_states] for b, m in cluster.metadata()}
    assert told == {b: [(n, [2], 1) for n in range(3)] for b in (1, 2, 3)}
    assert len(cluster.sent) == 3, "an UpdateMetadata each, and nothing else"
    assert [context(cluster).leadership[p].leader_and_isr.isr for p in partitions] == [(2,)] * 3 + [(2, 3)]
    (error,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert error.startswith(f"{IsrChangeZnode.PREFIX}1: ") and error.endswith("; it is deleted")


@pytest.mark.spec("CTL-110", "CTL-121")
def test_isr_changes_that_were_listed_are_deleted_though_their_states_cannot_be_read() -> None:
    """And no others: one made meanwhile has not been read."""
    cluster = FakeCluster(1, 2, 3)
    cluster.create_topic("t", {0: [2, 3]})
    session = cluster.brokers[1].session
    read = session.get_many
    later = f"{IsrChangeZnode.PREFIX}2"
    met: list[bool] = []

    def failing(paths: list[str], watch: object = None) -> object:
        if PartitionStateZnode.path(T0) in paths and not met:
            met.append(True)
            cluster.zk.create(later, IsrChangeZnode.encode([T0]))
            raise NoPermissionError("no permission")
        return read(paths, watch)  # type: ignore[arg-type]

    session.get_many = failing  # type: ignore[method-assign, assignment]
    term = cluster.controller.term
    cluster.zk.create(f"{IsrChangeZnode.PREFIX}1", IsrChangeZnode.encode([T0]))
    cluster.sent.clear()
    assert cluster.work_once(1) and met
    assert term is not None and cluster.controller.term is term, "it rules on"
    assert cluster.zk.children(IsrChangeZnode.PATH) == ["isr_change_2"] and not cluster.sent
    cluster.run()
    assert sorted(b for b, _ in cluster.metadata()) == [1, 2, 3]
    assert cluster.zk.children(IsrChangeZnode.PATH) == []


@pytest.mark.spec("Z-30", "Z-35", "Z-36", "Z-37", "Z-47")
@pytest.mark.parametrize("znode", [IsrChangeZnode, LogDirEventZnode])
def test_notifications_that_make_no_sense(
    znode: type[IsrChangeZnode | LogDirEventZnode], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    cluster.sent.clear()
    for failover in (False, True):
        strange = [f"{znode.PREFIX}x", znode.PREFIX, f"{znode.PATH}/other"]
        for path in strange:
            if not failover:
                cluster.zk.create(path, b"{}")
        for number, data in enumerate((b"rubbish", b"{}", b"")):
            cluster.zk.create(f"{znode.PREFIX}{number}", data)
        caplog.clear()
        if failover:
            cluster.controller.step_down()
        cluster.run()
        assert [f"{znode.PATH}/{n}" for n in cluster.zk.children(znode.PATH) or ()] == strange, "left alone"
        warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and "skipped" in r.getMessage()]
        assert all(any(path in text for text in warned) for path in strange)
        assert failover or ((f"{znode.PREFIX}0: " in caplog.text) and (f"{znode.PREFIX}1: " in caplog.text))
        assert f"{znode.PREFIX}2: " not in caplog.text, "without content it names nothing, which is no error"
        assert failover or not cluster.sent
        caplog.clear()
        cluster.zk.create(f"{znode.PREFIX}9", b"{}")
        cluster.run()
        assert "skipped" not in caplog.text, "they are told of once, not at every event"


@pytest.mark.spec("Z-36")
@pytest.mark.parametrize("znode", [IsrChangeZnode, LogDirEventZnode])
def test_notifications_that_are_gone_when_they_are_read_are_no_error(
    znode: type[IsrChangeZnode | LogDirEventZnode], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    children = cluster.brokers[1].session.children

    def with_a_ghost(path: str, watch: Watch | None = None) -> list[str] | None:
        names = children(path, watch)
        return [*(names or ()), f"{znode.PREFIX.rpartition('/')[2]}0"] if path == znode.PATH else names

    cluster.brokers[1].session.children = with_a_ghost  # type: ignore[method-assign]
    cluster.sent.clear()
    data = IsrChangeZnode.encode([T0]) if znode is IsrChangeZnode else LogDirEventZnode.encode(2)
    cluster.zk.create(f"{znode.PREFIX}1", data)
    cluster.run()
    assert {s.partition for _, m in cluster.metadata() for s in m.partition_states} == {0}, "the other one is served"
    assert cluster.zk.children(znode.PATH) == [] and cluster.controller_epoch == 1
    assert not [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")]


@pytest.mark.spec("Z-47", "Z-36")
def test_without_the_parent_of_log_directory_events_a_controller_rules_all_the_same() -> None:
    cluster = FakeCluster(1, 2)
    cluster.zk.delete(LogDirEventZnode.PATH)
    cluster.kill(1)
    cluster.run()
    cluster.create_topic("t", {0: [2]})
    assert cluster.controller_id == 2 and cluster.state("t").leader == 2


@pytest.mark.spec("CTL-61", "CTL-122")
def test_answers_11_and_3_change_nothing_and_are_not_sent_again() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.zk.create(TopicZnode.path("t"), TopicZnode({0: (2, 3), 1: (3, 2)}).encode())
    cluster.work(1)
    roles = [request for _, request in cluster.network if isinstance(request.message, LeaderAndIsrRequest)]
    assert len(roles) == 2
    cluster.run()
    nodes = dict(cluster.ensemble.nodes)
    cluster.sent.clear()
    entries = [
        LeaderAndIsrResponsePartition(topic="t", partition=n, error_code=code) for n, code in ((0, 11), (1, 3))
    ]  # fmt: skip
    for request in roles:
        assert request.on_answer is not None
        request.on_answer(LeaderAndIsrResponse(partitions=entries))
    cluster.run()
    assert cluster.sent == [] and cluster.ensemble.nodes == nodes
    assert context(cluster).failed_replicas == {}


@pytest.mark.spec("CTL-57", "CTL-122")
def test_a_log_directory_event_asks_its_broker_for_all_its_replicas_and_is_metadata_for_all() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [1, 3]})
    cluster.sent.clear()
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}0", LogDirEventZnode.encode(2))
    cluster.run()
    assert [(b, s.partition) for b, s in cluster.leader_and_isr()] == [(2, 0), (2, 1)]
    assert [(b, [s.partition for s in m.partition_states]) for b, m in cluster.metadata()] == [
        (b, [0, 1]) for b in (1, 2, 3)
    ]
    assert cluster.stops() == []


@pytest.mark.spec("CTL-122", "CTL-61", "CTL-57", "Z-47")
def test_a_failed_log_directory_costs_its_replicas_their_roles_until_it_is_back() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [2, 3]})
    broken = cluster.brokers[2]
    broken.storage_errors = {T0, TopicPartition("t", 1)}
    cluster.sent.clear()
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}0", LogDirEventZnode.encode(2))
    cluster.run()
    assert cluster.zk.children(LogDirEventZnode.PATH) == []
    assert cluster.leaders("t") == [3, 3, 2]
    assert {(b, delete, p) for b, delete, p in cluster.stops()} == {(2, False, p) for p in broken.storage_errors}
    assert {b for b, s in cluster.leader_and_isr() if s.leader_epoch > 0 and s.partition in (0, 1)} == {3}
    assert cluster.state("t", 1).isr == (3,)
    last = {s.partition: s.offline_replicas for _, m in cluster.metadata() for s in m.partition_states}
    assert last[0] == [2]
    assert last[1] == [2]
    assert context(cluster).failed_replicas == {T0: {2}, TopicPartition("t", 1): {2}}
    broken.storage_errors = set()
    cluster.kill(2)
    cluster.run()
    assert context(cluster).failed_replicas == {}, "what it lacked is of the life that is over"
    cluster.restart(2)
    assert cluster.state("t", 0).isr == (3, 2)


@pytest.mark.spec("CTL-122")
def test_nothing_is_noted_of_a_replica_that_serves_again() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3]})
    cluster.brokers[2].storage_errors = {T0}
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}0", LogDirEventZnode.encode(2))
    cluster.run()
    cluster.brokers[2].storage_errors = set()
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}1", LogDirEventZnode.encode(2))
    cluster.run()
    assert context(cluster).failed_replicas == {}


@pytest.mark.spec("CTL-122")
def test_a_broker_that_lost_a_log_directory_is_asked_about_all_its_replicas_and_nobody_else() -> None:
    cluster = FakeCluster(1, 2, 3, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3], 1: [3, 2], 2: [3, 1]})
    cluster.sent.clear()
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}0", LogDirEventZnode.encode(2))
    cluster.run()
    assert sorted((b, s.partition) for b, s in cluster.leader_and_isr()) == [(2, 0), (2, 1)]
    told = {b: sorted(s.partition for s in m.partition_states) for b, m in cluster.metadata()}
    assert told == {b: [0, 1] for b in (1, 2, 3)}


@pytest.mark.spec("CTL-122")
def test_each_broker_that_an_event_names_is_asked_and_answers_for_itself_alone() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3, 4], 1: [4, 2]})
    term = cluster.controller.term
    assert term is not None
    for broker in (2, 3):
        cluster.brokers[broker].storage_errors = {T0}
    cluster.sent.clear()
    for number, broker in enumerate((2, 3)):
        cluster.zk.create(f"{LogDirEventZnode.PREFIX}{number}", LogDirEventZnode.encode(broker))
    cluster.work(1)
    asked = [(c.broker.id, r.message) for c, r in cluster.network if isinstance(r.message, LeaderAndIsrRequest)]
    assert sorted((b, s.partition) for b, m in asked for s in m.partition_states) == [(2, 0), (2, 1), (3, 0)]
    cluster.run()
    assert cluster.zk.children(LogDirEventZnode.PATH) == []
    assert term.context.failed_replicas == {T0: {2, 3}}
    assert cluster.state("t").leader == 4 and cluster.state("t").isr == (4,)
    cluster.brokers[2].storage_errors = set()
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}2", LogDirEventZnode.encode(2))
    cluster.run()
    assert term.context.failed_replicas == {T0: {3}}, "3 has not answered again"
    assert cluster.state("t").isr == (4, 2)


@pytest.mark.spec("CTL-122", "CTL-61")
def test_a_replica_that_failed_at_any_leader_and_isr_is_dead_until_an_answer_without_error() -> None:
    cluster = FakeCluster(1, 2, 3, 4, properties=NO_REBALANCE)
    cluster.brokers[2].storage_errors = {T0}
    cluster.create_topic("t", {0: [2, 3], 1: [2, 3]})  # the first that broker 2 hears of it
    assert cluster.state("t") == LeaderAndIsr(3, 1, (3,), 1)
    assert cluster.state("t", 1) == LeaderAndIsr(2, 0, (2, 3), 1), "another directory"

    def offline() -> list[list[int]]:
        """Have all told of t-0."""
        cluster.sent.clear()
        cluster.restart(5)
        cluster.kill(5)
        cluster.run()
        return [s.offline_replicas for _, m in cluster.metadata() for s in m.partition_states if s.partition == 0]

    assert set(map(tuple, offline())) == {(2,)}
    cluster.elect_preferred(T0)
    assert cluster.state("t").leader == 3
    cluster.brokers[2].storage_errors = set()
    cluster.zk.create(f"{LogDirEventZnode.PREFIX}0", LogDirEventZnode.encode(2))  # asks it again
    cluster.run()
    assert cluster.state("t").isr == (3, 2)
    assert set(map(tuple, offline())) == {()}
    cluster.elect_preferred(T0)
    assert cluster.state("t").leader == 2


@pytest.mark.spec("CTL-122", "CTL-61")
@pytest.mark.parametrize(
    ("occasion", "failing", "number", "leader", "isr"),
    [
        ("partitions are added", 2, 1, 3, (3, 4)),
        ("its broker starts", 2, 0, 3, (3, 4)),
        ("failover", 3, 0, 2, (2, 4)),
        ("the leader dies", 3, 0, 4, (4,)),
        ("a follower dies", 3, 0, 2, (2,)),
        ("preferred election", 2, 0, 3, (3, 4)),
        ("reassignment", 5, 0, 2, (2, 3, 4)),
        ("a follower stops", 3, 0, 2, (2,)),
        ("the leader stops", 3, 0, 4, (4,)),
    ],
)
def test_56_as_the_answer_to_any_leader_and_isr_costs_the_replica_its_role(
    occasion: str, failing: int, number: int, leader: int, isr: tuple[int, ...]
) -> None:
    cluster = FakeCluster(1, 5, 2, 3, 4, properties=NO_REBALANCE)
    cluster.create_topic("t", {0: [2, 3, 4]})
    if occasion in ("its broker starts", "preferred election"):
        cluster.kill(2)
        cluster.run()
    if occasion == "preferred election":
        cluster.restart(2)
        assert cluster.state("t").isr == (3, 4, 2)
    cluster.catching_up = False
    if occasion == "its broker starts":
        cluster.start(2)
    partition = TopicPartition("t", number)
    cluster.brokers[failing].storage_errors = {partition}
    term = cluster.controller.term
    assert term is not None
    match occasion:
        case "partitions are added":
            cluster.zk.set(TopicZnode.path("t"), TopicZnode({0: (2, 3, 4), 1: (2, 3, 4)}).encode(), -1)
        case "failover" | "the leader dies" | "a follower dies":
            cluster.kill({"failover": 1, "the leader dies": 2, "a follower dies": 4}[occasion])
        case "preferred election":
            cluster.elect_preferred(T0)
        case "reassignment":
            cluster.reassign({T0: [2, 3, 5]})
        case "a follower stops" | "the leader stops":
            term.controlled_shutdown.serve(4 if occasion == "a follower stops" else 2, None)
    cluster.run()
    assert (cluster.state("t", number).leader, cluster.state("t", number).isr) == (leader, isr)
    assert context(cluster).failed_replicas == {partition: {failing}}
    told = [s.offline_replicas for _, m in cluster.metadata() for s in m.partition_states if s.partition == number]
    assert failing in told[-1]
