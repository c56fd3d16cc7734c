"""The tables of legal moves are those of the specification; what each does, writes and tells; and where a term begins."""

from itertools import product

import pytest

from kafkatool.broker.controller.deciding.partition_machine import Strategy
from kafkatool.broker.controller.states import PARTITION_MOVES, REPLICA_MOVES
from kafkatool.broker.controller.states import PartitionStatus as P
from kafkatool.broker.controller.states import ReplicaStatus as R
from kafkatool.broker.controller.term import Term
from kafkatool.broker.controller.work.rebalance import imbalanced
from kafkatool.core.model.values import LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrPartition
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataPartition
from kafkatool.core.zookeeper.session import Op
from kafkatool.core.zookeeper.znodes import ConfigZnode, PartitionStateZnode, TopicZnode
from tests.broker.controller.fake_cluster import FakeCluster


@pytest.mark.spec("CTL-64")
def test_legal_moves_of_partitions() -> None:
    rows = {
        (P.NON_EXISTENT, P.NEW),
        (P.NEW, P.ONLINE),
        (P.ONLINE, P.ONLINE),
        (P.OFFLINE, P.ONLINE),
        (P.NEW, P.OFFLINE),
        (P.ONLINE, P.OFFLINE),
        (P.OFFLINE, P.OFFLINE),
        (P.OFFLINE, P.NON_EXISTENT),
    }
    assert {(old, new) for new, olds in PARTITION_MOVES.items() for old in olds} == rows


@pytest.mark.spec("CTL-67")
def test_legal_moves_of_replicas() -> None:
    rows = {
        (R.NON_EXISTENT, R.NEW),
        (R.NEW, R.ONLINE),
        (R.ONLINE, R.ONLINE),
        (R.OFFLINE, R.ONLINE),
        (R.DELETION_INELIGIBLE, R.ONLINE),
        (R.NEW, R.OFFLINE),
        (R.ONLINE, R.OFFLINE),
        (R.OFFLINE, R.OFFLINE),
        (R.DELETION_INELIGIBLE, R.OFFLINE),
        (R.OFFLINE, R.DELETION_STARTED),
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
        (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
        (R.OFFLINE, R.DELETION_INELIGIBLE),
        (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
    }
    assert {(old, new) for new, olds in REPLICA_MOVES.items() for old in olds} == rows


@pytest.mark.spec("CTL-62", "CTL-66")
def test_an_illegal_move_is_skipped_and_the_others_go_on() -> None:
    cluster = FakeCluster(1, 2)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    term = cluster.controller.term
    assert term is not None
    known, unknown = TopicPartition("t", 1), TopicPartition("t", 9)
    cluster.log.lines.clear()
    with term.batch.filling():
        assert term.partitions.move([unknown, known], P.OFFLINE) == {known}
        assert term.replicas.move({unknown: [1], known: [2]}, R.ONLINE) == {known: [2]}
        assert term.replicas.move({known: [1, 2]}, R.DELETION_SUCCESSFUL) == {}
    replica, partition = "initiated state change of replica", "failed to change state for partition"
    assert [message.partition("] ")[2] for level, message in cluster.log.lines if level == "ERROR"] == [
        f"Controller 1 epoch 1 {partition} t-9 from NonExistentPartition to OfflinePartition",
        f"Controller 1 epoch 1 {replica} 1 for partition t-9 from NonExistentReplica to OnlineReplica failed",
        f"Controller 1 epoch 1 {replica} 1 for partition t-1 from OnlineReplica to ReplicaDeletionSuccessful failed",
        f"Controller 1 epoch 1 {replica} 2 for partition t-1 from OnlineReplica to ReplicaDeletionSuccessful failed",
    ]
    assert (term.context.status_of(known), term.context.status_of(unknown)) == (P.OFFLINE, P.NON_EXISTENT)
    assert {status.value for status in P} == {
        "NonExistentPartition",
        "NewPartition",
        "OnlinePartition",
        "OfflinePartition",
    }
    assert {status.value for status in R} == {
        "NonExistentReplica",
        "NewReplica",
        "OnlineReplica",
        "OfflineReplica",
        "ReplicaDeletionStarted",
        "ReplicaDeletionSuccessful",
        "ReplicaDeletionIneligible",
    }


@pytest.mark.spec("CTL-108", "CTL-109", "ELE-11", "ELE-12")
@pytest.mark.parametrize(("led_elsewhere", "acts"), [(0, False), (1, False), (2, True), (10, True)])
def test_more_than_the_percentage_is_an_imbalance(led_elsewhere: int, acts: bool) -> None:
    partitions = [TopicPartition("t", n) for n in range(10)]
    leaders = {p: 2 if n < led_elsewhere else 1 for n, p in enumerate(partitions)}
    found = imbalanced(dict.fromkeys(partitions, 1), leaders, 10)
    assert found == ({1: partitions[:led_elsewhere]} if acts else {})


@pytest.mark.spec("CTL-108", "ELE-11")
def test_a_partition_that_never_had_a_leader_counts_below_the_line_alone_and_one_that_lost_it_above() -> None:
    partitions = [TopicPartition("t", n) for n in range(10)]
    leaders: dict[TopicPartition, int | None] = dict.fromkeys(partitions[:9], 1)
    assert imbalanced(dict.fromkeys(partitions, 1), leaders | {partitions[0]: 2}, 10) == {}
    without = leaders | {partitions[0]: 2, partitions[1]: None}
    assert imbalanced(dict.fromkeys(partitions, 1), without, 10) == {1: partitions[:2]}
    assert imbalanced(dict.fromkeys(partitions[:9], 1), leaders | {partitions[0]: 2}, 10) == {1: partitions[:1]}


@pytest.mark.spec("CTL-108")
def test_the_imbalance_is_of_each_broker_by_itself() -> None:
    preferred = {TopicPartition("t", n): broker for n, broker in enumerate((1, 1, 2, 2, 2, 3))}
    leaders = dict.fromkeys(preferred, 1)
    found = imbalanced(preferred, leaders, 10)
    assert {b: [p.partition for p in partitions] for b, partitions in found.items()} == {2: [2, 3, 4], 3: [5]}


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STABLE = {"auto.leader.rebalance.enable": "false"}


def ruling(cluster: FakeCluster) -> Term:
    term = cluster.controller.term
    assert term is not None
    return term


class Told:
    """What is written and sent from now on: a move's effects."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.writes: list[Op] = []
        cluster.ensemble.on_write = lambda session, op: self.writes.append(op)
        cluster.catching_up = False
        self.settle()

    def settle(self) -> None:
        self.cluster.run()
        self.cluster.sent.clear()
        self.cluster.log.lines.clear()
        self.writes.clear()

    def nothing(self) -> bool:
        self.cluster.run()
        return not self.writes and not self.cluster.sent

    def receivers(self) -> tuple[list[int], list[int], list[tuple[int, bool]]]:
        """Return who got LeaderAndIsr, UpdateMetadata, and StopReplica (and whether that deletes)."""
        self.cluster.run()
        return (
            sorted(b for b, _ in self.cluster.leader_and_isr()),
            sorted(b for b, _ in self.cluster.metadata()),
            sorted((b, delete) for b, delete, _ in self.cluster.stops()),
        )

    def leaderships(self) -> set[LeaderAndIsr]:
        """Return what was told of leaders and ISRs, by both requests."""
        states: list[LeaderAndIsrPartition | UpdateMetadataPartition] = [s for _, s in self.cluster.leader_and_isr()]
        states += [s for _, m in self.cluster.metadata() for s in m.partition_states]
        return {
            LeaderAndIsr(None if s.leader == -1 else s.leader, s.leader_epoch, tuple(s.isr), s.controller_epoch)
            for s in states
        }


def of_two() -> tuple[FakeCluster, Term, Told]:
    """Make a partition on brokers 2 and 3 of four."""
    cluster = FakeCluster(1, 2, 3, 4, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3]})
    return cluster, ruling(cluster), Told(cluster)


@pytest.mark.spec("CTL-62", "CTL-64")
@pytest.mark.parametrize(("old", "new"), list(product(P, P)))
def test_every_move_of_a_partition_is_made_or_refused(old: P, new: P) -> None:
    cluster, term, told = of_two()
    state = cluster.state("t")
    term.context.partition_status[T0] = old
    if old is P.NEW:  # never led
        term.context.leadership.pop(T0)
        term.zookeeper.delete([PartitionStateZnode.path(T0)])
        told.settle()
    with term.batch.filling():
        moved = term.partitions.move([T0], new)
    assert term.context.status_of(T0) is (new if moved else old)
    if old not in PARTITION_MOVES[new]:
        assert not moved and told.nothing()
        line = f"Controller 1 epoch 1 failed to change state for partition t-0 from {old} to {new}"
        assert cluster.log.lines == [("ERROR", f"[Controller id=1 epoch=1] {line}")]
    elif new is not P.ONLINE:
        assert moved == {T0} and told.nothing(), "a mark only"
        assert [f"from {old} to {new}" in line for line in cluster.log.told("Changed partition t-0")] == [True]
    else:
        assert moved == {T0}
        assert told.receivers() == ([2, 3], [1, 2, 3, 4], [])
        assert len(told.writes) == 1
        epoch = 0 if old is P.NEW else state.leader_epoch + 1
        assert cluster.state("t") == LeaderAndIsr(2, epoch, (2, 3), 1)
        assert {s.is_new for _, s in cluster.leader_and_isr()} == {old is P.NEW}
        assert f"from {old} to OnlinePartition with state" in cluster.log.told("Changed partition t-0")[0]


@pytest.mark.spec("CTL-64", "CTL-57", "CTL-41")
@pytest.mark.parametrize(
    ("strategy", "replicas", "leader", "isr", "receivers"),
    [
        (Strategy.OFFLINE, (2, 3, 4, 5, 6), 2, (3, 2), [2, 3, 5]),
        (Strategy.REASSIGN, (4, 2, 3), 2, (6, 4, 3, 2), [2, 3, 4]),
        (Strategy.REASSIGN, (4, 5), None, (), []),
        (Strategy.PREFERRED, (2, 3, 4, 5, 6), 2, (6, 4, 3, 2), [2, 3, 4, 5]),
        (Strategy.PREFERRED, (5, 2, 3, 4, 6), None, (), []),
        (Strategy.CONTROLLED_SHUTDOWN, (2, 3, 4, 5, 6), 2, (6, 3, 2), [2, 3, 4, 5]),
    ],
)
@pytest.mark.parametrize("meanwhile", [False, True], ids=["alone", "another writes meanwhile"])
def test_each_strategy_has_its_leader_its_isr_and_its_receivers(
    strategy: Strategy,
    replicas: tuple[int, ...],
    leader: int | None,
    isr: tuple[int, ...],
    receivers: list[int],
    *,
    meanwhile: bool,
) -> None:
    """Of replicas 2 and 3 are as they should be, 4 is about to stop, 5 out of sync, and 6 dead though in the ISR."""
    cluster = FakeCluster(1, 2, 3, 4, 5, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3, 4, 5, 6]})
    term, told = ruling(cluster), Told(cluster)
    path, before = PartitionStateZnode.path(T0), LeaderAndIsr(3, 7, (6, 4, 3, 2), 0)
    first = LeaderAndIsr(3, 6, (3, 2, 5), 0)  # what the controller reads first, and decides on
    cluster.zk.set(path, PartitionStateZnode.encode(first if meanwhile else before), -1)
    session = cluster.brokers[1].session
    read = session.get_many
    written: list[bool] = []

    def interfering(paths: list[str], watch: object = None) -> object:
        nodes = read(paths, watch)  # type: ignore[arg-type]
        if meanwhile and path in paths and not written:
            written.append(True)
            cluster.zk.set(path, PartitionStateZnode.encode(before), -1)
        return nodes

    session.get_many = interfering  # type: ignore[method-assign, assignment]
    term.context.set_replicas(T0, replicas)
    term.context.shutting_down.add(4)
    with term.batch.filling():
        assert term.partitions.move([T0], P.ONLINE, strategy) == ({T0} if leader else set())
    assert cluster.state("t") == (LeaderAndIsr(leader, 8, isr, 1) if leader else before)
    assert told.receivers() == (receivers, [1, 2, 3, 4, 5] if leader else [], [])
    assert bool(written) is meanwhile


@pytest.mark.spec("CTL-14")
@pytest.mark.parametrize("strategy", list(Strategy))
def test_no_strategy_elects_anybody_where_a_newer_controller_has_written(
    strategy: Strategy, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, term, told = of_two()
    foreign = LeaderAndIsr(3, 7, (3, 2), 2)  # one above ours
    cluster.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(foreign), -1)
    told.settle()
    with term.batch.filling():
        assert term.partitions.move([T0], P.ONLINE, strategy) == set()
    assert told.nothing() and cluster.state("t") == foreign
    (error,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert error == "partition t-0 is left alone: its state was written by controller epoch 2, ours is 1"


@pytest.mark.spec("CTL-66", "CTL-67", "CTL-51")
@pytest.mark.parametrize(("old", "new"), list(product(R, R)))
def test_every_move_of_a_replica_is_made_or_refused(old: R, new: R) -> None:
    """Of broker 3, an in-sync follower."""
    cluster, term, told = of_two()
    context = term.context
    context.set_replica_status(T0, 3, old)
    with term.batch.filling():
        moved = term.replicas.move({T0: [3]}, new)
    assert context.replica_status_of(T0, 3) is (new if moved else old)
    if old not in REPLICA_MOVES[new]:
        assert not moved and told.nothing()
        line = f"Controller 1 epoch 1 initiated state change of replica 3 for partition t-0 from {old} to {new} failed"
        assert cluster.log.lines == [("ERROR", f"[Controller id=1 epoch=1] {line}")]
        return
    assert moved == {T0: [3]}
    all_brokers = [1, 2, 3, 4]
    expected: dict[R, tuple[list[int], list[int], list[tuple[int, bool]]]] = {
        R.NEW: ([3], all_brokers, []),
        R.ONLINE: ([], [], []) if old is R.NEW else ([3], all_brokers, []),
        R.OFFLINE: ([2], all_brokers, [(3, False)]),
        R.DELETION_STARTED: ([], [], [(3, True)]),
    }
    assert told.receivers() == expected.get(new, ([], [], [])), "the rest are marks"
    assert told.leaderships() <= {cluster.state("t")}, "as it is now"
    assert len(told.writes) == (new is R.OFFLINE)
    assert cluster.state("t").isr == ((2,) if new is R.OFFLINE else (2, 3))
    assert context.replicas(T0) == ((2,) if new is R.NON_EXISTENT else (2, 3))
    assert cluster.log.told("Changed state of") == [f"Changed state of replica 3 for partition t-0 from {old} to {new}"]


@pytest.mark.spec("CTL-67")
def test_a_replica_that_leads_is_not_made_new_and_a_new_one_is_taken_into_the_assignment() -> None:
    _, term, told = of_two()
    term.context.set_replica_status(T0, 2, R.NON_EXISTENT)
    with term.batch.filling():
        assert term.replicas.move({T0: [2]}, R.NEW) == {}
        assert term.replicas.move({T0: [4]}, R.NEW) == {T0: [4]}
    assert told.receivers() == ([4], [1, 2, 3, 4], [])
    told.settle()
    with term.batch.filling():
        term.replicas.move({T0: [4]}, R.ONLINE)
    assert term.context.replicas(T0) == (2, 3, 4) and told.nothing()


@pytest.mark.spec("CTL-67")
@pytest.mark.parametrize(("old", "new"), [(R.NON_EXISTENT, R.NEW), (R.OFFLINE, R.ONLINE), (R.ONLINE, R.OFFLINE)])
def test_of_a_partition_that_was_never_led_nobody_is_told_its_leadership(old: R, new: R) -> None:
    cluster = FakeCluster(1, 2, properties=STABLE)
    cluster.create_topic("t", {0: [7, 8]})
    term, told = ruling(cluster), Told(cluster)
    term.context.set_replica_status(T0, 8, old)
    with term.batch.filling():
        assert term.replicas.move({T0: [8]}, new) == {T0: [8]}
    assert told.nothing()


@pytest.mark.spec("CTL-46", "CTL-47", "CTL-67")
def test_all_replicas_that_stay_hear_of_those_that_go_also_one_out_of_sync() -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3, 4, 5]})
    term, told = ruling(cluster), Told(cluster)
    in_sync = LeaderAndIsr(2, 0, (4, 2, 3), 1)
    cluster.zk.set(PartitionStateZnode.path(T0), PartitionStateZnode.encode(in_sync), -1)
    told.settle()
    with term.batch.filling():
        assert term.replicas.move({T0: [3, 4]}, R.OFFLINE) == {T0: [3, 4]}
    assert told.receivers() == ([2, 5], [1, 2, 3, 4, 5], [(3, False), (4, False)])
    assert len(told.writes) == 1 and cluster.state("t") == LeaderAndIsr(2, 1, (2,), 1)
    assert told.leaderships() == {cluster.state("t")}


@pytest.mark.spec("CTL-67")
@pytest.mark.parametrize(("old", "new"), [(R.NON_EXISTENT, R.NEW), (R.OFFLINE, R.ONLINE)])
def test_a_replica_hears_of_a_partition_without_leader_where_there_is_a_state(old: R, new: R) -> None:
    _, term, told = of_two()
    leaderless = PartitionState(LeaderAndIsr(None, 9, (2,), 1), 9)
    term.context.leadership[T0] = leaderless
    term.context.set_replica_status(T0, 3, old)
    with term.batch.filling():
        assert term.replicas.move({T0: [3]}, new) == {T0: [3]}
    assert told.receivers() == ([3], [1, 2, 3, 4], [])
    assert told.leaderships() == {leaderless.leader_and_isr}


@pytest.mark.spec("CTL-47", "CTL-67", "CTL-57")
def test_a_follower_out_of_sync_goes_offline_without_a_write_and_one_of_a_deleted_topic_without_leader_and_isr() -> (
    None
):
    cluster, term, told = of_two()
    with term.batch.filling():
        term.replicas.move({T0: [3]}, R.OFFLINE)
    told.settle()
    with term.batch.filling():
        term.replicas.move({T0: [3]}, R.OFFLINE)
    assert told.receivers() == ([2], [1, 2, 3, 4], [(3, False)]) and not told.writes
    told.settle()
    term.context.deleting["t"] = None
    with term.batch.filling():
        term.replicas.move({T0: [2]}, R.OFFLINE)
    assert told.receivers() == ([], [], [(2, False)])
    assert cluster.state("t") == LeaderAndIsr(None, 2, (2,), 1)


@pytest.mark.spec("CTL-28", "CTL-63", "CTL-65", "CTL-68", "CTL-33", "CTL-32")
def test_the_states_a_term_begins_with() -> None:
    cluster = FakeCluster(9, 1, 2, 3, 4, properties=STABLE)
    names = {
        "led": [1, 2],
        "shrunk": [1, 3],
        "left": [1, 4],
        "lost": [3, 1],
        "hopeless": [3],
        "new": [2, 1],
        "never": [7, 8],
    }
    for name in ("led", "shrunk", "left", "lost", "hopeless"):
        cluster.create_topic(name, {0: names[name]}, unclean_leader_election_enable="false")
    cluster.kill(4)
    cluster.run()
    before = dict(cluster.ensemble.nodes)
    cluster.kill(9, 3)
    for name in ("new", "never"):
        cluster.zk.create(TopicZnode.path(name), TopicZnode({0: tuple(names[name])}).encode())
    cluster.sent.clear()
    cluster.log.lines.clear()
    cluster.run()
    context = ruling(cluster).context
    status = {name: context.status_of(TopicPartition(name, 0)) for name in names}
    assert status == {
        "led": P.ONLINE,
        "shrunk": P.ONLINE,
        "left": P.ONLINE,
        "lost": P.ONLINE,
        "hopeless": P.OFFLINE,
        "new": P.ONLINE,
        "never": P.NEW,
    }
    for name in ("led", "left", "hopeless"):  # a leader that lives stays; a failed election changes nothing
        path = PartitionStateZnode.path(TopicPartition(name, 0))
        assert cluster.ensemble.nodes[path] == before[path]
    assert (cluster.state("lost"), cluster.state("new")) == (
        LeaderAndIsr(1, 1, (1,), 2),
        LeaderAndIsr(2, 0, (2, 1), 2),
    )
    assert not cluster.exists(PartitionStateZnode.path(TopicPartition("never", 0)))
    replicas = {(p.topic, b): s for p, found in context.replica_status.items() for b, s in found.items()}
    assert {b for b in replicas.items() if b[1] is R.ONLINE} == {
        ((name, b), R.ONLINE) for name, ids in names.items() for b in ids if b in (1, 2)
    }
    assert replicas.pop(("shrunk", 3)) is R.OFFLINE, "step 8b takes it out of the ISR"
    assert cluster.state("shrunk") == LeaderAndIsr(1, 1, (1,), 2)
    assert {s for (_, b), s in replicas.items() if b in (3, 4, 7, 8)} == {R.DELETION_INELIGIBLE}
    for name, ids in names.items():
        receivers = {b for b, s in cluster.leader_and_isr() if s.topic == name}
        assert receivers == ({b for b in ids if b in (1, 2)} if name not in ("hopeless", "never") else set())
    told = cluster.log.told("Changed state of replica")
    for name, ids in names.items():
        for broker in ids:
            line = f"Changed state of replica {broker} for partition {name}-0 from OnlineReplica to OnlineReplica"
            assert (line in told) is (broker in (1, 2)), "state first, then the move to it"


@pytest.mark.spec("CTL-65", "CTL-39", "CTL-33")
@pytest.mark.parametrize("occasion", ["a broker starts", "a broker dies", "failover"])
def test_a_failed_election_changes_nothing_and_is_tried_again_at_each_occasion(occasion: str) -> None:
    cluster = FakeCluster(1, 2, 3, 4, 5, properties=STABLE)
    cluster.create_topic("t", {0: [2, 3]}, unclean_leader_election_enable="false")
    cluster.kill(3)
    cluster.run()
    cluster.kill(2)
    cluster.run()
    cluster.restart(3)
    term = ruling(cluster)
    before, leadership = cluster.ensemble.nodes[PartitionStateZnode.path(T0)], term.context.leadership[T0]
    assert cluster.state("t").leader is None and term.context.status_of(T0) is P.OFFLINE
    tried = "Controller 1 epoch 1 failed to change state for partition t-0 from OfflinePartition to OnlinePartition"
    cluster.log.lines.clear()
    cluster.restart(6)
    cluster.kill(6)
    cluster.run()
    assert cluster.log.told("Controller 1 epoch 1 failed") == [tried] * 2
    assert cluster.ensemble.nodes[PartitionStateZnode.path(T0)] == before
    assert term.context.leadership[T0] == leadership and term.context.status_of(T0) is P.OFFLINE
    allowed = ConfigZnode.encode({"unclean.leader.election.enable": "true"})
    cluster.zk.set(ConfigZnode.path("topics", "t"), allowed, -1)
    cluster.run()
    assert cluster.state("t").leader is None, "until there is an occasion"
    if occasion == "a broker starts":
        cluster.restart(6)
    else:
        cluster.kill(4 if occasion == "a broker dies" else 1)
        cluster.run()
    assert cluster.state("t").leader == 3
